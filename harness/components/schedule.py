"""Interface of a learning-rate schedule. No torch at import."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from harness.components.space import Architecture, Space

Factor = Callable[[Architecture, float], float]
"""(path, progress t/T) → factor on the initial learning rate."""


@dataclass(frozen=True)
class Schedule(ABC):
    """How the learning rate falls over training."""

    depends_on_path: ClassVar[bool] = False
    """Whether two paths of one step may have different rates."""

    @abstractmethod
    def bind(self, space: Space) -> Factor:
        """The schedule's factor for paths of that space."""

    def of_trial(self, space: Space, seed: int) -> Factor:
        """The factor in a trial with that seed. Only schedules that draw something override it."""
        return self.bind(space)


def warmed(factor: Factor, warmup: float, least: float) -> Factor:
    """Any schedule's factor with a warm-up and a least rate.

    Over the share `warmup` of training the factor rises linearly from zero to what the schedule says; it is never
    below `least`.
    """
    if not warmup and not least:
        return factor

    def changed(path: Architecture, progress: float) -> float:
        rise = min(1.0, progress / warmup) if warmup else 1.0
        return max(least, rise * factor(path, progress))

    return changed
