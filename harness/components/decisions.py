"""Architectures as tuples of integers, one per decision: how to number, draw and change them. Imports no torch.

Knows only how many choices each decision has. A space adds what the decisions mean.
"""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Iterator, Mapping
from functools import cached_property
from math import prod

from harness.errors import InvalidConfiguration

Architecture = tuple[int, ...]

Fixed = Mapping[int, int]
"""Decisions that a part of the space holds constant, with their choices."""

FEW = 10**6
"""Spaces of at most so many architectures may be enumerated unless they say otherwise."""


class Decisions:
    """Independent decisions, each with a number of choices."""

    name: str
    """What they are the decisions of, for messages."""
    choices: tuple[int, ...]
    """How many choices each decision has."""

    @cached_property
    def size(self) -> int:
        """How many architectures the space holds."""
        return prod(self.choices)

    @cached_property
    def enumerable(self) -> bool:
        """Whether all architectures may be listed one by one. A space may say so itself, by a class attribute."""
        return self.size <= FEW

    def check(self, architecture: Architecture) -> Architecture:
        """The architecture itself, if it belongs to this space. Otherwise raises `InvalidConfiguration`."""
        if len(architecture) != len(self.choices):
            raise InvalidConfiguration(
                f"{architecture} has {len(architecture)} decisions; "
                f"an architecture of {self.name} has {len(self.choices)}"
            )
        for decision, (choice, count) in enumerate(zip(architecture, self.choices, strict=True)):
            if not 0 <= choice < count:
                raise InvalidConfiguration(
                    f"{architecture}: decision {decision} of {self.name} takes 0 to {count - 1}, not {choice}"
                )
        return architecture

    def index(self, architecture: Architecture) -> int:
        """The architecture's number: mixed radix, first decision most significant."""
        number = 0
        for choice, count in zip(self.check(architecture), self.choices, strict=True):
            number = number * count + choice
        return number

    def architecture(self, index: int) -> Architecture:
        """The architecture with that number: the inverse of `index`."""
        if not 0 <= index < self.size:
            raise InvalidConfiguration(f"{self.name} has architectures 0 to {self.size - 1}, not {index}")
        digits = []
        for count in reversed(self.choices):
            index, digit = divmod(index, count)
            digits.append(digit)
        return tuple(reversed(digits))

    def __iter__(self) -> Iterator[Architecture]:
        """All architectures, in order of their numbers. Raises `InvalidConfiguration` unless `enumerable`."""
        if not self.enumerable:
            raise InvalidConfiguration(
                f"{self.name} has {short(self.size)} architectures, which nothing can list one by one"
            )
        return itertools.product(*(range(count) for count in self.choices))

    def sample(self, rng: random.Random, fixed: Mapping[int, int] | None = None) -> Architecture:
        """One architecture, every decision uniform except the `fixed` ones."""
        fixed = fixed or {}
        return tuple(
            fixed[decision] if decision in fixed else rng.randrange(count)
            for decision, count in enumerate(self.choices)
        )

    def distinct(self, count: int, rng: random.Random) -> list[Architecture]:
        """`count` different architectures, drawn uniformly, in order of their numbers."""
        if count > self.size:
            raise InvalidConfiguration(f"{self.name} has {self.size} architectures, not {count}")
        if self.size <= sys.maxsize:
            return [self.architecture(number) for number in sorted(rng.sample(range(self.size), count))]
        drawn: set[Architecture] = set()
        while len(drawn) < count:
            drawn.add(tuple(rng.randrange(choices) for choices in self.choices))
        return sorted(drawn)

    def mutate(self, architecture: Architecture, rng: random.Random, probability: float) -> Architecture:
        """An architecture in which each decision is drawn uniformly with that probability; it may stay as it is."""
        return tuple(
            rng.randrange(count) if rng.random() < probability else choice
            for choice, count in zip(self.check(architecture), self.choices, strict=True)
        )

    def alter(self, architecture: Architecture, rng: random.Random, probability: float) -> Architecture:
        """An architecture in which each decision has another choice with that probability."""
        changed = list(self.check(architecture))
        for decision, count in enumerate(self.choices):
            if count > 1 and rng.random() < probability:
                changed[decision] = (changed[decision] + rng.randrange(1, count)) % count
        return tuple(changed)

    def crossover(self, one: Architecture, other: Architecture, rng: random.Random) -> Architecture:
        """An architecture with each decision from one of the two, drawn uniformly."""
        pairs = zip(self.check(one), self.check(other), strict=True)
        return tuple(mine if rng.random() < 0.5 else its for mine, its in pairs)

    def crossable(self, one: Architecture, other: Architecture) -> bool:
        """Whether a search may cross the two; it draws others if not."""
        return True

    def neighbour(self, architecture: Architecture, changes: int, rng: random.Random) -> Architecture:
        """An architecture that differs in exactly `changes` decisions, drawn uniformly."""
        changed = list(self.check(architecture))
        for decision in rng.sample(self._changeable(changes), changes):
            step = rng.randrange(1, self.choices[decision])
            changed[decision] = (changed[decision] + step) % self.choices[decision]
        return tuple(changed)

    def neighbours(self, architecture: Architecture, changes: int) -> Iterator[Architecture]:
        """All architectures that differ in exactly `changes` decisions."""
        self.check(architecture)
        for decisions in itertools.combinations(self._changeable(changes), changes):
            others = ([c for c in range(self.choices[d]) if c != architecture[d]] for d in decisions)
            for replacement in itertools.product(*others):
                changed = list(architecture)
                for decision, choice in zip(decisions, replacement, strict=True):
                    changed[decision] = choice
                yield tuple(changed)

    def _changeable(self, changes: int) -> list[int]:
        """The decisions that have another choice, if there are at least `changes` of them."""
        free = [decision for decision, count in enumerate(self.choices) if count > 1]
        if not 0 <= changes <= len(free):
            raise InvalidConfiguration(f"{self.name} can change 0 to {len(free)} decisions, not {changes}")
        return free


def short(size: int) -> str:
    """A number of architectures for readers: in full, or as a power of ten where that is too long."""
    return f"{size:,}" if size < 10**9 else f"10^{len(str(size)) - 1}"
