"""Figures as values from stored runs, and as drawings: what is in them, and the same bytes every time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from harness.components.discovery import component
from harness.components.preset import Preset
from harness.components.space import Block, Chain, Wiring
from harness.errors import InvalidConfiguration
from harness.stores.directory.store import DirectoryStore
from harness.study.expansion import expand
from harness.study.layout import Bars, Column, Computed, Curves, Drawings, Figure, Labels, Line, Row, Scatter, Series
from harness.study.study import Request, Study
from tests.stored_runs import store_run


class Drawn:
    """As much of a space as a drawing asks for."""

    name = "drawn"

    def format(self, architecture: tuple[int, ...]) -> str:
        return "-".join(map(str, architecture))

    def wiring(self, architecture: tuple[int, ...]) -> Wiring | None:
        if not architecture:
            return None
        return Wiring(["in", "1", "out"], [(0, 1, "conv"), (1, 2, "pool"), (0, 2, f"skip {architecture[0]}")])


def rates(requests: Sequence[Request]) -> list[Series]:
    rate = requests[0].trial.config.optimiser.learning_rate
    return [Series("linear", [0.0, 0.5, 1.0], [rate, rate / 2, 0.0])]


def trials(requests: Sequence[Request]) -> dict[str, Any]:
    return {"A₀": (Drawn(), (1, 2)), "B": (Drawn(), ())}


SPOS: Labels = {"Method": "SPOS", "CaLR": False}
CALR: Labels = {"Method": "SPOS", "CaLR": True}
TAU, HOURS = Column("Kendall's τ", "kendall_tau"), Column("Hours", "stage_seconds.train", scale=1 / 3600)
TOP1 = Column("Top-1 (%)", "top1_accuracy")
STUDY = Study(
    name="drawn",
    title="All that can be drawn",
    rows=[
        Row(SPOS, {"method.name": "spos"}),
        Row(CALR, {"schedule.name": "calr"}),
        Row({"Method": "Optimal", "CaLR": False}, source="truth"),
    ],
    group="Method",
    columns=[TAU],
    figures=[
        Figure(
            "curves",
            "τ over training",
            [Curves("Ranking", "τ", [Line("SPOS", SPOS, "kendall_tau"), Line("with CaLR", CALR, "kendall_tau")])],
            paper="Figure 0",
        ),
        Figure("points", "Accuracy over time", [Scatter("", HOURS, TOP1, log_x=True)]),
        Figure("bars", "Bars", [Bars("τ", TAU)]),
        Figure("computed", "Rates", [Computed("", "t/T", "η", rates)]),
        Figure("cells", "Trials", [Drawings("", trials)]),
    ],
)


@pytest.fixture
def store(tmp_path: Path, preset: Preset) -> Path:
    """Three seeds each; one of the second row's has no curve."""
    for request in expand(STUDY, preset):
        value = request.row / 10 + request.seed / 100
        curve = [[1, 0.1 + value], [3, 0.3 + value], [5, None if request.seed == 2 else 0.5 + value]]
        store_run(
            tmp_path,
            request,
            0.5 + value,
            60.0 + request.row,
            observed={} if (request.row, request.seed) == (1, 1) else {"kendall_tau": curve},
            cost={"stage_seconds": {"train": 3600.0 * (1 + request.row)}},
        )
    return tmp_path


def figures(preset: Preset, store: Path, study: Study = STUDY) -> dict[str, Any]:
    found = component("reports.evidence").find(study, preset, DirectoryStore(store))
    return {figure.name: figure for figure in component("reports.figures").build(found)}


def test_curves_are_means_at_common_steps_with_their_span(preset: Preset, store: Path) -> None:
    figure = figures(preset, store)["curves"]
    assert figure.caption == (
        "τ over training (Figure 0 of the paper). Preset tiny: digits, 3 seeds, 5 epochs, width 4, depth 1. "
        "Lines are means over the seeds, bands span them."
    )
    (panel,) = figure.panels
    one, other = panel.curves
    # The third step has no number for one of the seeds.
    assert (one.label, one.x, one.y) == ("SPOS", (1, 3), pytest.approx((0.11, 0.31)))
    assert one.low == pytest.approx((0.1, 0.3)) and one.high == pytest.approx((0.12, 0.32))
    assert other.label == "with CaLR (2 of 3 seeds)"
    assert figure.missing == ("Ranking: with CaLR (2 of 3 seeds with kendall_tau)",)
    assert figure.notes == ("Missing: Ranking: with CaLR (2 of 3 seeds with kendall_tau)",)
    assert len(figure.runs) == 5


def test_points_levels_and_bars(preset: Preset, store: Path) -> None:
    made = figures(preset, store)
    (points,) = made["points"].panels
    assert [(one.label, one.x) for one in points.points] == [("SPOS", 1.0), ("SPOS + CaLR", 2.0), ("Optimal", None)]
    assert points.points[0].y == 60.0 and points.points[0].y_deviation == 0.0
    plain = replace(STUDY, figures=[Figure("plain", "", [Scatter("", HOURS, TOP1)])])
    assert points.log_x and not figures(preset, store, plain)["plain"].panels[0].log_x
    (bars,) = made["bars"].panels
    # The ground truth has no τ: no empty place for it.
    assert [(one.group, one.member) for one in bars.bars] == [("SPOS", "baseline"), ("SPOS", "CaLR")]
    assert bars.bars[0].value == pytest.approx(0.51) and bars.bars[0].deviation == pytest.approx(0.01)
    assert not made["bars"].missing and len(made["bars"].runs) == 6


