"""Samplers of single paths: uniform, and in proportion to complexity."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from harness.components.registries import SAMPLERS
from harness.components.sampler import PathSource, Sampler
from harness.components.space import Architecture, Fixed, Space
from harness.errors import InvalidConfiguration


@SAMPLERS.register("uniform")
@dataclass(frozen=True)
class Uniform(Sampler):
    """Every decision uniform and independent."""

    def bind(self, space: Space, fixed: Fixed) -> PathSource:
        return _UniformSource(space, fixed)


class _UniformSource(PathSource):
    uniform: ClassVar[bool] = True

    def __init__(self, space: Space, fixed: Fixed) -> None:
        self.space, self.fixed = space, fixed

    def draw(self, rng: random.Random) -> Architecture:
        return self.space.sample(rng, self.fixed)


@SAMPLERS.register("by-complexity")
@dataclass(frozen=True)
class ByComplexity(Sampler):
    """P(α) in proportion to C(α): larger subnets more often (Table G)."""

    complexity: str = "parameters"
    """How C(α) is counted: one of the space's counts."""

    def bind(self, space: Space, fixed: Fixed) -> PathSource:
        if self.complexity not in space.complexity_counts:
            raise InvalidConfiguration(
                f"sampler.complexity is {self.complexity!r}; {space.name} allows {space.counts_text()}"
            )
        return _ByComplexitySource(space, fixed, self.complexity)


class _ByComplexitySource(PathSource):
    """Exact by rejection: a uniform path is kept with probability C(α)/C_max."""

    def __init__(self, space: Space, fixed: Fixed, count: str) -> None:
        self.space, self.fixed, self.count = space, fixed, count
        self.largest = space.complexity_range(count)[1]

    def draw(self, rng: random.Random) -> Architecture:
        while True:
            path = self.space.sample(rng, self.fixed)
            if rng.random() * self.largest < self.space.complexity(path, self.count):
                return path
