"""The report's page in a real browser: folding, sorting, provenance; it complains of nothing and asks nobody."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness import environment
from harness.cli import main
from harness.components.preset import get_preset
from harness.stores.directory.store import DirectoryStore
from harness.study.expansion import expand
from harness.study.layout import Column, Row
from harness.study.study import Study
from tests.long.every_study import store_every_study
from tests.stored_runs import store_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.long

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 60_000.0
"""Milliseconds until an element is taken for absent."""
WIDTHS = {"desktop": 1400, "phone": 390}
TALLEST = 800
"""Pixels per study, on average, of the page of every study at 1400 pixels, with comparisons folded."""
STUDY = """
from harness.study import Bars, Column, Figure, Row, Study

tau, top1 = Column("Kendall's τ", "kendall_tau"), Column("Top-1 (%)", "top1_accuracy", digits=1)
study = Study(
    "mine",
    "Mine",
    [Row({"Method": f"m{number}", "CaLR": number > 1}, {"train.epochs": number}) for number in (1, 2, 3, 4)],
    [
        *(tau, top1, Column("Images", "images", digits=0, best="min")),
        Column("Training (h)", "wall_seconds", scale=1 / 3600),
    ],
    figures=[Figure("bars", "Bars", [Bars("", tau)])],
    remarks=["What the rows are."],
)
"""
VALUES = {1: (0.5, 9.0), 2: (-0.25, 61.0), 3: (0.75, 100.0)}
"""By epochs; of the fourth row there is no run."""
FIRST = "[...document.querySelectorAll('#table-mine tbody tr')].map((row) => row.cells[0].textContent)"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a small store."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "mine.py").write_text(STUDY)
    rows = [Row({"Method": str(number)}, {"train.epochs": number}) for number in VALUES]
    for request in expand(Study("same trials", "", rows, [Column("", "kendall_tau")]), get_preset("tiny"), 2):
        tau, top1 = VALUES[request.row + 1]
        machine = environment.describe() | {"hostname": "node7", "commit": "c0ffee", "dirty": False}
        cost = {"images": 100 - request.row}
        store_run(folder / "runs", request, tau + request.seed / 100, top1, machine=machine, cost=cost)
    report = ["report", str(folder / "mine.py"), "--preset", "tiny", "--seeds", "2", "--compare"]
    assert main([*report, "--store", str(folder / "runs"), "--format", "html", "--out", str(folder / "out")]) == 0
    return folder / "out" / "index.html"


@pytest.fixture(scope="module")
def every_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a store with all studies."""
    folder = tmp_path_factory.mktemp("every")
    store_every_study(folder / "runs", "demo")
    report = ["report", "--preset", "demo", "--compare", "--store", str(folder / "runs"), "--format", "html"]
    assert main([*report, "--out", str(folder / "out")]) == 0
    return folder / "out" / "index.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.fail(f"no browser: none of {', '.join(PROGRAMS)} is on the PATH (Debian: apt install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        opened = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def show(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Shows a file; afterwards nobody may have complained, or have been asked for anything else."""
    complaints: list[str] = []
    asked: list[str] = []
    contexts = []

    def shown(file: Path, width: int, scheme: Any = "light") -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(file.resolve().as_uri())
        expected.add(file.resolve().as_uri())
        return page

    expected: set[str] = set()
    yield shown
    for context in contexts:
        context.close()  # whatever is still on its way comes before
    assert complaints == []
    assert {url for url in asked if not url.startswith("data:")} == expected


@pytest.fixture(params=list(WIDTHS.values()), ids=list(WIDTHS))
def page(request: pytest.FixtureRequest, show: Callable[..., Page], written: Path) -> Page:
    """The small page at both sizes."""
    return show(written, request.param)


def heading(page: Page, text: str) -> Any:
    return page.locator("#table-mine thead th").filter(has_text=text)


def test_headings_sort_the_best_first_then_the_worst_and_back(page: Page) -> None:
    assert page.evaluate(FIRST) == ["m1", "m2", "m3", "m4"]
    for order, names in [
        ("descending", ["m3", "m1", "m2", "m4"]),  # what has no value stands last, whichever way
        ("ascending", ["m2", "m1", "m3", "m4"]),
        ("none", ["m1", "m2", "m3", "m4"]),
    ]:
        heading(page, "Kendall's τ").locator("button").click()
        assert page.evaluate(FIRST) == names
        assert heading(page, "Kendall's τ").get_attribute("aria-sort") == order
    heading(page, "Images").locator("button").click()
    assert heading(page, "Images").get_attribute("aria-sort") == "ascending"
    assert page.evaluate(FIRST) == ["m3", "m2", "m1", "m4"]


def test_headings_sort_by_keyboard_and_numbers_as_numbers(page: Page) -> None:
    heading(page, "Top-1").locator("button").focus()
    page.keyboard.press("Enter")
    # 9.0, 61.0, 100.0: as text the last would be the first.
    assert page.evaluate(FIRST) == ["m3", "m2", "m1", "m4"]


def test_a_value_shows_the_runs_behind_it(page: Page, written: Path) -> None:
    dialog = page.locator("#provenance")
    assert not dialog.is_visible()
    page.locator("#table-mine tbody tr:nth-child(3) td.number button").first.click()
    assert dialog.is_visible()
    text = dialog.inner_text()
    assert "Kendall's τ, digits" in text and "0.75" in text and "0.76" in text
    assert "train.epochs" not in text  # the configuration is folded
    for one in dialog.locator("summary").all():
        one.click()
    text = dialog.inner_text()
    stored = DirectoryStore(written.parents[1] / "runs").runs()
    runs = [run for run in stored if run.trial["config"]["train"]["epochs"] == 3]
    assert len(runs) == 2 and all(run.id in text for run in runs)
    for told in ("c0ffee", "node7", "2026-01-01T10:00:00", "train.epochs", "schedule.name", "tiny", runs[0].key):
        assert told in text
    page.keyboard.press("Escape")
    assert not dialog.is_visible()


def test_a_missing_value_says_why_and_a_figure_names_its_runs(page: Page) -> None:
    page.locator("#table-mine tbody tr:nth-child(4) td.number button").first.click()
    assert "missing" in page.locator("#provenance").inner_text()
    page.locator("#provenance .close").click()
    assert page.locator("details.fold[open] > summary", has_text="Figures").count() == 1  # of a study of one's own
    page.locator("#figure-mine-bars button.value").focus()
    page.keyboard.press("Enter")
    assert page.locator("#provenance details").count() == 6


def test_comparisons_and_notes_are_folded_until_one_opens_them(page: Page) -> None:
    grid, note = page.locator("#grid-mine-comparisons"), page.locator("#mine").get_by_text("What the rows are.")
    assert not grid.is_visible() and not note.is_visible()
    folded = page.locator("summary", has_text="Comparisons")
    assert "3 comparisons of rows" in folded.inner_text() and "undecided" in folded.inner_text()
    folded.click()
    assert grid.is_visible()
    rests = grid.get_by_text("Sign-flip p", exact=True).first
    assert not rests.is_visible()
    grid.locator("tbody summary").first.click()
    assert rests.is_visible()
    page.locator(".folds > details > summary", has_text="Notes").click()
    assert note.is_visible()


def test_the_first_screen_says_what_was_run(page: Page) -> None:
    head = page.locator("header")
    for told in ("node7", "c0ffee", "0, 1", "6 behind 1 study", "spos", "digits", "runs"):
        assert told in head.inner_text()
    assert "3 comparisons of rows" in page.locator("#verdicts").inner_text()  # after the tables
    assert "node7" in page.evaluate(
        "[...document.querySelectorAll('header dd')].filter((one) => one.getBoundingClientRect().bottom < innerHeight)"
        ".map((one) => one.textContent)"
    )


def test_units_fit_the_numbers(page: Page) -> None:
    assert heading(page, "Training (s)").count() == 1  # 2.5 s are 0.0007 h
    assert "2.50" in page.locator("#table-mine tbody tr").first.inner_text()


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS.keys())
def test_contents_stay_and_lead_to_a_study(width: int, show: Callable[..., Page], every_study: Path) -> None:
    page = show(every_study, width)
    contents = page.locator("#contents > summary")
    link = page.locator("#contents a[href='#num_clusters']")
    assert link.is_visible() is (width > 1000)
    if not link.is_visible():
        contents.click()
    link.click()
    page.wait_for_function("Math.abs(document.querySelector('#num_clusters').getBoundingClientRect().top) < 100")
    place = contents.bounding_box()
    assert place is not None and 0 <= place["y"] < 100
    assert link.is_visible() is (width > 1000)  # in a narrow window they make room


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS.keys())
def test_nothing_is_wider_than_the_window(
    width: int, scheme: str, show: Callable[..., Page], every_study: Path, written: Path
) -> None:
    """Tables that are wider scroll by themselves; figures shrink."""
    page = show(every_study, width, scheme)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.evaluate(
        "[...document.querySelectorAll('.sheet svg, .dots svg')].every((one) => one.getBoundingClientRect().right"
        " <= window.innerWidth && one.getBoundingClientRect().width > 250)"
    )
    page = show(written, width, scheme)
    page.locator("#table-mine tbody tr:nth-child(1) td.number button").first.click()
    page.evaluate("document.querySelectorAll('dialog details').forEach((one) => { one.open = true; })")
    assert page.evaluate("(({scrollWidth, clientWidth}) => scrollWidth <= clientWidth)(provenance)")


def test_light_and_dark_are_told_apart_and_legible(show: Callable[..., Page], written: Path) -> None:
    """Text and ground are far apart in brightness, in both schemes."""
    bright = "((text) => { const [r, g, b] = text.match(/\\d+/g).map(Number); return (r + g + b) / 765; })"
    for scheme, ground in (("light", 1.0), ("dark", 0.0)):
        page = show(written, 1400, scheme)
        style = "getComputedStyle(document.body)"
        behind, before = (page.evaluate(f"{bright}({style}.{name})") for name in ("backgroundColor", "color"))
        assert abs(behind - ground) < 0.15 and abs(before - behind) > 0.7


def test_the_page_of_every_study_is_in_the_papers_order_and_not_too_tall(
    show: Callable[..., Page], every_study: Path
) -> None:
    page = show(every_study, 1400)
    names = page.evaluate("[...document.querySelectorAll('section')].map((one) => one.id)")
    assert page.evaluate("document.documentElement.scrollHeight") <= TALLEST * len(names)
    assert names[:4] == ["training_curves", "mobilenet_main", "nb201_main", "ablation_calr_ms"]
    assert names.index("sota") < names.index("darts_space") < names.index("gamma_grid") < names.index("sota_plus_ours")
    headings = page.locator("#table-nb201_main thead th").all_inner_texts()
    assert sum(text.startswith("Ours") for text in headings) == 1
    assert sum(text.startswith("Paper") for text in headings) == 4 and not any("Difference" in one for one in headings)
    assert page.locator("header").get_by_text("nowhere in this report").count() == 1
    # Every table has its points.
    assert page.locator("section:not(#verdicts):not(:has(.dots))").evaluate_all(
        "(all) => all.map((one) => one.id)"
    ) == ["gradient_similarity"]
