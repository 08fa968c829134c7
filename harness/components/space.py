"""Interface of a search space: how to count, sample, print and build its architectures.

An architecture is a tuple of integers, one per decision. Everything in the engine (samplers,
clusters, ranking, reports) works on such tuples, so it works on every space. This module knows no
particular space and imports no torch: planning a study must not wait for it.
"""

from __future__ import annotations

import itertools
import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

from harness.errors import InvalidConfiguration

if TYPE_CHECKING:
    import torch


Architecture = tuple[int, ...]

Fixed = Mapping[int, int]
"""Decisions that a part of the space holds constant, with their choices."""

BATCH_NORMS = {
    "batch-statistics": "no affine parameters, statistics of the current batch, in training and evaluation",
    "benchmark": "as the benchmark's supernet: cells as in batch-statistics, all else affine with running statistics",
    "tracked": "affine with running statistics everywhere, as in stand-alone networks",
}


@dataclass(frozen=True)
class NetworkSettings:
    """The size of a network, shared by supernets and stand-alone networks of every space.

    The space defines what `width` and `depth` mean (for example channels of the first stage, and
    cells per stage). `copies` networks that differ only in their weights run as one stacked network,
    with the channels of their images side by side.
    """

    width: int = 16
    depth: int = 5
    classes: int = 10
    image_channels: int = 3
    image_size: int = 32
    batch_norm: str = "batch-statistics"
    copies: int = 1

    def __post_init__(self) -> None:
        for name in ("width", "depth", "classes", "image_channels", "image_size", "copies"):
            if getattr(self, name) < 1:
                raise InvalidConfiguration(f"network.{name} must be at least 1, not {getattr(self, name)}")
        if self.batch_norm not in BATCH_NORMS:
            allowed = "; ".join(f"{name!r} ({meaning})" for name, meaning in BATCH_NORMS.items())
            raise InvalidConfiguration(f"network.batch_norm is {self.batch_norm!r}; allowed: {allowed}")


@dataclass(frozen=True)
class Wiring:
    """An architecture as a graph to be drawn: named nodes from input to output, and labelled edges."""

    nodes: Sequence[str]
    edges: Sequence[tuple[int, int, str]]
    """(from, to, operation); operations that do nothing are left out."""


class Space(ABC):
    """A search space. Subclasses are registered in `spaces/` and hold no state but their definition."""

    name: str
    choices: tuple[int, ...]
    """How many choices each decision has."""

    complexity_counts: tuple[str, ...] = ("parameters", "flops")
    """The ways of counting that `complexity` accepts."""

    @cached_property
    def size(self) -> int:
        """How many architectures the space holds."""
        return prod(self.choices)

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
        """All architectures, in order of their numbers."""
        return itertools.product(*(range(count) for count in self.choices))

    def sample(self, rng: random.Random, fixed: Mapping[int, int] | None = None) -> Architecture:
        """One architecture, every decision uniform except the `fixed` ones."""
        fixed = fixed or {}
        return tuple(
            fixed[decision] if decision in fixed else rng.randrange(count)
            for decision, count in enumerate(self.choices)
        )

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

    def is_connected(self, architecture: Architecture) -> bool:
        """Whether the input of the architecture is connected to its output."""
        self.check(architecture)
        return True

    def function_class(self, architecture: Architecture) -> Architecture:
        """The representative of the architectures that are the same function of the supernet's weights."""
        return self.check(architecture)

    def network_class(self, architecture: Architecture) -> Architecture:
        """The representative of the architectures whose stand-alone networks are the same in training."""
        return self.check(architecture)

    @abstractmethod
    def parse(self, text: str) -> Architecture:
        """The architecture that `text` describes."""

    @abstractmethod
    def format(self, architecture: Architecture) -> str:
        """The architecture as text, in the form that publications use."""

    def wiring(self, architecture: Architecture) -> Wiring | None:
        """The architecture as a graph to be drawn; None where the space has no drawing."""
        return None

    @abstractmethod
    def complexity(self, architecture: Architecture, count: str = "parameters") -> int:
        """How large the stand-alone network is at the space's own published size.

        `count` is one of `complexity_counts`: "parameters" and "flops" (multiply-adds) for every space.
        """

    def complexity_range(self, count: str = "parameters") -> tuple[int, int]:
        """The smallest and the largest complexity in the space (C_min and C_max of Eq. 5 and 6)."""
        if count not in self._ranges:
            counts = [self.complexity(architecture, count) for architecture in self]
            self._ranges[count] = min(counts), max(counts)
        return self._ranges[count]

    @cached_property
    def _ranges(self) -> dict[str, tuple[int, int]]:
        return {}

    @abstractmethod
    def supernet(self, settings: NetworkSettings) -> torch.nn.Module:
        """The supernet: a module whose `forward(images, architecture)` returns logits."""

    def parameter_groups(self, network: torch.nn.Module) -> Sequence[Mapping[str, Any]]:
        """The supernet's parameters in groups: `params`, `learning_rate_factor` and `weight_decay_factor` (1 each).

        A factor holds for the whole training: 0 decay for biases, a smaller rate for a pretrained stem.
        """
        return [{"params": list(network.parameters())}]

    @abstractmethod
    def standalone(self, architecture: Architecture, settings: NetworkSettings) -> torch.nn.Module:
        """The architecture as a stand-alone network: `forward(images)` returns logits.

        With `settings.copies` above 1: the logits' second dimension is the copy.
        """
