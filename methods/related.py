"""A supernet of a few related subnets, all trained in every step, to compare their gradients.

The paper's Table I: a base subnet, and others that differ from it in one, three and five decisions. Their
gradients are summed; `observe.gradient_similarity` measures how similar they are. One such group says little about
subnets in general, so that a supernet may have several, one per step in turn.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.components.clustering import Clustering
from harness.components.method import Method
from harness.components.option import added
from harness.components.registries import METHODS
from harness.components.sampler import Sampler
from harness.components.space import Architecture, Space
from harness.errors import InvalidConfiguration

if TYPE_CHECKING:
    from harness.training.supernet import SupernetTraining


@METHODS.register("related")
@dataclass(frozen=True)
class Related(Method):
    """A base subnet drawn by the seed, and subnets that differ from it in a given number of decisions."""

    changes: tuple[int, ...] = (1, 3, 5)
    """In how many decisions each of the related subnets differs from the base."""

    bases: int = added(1)
    """How many bases there are, each with relatives of its own; a step trains one of these groups, in turn."""

    def __post_init__(self) -> None:
        if self.bases < 1:
            raise InvalidConfiguration(f"method.bases must be at least 1, not {self.bases}")
        if not self.changes or min(self.changes) < 1:
            raise InvalidConfiguration(f"method.changes must be counts of decisions, at least 1, not {self.changes}")

    def check(self, space: Space, clustering: Clustering, sampler: Sampler) -> None:
        if clustering.count > 1:
            raise InvalidConfiguration(
                "the related subnets are trained together in each step and cannot be clustered; use clusters.name=none"
            )
        self.subnets(space, random.Random(0))  # raises if there are too many changes

    def paths_per_step(self, space: Space) -> int:
        return 1 + len(self.changes)

    def paths(self, training: SupernetTraining) -> list[Architecture]:
        if "subnets" not in training.memory:
            drawn = [self.subnets(training.space, training.rng) for _ in range(self.bases)]
            training.memory["subnets"] = [subnet for group in drawn for subnet in group]
        size = self.paths_per_step(training.space)
        begin = training.step % self.bases * size
        return [tuple(subnet) for subnet in training.memory["subnets"][begin : begin + size]]

    def subnets(self, space: Space, rng: random.Random) -> list[Architecture]:
        """The base and its relatives. All are connected: a subnet without gradients cannot be compared."""
        base = space.sample(rng)
        while not space.is_connected(base):
            base = space.sample(rng)
        relatives = []
        for changes in self.changes:
            relative = space.neighbour(base, changes, rng)
            while not space.is_connected(relative):
                relative = space.neighbour(base, changes, rng)
            relatives.append(relative)
        return [base, *relatives]
