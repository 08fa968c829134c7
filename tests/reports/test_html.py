"""The page: one file with everything in it, the same bytes every time, nothing of a label taken for markup."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from harness.components.discovery import component
from harness.components.preset import Preset
from harness.stores.directory.store import DirectoryStore
from harness.study.expansion import expand
from harness.study.layout import Bars, Column, Figure, Row
from harness.study.study import Study
from tests.stored_runs import store_run

TAU = Column("Kendall's τ", "kendall_tau")
STUDY = Study(
    name="page",
    title="A <b>bold</b> title",
    rows=[
        Row({"Method": "<script>alert(1)</script>", "CaLR": False}, {"method.name": "spos"}),
        Row({"Method": "SPOS", "CaLR": True}, {"schedule.name": "calr"}, shaded=True),
    ],
    columns=[TAU, Column("Top-1 (%)", "top1_accuracy", digits=1)],
    figures=[Figure("bars", "Bars & more", [Bars("", TAU)])],
)
MACHINE = {
    "hostname": "node7",
    "os": ["Linux", "Linux-6"],
    "python": "3.11.7",
    "cpu": "A",
    "cores": 4,
    "gpus": ["G", "H"],
    "packages": {"torch": "2.14.0"},
    "commit": "0123abc",
    "dirty": True,
    "version": "1.2",
    "constraints": None,
}
INSTALLED = {**MACHINE, "gpus": [], "commit": None, "dirty": None}


@pytest.fixture
def store(tmp_path: Path, preset: Preset) -> Path:
    for request in expand(STUDY, preset):
        if (request.row, request.seed) != (1, 2):
            store_run(tmp_path, request, 0.5 + request.seed / 10, machine=MACHINE if request.seed else INSTALLED)
    return tmp_path


def page(store: Path, preset: Preset, compare: bool = False, **options: Any) -> str:
    opened, report = DirectoryStore(store), component("reports.report")
    sections = [report.section(STUDY, opened, report.Asked(preset, figures=True, compare=compare))]
    sections = report.judged(sections, True) if compare else sections
    return str(component("reports.render.html").page(sections, opened, **options))


class Tags(HTMLParser):
    """All elements of a page, and whether they close in the right order."""

    VOID = ("meta", "link", "br", "path", "use", "rect")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def data_of(text: str) -> Any:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])  # type: ignore[index]


def test_the_page_is_whole_and_loads_nothing(store: Path, preset: Preset) -> None:
    text = page(store, preset)
    tags = Tags(text)
    assert tags.open == []
    links = [value for _, attrs in tags.found for name, value in attrs.items() if name in ("src", "href", "xlink:href")]
    assert all(value is not None and value.startswith(("#", "data:")) for value in links)
    assert not re.search(r"url\((?!#)|@import", text)
    assert "default-src 'none'" in text
    ids = [attrs["id"] for _, attrs in tags.found if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert [value for _, attrs in Tags(page(store, preset, files=True)).found if (value := attrs.get("href"))][-2:] == [
        *("page-bars.svg", "page-bars.pdf")
    ]


def test_the_same_store_gives_the_same_page(store: Path, preset: Preset) -> None:
    assert page(store, preset) == page(store, preset)


def test_labels_are_text(store: Path, preset: Preset) -> None:
    text = page(store, preset)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text and "<script>alert" not in text
    assert "A &lt;b&gt;bold&lt;/b&gt; title" in text and "<b>" not in text


def test_every_value_leads_to_its_runs(store: Path, preset: Preset) -> None:
    text = page(store, preset)
    data = data_of(text)
    buttons = re.findall(r'<button type="button" class="value" data-place="(\d+)">', text)
    assert [int(place) for place in buttons] == list(range(2 * 2 + 1)) == list(range(len(data["places"])))
    runs = {run.id: run for run in DirectoryStore(store).runs()}
    assert data["runs"].keys() == runs.keys()
    first = data["places"][0]
    assert first["where"] == "Kendall's τ, digits" and "Method: <script>" in first["row"]
    assert [(seed, value, state) for seed, value, state, _ in first["measured"]] == [
        *((0, 0.5, "done"), (1, 0.6, "done"), (2, 0.7, "done"))
    ]
    assert data["places"][2]["measured"][2] == [2, None, "missing", ""]
    for run_id, run in runs.items():
        told = data["runs"][run_id]
        assert {**data["common"], **told["config"]} == component("reports.provenance").flatten(run.trial["config"])
        machine = data["machines"][told["machine"]]
        if run.trial["config"]["seed"]:
            assert (machine["host"], machine["commit"]) == ("node7", "0123abc (with changes)")
            assert machine["gpus"] == "G, H" and "version" not in machine
        else:
            assert machine["version"] == "1.2" and "gpus" not in machine and "commit" not in machine
    # What all have in common is there once.
    assert "seed" not in data["common"] and data["common"]["train.batch_size"] == 512


def test_the_head_says_what_was_run_and_what_it_shows(store: Path, preset: Preset) -> None:
    text = page(store, preset, compare=True)
    verdicts = text.index('<section id="verdicts">')
    assert text.index("<table") < verdicts  # the numbers come first
    head = text[text.index("<header") : text.index("</header>")] + text[verdicts : text.index("</main>")]
    head = re.sub(" +", " ", re.sub(r"<[^>]+>|\s+", " ", head))
    for told in (
        *("Seeds 0, 1, 2", "Runs 5 behind 1 study", "When 2026-01-01 10:00 to 10:00 UTC", "Hosts node7"),
        *("Commits 0123abc (with changes)", "Data sets digits", "1 comparison of rows ? 1 undecided"),
        *("Versions torch 2.14.0", "2 values missing or incomplete", f"Store {DirectoryStore(store).name}"),
    ):
        assert told in head
    assert "--compare" not in head and "adds them" in page(store, preset)
    # The comparisons are there, folded, and each has its interval drawn.
    folded = text[text.index('<details class="fold comparisons">') :]
    assert '<span class="verdict undecided">' in folded and '<svg class="interval undecided"' in folded
    assert "page-comparisons.svg" in page(store, preset, compare=True, files=True)


def test_every_seed_is_a_point_of_the_main_column(store: Path, preset: Preset) -> None:
    drawn = re.search(r'<figure class="dots">.*?</figure>', page(store, preset), re.DOTALL)
    assert drawn is not None
    titles = re.findall("<title>(.*?), run (.*?)</title>", drawn[0])
    assert {run for _, run in titles} == {run.id for run in DirectoryStore(store).runs()}
    assert [text for text, _ in titles] == [
        *("seed 0: 0.500", "seed 1: 0.600", "seed 2: 0.700", "seed 0: 0.500", "seed 1: 0.600")
    ]
    places = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', drawn[0])]
    assert places[:2] == places[3:] and places[0] < places[1] < places[2]


def test_long_tables_have_their_points_in_several_drawings(tmp_path: Path, preset: Preset) -> None:
    dots = component("reports.render.dots")
    lines = [dots.Line(f"{number}", ((0, 1.0, ""),), "", number % 4 == 0 and number > 0) for number in range(36)]
    assert [len(part) for part in dots._parts(lines)] == [12, 12, 12]
    assert [len(part) for part in dots._parts(lines[:17])] == [8, 9]
    assert [len(part) for part in dots._parts(lines[:16])] == [16]
    assert sum((list(part) for part in dots._parts(lines[1:])), []) == lines[1:]


def test_a_page_of_what_was_never_run(tmp_path: Path, preset: Preset) -> None:
    text = page(tmp_path, replace(preset, seeds=1))
    assert Tags(text).open == [] and "0 of 1 seed" in text
    assert data_of(text)["runs"] == {}


def test_a_table_can_be_copied_as_latex(store: Path, preset: Preset) -> None:
    text = page(store, preset)
    found = re.search(r'<script type="text/plain" id="latex-page">(.*?)</script>', text, re.DOTALL)
    assert found is not None and 'data-copy="latex-page"' in text
    assert r"\begin{table" in json.loads(found[1]) and "<" not in found[1]
