"""The exported site in a browser, from files: every number of every table is the one that `report` prints.

`HARNESS_SITE_STORE` names the store; without it, one with invented runs of every study is made. `HARNESS_SITE` names a
folder that keeps the site, and pictures of two of its pages; a site that is there already is compared as it is.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.cli import main
from tests.long.every_study import store_every_study
from tests.long.test_html_page import browser as browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.long

STORE, KEPT = "HARNESS_SITE_STORE", "HARNESS_SITE"
PER = {("h", "min"): 60, ("h", "s"): 3600, ("h", "ms"): 3.6e6, ("MB", "kB"): 1024, ("M", "k"): 1000}
"""How many of the page's smaller unit make one of the report's."""
TABLE = """(name) => [...document.querySelectorAll(`${name} tbody tr`)].map((row) => [...row.cells].map(
    (cell) => [cell.className, cell.textContent.trim()]))"""
GRIDS = """() => [...document.querySelectorAll('figure.grid')].map((grid) => [
    grid.querySelector('.title').textContent.trim(),
    [...grid.querySelectorAll('tbody tr')].map((row) => [...row.cells].map(
        (cell) => (cell.querySelector('summary') ?? cell).textContent.trim()))])"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if named := os.environ.get(STORE):
        return Path(named)
    made = tmp_path_factory.mktemp("every") / "runs"
    store_every_study(made, "tiny")
    return made


@pytest.fixture(scope="module")
def site(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(os.environ.get(KEPT) or tmp_path_factory.mktemp("site") / "site")
    if (folder / "index.html").exists():
        return folder
    assert main(["view", "--store", str(store), "--export", str(folder)]) == 0
    return folder


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page that complains of nothing and loads nothing but files."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    opened, wrong, asked = context.new_page(), list[str](), list[str]()
    opened.on("console", lambda message: wrong.append(message.text))
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("request", lambda request: asked.append(request.url))
    yield opened
    context.close()
    assert wrong == [] and all(url.startswith(("file:", "data:")) for url in asked)


def printed(store: Path, preset: str, study: str) -> dict[str, list[list[str]]]:
    """The tables of `report --format markdown` by title: the headings, then the rows, without emphasis."""
    text = io.StringIO()
    command = ["report", study, "--preset", preset, "--compare", "--references", "--store", str(store)]
    with contextlib.redirect_stdout(text):
        assert main(command) == 0
    found: dict[str, list[list[str]]] = {}
    for part in re.split(r"(?m)^### ", text.getvalue())[1:]:
        title, _, rest = part.partition("\n")
        lines = [line for line in rest.splitlines() if line.startswith("|")]
        cells = [re.split(r"(?<!\\)\|", line.strip())[1:-1] for line in (lines[0], *lines[2:])]
        found[_plain(title)] = [[_plain(cell) for cell in row] for row in cells]
    return found


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text.strip().replace("**", ""))


def numbers(text: str) -> list[str]:
    return re.findall(r"[-+]?\d[\d.,]*", text)


def unit(heading: str) -> str:
    found = re.search(r"\((\w+)\)$", heading)
    return found[1] if found else ""


def agree(told: str, shown: str, factor: float) -> bool:
    """Whether a cell of the report and one of the page say the same, up to rounding where their units differ."""
    told, shown = (re.sub(r"[()]|\s(?=≈|†)", "", text) for text in (told, shown))
    if factor == 1:
        return told.split() == shown.split()
    counts = [re.findall(r"\d+ of \d+ seeds?", text) for text in (told, shown)]
    told, shown = (re.sub(r"\d+ of \d+ seeds?", "", text) for text in (told, shown))
    if counts[0] != counts[1] or len(numbers(told)) != len(numbers(shown)):
        return False

    def half(text: str) -> float:
        return 0.5 * 10.0 ** -len(text.partition(".")[2])

    return all(
        abs(float(one) * factor - float(other)) <= half(one) * factor + half(other) + 1e-9
        for one, other in zip(numbers(told), numbers(shown), strict=True)
    )


def test_the_numbers_of_every_table_are_those_of_the_report(site: Path, store: Path, page: Page) -> None:
    wrong: list[Any] = []
    tables, cells, grids = 0, 0, 0
    for file in sorted(site.glob("study/*/*.html")):
        preset, study = file.parent.name, file.stem
        page.goto(file.as_uri())
        page.locator("#section table").first.wait_for()
        known = printed(store, preset, study)
        title = page.locator(f"#table-{study} .title").inner_text()
        head, *told = known[title]
        shown = page.evaluate(TABLE, f"#table-{study}")
        labels = sum("number" not in kind.split() for kind, _ in shown[0])
        headings = page.locator(f"#table-{study} thead th").all_inner_texts()
        units = [unit(text) for text in headings if not text.startswith("Paper")]
        assert len(told) == len(shown), study
        for line, row in zip(told, shown, strict=True):
            ours = [text for kind, text in row if "measured" in kind.split()]
            for heading, one, other in zip(head[labels:], line[labels:], ours, strict=True):
                if not other and "†" in one:  # quoted: in the paper's column
                    other = next(text for kind, text in row if "paper" in kind.split() and text in one) + "†"
                large = unit(heading)
                factors = [1.0] if large in units else [PER[large, small] for small in units if (large, small) in PER]
                factor = factors[0] if factors else 1.0
                cells += 1
                if not agree(one, other, factor):
                    wrong.append((study, line[:labels], heading, one, other))
        tables += 1
        for name, rows in page.evaluate(GRIDS):
            if name not in known:  # what rows cost until a target: in the page alone
                assert "target" in name or "Time" in name, name
                continue
            for line, row in zip(known[name][1:], rows, strict=True):
                grids += 1
                same = [[numbers(cell) for cell in cells_of] for cells_of in (line, row)]
                if same[0] != same[1]:
                    wrong.append((study, name, line, row))
    print(f"{tables} tables with {cells} cells, {grids} lines of comparisons and references")
    assert not wrong, "\n".join(map(str, wrong))
    assert tables and cells


def test_its_pages_open_from_files(site: Path, page: Page) -> None:
    page.goto((site / "index.html").as_uri())
    page.locator("#studies a").first.wait_for()
    if kept := os.environ.get(KEPT):
        page.screenshot(path=f"{kept}-studies.png", full_page=True)
    page.locator("a[href*='ablation_calr_ms']").first.click()
    page.locator("#curves .scatterlayer").wait_for()
    page.locator("#section button.value").first.click()
    page.locator("#opened").get_by_role("link").first.wait_for()
    page.keyboard.press("Escape")
    if kept:
        page.screenshot(path=f"{kept}-study.png", full_page=True)
    page.get_by_role("link", name="Runs", exact=True).click()
    page.locator("#runs tbody tr").nth(5).wait_for()
