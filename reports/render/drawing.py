"""Figures as SVG and PDF, by matplotlib. The same figure gives the same bytes. Knows no study.

Colours are those of Okabe and Ito, which colour-blind readers can tell apart; line styles, markers and
hatches differ too. Text in SVG is drawn as paths, so that a figure looks the same with any installed fonts.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.components.space import Chain, Wiring

from ..figure_values import (
    Bar,
    BarPanel,
    FigureValue,
    ForestPanel,
    GraphPanel,
    LinePanel,
    Panel,
    PointPanel,
    RankPanel,
    SearchPanel,
)
from . import forests, ranks, searches
from .chains import draw_chain
from .wirings import draw_wiring

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("svg", "pdf")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
HATCHES = ("", "//", "..", "xx", "\\\\", "--")
PANEL = (3.7, 2.7)
"""Inches."""
CHAIN = (11.0, 1.5)
"""Inches of a panel with a chain of blocks, which takes a row of its own."""

_STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#dddddd",
    "legend.fontsize": 8,
    "legend.frameon": False,
    "hatch.linewidth": 0.5,
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
}


def draw(figure: FigureValue, form: str) -> bytes:
    """The figure in one of `FORMATS`."""
    with _style(figure.file):
        canvas = _compose(figure)
        file = io.BytesIO()
        # No dates and no versions: the same store gives the same bytes.
        unsaid = {"svg": ("Date", "Creator"), "pdf": ("CreationDate", "Creator", "Producer")}[form]
        canvas.savefig(file, format=form, metadata=dict.fromkeys(unsaid))
    return file.getvalue()


@contextmanager
def _style(salt: str) -> Iterator[None]:
    """Our own settings over matplotlib's defaults; the user's settings are ignored."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        settings: dict[Any, Any] = {**_STYLE, "svg.hashsalt": salt}
        matplotlib.rcParams.update(settings)
        yield


@dataclass(frozen=True)
class Layout:
    """How the panels of a figure are arranged."""

    columns: int
    ratios: tuple[float, ...]
    """Heights of the rows beside each other."""
    size: tuple[float, float]
    """Inches: width and height."""


