"""The site of the documents: it builds without a warning, loads nothing from another host, and its tutorial works."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import pytest

from harness.environment import PROJECT
from tests.test_documents import DOCS

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", str(folder / "trees"), str(DOCS)]
    done = subprocess.run([*command, str(folder / "pages")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "pages"


def test_it_has_a_page_per_document_and_per_command(site: Path) -> None:
    assert {file.stem for file in DOCS.glob("*.md")} < {file.stem for file in site.glob("*.html")}
    pages = {file.stem: file.read_text() for file in (site / "commands").glob("*.html")}
    assert "harness store export" in pages["store"] and "--preset" in pages["run"]
    assert "one row per run" in (site / "api.html").read_text().lower()


def test_it_loads_nothing_from_another_host(site: Path) -> None:
    loaded = re.compile(r"""<(?:script|img|iframe)[^>]*\ssrc=["'](?:https?:)?//|<link[^>]*href=["'](?:https?:)?//""")
    imported = re.compile(r"""(?:@import|url\()\s*["']?(?:https?:)?//""")
    for page in site.rglob("*.html"):
        assert not loaded.search(page.read_text()), page
    for sheet in site.rglob("*.css"):
        assert not imported.search(sheet.read_text()), sheet


class Page(HTMLParser):
    """The links of a page, and the anchors that it has."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.feed(file.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.anchors |= {value for name, value in attrs if name == "id" and value}
        self.links += [value for name, value in attrs if name in ("href", "src") and value]


def test_links_and_anchors_lead_somewhere(site: Path) -> None:
    pages = {file.resolve(): Page(file) for file in site.rglob("*.html")}
    links = [(file, link) for file, page in pages.items() for link in page.links if not urlsplit(link).scheme]
    for file, link in links:
        path, anchor = urldefrag(link)
        target = (file.parent / unquote(path.partition("?")[0])).resolve() if path else file
        assert target.exists(), f"{file.name}: {link}"
        assert not anchor or target not in pages or unquote(anchor) in pages[target].anchors, f"{file.name}: {link}"
    assert len(links) > 1000


@pytest.mark.parametrize("page", ["tutorial.md", "figures.md"])
def test_a_page_works_from_top_to_bottom(page: str, tmp_path: Path) -> None:
    """Its files are written and its commands run in order, with the preset `tiny` in place of `demo`."""
    text = (DOCS / page).read_text().replace("--preset demo", "--preset tiny")
    folder = tmp_path
    for language, code in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if language == "python":
            name = code.partition("\n")[0].removeprefix("# ")
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(code)
            continue
        for line in code.splitlines():
            words = shlex.split(line, comments=True)
            if words[0] == "cd":
                folder = folder / words[1]
                continue
            command = [sys.executable, "-m", *words]
            done = subprocess.run(command, cwd=folder, env=_environment(), capture_output=True, text=True)
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            if words[1] == "report" and "--out" not in words:
                assert re.search(r"^\| Opposites +\| +\**-?\d\.\d{3}", done.stdout, re.MULTILINE), done.stdout
    if page == "tutorial.md":
        assert r"\begin" in (folder / "tables" / "opposites.tex").read_text()
        assert (folder / "opposites.tar.gz").stat().st_size > 1000
    else:
        assert list((folder / "tables").glob("*progress*.pdf"))


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HARNESS_")}
    return {**kept, "PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"}
