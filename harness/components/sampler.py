"""Interface of a sampler: how single paths are drawn. No torch at import."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from harness.components.space import Architecture, Fixed, Space

if TYPE_CHECKING:
    import torch


class PathSource(ABC):
    """A sampler bound to a part of a space. Samplers that learn keep their state here."""

    uniform: ClassVar[bool] = False
    """Whether all paths of the part are equally likely: then a method may draw them in its own way."""

    @abstractmethod
    def draw(self, rng: random.Random) -> Architecture:
        """The next path."""

    def learn(self, paths: Sequence[Architecture], losses: torch.Tensor) -> None:
        """Callback after each step, with the trained paths and their losses (one value per path)."""

    def state(self) -> Any:
        """The state to store for resuming, as plain JSON types."""
        return None

    def restore(self, state: Any) -> None:
        """Resume from a stored state."""


@dataclass(frozen=True)
class Sampler(ABC):
    """How single paths are drawn."""

    @abstractmethod
    def bind(self, space: Space, fixed: Fixed) -> PathSource:
        """A source of paths for the part of the space that `fixed` leaves open."""
