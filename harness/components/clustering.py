"""Interface of a cluster rule: which subnets share a momentum buffer (momentum separation, Eq. 7). Imports no torch."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.components.space import Architecture, Fixed, Space
from harness.errors import InvalidConfiguration


@dataclass(frozen=True)
class Clustering:
    """A cluster rule bound to a space: which momentum buffer a path uses."""

    count: int
    of: Callable[[Architecture], int]
    decisions: tuple[int, ...] | None = ()
    """The decisions that determine the cluster; None if only all decisions together do."""


@dataclass(frozen=True)
class ClusterRule(ABC):
    """How subnets are grouped for momentum separation (Eq. 7)."""

    @abstractmethod
    def bind(self, space: Space, fixed: Fixed, rng: random.Random) -> Clustering:
        """The clusters of the part of the space that `fixed` leaves open.

        `rng` is the same for all parts of a run. Raises `InvalidConfiguration` if there are fewer
        clusters than requested.
        """


def refuse_clusters(clustering: Clustering, method: str, why: str) -> None:
    """Raise `InvalidConfiguration` if there are several clusters: for a method whose steps need paths of several."""
    if clustering.count > 1:
        raise InvalidConfiguration(
            f"{method} cannot be combined with momentum separation: {why}, and one step updates one momentum buffer; "
            "use clusters.name=none"
        )


def one_cluster(clustering: Clustering, paths: Sequence[Architecture]) -> int:
    """The cluster that all paths of a step share."""
    clusters = {clustering.of(path) for path in paths}
    count = len(paths)
    if len(clusters) != 1:
        raise InvalidConfiguration(
            f"the {count} paths of one step are in {len(clusters)} clusters; one step updates one momentum buffer. "
            f"Draw them by training.draw({count}), which gives paths of one cluster, or use clusters.name=none"
        )
    return clusters.pop()
