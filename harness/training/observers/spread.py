"""How much gradients and momentum buffers vary over the steps of an epoch (Figures 2c, 5 and B).

The paper reports "average standard deviations of gradients and momentums" and neither its code nor that of the
work it follows shows how. Here: for each element of each parameter the sample standard deviation over the steps
of the epoch in which its parameter had a gradient, then the mean over all elements that had at least two. The
gradient is the one that enters the update, before its norm is clipped; the momentum is the buffer that the step
updated, of any cluster.

Pooled over clusters, the momenta of separated buffers spread *more* the more the clusters' gradients differ, since each
buffer then has a mean of its own. What separation lowers is the deviation within clusters: from the mean of the buffers
of the same cluster in the epoch. It is also measured without separation, by the clusters that separation would have.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from harness.components.clustering import Clustering
from harness.components.optimiser import Optimiser
from harness.components.space import Architecture


class Deviation:
    """Running standard deviations, element by element (Welford's method): from the mean, or from that of each group."""

    def __init__(self, count: int) -> None:
        self.size = count
        self.counts = [0] * count
        """By group, then by place."""
        self.means: dict[int, Tensor] = {}
        """By the same index."""
        self.squares: dict[int, Tensor] = {}
        """By place, sums of squared differences from the mean of the group."""

    def clear(self) -> None:
        self.counts = [0] * len(self.counts)
        for sums in (self.means, self.squares):
            if sums:
                torch._foreach_zero_(list(sums.values()))

    @torch.no_grad()
    def add(self, places: Sequence[int], values: list[Tensor], group: int = 0) -> None:
        """Add the next value of the group at each of these places."""
        self.counts += [0] * ((group + 1) * self.size - len(self.counts))
        indices = [group * self.size + place for place in places]
        for place, index, value in zip(places, indices, values, strict=True):
            self.counts[index] += 1
            if index not in self.means:
                self.means[index] = torch.zeros_like(value)
            if place not in self.squares:
                self.squares[place] = torch.zeros_like(value)
        if not places:
            return
        means, squares = [self.means[index] for index in indices], [self.squares[place] for place in places]
        # The difference from the new mean is (1 - share) times that from the old one: three passes instead of five.
        shares = [1 / self.counts[index] for index in indices]
        before = torch._foreach_sub(values, means)
        torch._foreach_lerp_(means, values, shares)
        torch._foreach_addcmul_(squares, before, before, [1 - share for share in shares])

    def mean(self) -> float | None:
        """The mean over all elements with at least two values; None if there are none."""
        freedom = self.freedom()
        if not freedom:
            return None
        elements = sum(self.squares[place].numel() for place in freedom)
        sums = [(self.squares[place].double() / count).sqrt().sum() for place, count in freedom.items()]
        return float(torch.stack(sums).sum()) / elements

    def groups(self, place: int) -> list[int]:
        """The counts of the groups that have values at a place."""
        return [count for count in self.counts[place :: self.size] if count]

    def freedom(self) -> dict[int, int]:
        """The degrees of freedom by place, where there are any: values less groups."""
        found = {place: self.groups(place) for place in range(self.size)}
        return {place: left for place, counts in found.items() if (left := sum(counts) - len(counts)) > 0}

    def variance(self, place: int, freedom: int) -> float:
        """The sum of the variances of a place's elements."""
        return float((self.squares[place].double() / freedom).sum())

    def state(self) -> dict[str, Any]:
        return {"counts": list(self.counts), "means": dict(self.means), "squares": dict(self.squares)}

    def restore(self, state: dict[str, Any], like: Sequence[Tensor]) -> None:
        self.counts = list(state["counts"])
        self.means, self.squares = (
            {
                int(index): torch.empty_like(like[int(index) % self.size]).copy_(sums)
                for index, sums in state[name].items()
            }
            for name in ("means", "squares")
        )


class Spread:
    """The spread of the gradients and momenta of one supernet over the steps of an epoch."""

    def __init__(self, parameters: Sequence[torch.nn.Parameter], clustering: Clustering | None = None) -> None:
        """With `clustering` also within these clusters, in the steps whose paths all belong to one of them."""
        self.parameters = list(parameters)
        self.clustering = clustering
        self.gradients, self.momenta = Deviation(len(self.parameters)), Deviation(len(self.parameters))
        self.gradients_within, self.momenta_within = Deviation(len(self.parameters)), Deviation(len(self.parameters))
        self.cluster: int | None = None
        """That of the step under way."""
        self.seconds = 0.0
        """Seconds spent on measuring since the last reset to 0; not part of the training time."""

    def clear(self) -> None:
        """Called when an epoch begins."""
        for one in self._all().values():
            one.clear()

    def begin(self, paths: Sequence[Architecture]) -> None:
        """Called before an update, with the paths of its step."""
        clusters = {self.clustering.of(path) for path in paths} if self.clustering is not None else set()
        self.cluster = clusters.pop() if len(clusters) == 1 else None

    def before_update(self) -> None:
        """Called when the gradients of a step are complete."""
        began = time.perf_counter()
        active = self._active()
        gradients = [gradient for p in active if (gradient := self.parameters[p].grad) is not None]
        self.gradients.add(active, gradients)
        if self.cluster is not None:
            self.gradients_within.add(active, gradients, self.cluster)
        self.seconds += time.perf_counter() - began

    def after_update(self, optimiser: torch.optim.Optimizer, component: Optimiser) -> None:
        """Called after this optimiser's step."""
        began = time.perf_counter()
        buffers = {place: component.momentum_of(optimiser, self.parameters[place]) for place in self._active()}
        there = {place: buffer for place, buffer in buffers.items() if buffer is not None}
        self.momenta.add(list(there), list(there.values()))
        if self.cluster is not None:
            self.momenta_within.add(list(there), list(there.values()), self.cluster)
        self.cluster = None
        self.seconds += time.perf_counter() - began

    def measured(self) -> dict[str, float]:
        """Values for the epoch so far, by name."""
        found = {
            "gradient_spread": self.gradients.mean(),
            "momentum_spread": self.momenta.mean(),
            "momentum_spread_within": self.momenta_within.mean(),
            "gradient_share_between": self._share_between(),
        }
        return {name: value for name, value in found.items() if value is not None}

    def _share_between(self) -> float | None:
        """The share of the gradients' variance that is between clusters: 1 less mean squares within over total.

        Over the parameters that several clusters train. Degrees of freedom are counted in both, so that the share is 0
        on average where clusters do not differ, and may be below 0. None without such parameters.
        """
        within = self.gradients_within
        free = {place: left for place, left in within.freedom().items() if len(within.groups(place)) > 1}
        inside = sum(within.variance(place, left) for place, left in free.items())
        # Steps without a cluster count for neither.
        total = sum(self._total(place) for place in free)
        return 1 - inside / total if total > 0 else None

    def _total(self, place: int) -> float:
        """The sum of the variances of a place's elements over all clusters, from those within and their means."""
        within = self.gradients_within
        pairs = [
            (count, within.means[index])
            for index in range(place, len(within.counts), within.size)
            if (count := within.counts[index])
        ]
        steps = sum(count for count, _ in pairs)
        centre = torch.stack([mean.double() * count for count, mean in pairs]).sum(0) / steps
        between = torch.stack([(mean.double() - centre).square() * count for count, mean in pairs]).sum()
        return float(within.squares[place].double().sum() + between) / (steps - 1)

    def bytes(self) -> int:
        """Memory held between steps."""
        held = [sums for one in self._all().values() for each in (one.means, one.squares) for sums in each.values()]
        return sum(sums.numel() * sums.element_size() for sums in held)

    def state(self) -> dict[str, Any]:
        return {name: one.state() for name, one in self._all().items()}

    def restore(self, state: dict[str, Any]) -> None:
        like = [parameter.detach() for parameter in self.parameters]
        for name, one in self._all().items():
            one.restore(state[name], like)

    def _all(self) -> dict[str, Deviation]:
        """What is measured, by its name in a checkpoint."""
        within = {"gradients_within": self.gradients_within, "momenta_within": self.momenta_within}
        return {"gradients": self.gradients, "momenta": self.momenta, **(within if self.clustering else {})}

    def _active(self) -> list[int]:
        return [place for place, parameter in enumerate(self.parameters) if parameter.grad is not None]
