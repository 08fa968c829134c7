"""Searches: which architectures are found with a trained supernet."""

from __future__ import annotations

import random
from dataclasses import dataclass

from harness.components.registries import SEARCHES
from harness.components.search import Found, Limits, Score, Search, best_of
from harness.components.space import Space
from harness.errors import InvalidConfiguration


@dataclass(frozen=True)
class TwoCosts(Search):
    """A search that may score all candidates on a few batches first, and the best of them on all images."""

    batches: int | None = None
    """Batches of the first scores; null to score all candidates on all images."""
    finalists: int | None = None
    """How many of the best by these are scored on all images; null for `keep`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("batches", "finalists"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidConfiguration(f"search.{name} must be at least 1, or null, not {value}")
        if self.finalists is not None and self.batches is None:
            raise InvalidConfiguration("search.finalists needs search.batches: without it all are scored on all images")


@SEARCHES.register("exhaustive")
@dataclass(frozen=True)
class Exhaustive(TwoCosts):
    """All architectures within the limits are scored: for spaces that can be listed."""

    def check(self, space: Space) -> None:
        super().check(space)
        iter(space)  # refuses a space that is too large

    def check_limits(self, limits: Limits) -> None:
        limits.check()
        if limits.ranges and not any(map(limits.allow, limits.space)):
            raise InvalidConfiguration(f"no architecture of {limits.space.name} is within {limits}")

    def find(self, score: Score, space: Space, rng: random.Random, limits: Limits) -> list[Found]:
        candidates = {space.canonical(one): one for one in reversed(list(space)) if limits.allow(one)}
        ordered = sorted(candidates.values())
        return best_of(score, ordered, self.keep, self.batches, self.finalists)


@SEARCHES.register("random")
@dataclass(frozen=True)
class RandomSearch(Search):
    """Random architectures within the limits, not chosen by their scores: what a search must be better than."""

    def find(self, score: Score, space: Space, rng: random.Random, limits: Limits) -> list[Found]:
        drawn = limits.distinct(self.keep, rng)
        return [Found(one, value) for one, value in zip(drawn, score(drawn), strict=True)]


@SEARCHES.register("best-of-n-random")
@dataclass(frozen=True)
class BestOfRandom(TwoCosts):
    """The best of `samples` random architectures within the limits."""

    samples: int = 1000
    """How many random architectures are scored."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.samples < self.keep:
            raise InvalidConfiguration(f"search.samples must be at least search.keep, {self.keep}, not {self.samples}")

    def find(self, score: Score, space: Space, rng: random.Random, limits: Limits) -> list[Found]:
        return best_of(score, limits.distinct(self.samples, rng), self.keep, self.batches, self.finalists)
