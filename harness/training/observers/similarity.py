"""Similarity of the first layer's gradients of different subnets, as cosines.

`GradientSimilarity` is MGCS (Table I): between the paths of a step. Per step, the cosine between the gradient of the
first path and that of each other path, for the first parameter of the network; the mean over the steps of the last
epoch that have the same paths, then over these groups of paths, with the standard deviation over the groups. A zero
gradient has no direction: such a step does not count for that path.

`similarity_by_distance` compares pairs of subnets of any supernet on one batch of training images, by the number of
decisions in which they differ.
"""

from __future__ import annotations

import functools
import random
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from harness.components.method import Part
from harness.components.space import Architecture, Space
from harness.training.ranks import ALONE, Ranks

PAIRS = 20
"""Pairs of subnets per distance."""

IMAGES = 64
"""Training images that the gradients of pairs are of: the first ones, without augmentation."""

DISTANCES = range(1, 7)
"""Numbers of decisions in which the two subnets of a pair differ."""

ATTEMPTS = 200
"""Draws until a distance counts as impossible."""

Group = tuple[list[float], list[int]]
"""Sums of cosines and numbers of steps, by path."""


class GradientSimilarity:
    """Records the steps from `first_step` on."""

    def __init__(self, layer: torch.nn.Parameter, first_step: int, ranks: Ranks = ALONE) -> None:
        self.layer, self.ranks = layer, ranks
        self.first_step = first_step
        self.groups: dict[tuple[Architecture, ...], Group] = {}
        self._group: Group = ([], [])
        self._sum_before: Tensor | None = None
        self._gradients: list[Tensor] = []

    def clear(self) -> None:
        """Called when an epoch begins."""
        self.groups = {}

    def begin(self, paths: Sequence[Architecture]) -> None:
        """Called when a step with these paths begins, without gradients."""
        others = len(paths) - 1
        self._group = self.groups.setdefault(tuple(paths), ([0.0] * others, [0] * others))
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
        sums, counts = self._group
        for place, other in enumerate(others):
            if (found := _cosine(first, other)) is not None:
                sums[place] += found
                counts[place] += 1

    def measured(self) -> dict[str, float]:
        """`mgcs_1` is the second path's mean similarity to the first, and so on."""
        found: dict[str, float] = {}
        for place in range(max((len(sums) for sums, _ in self.groups.values()), default=0)):
            own = [(sums[place], counts[place]) for sums, counts in self.groups.values() if place < len(sums)]
            found |= _described("mgcs", place + 1, [total / count for total, count in own if count])
        return found

    def state(self) -> dict[str, Any]:
        return {"groups": [([list(path) for path in paths], *group) for paths, group in self.groups.items()]}

    def restore(self, state: dict[str, Any]) -> None:
        self.groups = {
            tuple(tuple(path) for path in paths): (list(sums), list(counts)) for paths, sums, counts in state["groups"]
        }


def pairs_by_distance(
    space: Space, part: Part, rng: random.Random, pairs: int = PAIRS
) -> dict[int, list[tuple[Architecture, Architecture]]]:
    """Pairs of connected subnets of a part of a space, by the number of decisions in which they differ.

    The first subnets of the pairs are the same for all distances. A distance without enough pairs is left out.
    """
    options = {d: part.allowed.get(d, range(count)) for d, count in enumerate(space.choices) if d not in part.fixed}
    free = [decision for decision, choices in options.items() if len(choices) > 1]
    bases = [base for _ in range(pairs) if (base := _inside(space, part, lambda: space.sample(rng))) is not None]
    made: dict[int, list[tuple[Architecture, Architecture]]] = {}
    for distance in DISTANCES:
        if distance > len(free) or len(bases) < pairs:
            break
        found = []
        for base in bases:
            other = _inside(space, part, functools.partial(_changed, space, part, base, free, distance, rng))
            found += [] if other is None else [(base, other)]
        if len(found) == pairs:
            made[distance] = found
    return made


def similarity_by_distance(
    network: torch.nn.Module,
    pairs: dict[int, list[tuple[Architecture, Architecture]]],
    images: Tensor,
    labels: Tensor,
) -> dict[str, float]:
    """Mean and standard deviation, over pairs, of the cosine between the gradients of the network's first parameter.

    The network is in training mode, as where gradients train it; its buffers and its mode are then restored.
    """
    layer, was_training = next(network.parameters()), network.training
    kept = {name: buffer.clone() for name, buffer in network.named_buffers()}
    network.train()
    gradients: dict[Architecture, Tensor] = {}
    try:
        with torch.enable_grad():
            for subnet in dict.fromkeys(one for own in pairs.values() for pair in own for one in pair):
                loss = functional.cross_entropy(network(images, subnet).float(), labels)
                (gradient,) = torch.autograd.grad(loss, layer, allow_unused=True)
                gradients[subnet] = (torch.zeros_like(layer) if gradient is None else gradient).flatten().double()
    finally:
        network.train(was_training)
        with torch.no_grad():
            for name, buffer in network.named_buffers():
                buffer.copy_(kept[name])
    found: dict[str, float] = {}
    for distance, own in pairs.items():
        cosines = [_cosine(gradients[one], gradients[other]) for one, other in own]
        found |= _described("gradient_similarity", distance, [cosine for cosine in cosines if cosine is not None])
    return found


def _described(name: str, place: int, values: Sequence[float]) -> dict[str, float]:
    """The mean of values and, of several, their standard deviation, by the names of their curves."""
    found = {f"{name}_{place}": statistics.fmean(values)} if values else {}
    return found | ({f"{name}_deviation_{place}": statistics.stdev(values)} if len(values) > 1 else {})


def _cosine(one: Tensor, other: Tensor) -> float | None:
    lengths = float(one.norm()) * float(other.norm())
    return float(one @ other) / lengths if lengths > 0 else None


def _changed(
    space: Space, part: Part, base: Architecture, free: Sequence[int], distance: int, rng: random.Random
) -> Architecture:
    """The same architecture with another choice at so many of the free decisions."""
    changed = list(base)
    for decision in rng.sample(free, distance):
        choices = part.allowed.get(decision, range(space.choices[decision]))
        changed[decision] = rng.choice([choice for choice in choices if choice != base[decision]])
    return tuple(changed)


def _inside(space: Space, part: Part, draw: Callable[[], Architecture]) -> Architecture | None:
    """The first drawn architecture that, with the fixed decisions of the part, is connected and belongs to it."""
    for _ in range(ATTEMPTS):
        drawn = list(draw())
        for decision, choice in part.fixed.items():
            drawn[decision] = choice
        if (made := tuple(drawn)) in part and space.is_connected(made):
            return made
    return None
