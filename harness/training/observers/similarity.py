"""Similarity of the first layer's gradients between the paths of a step (MGCS, Table I).

Per step, the cosine between the gradient of the first path and that of each other path, for the first parameter
of the network; the mean over the steps of the last epoch. A zero gradient has no direction: such a step does not
count for that path.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from harness.training.ranks import ALONE, Ranks


class GradientSimilarity:
    """Records the steps from `first_step` on."""

    def __init__(self, layer: torch.nn.Parameter, first_step: int, ranks: Ranks = ALONE) -> None:
        self.layer, self.ranks = layer, ranks
        self.first_step = first_step
        self.sums: list[float] = []
        self.counts: list[int] = []
        self._sum_before: Tensor | None = None
        self._gradients: list[Tensor] = []

    def clear(self) -> None:
        """Called when an epoch begins."""
        self.sums, self.counts = [], []

    def begin(self) -> None:
        """Called when a step begins, without gradients."""
        self._sum_before, self._gradients = None, []

    @torch.no_grad()
    def path_done(self) -> None:
        """Called when a path has added its gradient to those of the paths before it."""
        total = torch.zeros_like(self.layer) if self.layer.grad is None else self.layer.grad.clone()
        self.ranks.sum_([total], [self.layer])
        before = self._sum_before
        self._gradients.append((total if before is None else total - before).flatten().double())
        self._sum_before = total

    @torch.no_grad()
    def end(self) -> None:
        """Called when all paths of the step are done."""
        first, *others = self._gradients
        while len(self.sums) < len(others):
            self.sums.append(0.0)
            self.counts.append(0)
        for place, other in enumerate(others):
            lengths = float(first.norm()) * float(other.norm())
            if lengths > 0:
                self.sums[place] += float(first @ other) / lengths
                self.counts[place] += 1

    def measured(self) -> dict[str, float]:
        """`mgcs_1` is the second path's mean similarity to the first, and so on."""
        pairs = enumerate(zip(self.sums, self.counts, strict=True), start=1)
        return {f"mgcs_{place}": total / count for place, (total, count) in pairs if count}

    def state(self) -> dict[str, Any]:
        return {"sums": list(self.sums), "counts": list(self.counts)}

    def restore(self, state: dict[str, Any]) -> None:
        self.sums, self.counts = list(state["sums"]), list(state["counts"])
