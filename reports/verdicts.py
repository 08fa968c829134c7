"""Verdicts on the comparisons of a report, with the error rate that they state. Knows no study and no statement.

All comparisons of a study are judged together: at most 5 % of studies have any false verdict. Primary contrasts are
tested first, at 4 %; all others share 1 %, and the 4 %, too, once every primary contrast has an effect. Holm's rule
corrects within each share. At the preset's planned number of seeds the t-tests decide. At any other number the number
may depend on what was seen, and e-values decide, which allow for looking at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from harness import statistics
from harness.statistics import ALPHA, OTHERS, POWER, PRIMARY, Numbers, Sample

from .compared import PAIRED, SPREAD, Compared

SUPPORTED, CONTRADICTED, EQUIVALENT, UNDECIDED, NO_DATA = VERDICTS = (
    "supported",
    "contradicted",
    "equivalent",
    "undecided",
    "no data",
)
FEWEST = 2
"""Minimum number of common seeds for a test."""
NO_DEVIATION = 1e-12
"""Seeds whose effects deviate by no more than this are equal but for rounding."""


@dataclass(frozen=True)
class Judgement:
    """The verdict of the runs on one comparison, and all that it rests on. Numbers that cannot be had are None."""

    compared: Compared
    m: int
    """The number of comparisons that share an error rate."""
    anytime: bool
    """Whether the verdict is one that holds at any number of seeds."""
    verdict: str
    leans: str = ""
    """The verdict without correction for the other comparisons, where it is another."""
    effect: float | None = None
    interval: tuple[float, float] | None = None
    p: float | None = None
    adjusted: float | None = None
    """p, or that of the e-values, corrected by Holm's rule: 5 % decides."""
    e_value: float | None = None
    flips: float | None = None
    """p of the sign-flip test, which assumes no distribution."""
    least: float | None = None
    """The least p that this number of seeds allows without such an assumption."""
    detectable: float | None = None
    """The least difference that is found with a power of 80 %."""
    improvement: float | None = None
    """The probability of improvement."""
    level: float = ALPHA
    """The error rate that these share."""
    units: tuple[int, int, float] | None = None
    """Of the effects by group and seed: how many are above 0, how many there are, and the p of their t-test."""

    @property
    def spread(self) -> tuple[float, float] | None:
        """The standard deviation of the effect over seeds, and the degrees of freedom of each seed after the first.

        None for fewer than two seeds, and for a test of standard deviations.
        """
        one = self.compared
        if len(one.effects) < FEWEST or one.method == SPREAD:
            return None
        if one.estimate is None:
            return float(np.std(one.effects, ddof=1)), 1.0
        return one.estimate.error * len(one.seeds) ** 0.5, one.estimate.degrees / (len(one.seeds) - 1)

    def seeds_for(self, effect: float, power: float = POWER) -> int | None:
        """The number of seeds, fixed before they run, that decides an effect with that power among all comparisons that
        share the error rate; None where it is not known, or out of reach."""
        if self.spread is None:
            return None
        deviation, each = self.spread
        size = effect / deviation if deviation > NO_DEVIATION else 0.0
        return statistics.seeds_needed(size, power, self.level / self.m, each=each)

    @property
    def decided(self) -> bool:
        """Whether more seeds are not needed."""
        return self.has_effect or self.verdict == EQUIVALENT

    @property
    def has_effect(self) -> bool:
        """Whether an effect is decided, for or against."""
        return self.verdict in (SUPPORTED, CONTRADICTED)


def judge(compared: Sequence[Compared], anytime: bool = False) -> list[Judgement]:
    """Judge these comparisons, those of each study together.

    With `anytime`, no number of seeds counts as planned, and comparisons that have no data yet count, too.
    """
    found: dict[int, Judgement] = {}
    for study in dict.fromkeys(one.study for one in compared):
        own = [(place, one) for place, one in enumerate(compared) if one.study == study]
        primary, others = ([item for item in own if item[1].primary is which] for which in (True, False))
        first = _family([one for _, one in primary], PRIMARY if others else ALPHA, anytime)
        # Once all primary contrasts have an effect, their share goes to the others: no true hypothesis needs it. With a
        # margin there is one that may need it: that the effect is beyond the margin, or that there is none.
        passed = bool(first) and all(one.has_effect and one.compared.margin is None for one in first)
        second = _family([one for _, one in others], ALPHA if passed or not primary else OTHERS, anytime)
        found |= dict(zip([place for place, _ in (*primary, *others)], (*first, *second), strict=True))
    return [found[place] for place in range(len(compared))]


