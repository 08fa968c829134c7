"""The live page in a real browser, over a store in which a study is running: here, and by two workers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.cli import main
from tests.long.test_html_page import browser as browser
from tests.processes import all_gone

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.long

PATIENCE = 120_000.0
"""Milliseconds until an element is taken for absent."""
SCREENSHOTS = "HARNESS_SCREENSHOTS"
"""Names a folder that keeps the pictures, to be looked at."""
STUDY = """
from harness.study import Column, Row, Study

study = Study(
    "lively",
    "Trials that take a while",
    [Row({"Schedule": name}, {"schedule.name": name}) for name in ("cosine", "calr")],
    [Column("Kendall's τ", "kendall_tau"), Column("Top-1 (%)", "top1_accuracy", digits=1)],
)
"""
WITH = ["with", "train.epochs=1000"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project with a few done trials of a short study and a study of long trials."""
    made = tmp_path_factory.mktemp("project")
    (made / "studies").mkdir()
    (made / "studies" / "lively.py").write_text(STUDY)
    run = ["run", "lively", "--preset", "tiny", "--seeds", "3", "--no-references", "--quiet"]
    subprocess.run([sys.executable, "-m", "harness", *run], cwd=made, check=True)
    yield made


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """The printed address of a server on the project's store."""
    command = [sys.executable, "-m", "harness", "view"]
    server = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    yield server.stdout.readline().strip()
    server.terminate()
    assert server.wait(timeout=60) is not None


@pytest.fixture
def show(browser: Browser, address: str) -> Iterator[Any]:
    """Opens the page at a width; afterwards nothing may have failed, or have been loaded from elsewhere."""
    complaints: list[str] = []
    asked: list[str] = []
    contexts = []

    def opened(width: int = 1400, scheme: Any = "light") -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()
    origin = address.partition("/?")[0]
    assert complaints == []
    assert [url for url in asked if not url.startswith((origin, "data:", "blob:"))] == []


def picture(page: Page, name: str) -> None:
    """Keep a picture if a folder for it is named."""
    if folder := os.environ.get(SCREENSHOTS):
        page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)


def test_trials_of_a_run_and_of_two_workers_appear_without_a_reload(show: Any, folder: Path) -> None:
    page = show()
    page.get_by_text("No trial is running.").wait_for()
    more = ["lively", "--preset", "tiny", "--seeds", "8"]
    alone = ["run", *more, "--no-references", "--jobs", "1", "--quiet", *WITH]
    commands = [alone, ["worker", *more, *WITH], ["worker", *more, *WITH]]
    started = [subprocess.Popen([sys.executable, "-m", "harness", *one], cwd=folder) for one in commands]
    try:
        page.locator("#working table tbody tr").nth(1).wait_for()  # several at once
        page.locator("#working").get_by_text(re.compile(r"\d+ of 1000")).first.wait_for()  # the steps that it has done
        picture(page, "studies")
        page.locator("#working a").first.click()
        page.locator("#log").get_by_text(re.compile(r"epoch \d+/1000")).wait_for()
        before = page.locator("#log").inner_text()
        page.wait_for_function("(text) => document.getElementById('log').innerText.length > text.length", arg=before)
        picture(page, "running")
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(timeout=120)
    assert all_gone([process.pid for process in started])


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (390, "dark")])
def test_tables_curves_and_comparison(show: Any, width: int, scheme: str) -> None:
    page = show(width, scheme)
    page.get_by_role("link", name="Trials that take a while").click()
    page.locator("#curves .scatterlayer").wait_for()
    for name in ("range", "sd", "t", "none"):
        page.locator("select[name=band]").select_option(name)
    page.locator("input[name=single]").check()
    page.locator("select[name=axis]").select_option("seconds")
    page.get_by_text("Mean over seeds, 4 runs.").wait_for()  # the preset plans two seeds
    assert "axis=seconds" in page.url and "single=1" in page.url
    page.locator("#section button.value").first.click()
    page.locator("#opened").get_by_role("link").first.wait_for()
    picture(page, f"study-{width}")
    page.keyboard.press("Escape")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    page.get_by_role("link", name="Runs", exact=True).click()
    rows = page.locator("#runs tbody tr:not(.space)")
    rows.nth(5).wait_for()
    total = rows.count()
    page.locator("input[name=where]").fill("schedule.name == 'calr' and not overridden")
    page.get_by_role("button", name="Filter").click()
    page.get_by_text(re.compile(rf"3 of {total} runs")).wait_for()
    page.locator("input[name=where]").fill("schedul.name == 'calr'")
    page.get_by_role("button", name="Filter").click()
    page.locator("#wrong").get_by_text("schedule_name").wait_for()
    page.locator("input[name=where]").fill("")
    page.get_by_role("button", name="Filter").click()
    page.get_by_text(f"{total} of {total} runs").wait_for()
    page.get_by_role("button", name=re.compile("kendall_tau")).click()
    place = page.locator("#runs thead th").all_inner_texts().index("kendall_tau")
    shown = [float(text) for row in rows.all() if (text := row.locator("td").nth(place).inner_text())]
    assert shown == sorted(shown, reverse=True) and len(shown) >= 6
    picture(page, f"runs-{width}")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for number in range(3):
        rows.nth(number).locator("input").check()
    with page.expect_download() as saved:
        page.get_by_role("link", name="CSV").click()
    assert Path(saved.value.path()).read_text().startswith("run_id,status,")

    page.get_by_role("link", name="Compare 3 runs").click()
    page.locator("#differences tbody tr").first.wait_for()
    page.locator("#predicted .scatterlayer").wait_for()
    assert page.locator("#found img").count() == 3
    with page.expect_download() as saved:
        page.get_by_role("button", name="PDF").click()
    assert Path(saved.value.path()).read_bytes().startswith(b"%PDF")
    picture(page, f"compare-{width}")


def test_the_exported_site_opens_from_a_file(browser: Browser, folder: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    study, store = str(folder / "studies" / "lively.py"), str(folder / "runs")
    assert main(["view", study, "--store", store, "--export", str(site)]) == 0
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    complaints: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.get_by_role("link", name="Trials that take a while").click()
    page.locator("#curves .scatterlayer").wait_for()
    page.get_by_role("link", name="Runs", exact=True).click()
    page.locator("#runs tbody input").nth(1).check()
    page.locator("#runs tbody input").nth(2).check()
    page.get_by_role("link", name="Compare 2 runs").click()
    page.locator("#differences tbody tr").first.wait_for()
    page.locator("#curves .scatterlayer").wait_for()
    page.locator("#chosen a").first.click()
    page.locator("#run-curves .scatterlayer").first.wait_for()
    context.close()
    assert complaints == [] and all(url.startswith(("file:", "data:")) for url in asked)
