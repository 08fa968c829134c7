"""The page of measured results: importing its archives into an empty store and reporting prints the same bytes."""

from __future__ import annotations

import importlib.util
import os
import re
from itertools import takewhile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


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
    page.fill(tmp_path / "runs")
    found = page.REPORT.findall((ROOT / "docs" / "measured.md").read_text())
    assert len(found) == 10
    for _, command, text, _ in found:
        if not studies or f" {studies[0]} " in command:
            assert page.printed(command, tmp_path / "runs") + "\n" == text


def test_the_readme_shows_the_values_of_the_page() -> None:
    """Its table has the demo's values and, behind them, the measured ones."""
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in _table(ROOT / "docs" / "measured.md")]
    beside = [[cell.strip() for cell in line.split("|")[1:-1]] for line in _table(ROOT / "README.md")]
    assert [row[:3] + row[5:] for row in beside[2:]] == cells[2:] and len(cells) == 17


def _table(document: Path) -> list[str]:
    """The lines of the ablation's table."""
    lines = document.read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if re.match(r"\| Method +\| +CaLR +\| +MS +\| .*τ", line))
    return list(takewhile(lambda line: line.startswith("|"), lines[first:]))
