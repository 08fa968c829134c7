"""The report's page in a real browser: it sorts, tells where values come from, complains of nothing, asks nobody."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import environment
from harness.cli import main
from harness.components.preset import get_preset
from harness.stores.directory.store import DirectoryStore
from harness.study.expansion import expand
from harness.study.layout import Column, Row
from harness.study.study import Study
from tests.browser import Browser
from tests.stored_runs import store_run

pytestmark = pytest.mark.long

STUDY = """
from harness.study import Bars, Column, Figure, Row, Study

tau, top1 = Column("Kendall's τ", "kendall_tau"), Column("Top-1 (%)", "top1_accuracy", digits=1)
study = Study(
    "mine",
    "Mine",
    [Row({"Method": f"m{number}", "CaLR": number > 1}, {"train.epochs": number}) for number in (1, 2, 3, 4)],
    [tau, top1],
    figures=[Figure("bars", "Bars", [Bars("", tau)])],
)
"""
VALUES = {1: (0.5, 9.0), 2: (-0.25, 61.0), 3: (0.75, 100.0)}
"""By epochs; of the fourth row there is no run."""
FIRST = "[...document.querySelectorAll('#table-mine tbody tr')].map((row) => row.cells[0].textContent)"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a small store."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "mine.py").write_text(STUDY)
    rows = [Row({"Method": str(number)}, {"train.epochs": number}) for number in VALUES]
    for request in expand(Study("same trials", "", rows, [Column("", "kendall_tau")]), get_preset("tiny"), 2):
        tau, top1 = VALUES[request.row + 1]
        machine = environment.describe() | {"hostname": "node7", "commit": "c0ffee", "dirty": False}
        store_run(folder / "runs", request, tau + request.seed / 100, top1, machine=machine)
    report = ["report", str(folder / "mine.py"), "--preset", "tiny", "--store", str(folder / "runs")]
    assert main([*report, "--format", "html", "--out", str(folder / "out")]) == 0
    return folder / "out" / "index.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    try:
        started = Browser()
    except FileNotFoundError as error:
        pytest.fail(str(error))
    with started:
        yield started


@pytest.fixture(params=[1400, 390], ids=["desktop", "phone"])
def opened(request: pytest.FixtureRequest, browser: Browser, page: Path) -> Iterator[Browser]:
    """The page at both sizes; afterwards nobody may have complained, or have been asked for anything else."""
    browser.errors.clear()
    browser.requests.clear()
    browser.open(page, request.param)
    yield browser
    browser.evaluate("0")  # whatever is still on its way comes before the answer
    assert browser.errors == []
    assert [url for url in browser.requests if not url.startswith("data:")] == [page.resolve().as_uri()]


def test_headings_sort_by_value_up_down_and_back(opened: Browser) -> None:
    heading = "#table-mine thead th:nth-child(3)"
    assert opened.evaluate(FIRST) == ["m1", "m2", "m3", "m4"]
    for order, names in [
        ("ascending", ["m2", "m1", "m3", "m4"]),  # what has no value stands last, whichever way
        ("descending", ["m3", "m1", "m2", "m4"]),
        ("none", ["m1", "m2", "m3", "m4"]),
    ]:
        opened.click(f"{heading} button")
        assert opened.evaluate(FIRST) == names
        assert opened.evaluate(f"document.querySelector('{heading}').ariaSort") == order


def test_headings_sort_by_keyboard_and_numbers_as_numbers(opened: Browser) -> None:
    opened.evaluate("document.querySelector('#table-mine thead th:nth-child(4) button').focus()")
    opened.press("Enter")
    # 9.0, 61.0, 100.0: as text the last would be the first.
    assert opened.evaluate(FIRST) == ["m1", "m2", "m3", "m4"]
    opened.press("Enter")
    assert opened.evaluate(FIRST) == ["m3", "m2", "m1", "m4"]


def test_a_value_shows_the_runs_behind_it(opened: Browser, page: Path) -> None:
    dialog = "document.getElementById('provenance')"
    assert opened.evaluate(f"{dialog}.open") is False
    opened.click("#table-mine tbody tr:nth-child(3) td.number button")
    assert opened.evaluate(f"{dialog}.open") is True
    text = opened.evaluate(f"{dialog}.innerText")
    assert "Kendall's τ, digits" in text and "0.75" in text and "0.76" in text
    opened.evaluate(f"{dialog}.querySelectorAll('details').forEach((one) => {{ one.open = true; }})")
    text = opened.evaluate(f"{dialog}.innerText")
    runs = [
        run for run in DirectoryStore(page.parents[1] / "runs").runs() if run.trial["config"]["train"]["epochs"] == 3
    ]
    assert len(runs) == 2 and all(run.id in text for run in runs)
    for told in ("c0ffee", "node7", "2026-01-01T10:00:00", "train.epochs", "schedule.name", "tiny", runs[0].key):
        assert told in text
    opened.press("Escape")
    assert opened.evaluate(f"{dialog}.open") is False


def test_a_missing_value_says_why_and_a_figure_names_its_runs(opened: Browser) -> None:
    opened.click("#table-mine tbody tr:nth-child(4) td.number button")
    assert "missing" in opened.evaluate("document.getElementById('provenance').innerText")
    opened.click("#provenance .close")
    opened.evaluate("document.querySelector('#figure-mine-bars button.value').focus()")
    opened.press("Enter")
    assert opened.evaluate("document.querySelectorAll('#provenance details').length") == 6


def test_nothing_is_wider_than_the_window(opened: Browser) -> None:
    """Tables and figures that are wider scroll by themselves."""
    assert opened.evaluate("document.documentElement.scrollWidth <= window.innerWidth") is True
    opened.click("#table-mine tbody tr:nth-child(1) td.number button")
    opened.evaluate("document.querySelectorAll('dialog details').forEach((one) => { one.open = true; })")
    assert opened.evaluate("(({scrollWidth, clientWidth}) => scrollWidth <= clientWidth)(provenance)") is True
    opened.press("Escape")
    assert (
        opened.evaluate("document.querySelector('#figure-mine-bars svg').getBoundingClientRect().width > 300") is True
    )
