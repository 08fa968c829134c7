"""Interface of a search space: how to count, sample, print and build its architectures.

An architecture is a tuple of integers, one per decision. Everything in the engine (samplers,
clusters, ranking, reports) works on such tuples, so it works on every space. This module knows no
particular space and imports no torch: planning a study must not wait for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, make_dataclass, replace
from functools import cached_property, lru_cache
from inspect import signature
from typing import TYPE_CHECKING, Any

from harness.components.decisions import Architecture as Architecture
from harness.components.decisions import Decisions as Decisions
from harness.components.decisions import Fixed as Fixed
from harness.components.decisions import short as short
from harness.errors import InvalidConfiguration

if TYPE_CHECKING:
    import torch


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


class Space(Decisions, ABC):
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
    """The decision at which few-shot methods split the space by default; None to draw it."""

    @cached_property
    def layers(self) -> tuple[tuple[int, ...], ...]:
        """The decisions that belong together, from input to output: by default each is a layer of its own.

        A decision about the whole network (its depth, for example) is in no layer.
        """
        return tuple((decision,) for decision in range(len(self.choices)))

    @cached_property
    def operation_decisions(self) -> tuple[int, ...]:
        """The decisions on an operation: all, unless the space says so.

        Clusters by operation draw from them, and differentiable methods learn architecture parameters for them.
        """
        return tuple(range(len(self.choices)))

    def constant_weight(self, decision: int) -> float:
        """The weight in a mixture of each choice of a decision that has no architecture parameters."""
        return 1 / self.choices[decision]

    def strongest(self, weights: Sequence[Sequence[float]]) -> Architecture:
        """The architecture that a differentiable method derives from weights of choices, one sequence per decision.

        By default the choice with the largest weight of each decision, of equal ones the first.
        """
        return tuple(max(range(len(own)), key=lambda choice: own[choice]) for own in weights)

    @cached_property
    def conditions(self) -> Mapping[int, tuple[int, ...]]:
        """By decision that does not always matter (the operation of an edge that may be absent): those that say so."""
        return {}

    def matters(self, architecture: Architecture, decision: int) -> bool:
        """Whether the decision changes the network, given the others. For those of `conditions`; others always do."""
        return True

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

    def wiring(self, architecture: Architecture) -> Wiring | Chain | Mapping[str, Wiring] | None:
        """The architecture to be drawn: a graph, graphs by name, or a chain of blocks; None if it has none."""
        return None

    @abstractmethod
    def complexity(self, architecture: Architecture, count: str = "parameters") -> int:
        """How large the stand-alone network is at the space's own published size.

        `count` is one of `complexity_counts`: "parameters" and "flops" (multiply-adds) for every space. A space that
        can count at any size takes `settings`, a third argument: the settings that `standalone` gets, or None.
        """

    @property
    def settings(self) -> Any:
        """The settings that `at` was given, for `counted` and `count_range`; None in a space that keeps none."""
        return None

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

        `settings` has the fields of `Network` and of `Inputs`. `harness.components.supernet` lists what else a supernet
        may offer.
        """

    @abstractmethod
    def standalone(self, architecture: Architecture, settings: Any) -> torch.nn.Module:
        """The architecture as a stand-alone network: `forward(images)` returns logits.

        With `settings.copies` above 1: the logits' second dimension is the copy.
        """


class SizedSpace(Space):
    """A space that counts networks of any size. `at` gives the same space with the counts of another size.

    `settings` are those whose networks are counted.
    """

    _settings: Any = None

    @abstractmethod
    def published(self, network: Any = None) -> Any:
        """The settings of the published counts, with those images and classes; `network` replaces the network's own."""

    @property
    def settings(self) -> Any:
        return self._settings or self.published()

    def at(self, settings: Any) -> Space:
        sized = type(self)()
        sized._settings = settings if hasattr(settings, "classes") else self.published(settings)
        return sized
