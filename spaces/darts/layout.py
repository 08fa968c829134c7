"""The cells of a network of some size: channels and sides of each. No torch.

Counts and networks are derived from these.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .cell import INPUTS, NODES, NORMAL, REDUCE

STEM = 3
"""Channels of the stem, as a multiple of the width."""


@dataclass(frozen=True)
class CellSize:
    """One cell of a network."""

    kind: int
    """Normal or reduction."""
    before: tuple[int, int]
    """Channels of its two inputs: of the cell before the last one, and of the last one."""
    channels: int
    """Channels of each node."""
    side: int
    """Side of the last cell's output."""
    halves_first: bool
    """Whether the first input is twice as large as the second, because the last cell reduced the image."""

    @property
    def side_out(self) -> int:
        return halved(self.side) if self.kind == REDUCE else self.side

    @property
    def outputs(self) -> int:
        """Channels of its output: its nodes are concatenated."""
        return NODES * self.channels

    def stride(self, source: int) -> int:
        """The stride of edges from that input or node: reduction cells halve their inputs."""
        return 2 if self.kind == REDUCE and source < INPUTS else 1


@lru_cache(maxsize=128)
def cells(settings: Any) -> tuple[CellSize, ...]:
    """The cells of a network of these settings, from input to output."""
    channels, side = settings.width, settings.image_size
    before = (STEM * channels, STEM * channels)
    found: list[CellSize] = []
    for number in range(settings.depth):
        kind = REDUCE if number in reductions(settings.depth) else NORMAL
        channels *= 2 if kind == REDUCE else 1
        halves = bool(found) and found[-1].kind == REDUCE
        found.append(CellSize(kind, before, channels, side, halves))
        before, side = (before[1], found[-1].outputs), found[-1].side_out
    return tuple(found)


def reductions(depth: int) -> tuple[int, int]:
    """The numbers of the two reduction cells."""
    return depth // 3, 2 * depth // 3


def halved(side: int) -> int:
    """Side of the output of an operation of stride 2."""
    return -(-side // 2)