def test_computed_lines_and_drawings_need_no_runs(preset: Preset, tmp_path: Path) -> None:
    made = figures(preset, tmp_path)
    (panel,) = made["computed"].panels
    assert (panel.title, panel.x, panel.y) == ("", "t/T", "η")
    assert panel.curves[0].y == pytest.approx((0.1, 0.05, 0.0))
    assert [panel.title for panel in made["cells"].panels] == ["A₀"]
    assert made["cells"].notes == ("A₀: 1-2", "B:  (drawn has no drawing)")
    assert not made["computed"].missing and not made["cells"].missing
    assert made["curves"].panels[0].curves == () and len(made["curves"].missing) == 2
    # Nothing is there, and still every figure can be drawn.
    for figure in made.values():
        assert component("reports.render.drawing").draw(figure, "svg").startswith(b"<?xml")


def test_several_data_sets_have_a_panel_each(preset: Preset, toy_project: Path, tmp_path: Path) -> None:
    made = figures(replace(preset, datasets=("digits", "toy")), tmp_path)
    assert [panel.title for panel in made["curves"].panels] == ["Ranking (digits)", "Ranking (toy)"]
    assert [panel.title for panel in made["points"].panels] == ["digits", "toy"]


def test_a_line_of_a_row_that_is_not_there_is_refused(preset: Preset, tmp_path: Path) -> None:
    wrong = Figure("x", "X", [Curves("", "", [Line("", {"Method": "SPOS"}, "kendall_tau")])])
    with pytest.raises(InvalidConfiguration, match="2 rows are labelled {'Method': 'SPOS'}"):
        figures(preset, tmp_path, replace(STUDY, figures=[wrong]))


@pytest.mark.parametrize("name", ["curves", "points", "bars", "computed", "cells"])
def test_the_same_figure_gives_the_same_bytes(name: str, preset: Preset, store: Path) -> None:
    drawing = component("reports.render.drawing")
    figure = figures(preset, store)[name]
    for form, start in (("svg", b"<?xml"), ("pdf", b"%PDF")):
        first, second = drawing.draw(figure, form), drawing.draw(figures(preset, store)[name], form)
        assert first == second and first.startswith(start)
        assert not re.search(rb"20\d\d-\d\d-\d\d|/CreationDate|Matplotlib", first)


def test_drawings_say_in_svg_what_the_figure_holds(preset: Preset, store: Path) -> None:
    """Structure, not pixels: versions of matplotlib differ in the rest."""
    drawing = component("reports.render.drawing")
    made = {name: drawing.draw(figure, "svg").decode() for name, figure in figures(preset, store).items()}
    roots = {name: ElementTree.fromstring(text) for name, text in made.items()}
    assert all(root.tag.endswith("svg") for root in roots.values())
    # matplotlib writes every text beside its letters' paths.
    said = {name: re.findall(r"<!-- (.*?) -->", text) for name, text in made.items()}
    assert {"Ranking", "Epoch", "τ", "SPOS", "with CaLR (2 of 3 seeds)"} <= set(said["curves"])
    assert {"Hours", "Top-1 (%)", "SPOS + CaLR", "Optimal"} <= set(said["points"])
    assert {"Kendall's τ", "baseline", "CaLR", "SPOS"} <= set(said["bars"])
    assert {"t/T", "η", "linear"} <= set(said["computed"])
    assert {"A₀", "in", "out", "conv", "skip 1"} <= set(said["cells"])
    for name, colours in {"curves": ("#0072b2", "#d55e00"), "bars": ("#0072b2", "#d55e00")}.items():
        assert all(colour in made[name] for colour in colours)


def test_a_drawing_of_what_was_found_is_of_the_search_or_else_of_the_ranking() -> None:
    best_found = component("reports.figures").best_found
    assert best_found({"found": [{"architecture": [1, 2]}, {"architecture": [0, 0]}], "top1": [3, 3]}) == (1, 2)
    assert best_found({"found": [], "top1": [3, 3]}) == best_found({"top1": [3, 3]}) == (3, 3)
    assert best_found({"top1": None}) is None and best_found({}) is None


def test_a_legend_lies_below_the_axis_and_names_below_their_bars(preset: Preset, store: Path) -> None:
    canvas = component("reports.render.drawing")._compose(figures(preset, store)["bars"])
    canvas.draw_without_rendering()
    (axes,) = canvas.axes
    names = [text for text in axes.get_xticklabels() if text.get_text()]
    assert names and all(text.get_horizontalalignment() == "center" for text in names)
    top = axes.get_legend().get_window_extent().y1
    assert all(top <= text.get_window_extent().y0 for text in names)


def test_blocks_have_one_size_unless_they_say_another() -> None:
    from matplotlib.figure import Figure as Canvas
    from matplotlib.patches import Rectangle

    axes = Canvas().subplots()
    blocks = (Block("a"), Block("b", size=1.0), Block("c", size=3.0))
    component("reports.render.chains").draw_chain(axes, Chain(blocks), {}, 3)
    heights = [patch.get_height() for patch in axes.patches if isinstance(patch, Rectangle)]
    assert heights[0] == heights[1] < heights[2]


def test_the_settings_of_the_reader_change_nothing(preset: Preset, store: Path) -> None:
    import matplotlib

    figure = figures(preset, store)["curves"]
    plain = component("reports.render.drawing").draw(figure, "svg")
    with matplotlib.rc_context({"font.size": 20.0, "axes.facecolor": "red"}):
        assert component("reports.render.drawing").draw(figure, "svg") == plain
