"""FairNAS (Chu et al., 2021): strict fairness, every operation of every decision once per step.

A step trains n paths, n the largest number of choices; path k takes the k-th entry of a random
permutation at each decision. A decision with fewer choices repeats a fresh permutation: with 6 choices
and n = 7 each is trained once, and one of them, drawn uniformly, twice. With momentum
separation the clustered decisions are constant within a step (Algorithm 2), so that the step belongs to
one cluster; strict fairness then holds for all other decisions. With a sampler that is not uniform the
paths of a step are drawn from it, and fairness is given up.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.components.clustering import Clustering
from harness.components.method import Method
from harness.components.registries import METHODS
from harness.components.sampler import Sampler
from harness.components.space import Architecture, Fixed, Space
from harness.errors import InvalidConfiguration

if TYPE_CHECKING:
    from harness.training.supernet import SupernetTraining


@METHODS.register("fairnas")
@dataclass(frozen=True)
class FairNAS(Method):
    """Strict fairness: every operation of every decision is trained once per step."""

    def check(self, space: Space, clustering: Clustering, sampler: Sampler) -> None:
        if clustering.decisions is None:
            raise InvalidConfiguration(
                f"{type(self).__name__} cannot use these clusters: the paths of one step differ in every decision, "
                "and no decision can be held constant to keep them in one cluster; use clusters by operation"
            )

    def paths_per_step(self, space: Space) -> int:
        return max(space.choices)

    def paths(self, training: SupernetTraining) -> list[Architecture]:
        if not training.source.uniform:
            # Every fair step holds all operations once, so all fair steps have the same complexity and a preference
            # would have no effect. The paper (Table G) does not say what it did instead: here, as many paths.
            return training.draw(max(training.space.choices))
        held = dict(training.part.fixed)
        for decision in training.clustering.decisions or ():
            held[decision] = training.rng.randrange(training.space.choices[decision])
        return fair_paths(training.space, training.rng, held)


def fair_paths(space: Space, rng: random.Random, held: Fixed) -> list[Architecture]:
    """One step's paths: as many as the largest decision has choices, the `held` decisions constant."""
    count = max(space.choices)
    columns = [
        [held[decision]] * count if decision in held else _permutations(choices, count, rng)
        for decision, choices in enumerate(space.choices)
    ]
    return [tuple(column[path] for column in columns) for path in range(count)]


def _permutations(choices: int, length: int, rng: random.Random) -> list[int]:
    column: list[int] = []
    while len(column) < length:
        column += rng.sample(range(choices), choices)
    return column[:length]
