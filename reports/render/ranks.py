"""Draws critical-difference diagrams: rows at their mean ranks, and bars that join rows that do not differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..figure_values import RankPanel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, LINE, BAR, ROOM = 8.0, 0.24, 0.14, 0.9
"""Inches: of the figure, of a row's line, of a bar's, and of title and axis."""
LETTERS = 40
"""Characters of a label."""


def height(panel: RankPanel) -> float:
    """Inches of a panel: labels are on both sides, half of them each."""
    return ROOM + LINE * -(-len(panel.labels) // 2) + BAR * len(panel.groups)


def draw_ranks(axes: Axes, panel: RankPanel) -> bool:
    """Draw the panel, the best rank at the left; True if it is empty."""
    count = len(panel.labels)
    axes.grid(visible=False)
    axes.set_yticks([])
    axes.set_ylabel("")
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.spines["top"].set_visible(True)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    margin = 0.45 * (count - 1)
    axes.set_xlim(1 - margin, count + margin)
    axes.set_xticks(range(1, count + 1))
    axes.spines["top"].set_bounds(1, count)
    depth = BAR * len(panel.groups)
    axes.set_ylim(-(depth + LINE * (-(-count // 2) + 0.5)), 0)
    for number, (label, rank) in enumerate(zip(panel.labels, panel.ranks, strict=True)):
        left = number < -(-count // 2)
        y = -(depth + LINE * (1 + (number if left else count - 1 - number)))
        end = 1 - 0.05 * margin if left else count + 0.05 * margin
        axes.plot([rank, rank, end], [0, y, y], color="#555555", linewidth=0.8, solid_joinstyle="miter")
        text = label if len(label) <= LETTERS else f"{label[: LETTERS - 1]}…"
        side = "right" if left else "left"
        gap = (-0.03 if left else 0.03) * margin
        axes.text(
            end + gap, y, f"{text}  {rank:.2f}" if left else f"{rank:.2f}  {text}", ha=side, va="center", fontsize=8
        )
    for number, (first, last) in enumerate(panel.groups):
        y = -BAR * (number + 0.7)
        ends = [panel.ranks[first] - 0.015 * count, panel.ranks[last] + 0.015 * count]
        axes.plot(ends, [y, y], color="#0072B2", linewidth=3.5, solid_capstyle="butt")
    return not count
