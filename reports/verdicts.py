"""Verdicts on the comparisons of a report, with the error rate that they state. Knows no study and no statement.

All comparisons of a report are judged together: with no effect anywhere, at most 5 % of reports have any false
verdict. At the preset's planned number of seeds the t-tests decide, corrected by Holm's rule. At any other number the
number may depend on what was seen, and e-values decide, which allow for looking at any time (Bonferroni's rule).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness import statistics
from harness.statistics import ALPHA, Numbers, Sample

from .compared import SPREAD, Compared

SUPPORTED, CONTRADICTED, EQUIVALENT, UNDECIDED, NO_DATA = VERDICTS = (
    "supported",
    "contradicted",
    "equivalent",
    "undecided",
    "no data",
)
FEWEST = 2
"""Minimum number of common seeds for a test."""


@dataclass(frozen=True)
class Judgement:
    """The verdict of the runs on one comparison, and all that it rests on. Numbers that cannot be had are None."""

    compared: Compared
    m: int
    """The number of comparisons that are judged together."""
    anytime: bool
    """Whether the verdict is one that holds at any number of seeds."""
    verdict: str
    leans: str = ""
    """The verdict without correction for the other comparisons, where it is another."""
    effect: float | None = None
    interval: tuple[float, float] | None = None
    p: float | None = None
    adjusted: float | None = None
    """p corrected by Holm's rule; not for an anytime verdict."""
    e_value: float | None = None
    flips: float | None = None
    """p of the sign-flip test, which assumes no distribution."""
    least: float | None = None
    """The least p that this number of seeds allows without such an assumption."""
    detectable: float | None = None
    """The least difference that is found with a power of 80 %."""
    improvement: float | None = None
    """The probability of improvement."""
    units: tuple[int, int, float] | None = None
    """Of the effects by group and seed: how many are above 0, how many there are, and the p of their t-test."""

    @property
    def decided(self) -> bool:
        """Whether more seeds are not needed."""
        return self.verdict in (SUPPORTED, CONTRADICTED, EQUIVALENT)


def judge(compared: Sequence[Compared], anytime: bool = False) -> list[Judgement]:
    """Judge these comparisons together.

    With `anytime`, no number of seeds counts as planned, and comparisons that have no data yet count, too.
    """
    testable = {one.question: one for one in compared if len(one.seeds) >= FEWEST}
    # Others count among all, but their p, which may have been waited for, must not ease the test of any.
    p = [1.0 if anytime or not _is_planned(one) else _tested(one)[1] for one in testable.values()]
    adjusted = dict(zip(testable, statistics.holm(p).tolist(), strict=True))
    m = len({one.question for one in compared}) if anytime else len(testable)
    return [_judgement(one, m, adjusted.get(one.question), anytime or not _is_planned(one)) for one in compared]


def _is_planned(one: Compared) -> bool:
    return one.seeds == tuple(range(one.planned))


def _judgement(one: Compared, m: int, adjusted: float | None, anytime: bool) -> Judgement:
    if not one.seeds:
        return Judgement(one, m, anytime, NO_DATA)
    effect, p, interval = _tested(one)
    if adjusted is None:  # one seed decides nothing, however large its effect
        return Judgement(one, m, anytime, UNDECIDED, effect=effect)
    differences = _differences(one)
    sample = Sample.of(differences)
    if anytime:
        corrected, plain = (_anytime(one, differences, count) for count in (m, 1))
        interval = _sequence(one, sample)
    else:
        corrected, plain = (_planned(one, sample, effect, value) for value in (adjusted, p))
    effects = np.array(one.effects)
    return Judgement(
        compared=one,
        m=m,
        anytime=anytime,
        verdict=corrected,
        leans=plain if plain != corrected else "",
        effect=effect,
        interval=interval,
        p=p,
        adjusted=None if anytime else adjusted,
        e_value=float(np.exp(statistics.log_e_value(sample))) if sample.n > 1 else None,
        flips=float(statistics.sign_flips(effects)) if len(effects) else None,
        least=float(statistics.least_p(len(one.seeds))),
        detectable=float(statistics.detectable(Sample.of(effects))) if len(effects) else None,
        improvement=_improvement(one),
        units=_units(one.units),
    )


def _planned(one: Compared, sample: Sample, effect: float, p: float) -> str:
    if p <= ALPHA and effect:
        return SUPPORTED if effect > 0 else CONTRADICTED
    equal = one.margin is not None and bool(statistics.equivalence(sample, one.margin) <= ALPHA)
    return EQUIVALENT if equal else UNDECIDED


def _anytime(one: Compared, differences: Numbers, m: int) -> str:
    """What the first look that decides anything decides, of looks after every seed: they cost nothing."""
    sample = statistics.looks(differences)
    signs = statistics.anytime_decided(sample, m)
    if signs.any():
        return SUPPORTED if signs[signs != 0][0] > 0 else CONTRADICTED
    equal = one.margin is not None and bool(statistics.anytime_equivalent(sample, one.margin, m).any())
    return EQUIVALENT if equal else UNDECIDED


def _tested(one: Compared) -> tuple[float, float, tuple[float, float]]:
    """Effect, p and interval at a number of seeds that was fixed before."""
    if one.method == SPREAD:
        assert one.sides is not None
        test = statistics.pitman_morgan(*one.sides)
        return float(test.difference), float(test.p), (float(test.low), float(test.high))
    sample = Sample.of(one.effects)
    low, high = statistics.t_interval(sample)
    return float(sample.mean), float(statistics.t_test(sample)), (float(low), float(high))


def _differences(one: Compared) -> Numbers:
    """The differences that e-values and equivalence are about."""
    if one.method != SPREAD:
        return np.array(one.effects)
    assert one.sides is not None
    changed = statistics.changes(*one.sides)
    return changed if changed.size else np.zeros(1)


def _sequence(one: Compared, sample: Sample) -> tuple[float, float]:
    """The confidence sequence; of deviations in units of the second's, as their interval is."""
    low, high = (float(limit) for limit in statistics.confidence_sequence(sample))
    if one.method != SPREAD or not np.isfinite([low, high]).all():
        return low, high
    assert one.sides is not None
    unit = float(np.std(one.sides[1], ddof=1))
    return unit * float(np.expm1(low)), unit * float(np.expm1(high))


def _improvement(one: Compared) -> float | None:
    if one.method == SPREAD:
        return None
    first, second = one.sides if one.sides is not None else (one.effects, (0.0,))
    return statistics.probability_of_improvement(first, second)


def _units(effects: Sequence[float]) -> tuple[int, int, float] | None:
    if len(effects) < FEWEST:
        return None
    return sum(one > 0 for one in effects), len(effects), float(statistics.t_test(Sample.of(effects)))
