"""FSNAS, few-shot NAS (Zhao et al., 2021): the space is split at one decision into K sub-supernets.

K is the number of the decision's choices, or fewer: then each sub-supernet has several neighbouring choices.

Each sub-supernet has weights, momentum and clusters of its own and is trained as SPOS trains one
(Algorithm 3). Ranking takes each architecture from its own sub-supernet.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.components.method import Method, Part
from harness.components.option import added
from harness.components.registries import METHODS
from harness.components.space import Architecture, Space
from harness.errors import InvalidConfiguration

if TYPE_CHECKING:
    from harness.training.supernet import SupernetTraining


@METHODS.register("fsnas")
@dataclass(frozen=True)
class FSNAS(Method):
    """Few-shot: one sub-supernet per operation of one decision, or per group of them."""

    split: int | None = None
    """The decision to split at; None for the space's own (`Space.split`). A space without one draws it once per run, as
    the paper says (the released code: 0)."""
    supernets: int | None = added(None)
    """K, the number of sub-supernets; None for one per choice of the decision."""

    def parts(self, space: Space, rng: random.Random) -> tuple[Part, ...]:
        # A decision with one choice splits nothing.
        possible = [decision for decision, choices in enumerate(space.choices) if choices > 1]
        if not possible:
            raise InvalidConfiguration(f"FSNAS cannot split {space.name}: none of its decisions has a second choice")
        split = space.split if self.split is None else self.split
        split = rng.choice(possible) if split is None else split
        if split not in possible:
            raise InvalidConfiguration(f"method.split must be one of {possible} in {space.name}, not {split}")
        choices = space.choices[split]
        if self.supernets is None:
            return tuple(Part({split: choice}) for choice in range(choices))
        if not 2 <= self.supernets <= choices:
            raise InvalidConfiguration(
                f"method.supernets must be 2 to {choices}, the choices of decision {split} of {space.name}, "
                f"not {self.supernets}"
            )
        ends = [round(number * choices / self.supernets) for number in range(self.supernets + 1)]
        groups = [tuple(range(start, end)) for start, end in itertools.pairwise(ends)]
        return tuple(Part({split: own[0]}) if len(own) == 1 else Part({}, {split: own}) for own in groups)

    def paths(self, training: SupernetTraining) -> list[Architecture]:
        return [training.source.draw(training.rng)]
