"""Architectures as pictures: nodes in a row, edges as arcs with their operation. Knows no space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from harness.components.space import Wiring

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NODE = 9
"""Radius of a node, in points."""
ARC = 0.5
"""Height of an edge's arc per node that it passes over, in distances between nodes."""


def draw_wiring(axes: Axes, wiring: Wiring, colours: Mapping[str, str]) -> None:
    """Draw nodes from left to right, with straight edges between neighbours and arcs between others."""
    axes.set_axis_off()
    axes.grid(visible=False)
    for start, end, operation in sorted(wiring.edges):
        _edge(axes, start, end, colours[operation], operation)
    places = range(len(wiring.nodes))
    axes.plot(places, [0] * len(places), "o", markersize=2 * NODE, color="white", markeredgecolor="#333333", zorder=3)
    for place, name in zip(places, wiring.nodes, strict=True):
        axes.text(place, 0, name, ha="center", va="center", zorder=4, fontsize=8)
    # All drawings have the same scale, whatever their edges.
    top = ARC * max(1, len(wiring.nodes) - 2) + 0.25
    axes.set_xlim(-0.25, len(wiring.nodes) - 0.75)
    axes.set_ylim(-top, top)
    axes.set_aspect("equal")


def _height(start: int, end: int) -> float:
    """Height of an edge over the row of nodes: above for an even start node, below for an odd one."""
    return ARC * (end - start - 1) * (1 if start % 2 == 0 else -1)


def _edge(axes: Axes, start: int, end: int, colour: str, operation: str) -> None:
    from matplotlib.patches import FancyArrowPatch

    height = _height(start, end)
    # The control point is `bend` times the edge's length off the straight line, and the curve half of that.
    bend = -2 * height / (end - start)
    axes.add_patch(
        FancyArrowPatch(
            *((start, 0), (end, 0)),
            connectionstyle=f"arc3,rad={bend}",
            arrowstyle="-|>",
            mutation_scale=9,
            shrinkA=NODE,
            shrinkB=NODE,
            color=colour,
            linewidth=1.3,
        )
    )
    above = (2, "bottom") if height >= 0 else (-2, "top")
    axes.annotate(
        operation,
        ((start + end) / 2, height),
        xytext=(0, above[0]),
        textcoords="offset points",
        ha="center",
        va=above[1],
        fontsize=6,
        color=colour,
    )
