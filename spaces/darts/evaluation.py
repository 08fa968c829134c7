"""Evaluates many paths on the same images and weights, as ranking and searches need them.

The inputs of the first cell are the same for all paths, and so is the first input of the second cell: the values of the
edges that leave them are kept. Architectures with the same normal cell are equal up to the first reduction cell: what
enters it is kept, too. Everything is computed as for a single path and has the same bits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from harness.components.space import Architecture
from harness.data.devices import laid_out

from .cell import EDGES, INPUTS, NODES, NORMAL

if TYPE_CHECKING:
    from .networks import Cell, Steps, Supernet, Values

BUDGET = 128 << 20
"""Maximum size in bytes of the values of edges, and of what enters the first reduction cell."""


class Kept:
    """Tensors by name, the last used ones of at most so many bytes."""

    def __init__(self, budget: int) -> None:
        self.room = budget
        self._kept: OrderedDict[tuple[Any, ...], tuple[Tensor, ...]] = OrderedDict()

    def __call__(self, key: tuple[Any, ...], make: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """The tensors of that name, made if they are not kept."""
        if (kept := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            return kept
        made = make()
        self._kept[key] = made
        self.room -= _bytes(made)
        while self.room < 0:
            self.room += _bytes(self._kept.popitem(last=False)[1])
        return made


class Evaluation:
    """Logits of paths on fixed batches. The weights must not change while it is used."""

    def __init__(self, network: Supernet, batches: Sequence[Tensor], budget: int = BUDGET) -> None:
        self.network = network
        self.batches = [laid_out(images) for images in batches]
        self._edges, self._beginnings = Kept(budget), Kept(budget)

    @torch.no_grad()
    def logits(self, number: int, architecture: Architecture) -> Tensor:
        """The logits of the path for the batch of that number."""
        paths = self.network.paths(architecture)
        parts = list(self.network.parts())
        reduction = next(place for place, cell, _ in parts if cell.size.kind != NORMAL)

        def begin() -> tuple[Tensor, ...]:
            (stem,) = self._edges((number, "stem"), lambda: (self.network.begin(self.batches[number]),))
            return self._through(number, parts[:reduction], paths, stem, stem)

        first, second = self._beginnings((number, paths[NORMAL]), begin)
        _, output = self._through(number, parts[reduction:], paths, first, second)
        return self.network.logits(output)

    def _through(
        self,
        number: int,
        parts: Sequence[tuple[int, Cell, bool]],
        paths: Sequence[Steps],
        first: Tensor,
        second: Tensor,
    ) -> tuple[Tensor, Tensor]:
        for place, cell, last in parts:
            values = self._cell(number, place, cell, paths[cell.size.kind], first, second)
            first, second = second, values.output(active=not last)
        return first, second

    def _cell(self, number: int, place: int, cell: Cell, path: Steps, first: Tensor, second: Tensor) -> Values:
        common = INPUTS - place
        """How many of its inputs are the same for all paths."""
        if common <= 0:
            values: Values = cell(first, second, path)
            return values
        values = self._inputs(number, place, cell, first, second)
        for node in range(INPUTS, INPUTS + NODES):
            terms = []
            for edge, operation in path:
                source, target = EDGES[edge]
                if target != node:
                    continue
                if source < common:
                    key = (number, place, edge, operation)
                    (term,) = self._edges(key, lambda e=edge, o=operation: (cell.edge(values, e, o),))  # type: ignore[misc]
                else:
                    term = cell.edge(values, edge, operation)
                terms.append(term)
            cell.add_node(values, terms)
        return values

    def _inputs(self, number: int, place: int, cell: Cell, first: Tensor, second: Tensor) -> Values:
        """The beginning of the first or the second cell."""
        from .networks import Values

        if place == 0:
            return Values(*self._edges((number, place), lambda: tuple(cell.inputs(first, second).plain)))
        return Values(*self._edges((number, place), lambda: (cell.first(first),)), cell.second(second))


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum(one.numel() * one.element_size() for one in tensors)
