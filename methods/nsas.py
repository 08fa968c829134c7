"""NSAS (Zhang et al., 2020): training a path must not make others forget; diverse ones constrain its loss.

The loss of a step is that of a drawn path plus that of paths from an archive, all on the same images. The archive holds
the most novel of the paths trained last. On NAS-Bench-201 its authors took two paths instead, a random one and one that
differs from the drawn path in every decision. CaLR weights each path's gradient by its rate, as in any step of several
paths; momentum separation is refused, because the paths of a step are chosen to be far apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from harness.components.clustering import Clustering, refuse_clusters
from harness.components.method import Method
from harness.components.registries import METHODS
from harness.components.sampler import Sampler
from harness.components.space import Architecture, Space
from harness.errors import InvalidConfiguration

if TYPE_CHECKING:
    import torch

    from harness.data.loader import Batch
    from harness.training.supernet import SupernetTraining

CONSTRAINTS = ("archive", "random-and-opposite")
OPPOSITE = (0.2, 0.4, 0.4)
"""The weights of the drawn, the random and the opposite path in the authors' variant for NAS-Bench-201."""


@METHODS.register("nsas")
@dataclass(frozen=True)
class NSAS(Method):
    """A drawn path, constrained by the losses of diverse earlier ones (novelty search)."""

    ranks_reason: ClassVar[str | None] = None

    constraints: str = "archive"
    """The paths that constrain a step: `archive`, or `random-and-opposite` (weights 0.2, 0.4, 0.4), the authors'
    variant for NAS-Bench-201."""
    size: int = 8
    """M, the number of paths in the archive."""
    neighbours: int = 10
    """k: novelty is the mean number of decisions in which a path differs from its k nearest candidates."""
    candidates: int = 50
    """The archive is chosen from so many of the paths trained last; at the start these are random."""
    weight: float = 0.5
    """The share of the archive's mean loss; that of the drawn path has the rest."""
    archive_gradient: bool = True
    """Whether the archive's losses have gradients. False is a defect of the released code, from which the values
    published for DARTS's space presumably come: only the drawn path is trained, its loss times 1 − weight."""

    def __post_init__(self) -> None:
        if self.constraints not in CONSTRAINTS:
            raise InvalidConfiguration(f"method.constraints is {self.constraints!r}; allowed: {', '.join(CONSTRAINTS)}")
        if not 0 <= self.weight < 1:
            raise InvalidConfiguration(f"method.weight must be from 0 to below 1, not {self.weight}")
        if self.candidates < 2:
            raise InvalidConfiguration(f"method.candidates must be at least 2, not {self.candidates}")
        if not 1 <= self.size <= self.candidates:
            raise InvalidConfiguration(f"method.size must be 1 to method.candidates, not {self.size}")
        if not 1 <= self.neighbours < self.candidates:
            raise InvalidConfiguration(
                f"method.neighbours must be at least 1 and less than method.candidates, not {self.neighbours}"
            )

    def check(self, space: Space, clustering: Clustering, sampler: Sampler) -> None:
        refuse_clusters(clustering, "NSAS", f"a step also trains paths of another kind ({self.constraints})")

    def paths_per_step(self, space: Space) -> int:
        if self.constraints != "archive":
            return len(OPPOSITE)
        return 1 + self.size if self.archive_gradient else 1

    def train_step(self, training: SupernetTraining, batch: Batch, step: int) -> torch.Tensor:
        space, rng = training.space, training.rng
        [path] = training.draw()
        if self.constraints != "archive":
            random, different = space.sample(rng), sum(count > 1 for count in space.choices)
            paths = [path, random, space.neighbour(path, different, rng)]
            return training.descend(batch, paths, step, weights=OPPOSITE)
        earlier = training.memory.setdefault("earlier", [space.sample(rng) for _ in range(self.candidates)])
        archive = most_novel(earlier, self.size, self.neighbours) if self.archive_gradient else []
        weights = [1 - self.weight, *[self.weight / self.size] * len(archive)]
        losses = training.descend(batch, [path, *archive], step, weights=weights)
        training.memory["earlier"] = [*earlier[1:], path]
        return losses


def most_novel(paths: Sequence[Architecture], count: int, neighbours: int) -> list[Architecture]:
    """The paths that differ most from their nearest neighbours, on average; of equal ones the earlier."""
    choices = np.array(paths)
    distances = np.sort((choices[:, None] != choices).sum(2), axis=1)  # the nearest to each path is itself
    novelty = distances[:, 1 : neighbours + 1].mean(1)
    return [paths[place] for place in np.argsort(-novelty, kind="stable")[:count]]
