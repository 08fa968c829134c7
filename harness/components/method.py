"""Interface of a method: supernets (parts), paths and training steps. No torch at import.

A method says which supernets there are (`parts`), which paths a step trains (`paths`), and, where
needed, how a step is trained (`train_step`). Schedules, cluster rules and samplers are components
of their own, so that every method can be combined with every one of them. All are frozen dataclasses
whose fields are their options (one without options needs no decorator of its own); they get
to know the space when they are bound to it.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.components.clustering import Clustering
from harness.components.sampler import Sampler
from harness.components.space import Architecture, Fixed, Space

if TYPE_CHECKING:
    import torch

    from harness.data.loader import Batch
    from harness.training.supernet import SupernetTraining

@dataclass(frozen=True)
class Part:
    """One supernet of a method, and the decisions that it holds constant. Parts partition the space."""

    fixed: Fixed

    def __contains__(self, architecture: Architecture) -> bool:
        return all(architecture[decision] == choice for decision, choice in self.fixed.items())


@dataclass(frozen=True)
class Method(ABC):
    """How a supernet, or several, is trained.

    The default step (`SupernetTraining.descend`) trains all paths of a step on the same batch, weights
    them as the schedule says, and makes one update. A method that distils, meta-learns, or learns
    architecture parameters replaces `train_step`; one that resamples data gives `data_order`. State that
    such a step keeps belongs in `SupernetTraining.memory`; otherwise a resumed run would lose it.
    """

    def parts(self, space: Space, rng: random.Random) -> tuple[Part, ...]:
        """The supernets, by the part of the space that each covers."""
        return (Part({}),)

    def check(self, space: Space, clustering: Clustering, sampler: Sampler) -> None:
        """Raise an error with the reason for a combination that cannot be trained. Called before anything runs."""

    def paths_per_step(self, space: Space) -> int:
        """How many paths one step trains: the cost of a step in forward-backward passes."""
        return 1

    @abstractmethod
    def paths(self, training: SupernetTraining) -> list[Architecture]:
        """The paths of the next step. All must be in one cluster."""

    def train_step(self, training: SupernetTraining, batch: Batch, step: int) -> torch.Tensor:
        """Make one update of the weights; returns the paths' losses (detached, one value per path)."""
        return training.descend(batch, self.paths(training), step)

    def found(self, training: SupernetTraining) -> Sequence[Architecture]:
        """What the method itself has found with a supernet that is now trained, the best first; empty for nothing.

        Not asked for where the configuration has a search.
        """
        return ()

    def data_order(self, epoch: int) -> Sequence[int] | None:
        """The samples of an epoch in order; None for a random permutation."""
        return None
