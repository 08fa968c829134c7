"""ShiftNAS (Zhang et al., 2023), as far as it is published: a reading, not a reimplementation.

Published: uniform sampling trains mostly subnets of intermediate complexity; the probability of a group of subnets of
similar complexity follows how much its performance still changes; a generator gives subnets of a wanted complexity;
both are learnt by gradients. No code and no settings are published. This reading chooses:

- groups are intervals of equal width between the least and the greatest FLOPs;
- a group's performance is the mean training loss of its paths in an epoch, so that nothing is computed only to choose;
- its variation is the absolute difference from the last epoch in which it was trained. After each epoch the groups
  get probabilities in proportion to it, and all the same share of `uniform`. A group that has no variation yet counts
  as the mean of the others. In the first epoch all groups are equally likely;
- in place of a learnt generator, a random walk: from a uniform path, single decisions change at random, and a change
  is kept unless it leads away from the wanted complexity, until the path is in its group.

Tables show it as `ShiftNAS (reading)`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.components.registries import METHODS
from harness.components.sampler import PathSource, Sampler
from harness.components.space import Architecture, Fixed, Space
from harness.errors import InvalidConfiguration, require

from .spos import SPOS

if TYPE_CHECKING:
    import torch

    from harness.training.supernet import SupernetTraining

WALKS, PATIENCE = 5, 20
"""How many walks are tried, and how many changes per decision in each: a group may hold no path at all."""


@dataclass(frozen=True)
class Shifting:
    """The options of the reading."""

    groups: int = 8
    """How many groups of complexity; nothing is published."""
    uniform: float = 0.2
    """The share of paths that is drawn from all groups alike, so that none is forgotten; nothing is published."""
    complexity: str = "flops"
    """How complexity is counted: one of the space's counts."""

    def __post_init__(self) -> None:
        require(self.groups >= 2, f"method.groups must be at least 2, not {self.groups}")
        require(0 <= self.uniform <= 1, f"method.uniform must be in [0, 1], not {self.uniform}")


@METHODS.register("shiftnas-reading")
@dataclass(frozen=True)
class ShiftNAS(Shifting, SPOS):
    """A reading of ShiftNAS: more steps for groups of complexity whose loss still changes most."""

    def own_sampler(self) -> Sampler:
        return ByVariation(**vars(self))


@dataclass(frozen=True)
class ByVariation(Shifting, Sampler):
    """Paths of groups of complexity; the probability of a group follows the variation of its loss."""

    def bind(self, space: Space, fixed: Fixed) -> PathSource:
        if self.complexity not in space.complexity_counts:
            raise InvalidConfiguration(
                f"method.complexity is {self.complexity!r}; {space.name} allows {space.counts_text()}"
            )
        least, greatest = space.complexity_range(self.complexity)
        if least == greatest:
            raise InvalidConfiguration(
                f"ShiftNAS needs subnets of different complexity; all of {space.name} have {least} {self.complexity}"
            )
        width = (greatest - least) / self.groups
        return Grouped(space, fixed, self, least, width, [1 / self.groups] * self.groups)


@dataclass
class Grouped(PathSource):
    """The groups' probabilities, and their losses in this epoch and before."""

    space: Space
    fixed: Fixed
    settings: Shifting
    least: float
    width: float
    probabilities: list[float]
    losses: list[tuple[int, float]] = field(default_factory=list)
    """The groups and losses of the paths of this epoch."""
    before: dict[int, float] = field(default_factory=dict)
    """By group, the mean loss of the last epoch in which it was trained."""

    def group(self, path: Architecture) -> int:
        above = self.space.complexity(path, self.settings.complexity) - self.least
        return min(int(above / self.width), self.settings.groups - 1)

    def draw(self, rng: random.Random) -> Architecture:
        [group] = rng.choices(range(self.settings.groups), self.probabilities)
        return self.path_of(group, rng)

    def path_of(self, group: int, rng: random.Random) -> Architecture:
        """A path of that group, or one near it if the group has none."""
        free = [d for d, count in enumerate(self.space.choices) if count > 1 and d not in self.fixed]
        nearest: tuple[float, Architecture] = (math.inf, ())
        for _ in range(WALKS):
            path = self.space.sample(rng, self.fixed)
            away = self.away(path, group)
            for _ in range(PATIENCE * len(free)):
                if not away:
                    return path
                decision = rng.choice(free)
                other = (*path[:decision], rng.randrange(self.space.choices[decision]), *path[decision + 1 :])
                if (then := self.away(other, group)) <= away:
                    path, away = other, then
            nearest = min(nearest, (away, path))
        return nearest[1]

    def away(self, path: Architecture, group: int) -> float:
        """How far the path's complexity is from the group's interval."""
        if self.group(path) == group:
            return 0.0
        above = self.space.complexity(path, self.settings.complexity) - self.least - group * self.width
        return max(-above, above - self.width, 1e-9)

    def learn(self, training: SupernetTraining, paths: Sequence[Architecture], losses: torch.Tensor) -> None:
        self.losses += zip(map(self.group, paths), losses.tolist(), strict=False)
        if (training.step + 1) % training.steps_per_epoch == 0:
            self.shift()

    def shift(self) -> None:
        """The epoch is over: probabilities follow how much the groups' losses have changed."""
        means = {group: _mean([loss for own, loss in self.losses if own == group]) for group, _ in self.losses}
        changes = {group: abs(mean - self.before[group]) for group, mean in means.items() if group in self.before}
        self.before |= means
        self.losses = []
        if any(changes.values()):
            count, usual = self.settings.groups, _mean(list(changes.values()))
            variations = [changes.get(group, usual) for group in range(count)]
            follows = (1 - self.settings.uniform) / sum(variations)
            self.probabilities = [self.settings.uniform / count + follows * one for one in variations]

    def state(self) -> Any:
        return {"probabilities": self.probabilities, "losses": self.losses, "before": list(self.before.items())}

    def restore(self, state: Any) -> None:
        self.probabilities, self.before = state["probabilities"], dict(map(tuple, state["before"]))
        self.losses = [(group, loss) for group, loss in state["losses"]]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
