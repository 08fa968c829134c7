"""FairNAS (Chu et al., 2021): strict fairness, every operation of every decision once a step.

A step trains n paths, n the largest number of choices; path k takes the k-th entry of a random
permutation at each decision. A decision with fewer choices repeats a fresh permutation. With momentum
separation the clustered decisions are constant within a step (Algorithm 2), so that the step lies in
one cluster; strict fairness then holds for all other decisions.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.errors import InvalidConfiguration
from harness.method import Clustering, Fixed, Method, Sampler
from harness.registries import METHODS
from harness.space import Architecture, Space

if TYPE_CHECKING:
    from harness.training import SupernetTraining


@METHODS.register("fairnas")
@dataclass(frozen=True)
class FairNAS(Method):
    """Strict fairness: every operation of every decision is trained once a step."""

    def check(self, space: Space, clustering: Clustering, sampler: Sampler) -> None:
        if clustering.decisions is None:
            raise InvalidConfiguration(
                "FairNAS cannot use these clusters: its paths of one step differ in every decision, and no decision "
                "could be held to keep them in one cluster; use clusters by operation"
            )
        if not getattr(sampler, "uniform", False):
            raise InvalidConfiguration(
                "FairNAS draws permutations, not single paths: it takes only the uniform sampler"
            )

    def paths_per_step(self, space: Space) -> int:
        return max(space.choices)

    def paths(self, training: SupernetTraining) -> list[Architecture]:
        held = dict(training.part.fixed)
        for decision in training.clustering.decisions or ():
            held[decision] = training.chance.randrange(training.space.choices[decision])
        return fair_paths(training.space, training.chance, held)


def fair_paths(space: Space, chance: random.Random, held: Fixed) -> list[Architecture]:
    """One step's paths: as many as the largest decision has choices, the `held` decisions constant."""
    count = max(space.choices)
    columns = [
        [held[decision]] * count if decision in held else _permutations(choices, count, chance)
        for decision, choices in enumerate(space.choices)
    ]
    return [tuple(column[path] for column in columns) for path in range(count)]


def _permutations(choices: int, length: int, chance: random.Random) -> list[int]:
    column: list[int] = []
    while len(column) < length:
        column += chance.sample(range(choices), choices)
    return column[:length]
