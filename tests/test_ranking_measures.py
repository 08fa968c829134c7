"""The measures of a ranking besides τ: each against a slow, obvious definition, and by hand where values tie."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import metrics
from harness.components.selection import equal_count
from harness.errors import InvalidConfiguration
from harness.metrics import (
    AtK,
    at_k,
    at_k_by_chance,
    bootstrap_error,
    ceiling,
    expected_best,
    kendall_tau,
    kendall_taus,
    sparse_tau,
    spearman_rho,
    tie_breaks,
    weighted_tau,
)

# Few different values, so that ties are the rule.
pairs = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=12)
quick = settings(max_examples=40, deadline=None)
few = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=2, max_size=5)


def apart(values: list[tuple[int, int]]) -> tuple[list[float], list[float]]:
    return [float(first) for first, _ in values], [float(second) for _, second in values]


@quick
@given(pairs)
def test_rho_is_the_correlation_of_mean_ranks(values: list[tuple[int, int]]) -> None:
    first, second = apart(values)

    def ranks(own: list[float]) -> list[float]:
        return [sum(b < a for b in own) + (sum(b == a for b in own) + 1) / 2 for a in own]

    a, b = np.array(ranks(first)) - np.mean(ranks(first)), np.array(ranks(second)) - np.mean(ranks(second))
    spread = math.sqrt(float(sum(a * a)) * float(sum(b * b)))
    expected = float(sum(a * b)) / spread if spread else math.nan
    assert spearman_rho(first, second) == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_rho_by_hand() -> None:
    # Ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4: centred products 4.5, squares 4.5 and 5.
    assert spearman_rho([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(4.5 / math.sqrt(4.5 * 5))


def slow_weighted_tau(first: list[float], second: list[float]) -> float:
    """Every pair weighs 1/(1+rank) + 1/(1+rank); ranks by the first, then by the second; the mean of both."""

    def sign(value: float) -> int:
        return (value > 0) - (value < 0)

    def by(one: list[float], other: list[float]) -> float:
        order = sorted(range(len(one)), key=lambda i: (one[i], other[i]), reverse=True)
        place = {number: rank for rank, number in enumerate(order)}
        sums = [0.0, 0.0, 0.0]
        for i, j in itertools.combinations(range(len(one)), 2):
            weight = 1 / (1 + place[i]) + 1 / (1 + place[j])
            a, b = sign(one[i] - one[j]), sign(other[i] - other[j])
            sums = [total + weight * part for total, part in zip(sums, (a * b, a * a, b * b), strict=True)]
        return sums[0] / math.sqrt(sums[1] * sums[2])

    return (by(first, second) + by(second, first)) / 2


@quick
@given(pairs)
def test_weighted_tau_against_all_pairs(values: list[tuple[int, int]]) -> None:
    first, second = apart(values)
    if len(set(values)) < len(values):
        return  # of equal pairs any may be first: the definition leaves it open, and it changes nothing but the weights
    constant = len(set(first)) < 2 or len(set(second)) < 2
    expected = math.nan if constant else slow_weighted_tau(first, second)
    assert weighted_tau(first, second) == pytest.approx(expected, abs=1e-9, nan_ok=True)


def test_an_exchange_at_the_top_weighs_more_than_one_at_the_bottom() -> None:
    truth = [5.0, 4.0, 3.0, 2.0, 1.0]
    assert weighted_tau([4.0, 5.0, 3.0, 2.0, 1.0], truth) < weighted_tau([5.0, 4.0, 3.0, 1.0, 2.0], truth)


@quick
@given(st.lists(st.tuples(st.integers(0, 120), st.integers(0, 120)), min_size=2, max_size=12))
def test_sparse_tau_in_decimals(values: list[tuple[int, int]]) -> None:
    """Hundredths of points, written down exactly."""
    first, second = ([number / 100 for number in own] for own in apart(values))

    def coarse(own: list[float], rounding: str) -> list[float]:
        return [float(Decimal(f"{value:.2f}").quantize(Decimal("0.1"), rounding)) for value in own]

    rounded, floored = coarse(first, ROUND_HALF_EVEN), coarse(second, ROUND_FLOOR)
    defined = {"truth": (first, floored), "prediction": (rounded, second), "both": (rounded, floored)}
    for name, expected in defined.items():
        assert sparse_tau(first, second, name) == pytest.approx(kendall_tau(*expected), abs=1e-12, nan_ok=True)


def test_sparse_tau_names_what_is_coarse() -> None:
    truth, predicted = [93.3, 93.38, 94.0], [1.0, 0.9, 2.0]
    assert sparse_tau(predicted, truth, "truth") == pytest.approx(2 / math.sqrt(2 * 3))  # 93.3 and 93.38 tie
    assert sparse_tau(predicted, truth, "prediction") == pytest.approx(1 / 3)
    with pytest.raises(InvalidConfiguration, match="allowed: truth, prediction, both"):
        sparse_tau(predicted, truth, "all")


def slow_at_k(predicted: list[float], truth: list[float], k: int) -> AtK:
    """Means over all orders of all architectures that agree with the predictions, and over those of the truth."""
    numbers = range(len(truth))

    def orders(values: list[float]) -> list[tuple[int, ...]]:
        every = itertools.permutations(numbers)
        return [own for own in every if all(values[a] >= values[b] for a, b in itertools.pairwise(own))]

    chosen = [order[:k] for order in orders(predicted)]
    tops = [order[:k] for order in orders(truth)]
    rank = [1 + sum(other > value for other in truth) for value in truth]
    hits = [len({*one} & {*top}) / k for one in chosen for top in tops]
    return AtK(
        float(np.mean(hits)),
        float(np.mean([min(rank[i] for i in one) for one in chosen])),
        float(np.mean([max(rank[i] for i in one) for one in chosen])),
        float(np.mean([max(truth) - max(truth[i] for i in one) for one in chosen])),
    )


@quick
@given(few, st.integers(1, 5))
def test_what_is_ranked_first_against_all_orders_of_equals(values: list[tuple[int, int]], k: int) -> None:
    predicted, truth = apart(values)
    if k > len(truth):
        with pytest.raises(InvalidConfiguration, match=f"the first {k} of {len(truth)} predictions"):
            at_k(predicted, truth, k)
        return
    found, expected = at_k(predicted, truth, k), slow_at_k(predicted, truth, k)
    assert vars(found) == pytest.approx(vars(expected), abs=1e-12)


def test_what_is_ranked_first_by_hand() -> None:
    truth = [90.0, 80.0, 80.0, 70.0]
    # The second place goes to one of the two that are predicted 0.5: ranks 2 and 4, accuracies 80 and 70.
    assert at_k([0.9, 0.5, 0.1, 0.5], truth, 2) == AtK(
        precision=(1 + (1 / 2) * (1 / 2)) / 2, best_rank=1.0, worst_rank=3.0, regret=0.0
    )
    assert at_k([0.1, 0.5, 0.1, 0.5], truth, 1) == AtK(precision=0.0, best_rank=3.0, worst_rank=3.0, regret=15.0)


def test_a_random_order_in_closed_form_is_the_mean_of_random_orders() -> None:
    rng = np.random.default_rng(5)
    n, orders = 25, 100_000
    truth = np.round(rng.random(n), 1)
    standing = np.array([np.sum(truth > value) for value in truth]) / n
    top = {k: np.argsort(-truth, kind="stable")[:k] for k in (1, 4, 10)}
    shuffled = np.argsort(rng.random((orders, n)), axis=1)
    for k in (1, 4, 10):
        drawn = shuffled[:, :k]
        found = at_k_by_chance(truth, k)
        assert found.precision == pytest.approx(np.isin(drawn, top[k]).mean(), abs=1.5e-3)
        assert found.precision == pytest.approx(k / n)
        assert (found.best_rank - 1) / n == pytest.approx(standing[drawn].min(1).mean(), abs=1.5e-3)
        assert (found.worst_rank - 1) / n == pytest.approx(standing[drawn].max(1).mean(), abs=1.5e-3)
        assert found.regret == pytest.approx(float(truth.max() - truth[drawn].max(1).mean()), abs=1.5e-3)


def test_the_expected_best_of_k_is_that_of_all_draws() -> None:
    truth = [50.0, 61.0, 61.0, 72.0, 90.0, 94.0]
    for k in range(1, 7):
        regrets = [94.0 - max(drawn) for drawn in itertools.combinations(truth, k)]
        assert at_k_by_chance(truth, k).regret == pytest.approx(float(np.mean(regrets)))


@quick
@given(pairs)
def test_many_taus_are_those_of_each_row(values: list[tuple[int, int]]) -> None:
    first, second = (np.array([own, own[::-1]]) for own in apart(values))
    expected = [kendall_tau(*rows) for rows in zip(first, second, strict=True)]
    assert kendall_taus(first, second) == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_the_bootstrap_draws_with_replacement(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    truth = np.round(rng.random(60), 1)
    predicted = np.round(truth + rng.random(60), 1)
    found = bootstrap_error(predicted, truth, np.random.default_rng(2))
    drawn = np.random.default_rng(3).integers(0, 60, (2000, 60))
    assert found == pytest.approx(np.std([kendall_tau(predicted[one], truth[one]) for one in drawn]), rel=0.2)
    monkeypatch.setattr(metrics, "PAIRWISE", 10)
    assert bootstrap_error(predicted, truth, np.random.default_rng(2)) == pytest.approx(found, abs=1e-12)
    assert math.isnan(bootstrap_error([1.0] * 20, truth[:20], rng))


def test_tie_breaks_are_those_of_the_rule_with_the_equals_in_any_order() -> None:
    """The rule itself, on all orders of the architectures, gives the same selections equally often."""
    truth = np.array([1.0, 2.0, 2.0, 2.0, 3.0, 3.0])
    expected: Counter[frozenset[int]] = Counter()
    for order in itertools.permutations(range(6)):
        expected[frozenset(order[place] for place in equal_count(truth[list(order)], 3).tolist())] += 1
    made = tie_breaks(truth, equal_count(truth, 3), np.random.default_rng(0), 20_000)
    assert (truth[made] == truth[equal_count(truth, 3)]).all()
    found = Counter(frozenset(row) for row in made.tolist())
    assert found.keys() == expected.keys()
    for one, times in expected.items():
        assert found[one] / 20_000 == pytest.approx(times / 720, abs=0.015)


def test_a_selection_without_ties_has_one_tie_break() -> None:
    truth = np.array([1.0, 2.0, 3.0, 3.0])
    assert {tuple(row) for row in tie_breaks(truth, np.array([0, 1]), np.random.default_rng(0)).tolist()} == {(0, 1)}


def test_the_ceiling_is_lower_where_the_truth_is_noisier() -> None:
    truth = np.linspace(50, 60, 40)
    levels = [ceiling(truth, np.full(40, noise), np.random.default_rng(0)) for noise in (0.0, 0.5, 3.0, 100.0)]
    assert levels[0] == 1.0 and levels == sorted(levels, reverse=True) and abs(levels[-1]) < 0.1


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_the_expected_best_of_random_candidates_against_all_draws(k: int) -> None:
    values = [91.0, 89.5, 93.25, 91.0, 90.0, 88.0]
    draws = [max(drawn) for drawn in itertools.combinations(values, k)]
    assert expected_best(values, k) == pytest.approx(sum(draws) / len(draws))
    with pytest.raises(InvalidConfiguration):
        expected_best(values, 7)
