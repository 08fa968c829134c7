"""Evaluates many paths on the same images and weights, as ranking needs them.

The first cell has the same input for all paths, so its values are cached and shared: every edge's value and
every node's sum, keyed by how they were computed. Sums are computed in the same order as for a single path and
have the same bits. The matrices of small convolutions are cached too, since the weights do not change meanwhile.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from harness.components.space import Architecture

from . import kernels
from .cell import NODES, POOL, SKIP
from .engine import CellPath, Engine, Layer
from .path import steps

BUDGET = 256 << 20
"""Maximum size of the cache in bytes. Nothing is cached if fewer than `LEAST` values of all batches fit."""

LEAST = 8
"""Minimum number of values, each for all batches, that must fit into the cache."""

Key = tuple[Any, ...]


class Evaluation:
    """Logits of paths on fixed batches. The weights must not change while it is used."""

    def __init__(self, engine: Engine, batches: Sequence[Tensor], budget: int = BUDGET) -> None:
        self.engine = engine
        self.batches = [images.contiguous(memory_format=torch.channels_last) for images in batches]
        self._kept: OrderedDict[Key, Tensor] = OrderedDict()
        weight = engine.stem.weights["weight"]
        assert weight is not None
        pixels = sum(len(x) * x.shape[2] * x.shape[3] for x in self.batches)
        size = max(1, pixels * len(weight) * weight.element_size())
        self._room = budget // size * len(self.batches) if budget // size >= LEAST else 0
        self._matrices: dict[Layer, Tensor] = {}

    @torch.no_grad()
    def logits(self, number: int, architecture: Architecture) -> Tensor:
        """The logits of the path for the batch of that number."""
        path = steps(architecture)
        first = self.engine.blocks[0]
        assert isinstance(first, CellPath)
        nodes: list[Any] = [(number,)] + [()] * (NODES - 1)
        for operation, source, target, name, _ in path:
            nodes[target] = (*nodes[target], (operation, name, nodes[source]))
        x = self._sum(first, nodes[-1])
        for block in self.engine.blocks[1:]:
            x, _ = block.forward(x, path, keep=False, matrices=self._matrices)
        return self.engine.head(x)[0]

    def _node(self, cell: CellPath, key: Key) -> Tensor:
        """A node's value, from its key: the batch for the cell's input, else its edges in order."""
        kept = self._get(key)
        if kept is not None:
            return kept
        if len(key) == 1 and isinstance(key[0], int):
            value, _ = self.engine.stem.forward(self.batches[key[0]], self._matrices)
        else:
            value = self._sum(cell, key)
        return self._keep(key, value)

    def _sum(self, cell: CellPath, edges: Key) -> Tensor:
        """The sum of the edges' values: a tensor that may be cached but must not be modified."""
        value = self._edge(cell, edges[0])
        if len(edges) > 1:
            value = value + self._edge(cell, edges[1])
        for edge in edges[2:]:
            value.add_(self._edge(cell, edge))
        return value

    def _edge(self, cell: CellPath, edge: Key) -> Tensor:
        operation, name, source = edge
        if operation == SKIP:
            return self._node(cell, source)
        key = (POOL, source) if operation == POOL else edge
        kept = self._get(key)
        if kept is not None:
            return kept
        if operation == POOL:
            return self._keep(key, kernels.pool(self._node(cell, source)))
        active = self._get(("active", source))
        if active is None:
            active = self._keep(("active", source), torch.relu(self._node(cell, source)))
        return self._keep(key, cell.layers[name].forward(active, self._matrices)[0])

    def _get(self, key: Key) -> Tensor | None:
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
        return kept

    def _keep(self, key: Key, value: Tensor) -> Tensor:
        if self._room:
            self._kept[key] = value
            if len(self._kept) > self._room:
                self._kept.popitem(last=False)
        return value
