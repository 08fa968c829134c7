"""Tests of paired differences: against slow references, and by simulation, that their error rates are as stated."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from scipy import stats

from harness import statistics
from harness.statistics import ALPHA, Numbers, Sample, looks

REPEATED = 20_000
CHANCE = ALPHA + 3 * (ALPHA * (1 - ALPHA) / REPEATED) ** 0.5
"""A share above this is not 5 % within what this number of repetitions shows."""

Draw = Callable[[np.random.Generator, tuple[int, ...]], Numbers]
SHAPES: dict[str, Draw] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "heavy tails": lambda rng, shape: rng.standard_t(3, size=shape),
}


@pytest.fixture(params=SHAPES)
def draw(request: pytest.FixtureRequest) -> Draw:
    return SHAPES[request.param]


@pytest.mark.parametrize("seeds", [2, 3, 5, 10, 30])
def test_without_an_effect_at_most_5_percent_are_decided(seeds: int, draw: Draw) -> None:
    sample = Sample.of(draw(np.random.default_rng(seeds), (REPEATED, seeds)))
    assert (statistics.decided(sample, statistics.t_test(sample)) != 0).mean() <= CHANCE


def test_with_holm_at_most_5_percent_of_reports_have_a_false_verdict(draw: Draw) -> None:
    sample = Sample.of(draw(np.random.default_rng(1), (REPEATED, 99, 3)))
    false = statistics.decided(sample, statistics.holm(statistics.t_test(sample))) != 0
    assert false.any(axis=-1).mean() <= CHANCE
    assert (statistics.decided(sample, statistics.t_test(sample)) != 0).any(axis=-1).mean() > 0.9  # without Holm


@pytest.mark.parametrize("seeds", [3, 10, 30])
def test_at_the_margins_edge_at_most_5_percent_are_equivalent(seeds: int) -> None:
    sample = Sample.of(np.random.default_rng(seeds).normal(0.5, 1.0, (REPEATED, seeds)))
    assert (statistics.equivalence(sample, 0.5) <= ALPHA).mean() <= CHANCE
    within = Sample.of(np.random.default_rng(seeds).normal(0.0, 0.05, (200, seeds)))
    assert (statistics.equivalence(within, 0.5) <= ALPHA).mean() > 0.95


def test_looking_after_every_seed_costs_nothing(draw: Draw) -> None:
    sample = looks(draw(np.random.default_rng(2), (REPEATED, 100)))
    assert (statistics.anytime_p(sample) <= ALPHA).any(axis=-1).mean() <= CHANCE
    low, high = statistics.confidence_sequence(sample)
    assert ((low > 0) | (high < 0)).any(axis=-1).mean() <= CHANCE
    if draw is SHAPES["normal"]:  # a t interval does not allow it
        low, high = statistics.t_interval(sample)
        assert ((low > 0) | (high < 0)).any(axis=-1).mean() > 0.3


def test_looks_are_at_ever_more_differences() -> None:
    values = np.random.default_rng(12).normal(1000.0, 1e-3, (3, 6))
    sample = looks(values)
    for place in range(5):
        one = Sample.of(values[:, : place + 2])
        assert sample.mean[:, place] == pytest.approx(one.mean)
        assert sample.deviation[:, place] == pytest.approx(one.deviation, rel=1e-4)
        assert (sample.n[:, place] == place + 2).all()
    assert looks([0.3] * 4).flat.all()
    assert looks([0.3]).mean.size == looks([]).mean.size == 0


def test_a_false_equivalence_is_rare_at_any_look() -> None:
    sample = looks(np.random.default_rng(3).normal(0.5, 1.0, (2000, 100)))
    assert (statistics.anytime_equivalence(sample, 0.5) <= ALPHA).any(axis=-1).mean() <= 0.065
    within = looks(np.random.default_rng(3).normal(0, 0.1, (200, 30)))
    assert (statistics.anytime_equivalence(within, 0.5)[:, -1] <= ALPHA).all()
    # It is what the confidence sequence says, at any rate.
    for alpha in (0.05, 0.001):
        low, high = statistics.confidence_sequence(within, alpha=alpha)
        inside = (low > -0.2) & (high < 0.2)
        assert ((statistics.anytime_equivalence(within, 0.2) <= alpha) == inside).all() and inside.any()


def test_a_decision_comes_when_it_is_said_to() -> None:
    assert [statistics.first_decision(m) for m in (1, 24, 99)] == [5, 7, 8]
    for m, median in ((1, 6), (24, 9), (99, 10)):
        found = statistics.anytime_p(looks(np.random.default_rng(4).normal(3, 1, (2000, 30)))) * m <= ALPHA
        assert np.median(found.argmax(axis=-1) + 2) == median
    widths = [statistics.confidence_sequence(Sample.of([0.0] * (n - 2) + [1, -1])) for n in (4, 5)]
    assert [bool(np.isfinite(high)) for _, high in widths] == [False, True]


@pytest.mark.parametrize(
    ("effect", "seeds", "at_three"), [(0.5, 34, 8), (1, 10, 18), (1.5, 6, 32), (2, 5, 47), (3, 4, 75)]
)
def test_power_is_that_of_the_t_distribution(effect: float, seeds: int, at_three: int) -> None:
    assert statistics.seeds_needed(effect) == seeds
    assert 100 * statistics.t_power(effect, 3) == pytest.approx(at_three, abs=1)
    sample = Sample.of(np.random.default_rng(5).normal(effect, 1, (REPEATED, seeds)))
    share = (statistics.decided(sample, statistics.t_test(sample)) == 1).mean()
    assert statistics.t_power(effect, seeds) == pytest.approx(share, abs=0.01)


def test_what_cannot_be_found_needs_no_number_of_seeds() -> None:
    assert statistics.seeds_needed(0.0) is None
    assert statistics.seeds_needed(0.1, most=30) is None
    assert statistics.seeds_needed(-3.0) == statistics.seeds_needed(3.0) == 4


def test_power_is_right_at_small_error_rates_too() -> None:
    for effect in (0.5, 1.0, 2.0, 6.0):
        by_seeds = [statistics.t_power(effect, n, ALPHA / 44) for n in (1, 2, 3, 5, 8, 30, 100)]
        assert by_seeds == sorted(by_seeds)
    alone, among = (statistics.seeds_needed(5.7, alpha=ALPHA / m) for m in (1, 44))
    assert alone is not None and among is not None and alone < among
    sample = Sample.of(np.random.default_rng(13).normal(1.2, 1, (REPEATED, 8)))
    share = (statistics.decided(sample, statistics.t_test(sample), ALPHA / 44) == 1).mean()
    assert statistics.t_power(1.2, 8, ALPHA / 44) == pytest.approx(share, abs=0.01)


def test_the_t_test_is_the_usual_one() -> None:
    values = np.random.default_rng(6).normal(0.3, 1, (7, 5))
    expected = stats.ttest_1samp(values, 0, axis=1)
    sample = Sample.of(values)
    assert statistics.t_test(sample) == pytest.approx(expected.pvalue)
    limits = expected.confidence_interval()
    assert statistics.t_interval(sample)[0] == pytest.approx(limits.low)
    assert statistics.t_interval(sample)[1] == pytest.approx(limits.high)
    one_sided = [
        stats.ttest_1samp(values, edge, axis=1, alternative=side).pvalue
        for edge, side in ((-1, "greater"), (1, "less"))
    ]
    assert statistics.equivalence(sample, 1.0) == pytest.approx(np.max(one_sided, axis=0))
    t = stats.t.ppf(0.975, 4) + stats.t.ppf(0.8, 4)
    assert statistics.detectable(sample) == pytest.approx(t * values.std(axis=1, ddof=1) / 5**0.5)


def slow_flips(values: list[float]) -> float:
    sums = [
        abs(sum(v * s for v, s in zip(values, signs, strict=True))) for signs in product((1, -1), repeat=len(values))
    ]
    return sum(one >= sums[0] - 1e-12 for one in sums) / len(sums)


def test_all_flips_of_signs_are_tried() -> None:
    for values in (
        [0.3],
        [0.1, 0.2],
        [1.0, -2.0, 1.0],
        [0.5, 0.1, -0.1, 0.0],
        list(np.random.default_rng(7).normal(size=9)),
    ):
        assert statistics.sign_flips(values) == pytest.approx(slow_flips(values))
    both = statistics.sign_flips([[1.0, 2.0, 3.0], [1.0, -2.0, 0.5]])
    assert both == pytest.approx([0.25, slow_flips([1.0, -2.0, 0.5])])
    assert statistics.least_p([1, 3, 5, 6]) == pytest.approx([1, 0.25, 0.0625, 0.03125])


def test_beyond_16_seeds_the_flips_are_drawn_and_always_the_same() -> None:
    values = np.random.default_rng(8).normal(0.4, 1, 17)
    first = statistics.sign_flips(values)
    assert statistics.sign_flips(values) == first
    assert first == pytest.approx(statistics.t_test(Sample.of(values)), abs=0.02)
    assert statistics.sign_flips(np.ones(30)) == 1 / (1 + statistics.FLIPS)


def test_holms_rule_by_hand() -> None:
    assert statistics.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert statistics.holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert statistics.holm([[0.01, 0.02], [0.02, 0.01]]) == pytest.approx(np.array([[0.02, 0.02], [0.02, 0.02]]))
    assert statistics.holm([]).size == 0


def test_one_seed_decides_nothing() -> None:
    sample = Sample.of([[1e9], [-1.0]])
    assert statistics.t_test(sample).tolist() == [1.0, 1.0]
    assert (statistics.anytime_p(sample) == 1).all()
    assert (statistics.anytime_equivalence(sample, 1e12) == 1).all()
    assert (statistics.equivalence(sample, 1e12) > ALPHA).all()
    assert np.isinf(statistics.t_interval(sample)).all()
    assert np.isnan(statistics.detectable(sample)).all()


def test_equal_differences_count_as_equal_signs() -> None:
    """Two networks whose looked-up accuracies differ equally under three seeds are no certainty."""
    for seeds, decides in ((3, 0), (5, 0), (6, 1)):
        sample = Sample.of([0.01] * seeds)
        assert statistics.t_test(sample) == statistics.least_p(seeds)
        assert statistics.decided(sample, statistics.t_test(sample)) == decides
        assert (statistics.anytime_p(sample) <= ALPHA) == decides
    nothing = Sample.of([0.1 + 0.2 - 0.3] * 9)
    assert statistics.t_test(nothing) == 1.0
    assert statistics.anytime_p(nothing) == 1.0
    assert statistics.equivalence(nothing, 0.01) == pytest.approx(2**-9)
    assert statistics.anytime_equivalence(nothing, 0.01) <= ALPHA
    assert statistics.anytime_equivalence(Sample.of([0.0] * 3), 0.01) > ALPHA


def test_probability_of_improvement_counts_pairs() -> None:
    assert statistics.probability_of_improvement([1, 2, 3], [2, 2]) == pytest.approx((0 + 0.5 + 1) / 3)
    assert statistics.probability_of_improvement([0.5, -0.5, 0.1, 0.0], [0.0]) == pytest.approx(2.5 / 4)


@pytest.mark.parametrize("seeds", [3, 10])
def test_deviations_are_compared_at_the_stated_rate(seeds: int) -> None:
    rng = np.random.default_rng(9)
    rows = rng.normal(size=(REPEATED, 1, seeds)) + rng.normal(size=(REPEATED, 2, seeds))  # two rows that share seeds
    test = statistics.pitman_morgan(rows[:, 0], rows[:, 1])
    assert (test.p <= ALPHA).mean() == pytest.approx(ALPHA, abs=CHANCE - ALPHA)
    assert (((test.low > 0) | (test.high < 0)) == (test.p <= ALPHA)).all()


def test_pitman_and_morgan_test_the_correlation_of_sums_and_differences() -> None:
    one, other = np.random.default_rng(10).normal(size=(2, 8)) * [[3], [1]]
    test = statistics.pitman_morgan(one, other)
    assert test.p == pytest.approx(stats.pearsonr(one + other, one - other).pvalue)
    assert test.difference == pytest.approx(one.std(ddof=1) - other.std(ddof=1))
    mirrored = statistics.pitman_morgan(other, one)
    assert mirrored.p == pytest.approx(float(test.p))
    assert mirrored.difference == pytest.approx(-float(test.difference))
    for row in ([1.0], [1.0, 2.0], [0.0, 0.0, 0.0, 0.0]):  # too few seeds, or nothing varies
        assert statistics.pitman_morgan(row, [0.5, 0.1, 0.2, 0.4][: len(row)]).p == 1.0


def test_deviations_may_be_looked_at_after_every_pair_of_seeds() -> None:
    rows = np.random.default_rng(11).normal(size=(4000, 2, 60))
    found = statistics.anytime_p(looks(statistics.changes(rows[:, 0], rows[:, 1]))) <= ALPHA
    assert found.any(axis=-1).mean() <= ALPHA
    wild = statistics.changes(rows[:, 0] * 20, rows[:, 1])
    assert (statistics.anytime_p(Sample.of(wild)) <= ALPHA).mean() > 0.95
    assert statistics.changes([1.0, 1.0, 2.0, 3.0], [0.1, 0.2, 0.3, 0.4]).size == 0  # a row that does not change
