"""Architectures as chains of blocks, from left to right: colour by kind, height by size. Knows no space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from harness.components.space import Chain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 0.72
"""Width of a block, in distances between blocks."""
LEAST = 0.6
"""Height of the smallest block, as a share of the largest: its text must fit."""
NEUTRAL = "#bbbbbb"
"""Colour of blocks that are not searched."""


def draw_chain(axes: Axes, chain: Chain, colours: Mapping[str, str], length: int) -> None:
    """Draw the blocks in a row, their text inside and above. `length` is that of the longest chain of the figure."""
    from matplotlib.patches import Rectangle

    axes.set_axis_off()
    axes.grid(visible=False)
    sizes = [block.size for block in chain.blocks]
    span = max(sizes) - min(sizes)
    axes.plot([-0.5, len(chain.blocks) - 0.5], [0, 0], color="#333333", linewidth=1, zorder=1)
    for place, block in enumerate(chain.blocks):
        height = 1.0 if not span else LEAST + (1 - LEAST) * (block.size - min(sizes)) / span
        colour = colours[block.kind] if block.kind else NEUTRAL
        corner = place - WIDTH / 2, -height / 2
        axes.add_patch(Rectangle(corner, WIDTH, height, facecolor=colour, edgecolor="#333333", linewidth=0.6, zorder=2))
        ink = "white" if block.kind and _is_dark(colour) else "black"
        axes.text(place, 0, block.label, rotation=90, ha="center", va="center", fontsize=7, color=ink, zorder=3)
        axes.text(place, height / 2 + 0.06, block.above, ha="center", va="bottom", fontsize=6, zorder=3)
    # All drawings have the same scale, whatever their lengths.
    axes.set_xlim(-0.6, length - 0.4)
    axes.set_ylim(-0.55, 0.75)


def _is_dark(colour: str) -> bool:
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue < 140
