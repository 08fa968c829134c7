"""Interface of a search space: how to count, sample, print and build its architectures.

An architecture is a tuple of integers, one per decision. Everything in the engine (samplers,
clusters, ranking, reports) works on such tuples, so it works on every space. This module knows no
particular space and imports no torch: planning a study must not wait for it.
"""

from __future__ import annotations

import itertools
import random
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, make_dataclass, replace
from functools import cached_property, lru_cache
from inspect import signature
from math import prod
from typing import TYPE_CHECKING, Any

from harness.errors import InvalidConfiguration

if TYPE_CHECKING:
    import torch


Architecture = tuple[int, ...]

Fixed = Mapping[int, int]
"""Decisions that a part of the space holds constant, with their choices."""

FEW = 10**6
"""Spaces of at most so many architectures may be enumerated unless they say otherwise."""


@dataclass(frozen=True)
class Network:
    """The settings of a network that the space defines; this is the default, for spaces that define none.

    The space says what `width`, `depth` and `batch_norm` mean (for example channels of the first stage, and cells per
    stage).
    """

    width: int = 16
    """Channels of the first layers, as the space defines it."""
    depth: int = 5
    """Blocks one after the other, as the space defines it."""
    batch_norm: str = "batch-statistics"
    """What batch normalisation learns and which statistics it uses, as the space defines it."""

    def __post_init__(self) -> None:
        at_least_one(self, ("width", "depth"))


@dataclass(frozen=True)
class Inputs:
    """What the engine adds to the settings of a network: what goes in and what comes out.

    `copies` is above 1 only in a space that says `stacks = True`: so many networks that differ only in their weights
    run as one stacked network, with the channels of their images side by side.
    """

    classes: int = 10
    image_channels: int = 3
    image_size: int = 32
    copies: int = 1


@dataclass(frozen=True)
class NetworkSettings(Inputs, Network):
    """The default settings of a network, with what the engine adds."""

    def __post_init__(self) -> None:
        at_least_one(self, ("width", "depth", "classes", "image_channels", "image_size", "copies"))


def network_settings(network: Any, **inputs: int) -> Any:
    """A space's own settings together with `Inputs`: what `supernet` and `standalone` get, all as attributes."""
    own = {field.name: getattr(network, field.name) for field in fields(network)}
    kind: Any = type(network)
    return _with_inputs(kind)(**own, **inputs)


@lru_cache(maxsize=64)
def _with_inputs(kind: Any) -> type:
    if kind is Network:
        return NetworkSettings
    if clash := {field.name for field in fields(kind)} & {field.name for field in fields(Inputs)}:
        raise InvalidConfiguration(f"{kind.__name__} defines {', '.join(sorted(clash))}, which the engine adds")
    return make_dataclass(f"{kind.__name__}Settings", (), bases=(Inputs, kind), frozen=True)


def at_least_one(settings: Any, names: Sequence[str]) -> None:
    """Raise `InvalidConfiguration` for a setting below 1."""
    for name in names:
        if getattr(settings, name) < 1:
            raise InvalidConfiguration(f"network.{name} must be at least 1, not {getattr(settings, name)}")


@dataclass(frozen=True)
class Wiring:
    """An architecture as a graph to be drawn: named nodes from input to output, and labelled edges."""

    nodes: Sequence[str]
    edges: Sequence[tuple[int, int, str]]
    """(from, to, operation); operations that do nothing are left out."""


@dataclass(frozen=True)
class Block:
    """One block of a chain: its text, the text above it, and what its look says."""

    label: str
    above: str = ""
    kind: str = ""
    """Blocks of one kind have one colour; the empty kind is that of blocks that are not searched."""
    size: float = 1.0
    """Relative size, drawn as the block's height."""


@dataclass(frozen=True)
class Chain:
    """An architecture as blocks in a row to be drawn, from input to output."""

    blocks: tuple[Block, ...]


