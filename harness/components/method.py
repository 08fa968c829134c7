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

    The default step (`SupernetTraining.descend`) trains all paths of a step on the same batch, weighs
    them as the schedule says, and makes one update. A method that distils, meta-learns, or learns
    architecture parameters replaces `train_step`; one that resamples data gives `data_order`. What such a
    step must remember goes into `SupernetTraining.memory`, or a resumed run would not know it.
    """

    def parts(self, space: Space, rng: random.Random) -> tuple[Part, ...]:
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
