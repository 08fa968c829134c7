"""SPOS, single-path one-shot (Guo et al., 2020): one random path per step (Algorithm 1 with CaLR and MS)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.components.method import Method
from harness.components.registries import METHODS
from harness.components.space import Architecture

if TYPE_CHECKING:
    from harness.training.supernet import SupernetTraining


@METHODS.register("spos")
@dataclass(frozen=True)
class SPOS(Method):
    """Single-path one-shot: one path per step."""

    def paths(self, training: SupernetTraining) -> list[Architecture]:
        return [training.source.draw(training.rng)]
