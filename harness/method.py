"""What a method is made of: paths, parts, clusters, schedules, samplers. No torch at import.

A method says which supernets there are (`parts`), which paths a step trains (`paths`), and, where it
needs to, how the step itself goes (`train_step`). Schedules, cluster rules and samplers are components
of their own, so that every method can be combined with every one of them. All are frozen dataclasses
whose fields are their options (one without options needs no decorator of its own); what they need to
know of a space they learn when they are bound to it.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from harness.errors import InvalidConfiguration
from harness.space import Architecture, Space

if TYPE_CHECKING:
    import torch

    from harness.data.loader import Batch
    from harness.training import SupernetTraining

Fixed = Mapping[int, int]
"""Decisions that a part of the space holds constant, with their choices."""

Factor = Callable[[Architecture, float], float]
"""(path, progress t/T) → what the initial learning rate is multiplied by."""


@dataclass(frozen=True)
class Schedule(ABC):
    """How the learning rate falls over training."""

    depends_on_path: ClassVar[bool] = False
    """Whether two paths of one step may have different rates."""

    @abstractmethod
    def bind(self, space: Space) -> Factor:
        """The schedule's factor for paths of that space."""


@dataclass(frozen=True)
class Clustering:
    """A cluster rule bound to a space: which momentum buffer a path uses."""

    count: int
    of: Callable[[Architecture], int]
    decisions: tuple[int, ...] | None = ()
    """The decisions that determine the cluster; None when no set of decisions short of all does."""


@dataclass(frozen=True)
class ClusterRule(ABC):
    """How subnets are grouped for momentum separation (Eq. 7)."""

    @abstractmethod
    def bind(self, space: Space, fixed: Fixed, chance: random.Random) -> Clustering:
        """The clusters of the part of the space that `fixed` leaves open.

        `chance` is the same for all parts of a run. Raises `InvalidConfiguration` when there are fewer
        clusters than asked for.
        """


class PathSource(ABC):
    """A sampler bound to a part of a space. Those that learn keep their state here."""

    uniform: ClassVar[bool] = False
    """Whether all paths of the part are equally likely: then a method may draw them in its own way."""

    @abstractmethod
    def draw(self, chance: random.Random) -> Architecture:
        """The next path."""

    def learn(self, paths: Sequence[Architecture], losses: torch.Tensor) -> None:
        """Told after each step which paths were trained and what their losses were (one value a path)."""

    def state(self) -> Any:
        """What must be stored to go on later, as plain JSON types."""
        return None

    def restore(self, state: Any) -> None:
        """Go on from a stored state."""


@dataclass(frozen=True)
class Sampler(ABC):
    """How single paths are drawn."""

    @abstractmethod
    def bind(self, space: Space, fixed: Fixed) -> PathSource:
        """A source of paths for the part of the space that `fixed` leaves open."""


@dataclass(frozen=True)
class Part:
    """One supernet of a method, and the decisions that it holds constant. Parts partition the space."""

    fixed: Fixed

    def __contains__(self, architecture: Architecture) -> bool:
        return all(architecture[decision] == choice for decision, choice in self.fixed.items())


@dataclass(frozen=True)
class Method(ABC):
    """How a supernet, or several, is trained.

    The default step (`SupernetTraining.descend`) trains all paths of a step on the same batch, weighs
    them as the schedule says, and makes one update. A method that distils, meta-learns, or learns
    architecture parameters replaces `train_step`; one that resamples data gives `data_order`. What such a
    step must remember goes into `SupernetTraining.memory`, or a resumed run would not know it.
    """

    def parts(self, space: Space, chance: random.Random) -> tuple[Part, ...]:
        """The supernets, by the part of the space that each covers."""
        return (Part({}),)

    def check(self, space: Space, clustering: Clustering, sampler: Sampler) -> None:
        """Refuse a combination that cannot be trained, with the reason, before anything runs."""

    def paths_per_step(self, space: Space) -> int:
        """How many paths one step trains: the cost of a step in forward-backward passes."""
        return 1

    @abstractmethod
    def paths(self, training: SupernetTraining) -> list[Architecture]:
        """The paths of the next step. All must lie in one cluster."""

    def train_step(self, training: SupernetTraining, batch: Batch, step: int) -> torch.Tensor:
        """One update of the weights; gives the paths' losses (detached, one value a path)."""
        return training.descend(batch, self.paths(training), step)

    def data_order(self, epoch: int) -> Sequence[int] | None:
        """The samples of an epoch in order; None for a random permutation."""
        return None


def one_cluster(clustering: Clustering, paths: Sequence[Architecture]) -> int:
    """The cluster that all paths of a step share."""
    clusters = {clustering.of(path) for path in paths}
    if len(clusters) != 1:
        raise InvalidConfiguration(
            f"the {len(paths)} paths of one step lie in {len(clusters)} clusters; one step updates one momentum buffer"
        )
    return clusters.pop()
