"""Draws forest plots: one line per comparison, with its effect, its interval, and the paper's effect."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from ..figure_values import ForestPanel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOOKS = {
    "supported": ("#009E73", "o", True),
    "contradicted": ("#D55E00", "s", True),
    "equivalent": ("#0072B2", "D", True),
    "undecided": ("#555555", "o", False),
}
"""By verdict: colour, marker, and whether it is filled."""
WIDTH, LINE, ROOM, LEAST = 8.0, 0.24, 1.0, 1.6
"""Inches: of the figure, of a line, of a panel's title and axis, and the least of a whole panel."""
LETTERS = 60
"""Characters of a line of a label."""


def height(panel: ForestPanel) -> float:
    """Inches of a panel; its legend needs some, even below a single line."""
    return max(LEAST, ROOM + LINE * sum(len(_wrapped(line.label)) for line in panel.lines))


def draw_forest(axes: Axes, panel: ForestPanel) -> bool:
    """Draw the panel; True if it is empty."""
    axes.axvline(0.0, color="#000000", linewidth=0.8)
    told: set[str] = set()
    places = range(len(panel.lines), 0, -1)
    for place, line in zip(places, panel.lines, strict=True):
        colour, marker, filled = LOOKS.get(line.verdict, LOOKS["undecided"])
        if line.low is not None and line.high is not None:
            axes.plot([line.low, line.high], [place, place], color=colour, linewidth=1.4)
        axes.plot(
            *([line.effect], [place]),
            color=colour,
            marker=marker,
            markersize=5,
            markerfacecolor=colour if filled else "white",
            linestyle="none",
            label=line.verdict if line.verdict not in told else "_",
        )
        told.add(line.verdict)
        if line.printed is not None:
            name = "the paper" if "the paper" not in told else "_"
            axes.plot([line.printed], [place], color="#000000", marker="x", markersize=5, linestyle="none", label=name)
            told.add("the paper")
    axes.set_yticks(list(places), ["\n".join(_wrapped(line.label)) for line in panel.lines], fontsize=7)
    axes.set_ylim(0.4, len(panel.lines) + 0.6)
    axes.set_ylabel("")
    return not panel.lines


def _wrapped(label: str) -> list[str]:
    return textwrap.wrap(label, LETTERS) or [""]
