"""Interface of a search: which architectures of a space are found with a trained supernet. Imports no torch.

A search requests scores and returns what it has found, the best first. It keeps no state: an interrupted search runs
again from its start, with the same random numbers, and gets the scores that are stored already without computing them.
Searches are frozen dataclasses whose fields are their options. `keep` and `limits` are options of every search.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from harness.components.option import added
from harness.components.space import Architecture, Space, network_settings
from harness.errors import InvalidConfiguration

TRIES = 10_000
"""Consecutive random architectures outside of the limits after which a search gives up."""


class Score(Protocol):
    """Predicts accuracies with the trained supernets. Every score is stored."""

    def __call__(
        self, architectures: Sequence[Architecture], batches: int | None = None, *, generation: int | None = None
    ) -> list[float]:
        """The predicted accuracies in percent, on the first `batches` batches of the ranking images; None for all.

        `generation` counts the generations of a search that has them, from 0 on; it is stored with the scores.
        """


@dataclass(frozen=True)
class Found:
    """An architecture that a search has found, with its predicted accuracy on all ranking images."""

    architecture: Architecture
    score: float


@dataclass(frozen=True)
class Limits:
    """Ranges that every found architecture must keep: least and greatest value of some counts."""

    space: Space
    ranges: Mapping[str, tuple[float | None, float | None]]
    settings: Any = None
    """The settings of the stand-alone networks that are counted; None for the space's published size."""
    within: Callable[[Architecture], bool] | None = None
    """The part of the space that is searched; None for all of it."""

    def allow(self, architecture: Architecture) -> bool:
        """Whether the architecture is in the part that is searched, and all its counts are within their ranges."""
        if self.within is not None and not self.within(architecture):
            return False
        for count, (least, greatest) in self.ranges.items():
            number = self.space.counted(architecture, count, self.settings)
            if (least is not None and number < least) or (greatest is not None and number > greatest):
                return False
        return True

    def check(self) -> None:
        """Raise `InvalidConfiguration` for limits below the smallest network of the space, or above the largest."""
        for count, (least, greatest) in self.ranges.items():
            smallest, largest = self.space.count_range(count, self.settings)
            if greatest is not None and greatest < smallest:
                wrong, end = f"at most {greatest:,.12g} {count}", f"the smallest has {smallest:,}"
            elif least is not None and least > largest:
                wrong, end = f"at least {least:,.12g} {count}", f"the largest has {largest:,}"
            else:
                continue
            raise InvalidConfiguration(f"search.limits.{count}: no network of {self.space.name} has {wrong}; {end}")

    def sample(self, rng: random.Random) -> Architecture:
        """A random architecture within the limits. Raises `InvalidConfiguration` if none is found."""
        for _ in range(TRIES):
            if self.allow(architecture := self.space.sample(rng)):
                return architecture
        raise InvalidConfiguration(f"none of {TRIES:,} random architectures of {self.space.name} is within {self}")

    def distinct(self, count: int, rng: random.Random) -> list[Architecture]:
        """So many random architectures within the limits, no two of them equal in all that matters.

        Fewer if the space does not seem to hold so many.
        """
        drawn: dict[Architecture, Architecture] = {}
        misses = 0
        while len(drawn) < count and misses < TRIES:
            architecture = self.sample(rng)
            before = len(drawn)
            drawn.setdefault(self.space.canonical(architecture), architecture)
            misses = 0 if len(drawn) > before else misses + 1
        return list(drawn.values())

    def __str__(self) -> str:
        return "search.limits " + ", ".join(f"{count} {list(ends)}" for count, ends in self.ranges.items())


@dataclass(frozen=True)
class Search(ABC):
    """How architectures are searched once the supernets are trained."""

    keep: int = 1
    """How many architectures are found; each can be retrained (`retrain.which`)."""
    limits: Mapping[str, Any] = field(default_factory=dict)
    """By count (`parameters`, `flops`, …): least and greatest value, each null for no limit."""
    each_supernet: bool = added(False)
    """Whether every supernet of a few-shot method is searched by itself: `keep` architectures are found in each."""
    test_accuracy: bool = added(False)
    """Whether the best architecture found is evaluated on the test images, with the weights of its supernet."""

    def __post_init__(self) -> None:
        if self.keep < 1:
            raise InvalidConfiguration(f"search.keep must be at least 1, not {self.keep}")
        for count, ends in self.limits.items():
            numbers = isinstance(ends, list | tuple) and len(ends) == 2 and all(map(_is_end, ends))
            if not numbers or (None not in ends and ends[0] > ends[1]):
                raise InvalidConfiguration(
                    f"search.limits.{count} must be the least and the greatest value, each a number or null, "
                    f"not {ends!r}"
                )

    @property
    def rounds(self) -> int | None:
        """The number of generations, for those who watch; None for a search without generations."""
        return None

    def limits_in(self, space: Space, settings: Any = None) -> Limits:
        """The limits, for networks of that space with these settings; None for its published size.

        Raises `InvalidConfiguration` for a count that the space does not have.
        """
        for count in self.limits:
            if count not in space.complexity_counts:
                raise InvalidConfiguration(
                    f"search.limits.{count} is not a count of {space.name}; allowed: {space.counts_text()}"
                )
        return Limits(space, {count: (ends[0], ends[1]) for count, ends in self.limits.items()}, settings)

    def check(self, space: Space) -> None:
        """Raise an error with the reason for a space that cannot be searched. Called before anything runs."""
        self.limits_in(space)

    def check_limits(self, limits: Limits) -> None:
        """Raise `InvalidConfiguration` for limits that the search cannot keep. Called before anything runs.

        By default some random architecture must be within them.
        """
        limits.check()
        if limits.ranges:
            limits.sample(random.Random(0))

    @abstractmethod
    def find(self, score: Score, space: Space, rng: random.Random, limits: Limits) -> list[Found]:
        """The architectures found, best first, at most `keep`; all within the limits."""


def counted_settings(space: Space, network: Any, inputs: Mapping[str, int]) -> Any:
    """The settings of the stand-alone networks that a search counts: the supernet's, for a data set's `inputs`."""
    return network_settings(space.alone(network), **inputs)


def best_of(
    score: Score,
    architectures: Sequence[Architecture],
    keep: int,
    batches: int | None = None,
    finalists: int | None = None,
) -> list[Found]:
    """The `keep` best by their scores on all images; of equal ones the earlier.

    With `batches`, all are first scored on so many batches, and only the `finalists` best of these on all.
    """
    if batches is not None:
        rough = score(architectures, batches)
        order = sorted(range(len(rough)), key=lambda place: -rough[place])[: max(keep, finalists or keep)]
        architectures = [architectures[place] for place in sorted(order)]
    found = [Found(one, value) for one, value in zip(architectures, score(architectures), strict=True)]
    return sorted(found, key=lambda one: -one.score)[:keep]


def _is_end(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
