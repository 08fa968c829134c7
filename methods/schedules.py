"""Learning-rate schedules: constant, cosine, polynomial, and CaLR with its variants.

Each gives the factor of the initial learning rate for a path at progress t/T.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from harness.components.option import added
from harness.components.registries import SCHEDULES
from harness.components.schedule import Factor, Schedule
from harness.components.space import Architecture, Space
from harness.errors import InvalidConfiguration


@SCHEDULES.register("constant")
@dataclass(frozen=True)
class Constant(Schedule):
    """The initial rate throughout (the released FairNAS baseline)."""

    def bind(self, space: Space) -> Factor:
        return lambda path, progress: 1.0


@SCHEDULES.register("cosine")
@dataclass(frozen=True)
class Cosine(Schedule):
    """Half a cosine wave from the initial rate to `final` times it."""

    final: float = 0.0
    """The final rate, relative to the initial one."""

    def __post_init__(self) -> None:
        _check_final(self.final)

    def bind(self, space: Space) -> Factor:
        span = (1 - self.final) / 2
        return lambda path, progress: self.final + span * (1 + math.cos(math.pi * progress))


@SCHEDULES.register("polynomial")
@dataclass(frozen=True)
class Polynomial(Schedule):
    """(1 − t/T)^power: CaLR with one decay ratio for all paths."""

    power: float = 1.0
    """The exponent of (1 − t/T)."""

    def __post_init__(self) -> None:
        if self.power <= 0:
            raise InvalidConfiguration(f"schedule.power must be above 0, not {self.power}")

    def bind(self, space: Space) -> Factor:
        return lambda path, progress: float((1 - progress) ** self.power)


@SCHEDULES.register("calr")
@dataclass(frozen=True)
class CaLR(Schedule):
    """Complexity-aware: (1 − t/T)^γ(α), larger subnets decay more slowly (Eq. 3 to 6)."""

    depends_on_path: ClassVar[bool] = True

    gamma_prime: float = 4.0
    """γ_max = γ′, γ_min = 1/γ′."""
    function: str = "log"
    """g of the decay ratio γ = ω·g(C) + τ: log (the paper's), linear, exp, or reversed: log of k − C with
    k = C_min + C_max, so that larger subnets decay faster (Table 4's opposite effect)."""
    complexity: str = "parameters"
    """How C(α) is counted: one of the space's counts."""
    final: float = added(0.0)
    """The final rate, relative to the initial one: final + (1 − final)·(1 − t/T)^γ(α)."""

    def __post_init__(self) -> None:
        if self.gamma_prime <= 0:
            raise InvalidConfiguration(f"schedule.gamma_prime must be above 0, not {self.gamma_prime}")
        _check_final(self.final)
        if self.function not in FUNCTIONS:
            raise InvalidConfiguration(f"schedule.function is {self.function!r}; allowed: {', '.join(FUNCTIONS)}")

    def coefficients(self, space: Space) -> tuple[float, float]:
        """ω and the offset (the paper's τ) of the affine map from g(C) to γ (Eq. 5 and 6)."""
        if self.complexity not in space.complexity_counts:
            raise InvalidConfiguration(
                f"schedule.complexity is {self.complexity!r}; {space.name} allows {space.counts_text()}"
            )
        low, high = space.complexity_range(self.complexity)
        if low == high:
            raise InvalidConfiguration(f"CaLR needs subnets of different complexity; all of {space.name} have {low}")
        if low <= 0 and FUNCTIONS[self.function] is math.log:
            raise InvalidConfiguration(
                f"schedule.function {self.function} needs complexities above 0, but {space.name} has subnets with "
                f"{low} {self.complexity}; use schedule.function=linear or another schedule.complexity"
            )
        g = FUNCTIONS[self.function]
        slope = -(self.gamma_prime - 1 / self.gamma_prime) / (g(high) - g(low))
        return slope, 1 / self.gamma_prime - slope * g(high)

    def decay_ratio(self, space: Space) -> Callable[[Architecture], float]:
        """γ(α) (Eq. 4)."""
        slope, offset = self.coefficients(space)
        g = FUNCTIONS[self.function]
        both_ends = sum(space.complexity_range(self.complexity))
        known: dict[int, float] = {}

        def ratio(path: Architecture) -> float:
            complexity = space.complexity(path, self.complexity)
            if complexity not in known:
                counted = both_ends - complexity if self.function == "reversed" else complexity
                known[complexity] = slope * g(counted) + offset
            return known[complexity]

        return ratio

    def bind(self, space: Space) -> Factor:
        ratio, final = self.decay_ratio(space), self.final
        if not final:
            return lambda path, progress: float((1 - progress) ** ratio(path))
        return lambda path, progress: final + (1 - final) * float((1 - progress) ** ratio(path))


def _check_final(final: float) -> None:
    if not 0 <= final <= 1:
        raise InvalidConfiguration(f"schedule.final must be in [0, 1], not {final}")


def _exp_of_millions(complexity: float) -> float:
    # e to the raw count overflows; the paper does not say how it scaled.
    return math.exp(complexity / 1e6)


FUNCTIONS: dict[str, Callable[[float], float]] = {
    "log": math.log,
    "linear": float,
    "exp": _exp_of_millions,
    "reversed": math.log,
}
