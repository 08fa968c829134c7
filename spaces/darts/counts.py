"""Exact parameters and multiply-adds of architectures, as sums of lookups. No torch, no forward pass.

Counted are stand-alone networks without auxiliary head. Parameters: weights of convolutions, scale and shift of batch
normalisation, the classifier with its bias. Multiply-adds ("FLOPs"), for one image: convolutions and classifier,
without biases. Batch normalisation, activations, pooling and additions count nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from harness.components.space import Architecture

from .cell import EDGES, INPUTS, KINDS, LENGTH, NODES, PAIRS, SKIP, operation_decision, pair_decision, separable, taken
from .layout import STEM, CellSize, cells

COUNTS = ("parameters", "flops")


@dataclass(frozen=True)
class Table:
    """One count: what all architectures share, and what each operation of each edge adds."""

    shared: int
    edges: tuple[tuple[tuple[int, ...], ...], ...]
    """By kind of cell and edge, what its operations add in all cells of the kind."""
    all_edges: bool = False
    """Whether all edges count, as they do in steps that run all of them, or those that the architecture takes."""

    def of(self, architecture: Architecture) -> int:
        total = self.shared
        for kind, own in enumerate(self.edges):
            for edge in range(len(EDGES)) if self.all_edges else taken(architecture, kind):
                total += own[edge][architecture[operation_decision(kind, edge)]]
        return total

    def extremes(self) -> tuple[int, Architecture, int, Architecture]:
        """The least count with its architecture and the greatest with its own: nodes do not depend on each other."""
        least, most = (self._extreme(end) for end in (min, max))
        return self.of(least), least, self.of(most), most

    def _extreme(self, end: Callable[..., int]) -> Architecture:
        found = [0] * (len(KINDS) * LENGTH)
        for kind, own in enumerate(self.edges):
            best = [end(adds) for adds in own]
            for node in range(NODES):
                into = {source: edge for edge, (source, target) in enumerate(EDGES) if target == INPUTS + node}
                sums = [sum(best[into[source]] for source in pair) for pair in PAIRS[node]]
                pair = 0 if self.all_edges else sums.index(end(sums))
                found[pair_decision(kind, node)] = pair
                for source, edge in into.items():
                    if self.all_edges or source in PAIRS[node][pair]:
                        found[operation_decision(kind, edge)] = own[edge].index(best[edge])
        return tuple(found)


@lru_cache(maxsize=128)
def table(operations: tuple[str, ...], count: str, settings: Any) -> Table:
    """The table of "parameters" or "flops" of networks of that size with these operations."""
    adds = {"parameters": _parameters, "flops": _flops}[count]
    sizes = cells(settings)
    edges = tuple(
        tuple(
            tuple(sum(adds(operation, cell, source) for cell in sizes if cell.kind == kind) for operation in operations)
            for source, _ in EDGES
        )
        for kind in range(len(KINDS))
    )
    shared = {"parameters": _shared_parameters, "flops": _shared_flops}[count](sizes, settings)
    return Table(shared, edges, settings.inputs == "all")


def _convolutions(operation: str, channels: int) -> tuple[int, int]:
    """Times that depthwise and 1×1 convolution follow each other, and the weights of both; nothing for others."""
    parts = separable(operation)
    return (parts.times, parts.kernel**2 * channels + channels**2) if parts else (0, 0)


def _parameters(operation: str, cell: CellSize, source: int) -> int:
    if operation == SKIP:
        return _halving(cell.channels, cell.channels) if cell.stride(source) == 2 else 0
    times, weights = _convolutions(operation, cell.channels)
    return times * (weights + 2 * cell.channels)


def _flops(operation: str, cell: CellSize, source: int) -> int:
    if operation == SKIP:
        return cell.channels**2 * cell.side_out**2 if cell.stride(source) == 2 else 0
    times, weights = _convolutions(operation, cell.channels)
    return times * weights * cell.side_out**2


def _halving(inputs: int, outputs: int) -> int:
    """Parameters of a convolution with batch normalisation: 1×1, or two of stride 2 with half of the outputs each."""
    return inputs * outputs + 2 * outputs


def _shared_parameters(sizes: Sequence[CellSize], settings: Any) -> int:
    stem = STEM * settings.width
    inputs = sum(_halving(before, cell.channels) for cell in sizes for before in cell.before)
    return int(9 * settings.image_channels * stem + 2 * stem + inputs + (sizes[-1].outputs + 1) * settings.classes)


def _shared_flops(sizes: Sequence[CellSize], settings: Any) -> int:
    stem = 9 * settings.image_channels * STEM * settings.width * settings.image_size**2
    # The first input of a cell, if it is larger, is halved: both inputs then have one size.
    inputs = sum(sum(cell.before) * cell.channels * cell.side**2 for cell in sizes)
    return int(stem + inputs + sizes[-1].outputs * settings.classes)
