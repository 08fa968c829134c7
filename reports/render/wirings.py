"""Architectures as pictures: nodes in a row, edges as arcs with their operation. Knows no space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from harness.components.space import Wiring

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NODE = 9
"""Points from a node's middle to its edge."""
ARC = 0.5
"""How far an edge over one node leaves the row, in distances of nodes; and as much more for each further node."""


def draw_wiring(axes: Axes, wiring: Wiring, colours: Mapping[str, str]) -> None:
    """Nodes from left to right; neighbours are joined straight, others by arcs, the wider the further."""
    axes.set_axis_off()
    axes.grid(visible=False)
    for start, end, operation in sorted(wiring.edges):
        _edge(axes, start, end, colours[operation], operation)
    places = range(len(wiring.nodes))
    axes.plot(places, [0] * len(places), "o", markersize=2 * NODE, color="white", markeredgecolor="#333333", zorder=3)
    for place, name in zip(places, wiring.nodes, strict=True):
        axes.text(place, 0, name, ha="center", va="center", zorder=4, fontsize=8)
    # All drawings to one measure, whatever edges they have.
    top = ARC * max(1, len(wiring.nodes) - 2) + 0.25
    axes.set_xlim(-0.25, len(wiring.nodes) - 0.75)
    axes.set_ylim(-top, top)
    axes.set_aspect("equal")


def _height(start: int, end: int) -> float:
    """How far an edge leaves the row of nodes: above from an even node, below from an odd one."""
    return ARC * (end - start - 1) * (1 if start % 2 == 0 else -1)


def _edge(axes: Axes, start: int, end: int, colour: str, operation: str) -> None:
    from matplotlib.patches import FancyArrowPatch

    height = _height(start, end)
    # The curve's middle point lies `bend` times its length beside the straight line, and the curve half of that.
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