def plan(figure: FigureValue) -> Layout:
    """The arrangement of a figure's panels."""
    count = max(1, len(figure.panels))
    if trees := [panel for panel in figure.panels if isinstance(panel, ForestPanel)]:  # one below the other
        ratios = tuple(forests.height(panel) for panel in trees)
        return Layout(1, ratios, (forests.WIDTH, sum(ratios) + 0.4))
    if isinstance(one := next(iter(figure.panels), None), RankPanel):
        return Layout(1, (1.0,), (ranks.WIDTH, ranks.height(one)))
    chains = sum(map(_is_chain, figure.panels))
    columns = 1 if chains else 2 if count == 4 else min(figure.beside, count)
    width, height = CHAIN if chains == count else (CHAIN[0], PANEL[1]) if chains else PANEL
    rows = -(-count // columns)
    return Layout(columns, (1.0,) * rows, (width * columns, height * rows + 0.4))


def _compose(figure: FigureValue) -> Figure:
    from matplotlib.figure import Figure

    count, planned = max(1, len(figure.panels)), plan(figure)
    columns, ratios = planned.columns, planned.ratios
    # A legend that all panels share is drawn once.
    trees = any(isinstance(panel, ForestPanel) for panel in figure.panels)
    shared = count > 1 and not trees and len({tuple(_labels(panel)) for panel in figure.panels}) == 1
    canvas = Figure(figsize=planned.size, layout="constrained")
    places = canvas.subplots(len(ratios), columns, squeeze=False, height_ratios=ratios).flat
    for place in places[count:]:
        place.set_axis_off()
    # One colour per operation and one scale in all drawings of the figure.
    drawings = [panel.wiring for panel in figure.panels if isinstance(panel, GraphPanel)]
    operations = sorted({operation for drawing in drawings for operation in _operations(drawing)})
    colours = {operation: COLOURS[number % len(COLOURS)] for number, operation in enumerate(operations)}
    length = max((len(drawing.blocks) for drawing in drawings if isinstance(drawing, Chain)), default=0)
    for panel, place in zip(figure.panels, places, strict=False):
        _draw_panel(place, panel, colours, length)
        handles, labels = place.get_legend_handles_labels()
        if labels and not shared:
            below = -0.22 * PANEL[1] / (forests.height(panel) if isinstance(panel, ForestPanel) else PANEL[1])
            place.legend(handles, labels, loc="upper center", bbox_to_anchor=(0.5, below), ncols=_ncols(labels, 1))
    if shared and figure.panels:
        handles, labels = places[0].get_legend_handles_labels()
        if labels:
            canvas.legend(handles, labels, loc="outside lower center", ncols=_ncols(labels, columns))
    _take_literally(canvas)
    return canvas


def _take_literally(canvas: Figure) -> None:
    """Names are not formulae, even with dollar signs in them. Powers of ten at a logarithmic axis are."""
    from matplotlib.text import Text

    powers = {text for axes in canvas.axes if axes.get_xscale() == "log" for text in axes.get_xticklabels(which="both")}
    for text in canvas.findobj(Text):
        if isinstance(text, Text) and text not in powers:
            text.set_parse_math(False)


def _is_chain(panel: Panel) -> bool:
    return isinstance(panel, GraphPanel) and isinstance(panel.wiring, Chain)


def _operations(drawing: Wiring | Chain) -> list[str]:
    """What has a colour of its own."""
    if isinstance(drawing, Chain):
        return [block.kind for block in drawing.blocks if block.kind]
    return [operation for _, _, operation in drawing.edges]


def _ncols(labels: Sequence[str], columns: int) -> int:
    """The number of legend entries that fit side by side under this many panels."""
    longest = max(map(len, labels)) + 6
    return max(1, min(len(labels), 52 * columns // longest))


def _labels(panel: Panel) -> list[str]:
    match panel:
        case LinePanel():
            return [curve.label for curve in panel.curves]
        case PointPanel():
            return [point.label for point in panel.points]
        case BarPanel():
            return list(dict.fromkeys(bar.member for bar in panel.bars))
        case SearchPanel():
            return searches.labels(panel)
        case GraphPanel() | ForestPanel() | RankPanel():
            return []


def _draw_panel(axes: Axes, panel: Panel, colours: Mapping[str, str], length: int) -> None:
    axes.set_title(panel.title)
    if isinstance(panel, GraphPanel):
        if isinstance(panel.wiring, Chain):
            draw_chain(axes, panel.wiring, colours, length)
        else:
            draw_wiring(axes, panel.wiring, colours)
        return
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
    match panel:
        case LinePanel():
            empty = _draw_lines(axes, panel)
        case PointPanel():
            empty = _draw_points(axes, panel)
        case BarPanel():
            empty = _draw_bars(axes, panel)
        case SearchPanel():
            empty = searches.draw_search(axes, panel)
        case ForestPanel():
            empty = forests.draw_forest(axes, panel)
        case RankPanel():
            empty = ranks.draw_ranks(axes, panel)
    if empty:
        axes.text(0.5, 0.5, "no values yet", ha="center", va="center", transform=axes.transAxes, color="#555555")
        axes.set_xticks([])
        axes.set_yticks([])


def _draw_lines(axes: Axes, panel: LinePanel) -> bool:
    for number, curve in enumerate(panel.curves):
        colour = COLOURS[number % len(COLOURS)]
        look: dict[str, Any] = {"linestyle": STYLES[number % len(STYLES)], "label": curve.label}
        if len(curve.x) <= 40:  # measured, or few enough to tell them apart
            look |= {"marker": MARKERS[number % len(MARKERS)], "markersize": 4, "markevery": -(-len(curve.x) // 12)}
        axes.plot(curve.x, curve.y, color=colour, linewidth=1.5, **look)
        if curve.low:
            axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.15, linewidth=0)
    if panel.log_x:
        _log_axis(axes, [x for curve in panel.curves for x in curve.x])
    elif all(step == int(step) for curve in panel.curves for step in curve.x):
        from matplotlib.ticker import MaxNLocator

        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))  # epochs are whole numbers
    return not panel.curves


def _log_axis(axes: Axes, numbers: Sequence[float]) -> None:
    """A logarithmic axis. Within one power of ten the usual ticks would be missing or overlap."""
    from matplotlib.ticker import MaxNLocator, NullLocator, ScalarFormatter

    if not numbers or min(numbers) <= 0:
        return
    axes.set_xscale("log")
    if max(numbers) < 10 * min(numbers):
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.xaxis.set_minor_locator(NullLocator())


def _draw_points(axes: Axes, panel: PointPanel) -> bool:
    for number, point in enumerate(panel.points):
        colour = COLOURS[number % len(COLOURS)]
        if point.y is None:
            continue
        if point.x is None:
            style = STYLES[1 + number % (len(STYLES) - 1)]
            axes.axhline(point.y, color=colour, linestyle=style, linewidth=1.2, label=point.label)
            continue
        axes.errorbar(
            *([point.x], [point.y]),
            xerr=[point.x_deviation] if point.x_deviation else None,
            yerr=[point.y_deviation] if point.y_deviation else None,
            color=colour,
            marker=MARKERS[number % len(MARKERS)],
            linestyle="none",
            capsize=2,
            label=point.label,
        )
    axes.margins(0.12)
    if panel.log_x:
        _log_axis(axes, [point.x for point in panel.points if point.x is not None])
    return not any(point.y is not None for point in panel.points)


def _draw_bars(axes: Axes, panel: BarPanel) -> bool:
    groups = list(dict.fromkeys(bar.group for bar in panel.bars))
    members = list(dict.fromkeys(bar.member for bar in panel.bars))
    width = 0.8 / max(1, len(members))
    for number, member in enumerate(members):
        own = [bar for bar in panel.bars if bar.member == member and bar.value is not None]
        places = [groups.index(bar.group) + (number - (len(members) - 1) / 2) * width for bar in own]
        axes.bar(
            places,
            [bar.value or 0.0 for bar in own],
            width,
            yerr=[bar.deviation for bar in own] if any(bar.deviation for bar in own) else None,
            color=COLOURS[number % len(COLOURS)],
            hatch=HATCHES[number % len(HATCHES)],
            edgecolor="white",
            error_kw={"ecolor": "#333333", "capsize": 2, "linewidth": 1},
            label=member or "_",
        )
        axes.plot(
            [place for place, bar in zip(places, own, strict=True) for _ in _several(bar)],
            [one for bar in own for one in _several(bar)],
            linestyle="none",
            marker="o",
            markersize=3,
            markerfacecolor="white",
            markeredgecolor="#333333",
            label="_",
        )
    axes.set_xticks(range(len(groups)), groups, rotation=30 if sum(map(len, groups)) > 36 else 0)
    for text in axes.get_xticklabels():
        text.set_horizontalalignment("right" if text.get_rotation() else "center")
    axes.grid(visible=False, axis="x")
    return not any(bar.value is not None for bar in panel.bars)


def _several(bar: Bar) -> tuple[float, ...]:
    """The seeds' values, if there are several: one alone is the bar's end."""
    return bar.seeds if len(bar.seeds) > 1 else ()
