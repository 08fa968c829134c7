"""The page of measured results: importing its archives into an empty store and reporting prints the same bytes."""

from __future__ import annotations

import importlib.util
import os
import re
from itertools import takewhile
from pathlib import Path
from types import ModuleType

import pytest

from harness.stores.directory.store import DirectoryStore

ROOT = Path(__file__).parents[2]
SUMMARY = ROOT / "docs" / "measured.md"


@pytest.fixture(scope="module")
def page() -> ModuleType:
    """The script that makes the page."""
    spec = importlib.util.spec_from_file_location("make_page", ROOT / "reports" / "measured" / "make_page.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "studies",
    # The second has CB and C³ of the same runs, on which premises are checked.
    [("ablation_calr_ms", "unfairness"), pytest.param((), marks=pytest.mark.long)],
    ids=["ablation", "all"],
)
def test_the_archives_print_the_page(
    studies: tuple[str, ...], page: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda file: None)  # thousands of small files, none of which must survive anything
    if studies:
        for study in studies:
            name = f"{study}-small.tar.gz"
            (tmp_path / name).symlink_to(page.FOLDER / name)
        monkeypatch.setattr(page, "FOLDER", tmp_path)
    page.fill(tmp_path)
    found = page.REPORT.findall(page.PAGE.read_text())
    assert len(found) == 12
    for _, command, text, _ in found:
        if not studies or f" {studies[0]} " in command:
            assert page.printed(command, tmp_path) + "\n" == text


def test_what_was_measured_twice_is_what_both_stores_say(page: ModuleType, tmp_path: Path) -> None:
    """The page's table of trials that were made once more."""
    (tmp_path / "repeated").mkdir()
    for name in ("ablation_calr_ms", "repeated/unfairness", "repeated/clustering"):
        (tmp_path / f"{name}-small.tar.gz").symlink_to(page.FOLDER / f"{name}-small.tar.gz")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        patch.setattr(page, "FOLDER", tmp_path)
        page.fill(tmp_path / "stores")
    first, again = (_taus(tmp_path / "stores" / name) for name in ("runs", "repeated"))
    rows = re.findall(r"\| (.) \| (.) \| (\d) \| ([\d.]+) \| ([\d.]+) \| ([+-][\d.]+) \|", SUMMARY.read_text())
    assert {(calr == "✓", ms == "✓", int(seed)) for calr, ms, seed, *_ in rows} == set(first) & set(again)
    for calr, ms, seed, *shown in rows:
        one, other = (side[calr == "✓", ms == "✓", int(seed)] for side in (first, again))
        assert shown == [f"{one:.3f}", f"{other:.3f}", f"{other - one:+.3f}"]


def _taus(store: Path) -> dict[tuple[bool, bool, int], float]:
    """τ of SPOS by CaLR, MS and seed, as the ablation has them."""
    found = {}
    for run in DirectoryStore(store).runs():
        config = run.trial["config"]
        schedule, clusters = config["schedule"], config["clusters"]["name"]
        if config["method"]["name"] == "spos" and schedule.get("function") != "reversed" and clusters != "random":
            which = schedule["name"] == "calr", clusters == "operation", config["seed"]
            found[which] = (run.result or {})["kendall_tau"]
    return found


def test_the_summary_shows_tables_of_the_page(page: ModuleType) -> None:
    """Each of its tables of runs is a part of what a report prints."""
    printed = page.PAGE.read_text()
    tables = re.findall(r"(?m)^\| (?:Method|Contrast) +\|.*\n(?:\|.*\n)+", SUMMARY.read_text())
    assert len(tables) == 2
    assert all(table in printed for table in tables)


def test_the_readme_shows_the_values_of_the_page() -> None:
    """Its table has the demo's values and, behind them, the measured τ and top-1 of rows and of references."""
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in _table(SUMMARY)]
    beside = [[cell.strip() for cell in line.split("|")[1:-1]] for line in _table(ROOT / "README.md")]
    shown = [cells[0].index(heading) for heading in ("Method", "CaLR", "MS", "Kendall's τ", "Top-1 acc. (%)")]
    measured = [[row[place] for place in shown] for row in cells[2:] if not row[0].startswith("Best of")]
    assert [row[:3] + row[5:] for row in beside[2:]] == measured and len(measured) == 15


def _table(document: Path) -> list[str]:
    """The lines of the ablation's table."""
    lines = document.read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if re.match(r"\| Method +\| +CaLR +\| +MS +\| .*τ", line))
    return list(takewhile(lambda line: line.startswith("|"), lines[first:]))