def _family(compared: Sequence[Compared], level: float, anytime: bool) -> list[Judgement]:
    """The comparisons that share an error rate. Those that ask the same count once."""
    testable = {one.question: one for one in compared if len(one.seeds) >= FEWEST}
    p = {question: _p_values(one, anytime) for question, one in testable.items()}
    different = {question: found for question, (found, _) in p.items()}
    same = {question: found for question, (_, found) in p.items() if found is not None}
    m = len({one.question for one in compared}) if anytime else len(testable)
    # Of "no effect" and "an effect beyond the margin" one can be true: m hypotheses at most.
    adjusted = iter(_adjusted([*different.values(), *same.values(), *[1.0] * (m - len(testable))], m, level))
    different, same = (dict(zip(found, adjusted, strict=False)) for found in (different, same))
    return [
        _judgement(one, m, level, different.get(one.question), same.get(one.question), anytime or not _is_planned(one))
        for one in compared
    ]


def _adjusted(p: Sequence[float], true: int, level: float) -> list[float]:
    """p-values adjusted by Holm's rule so that 5 % decides at the level."""
    return cast(list[float], np.minimum(1.0, statistics.holm(p, true) * ALPHA / level).tolist())


def _p_values(one: Compared, anytime: bool) -> tuple[float, float | None]:
    """p of an effect, and of an equivalence where there is a margin."""
    if not anytime and _is_planned(one):
        return _tested(one)[1], None if one.margin is None else _equivalence(one)
    looks = statistics.looks(_differences(one))
    equal = None if one.margin is None else float(statistics.anytime_equivalence(looks, one.margin).min(initial=1.0))
    return float(statistics.anytime_p(looks).min(initial=1.0)), equal


def _is_planned(one: Compared) -> bool:
    return one.seeds == tuple(range(one.planned))


def _judgement(
    one: Compared, m: int, level: float, adjusted: float | None, equal: float | None, anytime: bool
) -> Judgement:
    """The verdict by p-values that are adjusted so that 5 % decides; `equal` is that of the equivalence."""
    if not one.seeds:
        return Judgement(one, m, anytime, NO_DATA, level=level)
    whole = one
    if anytime:
        one = replace(one, estimate=None, method=PAIRED if one.estimate else one.method)
    effect, p, interval = _tested(one)
    if adjusted is None:  # one seed decides nothing, however large its effect
        return Judgement(whole, m, anytime, UNDECIDED, effect=effect, level=level)
    sample = Sample.of(_differences(one))
    sign = effect
    if anytime:
        sign, interval = _leading(one), _sequence(one, sample)
    corrected, plain = _verdict(sign, adjusted, equal), _verdict(sign, *_p_values(one, anytime))
    effects = np.array(one.effects)
    return Judgement(
        compared=replace(one, estimate=whole.estimate),
        m=m,
        anytime=anytime,
        verdict=corrected,
        leans=plain if plain != corrected else "",
        effect=effect,
        interval=interval,
        p=p,
        adjusted=adjusted,
        e_value=float(np.exp(statistics.log_e_value(sample))) if sample.n > 1 else None,
        flips=float(statistics.sign_flips(effects)) if len(effects) else None,
        least=float(statistics.least_p(len(one.seeds))),
        detectable=_detectable(one),
        improvement=_improvement(one),
        units=_units(one.units),
        level=level,
    )


def _verdict(effect: float, p: float, equal: float | None) -> str:
    if p <= ALPHA and effect:
        return SUPPORTED if effect > 0 else CONTRADICTED
    return EQUIVALENT if equal is not None and equal <= ALPHA else UNDECIDED


def _leading(one: Compared) -> float:
    """The effect at the look with most evidence, of looks after every seed: they cost nothing."""
    looks = statistics.looks(_differences(one))
    return float(looks.mean[np.argmin(statistics.anytime_p(looks))]) if looks.mean.size else 0.0


def _equivalence(one: Compared) -> float:
    assert one.margin is not None
    if one.estimate is not None:
        return one.estimate.equivalence(one.margin)
    return float(statistics.equivalence(Sample.of(_differences(one)), one.margin))


def _detectable(one: Compared) -> float | None:
    if one.estimate is not None:
        return one.estimate.detectable()
    return float(statistics.detectable(Sample.of(one.effects))) if one.effects else None


def _tested(one: Compared) -> tuple[float, float, tuple[float, float]]:
    """Effect, p and interval at a number of seeds that was fixed before."""
    if one.method == SPREAD:
        assert one.sides is not None
        test = statistics.pitman_morgan(*one.sides)
        return float(test.difference), float(test.p), (float(test.low), float(test.high))
    if one.estimate is not None:
        return round(one.estimate.mean, 12), one.estimate.p(), one.estimate.interval()
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
