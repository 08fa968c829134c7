"""How much gradients and momentum buffers vary over the steps of an epoch (Figures 2c, 5 and B).

The paper reports "average standard deviations of gradients and momentums" and neither its code nor that of the
work it follows shows how. Here: for each element of each parameter the sample standard deviation over the steps
of the epoch in which its parameter had a gradient, then the mean over all elements that had at least two. The
gradient is the one that enters the update, before its norm is clipped; the momentum is the buffer that the step
updated, of any cluster.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from harness.components.optimiser import Optimiser


class Deviation:
    """Running standard deviations, element by element (Welford's method)."""

    def __init__(self, count: int) -> None:
        self.counts = [0] * count
        self.means: dict[int, Tensor] = {}
        self.squares: dict[int, Tensor] = {}
        """Sums of squared differences from the mean."""

    def clear(self) -> None:
        self.counts = [0] * len(self.counts)
        for sums in (self.means, self.squares):
            if sums:
                torch._foreach_zero_(list(sums.values()))

    @torch.no_grad()
    def add(self, places: Sequence[int], values: list[Tensor]) -> None:
        """Add the next value at each of these places."""
        for place, value in zip(places, values, strict=True):
            self.counts[place] += 1
            if place not in self.means:
                self.means[place], self.squares[place] = torch.zeros_like(value), torch.zeros_like(value)
        if not places:
            return
        means, squares = [self.means[place] for place in places], [self.squares[place] for place in places]
        # The difference from the new mean is (1 - share) times that from the old one: three passes instead of five.
        shares = [1 / self.counts[place] for place in places]
        before = torch._foreach_sub(values, means)
        torch._foreach_lerp_(means, values, shares)
        torch._foreach_addcmul_(squares, before, before, [1 - share for share in shares])

    def mean(self) -> float | None:
        """The mean over all elements with at least two values; None if there are none."""
        several = [place for place, count in enumerate(self.counts) if count > 1]
        if not several:
            return None
        elements = sum(self.squares[place].numel() for place in several)
        sums = [(self.squares[place].double() / (self.counts[place] - 1)).sqrt().sum() for place in several]
        return float(torch.stack(sums).sum()) / elements

    def state(self) -> dict[str, Any]:
        return {"counts": list(self.counts), "means": dict(self.means), "squares": dict(self.squares)}

    def restore(self, state: dict[str, Any], like: Sequence[Tensor]) -> None:
        self.counts = list(state["counts"])
        self.means, self.squares = (
            {int(place): torch.empty_like(like[int(place)]).copy_(sums) for place, sums in state[name].items()}
            for name in ("means", "squares")
        )


class Spread:
    """The spread of the gradients and momenta of one supernet over the steps of an epoch."""

    def __init__(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self.gradients, self.momenta = Deviation(len(self.parameters)), Deviation(len(self.parameters))
        self.seconds = 0.0
        """Seconds spent on measuring since the last reset to 0; not part of the training time."""

    def clear(self) -> None:
        """Called when an epoch begins."""
        self.gradients.clear()
        self.momenta.clear()

    def before_update(self) -> None:
        """Called when the gradients of a step are complete."""
        began = time.perf_counter()
        active = self._active()
        self.gradients.add(active, [gradient for p in active if (gradient := self.parameters[p].grad) is not None])
        self.seconds += time.perf_counter() - began

    def after_update(self, optimiser: torch.optim.Optimizer, component: Optimiser) -> None:
        """Called after this optimiser's step."""
        began = time.perf_counter()
        buffers = {place: component.momentum_of(optimiser, self.parameters[place]) for place in self._active()}
        there = {place: buffer for place, buffer in buffers.items() if buffer is not None}
        self.momenta.add(list(there), list(there.values()))
        self.seconds += time.perf_counter() - began

    def measured(self) -> dict[str, float]:
        """Values for the epoch so far, by name."""
        found = {"gradient_spread": self.gradients.mean(), "momentum_spread": self.momenta.mean()}
        return {name: value for name, value in found.items() if value is not None}

    def bytes(self) -> int:
        """Memory held between steps."""
        deviations = (self.gradients, self.momenta)
        held = [sums for one in deviations for each in (one.means, one.squares) for sums in each.values()]
        return sum(sums.numel() * sums.element_size() for sums in held)

    def state(self) -> dict[str, Any]:
        return {"gradients": self.gradients.state(), "momenta": self.momenta.state()}

    def restore(self, state: dict[str, Any]) -> None:
        like = [parameter.detach() for parameter in self.parameters]
        self.gradients.restore(state["gradients"], like)
        self.momenta.restore(state["momenta"], like)

    def _active(self) -> list[int]:
        return [place for place, parameter in enumerate(self.parameters) if parameter.grad is not None]
