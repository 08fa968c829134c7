"""Which values of a table are the best, and which the seeds do not tell from it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas
import pytest

from harness.components.discovery import component
from harness.components.preset import Preset
from harness.stores.directory.store import DirectoryStore
from harness.study.expansion import expand
from harness.study.layout import Column, Row
from harness.study.study import Study
from tests.stored_runs import store_run

report: Any = component("reports.report")

RATES = Study(
    "rates",
    "Rates",
    [Row({"Rate": str(rate)}, {"optimiser.learning_rate": rate}) for rate in (0.1, 0.2, 0.3)],
    [Column("τ", "kendall_tau"), Column("Memory", "peak_memory_bytes", digits=0, best="min")],
)
TAUS = ([0.60, 0.70, 0.65], [0.61, 0.69, 0.66], [0.50, 0.60, 0.551])
"""The first two differ now in this, now in that direction; the third is lower by 0.1 under every seed."""


def made(store: Path, preset: Preset, taus: Sequence[Sequence[float]] = TAUS, **options: Any) -> Any:
    for request in expand(RATES, preset, len(taus[0])):
        memory = 1000 + request.row
        store_run(store, request, taus[request.row][request.seed], cost={"peak_memory_bytes": memory})
    return section(store, preset, **options)


def section(store: Path, preset: Preset, **options: Any) -> Any:
    return report.section(RATES, DirectoryStore(store), report.Asked(preset, **options))


def standings(found: Any, column: int = 0) -> list[str]:
    values = [row.values[column] for block in found.table.blocks for row in block]
    return ["best" if one.best else one.mark for one in values]


def test_what_the_seeds_do_not_tell_from_the_best_is_marked(tmp_path: Path, preset: Preset) -> None:
    found = made(tmp_path, preset)
    assert standings(found) == ["≈", "best", ""]
    assert any(note.startswith("≈ Not distinguishable from the best of its block") for note in found.table.notes)
    # Memory is the same under every seed: its differences need no test.
    assert standings(found, 1) == ["best", "", ""]


def test_all_pairs_of_the_block_count(tmp_path: Path, preset: Preset) -> None:
    """Alone, a p of 0.019 would tell the third from the best; which is the best was seen in the same data."""
    found = made(tmp_path, preset, [*TAUS[:2], [0.53, 0.59, 0.53]])
    assert standings(found) == ["≈", "best", "≈"]


def test_every_format_shows_the_mark(tmp_path: Path, preset: Preset) -> None:
    found = made(tmp_path, preset)

    def rendered(name: str) -> str:
        renderer = component(f"reports.render.{name}")
        return str((renderer.render_tables if name == "html" else renderer.render)([found.table]))

    assert "0.650 ± 0.050≈ |" in rendered("markdown")
    assert "0.650\\,$\\pm$\\,0.050$^{\\approx}$ &" in rendered("latex")
    assert "<sup>≈</sup>" in rendered("html")
    standing = [line.split(",")[-1] for line in rendered("csv").splitlines() if ",τ," in line]
    assert standing == ["not distinguishable from the best"] * 3 + ["best"] * 3 + [""] * 3


def test_at_another_number_of_seeds_than_planned_more_is_needed(tmp_path: Path, preset: Preset) -> None:
    assert standings(made(tmp_path, replace(preset, seeds=9))) == ["≈", "best", "≈"]
    assert standings(section(tmp_path, preset, seeds=3)) == ["≈", "best", ""]


def test_one_seed_has_no_marks(tmp_path: Path, preset: Preset) -> None:
    found = made(tmp_path, preset, [[0.5], [0.6], [0.7]], seeds=1)
    assert standings(found) == ["", "", "best"]


def test_all_comparisons_stand_in_one_figure(tmp_path: Path, preset: Preset) -> None:
    section = made(tmp_path, preset, compare=True)
    (judged,) = report.judged([section], figures=True)
    (figure,) = judged.figures
    assert figure.file == "rates-comparisons"
    assert "95 % t interval" in figure.caption
    (panel,) = figure.panels
    assert [(line.label, line.verdict) for line in panel.lines] == [
        ("Rate = 0.2 against Rate = 0.1", "undecided"),
        ("Rate = 0.3 against Rate = 0.1", "contradicted"),
    ]
    assert panel.lines[1].effect == pytest.approx(-0.09967, abs=1e-4)
    assert panel.lines[1].low < panel.lines[1].effect < panel.lines[1].high < 0
    assert len(figure.runs) == 9
    for form in ("svg", "pdf"):
        assert len(component("reports.render.drawing").draw(figure, form)) > 1000
    # A verdict that several lines have stands once in the legend.
    twice = replace(panel, lines=tuple(replace(line, verdict="undecided") for line in panel.lines))
    text = component("reports.render.drawing").draw(replace(figure, panels=(twice,)), "svg").decode()
    assert text.count("<!-- undecided -->") == 1
    written = component("reports.render.csv").render_figure(figure).splitlines()
    assert written[2].startswith("τ,Rate = 0.3 against Rate = 0.1,-0.0996")
    assert report.judged([section])[0].figures == ()


def test_the_page_shows_the_verdict_and_opens_what_it_rests_on(tmp_path: Path, preset: Preset) -> None:
    (judged,) = report.judged([made(tmp_path, preset, compare=True)])
    html = component("reports.render.html").render_grids(judged.grids)
    coloured = '<span class="verdict contradicted"><span aria-hidden="true">✗</span> contradicted</span>'
    assert f"<details><summary>{coloured}</summary><dl><dt>Where</dt>" in html
    assert "<dt>Sign-flip p</dt><dd>0.250</dd>" in html
    assert "Sign-flip p" not in component("reports.render.markdown").render_grids(judged.grids).replace("sign-flip", "")
    text = component("reports.render.csv").render_judgements(judged.findings, judged.judgements)
    tidy = pandas.read_csv(io.StringIO(text))
    assert list(tidy.verdict) == [one.verdict for one in judged.judgements] and 0.25 in set(tidy.sign_flip_p)
    assert tidy.effect.tolist() == pytest.approx([one.effect for one in judged.judgements])
