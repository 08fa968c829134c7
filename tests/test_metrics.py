"""Kendall's τ-b, CB and C³ against their definitions."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import InvalidConfiguration
from harness.metrics import complexity_bias, complexity_convergence, kendall_tau, neutral_complexity_bias

# Few different values, so that ties are the rule.
pairs = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=0, max_size=25)


def slow_tau(first: list[float], second: list[float]) -> float:
    """(concordant − discordant) / √(pairs untied in the first × pairs untied in the second)."""

    def sign(value: float) -> int:
        return (value > 0) - (value < 0)

    agreement = untied_first = untied_second = 0
    for i in range(len(first)):
        for j in range(i):
            a, b = sign(first[i] - first[j]), sign(second[i] - second[j])
            agreement += a * b
            untied_first += a * a
            untied_second += b * b
    return agreement / math.sqrt(untied_first * untied_second) if untied_first and untied_second else math.nan


@given(pairs)
def test_tau_against_all_pairs(values: list[tuple[int, int]]) -> None:
    first, second = [float(a) for a, _ in values], [float(b) for _, b in values]
    assert kendall_tau(first, second) == pytest.approx(slow_tau(first, second), abs=1e-12, nan_ok=True)


@given(pairs)
def test_tau_is_symmetric_and_turns_with_the_order(values: list[tuple[int, int]]) -> None:
    first, second = [float(a) for a, _ in values], [float(b) for _, b in values]
    tau = kendall_tau(first, second)
    assert kendall_tau(second, first) == pytest.approx(tau, nan_ok=True)
    assert kendall_tau([-a for a in first], second) == pytest.approx(-tau, nan_ok=True)
    assert kendall_tau(np.exp(first), np.array(second) * 3 - 1) == pytest.approx(tau, nan_ok=True)


@pytest.mark.parametrize(
    ("first", "second"), [([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]), ([1.0, 2.0], [7.0, 7.0]), ([1.0], [1.0]), ([], [])]
)
def test_a_constant_ranking_has_no_tau(first: list[float], second: list[float]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert math.isnan(kendall_tau(first, second))


def test_rankings_of_different_length_are_refused() -> None:
    with pytest.raises(InvalidConfiguration, match="2 predictions cannot be compared with 3 accuracies"):
        kendall_tau([1.0, 2.0], [1.0, 2.0, 3.0])


triples = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 6), st.integers(1, 4)), max_size=20)


def slow_bias(predicted: list[float], truth: list[float], complexity: list[float]) -> float:
    """Over all ordered pairs: the second truly better, but ranked below the first; and is it the larger one?"""
    wrong = larger = 0
    for i in range(len(truth)):
        for j in range(len(truth)):
            if truth[j] > truth[i] and predicted[j] < predicted[i]:
                wrong += 1
                larger += complexity[j] > complexity[i]
    return larger / wrong if wrong else math.nan


@given(triples)
def test_complexity_bias_against_all_pairs(values: list[tuple[int, int, int]]) -> None:
    columns = [[float(value[place]) for value in values] for place in range(3)]
    assert complexity_bias(*columns) == pytest.approx(slow_bias(*columns), abs=1e-12, nan_ok=True)
    _, truth, complexity = columns
    reversed_truth = [-value for value in truth]
    assert neutral_complexity_bias(truth, complexity) == pytest.approx(
        slow_bias(reversed_truth, truth, complexity), abs=1e-12, nan_ok=True
    )


@pytest.mark.parametrize(
    ("predicted", "truth", "complexity", "bias"),
    [
        ([1, 2, 3], [1, 2, 3], [1, 2, 3], math.nan),  # nothing is wrong
        ([3, 2, 1], [1, 2, 3], [1, 2, 3], 1.0),  # all are, and always to the cost of the larger
        ([3, 2, 1], [1, 2, 3], [3, 2, 1], 0.0),
        ([2, 2, 2], [1, 2, 3], [1, 2, 3], math.nan),  # a tied prediction orders nothing
        ([3, 2, 1], [2, 2, 2], [1, 2, 3], math.nan),  # and a tied truth says nothing
        ([3, 2, 1], [1, 2, 3], [1, 1, 2], 2 / 3),  # of two equally large ones none is the larger
    ],
)
def test_complexity_bias_with_ties(
    predicted: list[float], truth: list[float], complexity: list[float], bias: float
) -> None:
    assert complexity_bias(predicted, truth, complexity) == pytest.approx(bias, nan_ok=True)


def test_a_predictor_that_errs_regardless_of_size_has_the_neutral_bias() -> None:
    rng = np.random.default_rng(0)
    complexity = rng.integers(1, 30, 1500).astype(float)
    truth = complexity + rng.normal(0, 8, 1500)
    bias = np.mean([complexity_bias(rng.normal(0, 1, 1500), truth, complexity) for _ in range(8)])
    assert bias == pytest.approx(neutral_complexity_bias(truth, complexity), abs=0.01)
    assert neutral_complexity_bias(truth, complexity) > 0.7


@given(triples)
def test_complexity_convergence_is_tau_of_the_ratio(values: list[tuple[int, int, int]]) -> None:
    predicted, truth, complexity = ([float(value[place]) for value in values] for place in range(3))
    ratios = [a / b for a, b in zip(predicted, truth, strict=True)]
    expected = slow_tau(complexity, ratios)
    assert complexity_convergence(predicted, truth, complexity) == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(InvalidConfiguration, match=r"complexities differ in number: \[2, 2, 1\]"):
        complexity_bias([1, 2], [1, 2], [1])
