"""Learning-rate schedules: constant, cosine, polynomial, CaLR with its variants, and two controls of CaLR.

Each gives the factor of the initial learning rate for a path at progress t/T.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from harness.components.option import added
from harness.components.registries import SCHEDULES
from harness.components.schedule import Factor, Schedule
from harness.components.space import Architecture, Space
from harness.errors import InvalidConfiguration
from harness.seeds import make_rng

DecayRatio = Callable[[Architecture], float]
"""γ of an architecture."""

SAMPLED = 10_000
"""Architectures that represent a space that cannot be listed."""

REMEMBERED = 100_000
"""Paths whose permuted decay ratio is kept."""


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
    count_at: str = added("space")
    """Whose networks are counted: as the `space` does, where NAS-Bench-201 takes the benchmark's and every other space
    the trial's, or always those of the `trial`, with its width, depth, classes and images."""

    def __post_init__(self) -> None:
        if self.gamma_prime <= 0:
            raise InvalidConfiguration(f"schedule.gamma_prime must be above 0, not {self.gamma_prime}")
        _check_final(self.final)
        if self.function not in FUNCTIONS:
            raise InvalidConfiguration(f"schedule.function is {self.function!r}; allowed: {', '.join(FUNCTIONS)}")
        if self.count_at not in ("space", "trial"):
            raise InvalidConfiguration(f"schedule.count_at is {self.count_at!r}; allowed: space, trial")

    def coefficients(self, space: Space) -> tuple[float, float]:
        """ω and the offset (the paper's τ) of the affine map from g(C) to γ (Eq. 5 and 6)."""
        if self.complexity not in space.complexity_counts:
            raise InvalidConfiguration(
                f"schedule.complexity is {self.complexity!r}; {space.name} allows {space.counts_text()}"
            )
        low, high = self._range(space)
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

    def decay_ratio(self, space: Space) -> DecayRatio:
        """γ(α) (Eq. 4)."""
        slope, offset = self.coefficients(space)
        g = FUNCTIONS[self.function]
        both_ends = sum(self._range(space))
        settings = self._settings(space)
        known: dict[int, float] = {}

        def ratio(path: Architecture) -> float:
            complexity = space.counted(path, self.complexity, settings)
            if complexity not in known:
                counted = both_ends - complexity if self.function == "reversed" else complexity
                known[complexity] = slope * g(counted) + offset
            return known[complexity]

        return ratio

    def _range(self, space: Space) -> tuple[int, int]:
        """C_min and C_max of Eq. 5 and 6."""
        return space.count_range(self.complexity, self._settings(space))

    def _settings(self, space: Space) -> Any:
        """The settings whose networks are counted, None for those of the space."""
        if self.count_at == "space":
            return None
        if self.complexity not in space.counts_at_any_size:
            known = ", ".join(space.counts_at_any_size) or "none"
            raise InvalidConfiguration(
                f"schedule.count_at=trial: {space.name} does not count {self.complexity} at any size; "
                f"schedule.complexity may be one of: {known}"
            )
        return space.settings

    def bind(self, space: Space) -> Factor:
        return self._factor(self.decay_ratio(space))

    def _factor(self, ratio: DecayRatio) -> Factor:
        """Eq. 3 with this decay ratio, down to `final`."""
        final = self.final
        if not final:
            return lambda path, progress: float((1 - progress) ** ratio(path))
        return lambda path, progress: final + (1 - final) * float((1 - progress) ** ratio(path))


@SCHEDULES.register("calr-mean")
@dataclass(frozen=True)
class MeanCaLR(CaLR):
    """A control of CaLR: at each step every path has the mean of CaLR's factors over all architectures.

    CaLR lowers the average rate, too: most subnets have γ > 1. This schedule lowers it equally and knows no sizes. The
    mean is over the whole space for each sub-supernet of few-shot methods. A space that cannot be listed is
    represented by a fixed sample of `SAMPLED` architectures.
    """

    depends_on_path: ClassVar[bool] = False

    def bind(self, space: Space) -> Factor:
        ratio = self.decay_ratio(space)

        @functools.cache
        def counted() -> tuple[tuple[float, int], ...]:
            """Decay ratios with the number of architectures that have each, counted at the first step."""
            rng = make_rng(0, "architectures of the mean rate")
            architectures = space if space.enumerable else (space.sample(rng) for _ in range(SAMPLED))
            return tuple(Counter(map(ratio, architectures)).items())

        @functools.lru_cache(maxsize=1)  # the paths of a step share it
        def mean(progress: float) -> float:
            remaining = 1 - progress
            gammas = counted()
            total = math.fsum(count * remaining**gamma for gamma, count in gammas)
            return self.final + (1 - self.final) * total / sum(count for _, count in gammas)

        return lambda path, progress: mean(progress)


@SCHEDULES.register("calr-permuted")
@dataclass(frozen=True)
class PermutedCaLR(CaLR):
    """A control of CaLR: each path has the decay ratio γ of another architecture.

    The other architecture is drawn uniformly from the whole space, by a hash of the path's canonical form and the
    trial's seed, so no list of the space is needed. Equal networks have equal rates, rates are distributed as CaLR's
    are, and they do not depend on size.
    """

    def bind(self, space: Space) -> Factor:
        return self.of_trial(space, 0)

    def of_trial(self, space: Space, seed: int) -> Factor:
        ratio = self.decay_ratio(space)

        @functools.lru_cache(maxsize=REMEMBERED)
        def permuted(path: Architecture) -> float:
            canonical = space.canonical(path)
            return ratio(space.sample(make_rng(seed, "permuted decay ratio", *canonical)))

        return self._factor(permuted)


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
