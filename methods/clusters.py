"""Cluster rules for momentum separation: which subnets share a momentum buffer (Eq. 7)."""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import prod

from harness.components.clustering import Clustering, ClusterRule
from harness.components.registries import CLUSTER_RULES
from harness.components.space import Architecture, Fixed, Space
from harness.errors import InvalidConfiguration
from harness.seeds import derive


@CLUSTER_RULES.register("none")
@dataclass(frozen=True)
class NoClusters(ClusterRule):
    """One momentum buffer for all subnets: no separation."""

    def bind(self, space: Space, fixed: Fixed, rng: random.Random) -> Clustering:
        return Clustering(1, lambda path: 0)


@CLUSTER_RULES.register("operation")
@dataclass(frozen=True)
class ByOperation(ClusterRule):
    """By the operation at one edge, or at several (in NAS-Bench-201: 5, 25, 125, 625 clusters).

    An edge that a path may lack has one cluster more, for the paths without it.
    """

    edges: int = 1
    """Number of edges, drawn once per run from those that are not fixed."""
    at: tuple[int, ...] | None = None
    """The edges themselves, instead of drawing them."""

    def bind(self, space: Space, fixed: Fixed, rng: random.Random) -> Clustering:
        free = _open_decisions(space, fixed)
        if self.at is not None:
            for decision in self.at:
                if decision not in free:
                    raise InvalidConfiguration(
                        f"clusters.at: decision {decision} does not distinguish subnets here; possible: {free}"
                    )
            if len(set(self.at)) != len(self.at) or not self.at:
                raise InvalidConfiguration(f"clusters.at must name different decisions, not {list(self.at)}")
            return _by_decisions(space, self.at)
        edges = [decision for decision in free if decision in set(space.operation_decisions)]
        if not 1 <= self.edges <= len(edges):
            raise InvalidConfiguration(f"clusters.edges must be 1 to {len(edges)} in {space.name}, not {self.edges}")
        return _by_decisions(space, tuple(sorted(rng.sample(edges, self.edges))))


@CLUSTER_RULES.register("first-layer")
@dataclass(frozen=True)
class ByFirstLayer(ClusterRule):
    """By the choices of the first searchable layer (the paper's rule for macro spaces)."""

    def bind(self, space: Space, fixed: Fixed, rng: random.Random) -> Clustering:
        return _by_decisions(space, _open_layers(space, fixed)[0])


@CLUSTER_RULES.register("last-layer")
@dataclass(frozen=True)
class ByLastLayer(ClusterRule):
    """By the choices of the last searchable layer."""

    def bind(self, space: Space, fixed: Fixed, rng: random.Random) -> Clustering:
        return _by_decisions(space, _open_layers(space, fixed)[-1])


@CLUSTER_RULES.register("random")
@dataclass(frozen=True)
class Random(ClusterRule):
    """Each subnet assigned at random, once per run, to one of n clusters."""

    clusters: int = 5
    """How many clusters."""

    def bind(self, space: Space, fixed: Fixed, rng: random.Random) -> Clustering:
        subnets = prod(count for decision, count in enumerate(space.choices) if decision not in fixed)
        if not 1 <= self.clusters <= subnets:
            raise InvalidConfiguration(
                f"clusters.clusters must be 1 to the number of subnets, {subnets}, not {self.clusters}"
            )
        salt = rng.getrandbits(63)
        # Hashed, not stored: works on spaces that cannot be enumerated.
        return Clustering(self.clusters, lambda path: derive(salt, *path) % self.clusters, decisions=None)


def _open_decisions(space: Space, fixed: Fixed) -> list[int]:
    free = [d for d, choices in enumerate(space.choices) if choices > 1 and d not in fixed]
    if not free:
        raise InvalidConfiguration(f"{space.name} has no free decision to cluster by")
    return free


def _open_layers(space: Space, fixed: Fixed) -> list[tuple[int, ...]]:
    """The layers that are not fixed, from input to output, each with its open decisions."""
    free = set(_open_decisions(space, fixed))
    layers = [tuple(decision for decision in layer if decision in free) for layer in space.layers]
    if not any(layers):
        raise InvalidConfiguration(f"{space.name} has no layer with a free decision to cluster by")
    return [layer for layer in layers if layer]


def _by_decisions(space: Space, decisions: tuple[int, ...]) -> Clustering:
    """One cluster per combination of choices at the decisions, numbered in mixed radix.

    A decision that does not matter in every path has one more choice, the last, for where it does not.
    """
    conditions = space.conditions
    counts = [space.choices[decision] + (decision in conditions) for decision in decisions]

    def of(path: Architecture) -> int:
        number = 0
        for decision, count in zip(decisions, counts, strict=True):
            absent = decision in conditions and not space.matters(path, decision)
            number = number * count + (count - 1 if absent else path[decision])
        return number

    all_that_decide = {*decisions, *(one for decision in decisions for one in conditions.get(decision, ()))}
    return Clustering(prod(counts), of, decisions if not conditions else tuple(sorted(all_that_decide)))
