"""FSNAS, few-shot NAS (Zhao et al., 2021): the space is split at one decision into K sub-supernets.

Each sub-supernet has weights, momentum and clusters of its own and is trained as SPOS trains one
(Algorithm 3). Ranking takes each architecture from its own sub-supernet.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.components.method import Method, Part
from harness.components.registries import METHODS
from harness.components.space import Architecture, Space
from harness.errors import InvalidConfiguration

if TYPE_CHECKING:
    from harness.training.supernet import SupernetTraining


@METHODS.register("fsnas")
@dataclass(frozen=True)
class FSNAS(Method):
    """Few-shot: one sub-supernet per operation of one decision."""

    split: int | None = None
    """The decision to split at; None draws it once per run, as the paper says (the released code: 0)."""

    def parts(self, space: Space, rng: random.Random) -> tuple[Part, ...]:
        # A decision with one choice splits nothing.
        possible = [decision for decision, choices in enumerate(space.choices) if choices > 1]
        if not possible:
            raise InvalidConfiguration(f"FSNAS cannot split {space.name}: none of its decisions has a second choice")
        split = rng.choice(possible) if self.split is None else self.split
        if split not in possible:
            raise InvalidConfiguration(f"method.split must be one of {possible} in {space.name}, not {split}")
        return tuple(Part({split: choice}) for choice in range(space.choices[split]))

    def paths(self, training: SupernetTraining) -> list[Architecture]:
        return [training.source.draw(training.rng)]