class Space(ABC):
    """A search space. Subclasses are registered in `spaces/` and hold no state but their definition."""

    name: str
    choices: tuple[int, ...]
    """How many choices each decision has."""

    complexity_counts: tuple[str, ...] = ("parameters", "flops")
    """The ways of counting that `complexity` accepts."""

    stacks: bool = False
    """Whether `standalone` can make `settings.copies` networks as one, so that several seeds train at once."""

    Network: type = Network
    """The type of the network's settings: a frozen dataclass, read from the section `network` of a configuration."""

    split: int | None = None
    """The decision at which few-shot methods split the space unless told otherwise; None to draw it."""

    @cached_property
    def size(self) -> int:
        """How many architectures the space holds."""
        return prod(self.choices)

    @cached_property
    def enumerable(self) -> bool:
        """Whether all architectures may be listed one by one. A space may say so itself, by a class attribute."""
        return self.size <= FEW

    @cached_property
    def layers(self) -> tuple[tuple[int, ...], ...]:
        """The decisions that belong together, from input to output: by default each is a layer of its own.

        A decision about the whole network (its depth, for example) is in no layer.
        """
        return tuple((decision,) for decision in range(len(self.choices)))

    @cached_property
    def operation_decisions(self) -> tuple[int, ...]:
        """The decisions for which differentiable methods learn architecture parameters: by default all."""
        return tuple(range(len(self.choices)))

    def constant_weight(self, decision: int) -> float:
        """The weight in a mixture of each choice of a decision that has no architecture parameters."""
        return 1 / self.choices[decision]

    def strongest(self, weights: Sequence[Sequence[float]]) -> Architecture:
        """The architecture that a differentiable method derives from weights of choices, one sequence per decision.

        By default the choice with the largest weight of each decision, of equal ones the first.
        """
        return tuple(max(range(len(own)), key=lambda choice: own[choice]) for own in weights)

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

    def canonical(self, architecture: Architecture) -> Architecture:
        """The representative of the architectures that differ only in decisions that do not matter given others."""
        return self.check(architecture)

    def function_class(self, architecture: Architecture) -> Architecture:
        """The representative of the architectures that are the same function of the supernet's weights."""
        return self.canonical(architecture)

    def network_class(self, architecture: Architecture) -> Architecture:
        """The representative of the architectures whose stand-alone networks are the same in training."""
        return self.canonical(architecture)

    @abstractmethod
    def parse(self, text: str) -> Architecture:
        """The architecture that `text` describes."""

    @abstractmethod
    def format(self, architecture: Architecture) -> str:
        """The architecture as text, in the form that publications use."""

    def wiring(self, architecture: Architecture) -> Wiring | Chain | None:
        """The architecture to be drawn, as a graph or as a chain of blocks; None where the space has no drawing."""
        return None

    @abstractmethod
    def complexity(self, architecture: Architecture, count: str = "parameters") -> int:
        """How large the stand-alone network is at the space's own published size.

        `count` is one of `complexity_counts`: "parameters" and "flops" (multiply-adds) for every space. A space that
        can count at any size takes `settings`, a third argument: the settings that `standalone` gets, or None.
        """

    def at(self, settings: Any) -> Space:
        """The same space with the counts of networks of these settings; by default with those of its published size.

        The engine trains and searches with this one: limits and complexities are those of the trial's own networks.
        `settings` has the fields of `Network` and, once the images are known, of `Inputs`.
        """
        return self

    def counts_text(self) -> str:
        """The counts that it has, for messages."""
        return ", ".join(self.complexity_counts)

    @cached_property
    def counts_at_any_size(self) -> tuple[str, ...]:
        """The counts that `complexity` gives at any settings: all if it takes them, unless the class says less."""
        return self.complexity_counts if "settings" in signature(self.complexity).parameters else ()

    def counted(self, architecture: Architecture, count: str, settings: Any = None) -> int:
        """The count of the stand-alone network at these settings; at the published size where no other is known."""
        if settings is None or count not in self.counts_at_any_size:
            return self.complexity(architecture, count)
        at_any_size: Any = self.complexity
        return int(at_any_size(architecture, count, settings))

    def count_range(self, count: str, settings: Any = None) -> tuple[int, int]:
        """The least and the greatest count at these settings; see `extremes` and `counted`."""
        if settings is None or count not in self.counts_at_any_size:
            return self.complexity_range(count)
        if type(self).extremes is Space.extremes and self.enumerable:
            counts = [self.counted(architecture, count, settings) for architecture in self]
            return min(counts), max(counts)
        extremes: Any = self.extremes
        if "settings" in signature(extremes).parameters:
            least, _, greatest, _ = extremes(count, settings)
            return least, greatest
        _, smallest, _, largest = self.extremes(count)
        return self.counted(smallest, count, settings), self.counted(largest, count, settings)

    def extremes(self, count: str = "parameters") -> tuple[int, Architecture, int, Architecture]:
        """The least count with its architecture, and the greatest with its own (the lowest number if several have it).

        A space that is not `enumerable` must define this: raises `InvalidConfiguration` otherwise. One whose smallest
        and largest architectures depend on the network takes `settings`, a second argument, as `complexity` does.
        """
        if not self.enumerable:
            raise InvalidConfiguration(
                f"the least and the greatest {count} of {self.name} are unknown: it has {short(self.size)} "
                f"architectures, so its class must define extremes(count)"
            )
        if count not in self._extremes:
            counts = [(self.complexity(architecture, count), architecture) for architecture in self]
            (least, smallest), (greatest, largest) = (end(counts, key=lambda one: one[0]) for end in (min, max))
            self._extremes[count] = least, smallest, greatest, largest
        return self._extremes[count]

    def complexity_range(self, count: str = "parameters") -> tuple[int, int]:
        """The smallest and the largest complexity in the space (C_min and C_max of Eq. 5 and 6)."""
        least, _, greatest, _ = self.extremes(count)
        return least, greatest

    @cached_property
    def _extremes(self) -> dict[str, tuple[int, Architecture, int, Architecture]]:
        return {}

    def alone(self, network: Any) -> Any:
        """The settings of a stand-alone network, for the supernet's: the default ones track statistics of batches."""
        return replace(network, batch_norm="tracked") if isinstance(network, Network) else network

    def parameter_groups(self, network: torch.nn.Module) -> Sequence[Mapping[str, Any]]:
        """The supernet's parameters in groups: `params`, `learning_rate_factor` and `weight_decay_factor` (1 each).

        A factor holds for the whole training: 0 decay for biases, a smaller rate for a pretrained stem.
        """
        return [{"params": list(network.parameters())}]

    def operation_parameters(self, network: Any) -> Mapping[tuple[int, int], Sequence[torch.Tensor]]:
        """By decision and choice, the supernet's parameters that only paths with that choice use. Methods that
        measure operations refuse a space that does not define this; choices without parameters are left out."""
        return {}

    @abstractmethod
    def supernet(self, settings: Any) -> torch.nn.Module:
        """The supernet: a module whose `forward(images, architecture)` returns logits.

        `settings` has the fields of `Network` and of `Inputs`. `harness.components.supernet` lists what a supernet
        may offer beside.
        """

    @abstractmethod
    def standalone(self, architecture: Architecture, settings: Any) -> torch.nn.Module:
        """The architecture as a stand-alone network: `forward(images)` returns logits.

        With `settings.copies` above 1: the logits' second dimension is the copy.
        """


def short(size: int) -> str:
    """A number of architectures for readers: in full, or as a power of ten where that is too long."""
    return f"{size:,}" if size < 10**9 else f"10^{len(str(size)) - 1}"
