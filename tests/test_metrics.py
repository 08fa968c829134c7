"""Kendall's τ-b, CB and C³ against their definitions."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import InvalidConfiguration
from harness.metrics import (
    against_null,
    complexity_bias,
    complexity_convergence,
    kendall_tau,
    matched_null,
    neutral_complexity_bias,
    partial_tau,
)

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


def test_a_null_permutes_residuals_of_an_isotonic_fit_within_deciles_of_truth() -> None:
    """Against the fit by its definition, the largest of the least means of all stretches around a place."""
    rng = np.random.default_rng(1)
    truth = np.sort(rng.normal(60, 10, 40))
    guess = truth + rng.normal(0, 8, 40)
    fitted = [
        max(min(guess[low : high + 1].mean() for high in range(place, 40)) for low in range(place + 1))
        for place in range(40)
    ]
    residuals = guess - fitted
    order = rng.permutation(40)  # the order of the architectures does not matter
    made = matched_null(guess[order], truth[order], np.random.default_rng(0), 6)[:, np.argsort(order)]
    assert made.shape == (6, 40)
    for first in range(0, 40, 4):
        decile = slice(first, first + 4)
        for row in made:
            assert np.sort(row[decile] - fitted[decile]) == pytest.approx(np.sort(residuals[decile]), abs=1e-9)
    assert len({tuple(row.round(6)) for row in made}) == 6


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


def test_random_numbers_have_the_neutral_bias() -> None:
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


def made_up(rng: np.random.Generator, count: int = 400) -> tuple[Any, Any]:
    """Numbers of parameters, and accuracies that rise with them; few architectures are bad."""
    sizes = rng.integers(1, 30, count).astype(float)
    return sizes, 94 - rng.exponential(1.0, count) * (1.5 - sizes / 30)


def z_scores(guess: Any, truth: Any, sizes: Any, rng: np.random.Generator) -> tuple[float, float]:
    """Those of CB and C³."""
    null = matched_null(guess, truth, rng)
    return tuple(
        against_null(measure(guess, truth, sizes), [measure(row, truth, sizes) for row in null])[1]
        for measure in (complexity_bias, complexity_convergence)
    )  # type: ignore[return-value]


@pytest.mark.parametrize("noise", [0.2, 1.0, 4.0])
@pytest.mark.parametrize("noise_of_truth", [0.0, 0.1])
@pytest.mark.parametrize("slope", [0.5, 1.0, 2.0])
def test_a_predictor_without_bias_is_at_its_matched_null(noise: float, noise_of_truth: float, slope: float) -> None:
    """However well it predicts, and however far it spreads: not at the CB of random numbers, nor at a C³ of 0."""
    found = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        sizes, latent = made_up(rng, 250)
        guess = 60 + slope * (latent + noise * rng.standard_normal(250) - 90)
        found.append(z_scores(guess, latent + noise_of_truth * rng.standard_normal(250), sizes, rng))
    mean = np.mean(found, axis=0)
    assert np.all(np.abs(mean) < 3 / math.sqrt(12)), mean  # z has a deviation of about 1


def test_a_predictor_with_bias_is_far_from_its_matched_null() -> None:
    rng = np.random.default_rng(0)
    sizes, truth = made_up(rng)
    for sign in (1, -1):  # unfair to large networks, then to small ones
        guess = truth + 0.3 * rng.standard_normal(400) - sign * 0.03 * sizes
        bias, convergence = z_scores(guess, truth, sizes, rng)
        assert sign * bias > 3 and sign * convergence < -3
    # What used to be called neutral is far above a good predictor without bias.
    good = truth + 0.1 * rng.standard_normal(400)
    assert complexity_bias(good, truth, sizes) < neutral_complexity_bias(truth, sizes) - 0.03


def test_a_matched_null_predicts_as_well_as_what_it_is_matched_to() -> None:
    rng = np.random.default_rng(1)
    sizes, truth = made_up(rng)
    guess = truth + 1.0 * rng.standard_normal(400)
    null = matched_null(guess, truth, np.random.default_rng(5))
    assert null.shape == (100, 400)
    taus = [kendall_tau(row, truth) for row in null]
    assert np.mean(taus) == pytest.approx(kendall_tau(guess, truth), abs=0.03)
    assert np.array_equal(null, matched_null(guess, truth, np.random.default_rng(5)))
    assert all(map(math.isnan, against_null(1.0, [math.nan] * 3)))


@given(triples)
def test_partial_tau_against_all_pairs(values: list[tuple[int, int, int]]) -> None:
    """As the correlation of the signs of pairs, less what both share with the third."""
    one, other, third = ([float(value[place]) for value in values] for place in range(3))
    ab, ac, bc = slow_tau(one, other), slow_tau(one, third), slow_tau(other, third)
    if math.isnan(ab + ac + bc) or max(abs(ac), abs(bc)) > 1 - 1e-9:
        return
    expected = (ab - ac * bc) / math.sqrt((1 - ac**2) * (1 - bc**2))
    assert partial_tau(one, other, third) == pytest.approx(expected, abs=1e-9)


def test_a_prediction_by_size_alone_has_no_partial_tau() -> None:
    rng = np.random.default_rng(0)
    sizes = rng.normal(0, 1, 2000)
    truth, guess = (sizes + rng.normal(0, 1, 2000) for _ in range(2))
    assert kendall_tau(guess, truth) > 0.25
    assert abs(partial_tau(guess, truth, sizes)) < 0.4 * kendall_tau(guess, truth)
    assert math.isnan(partial_tau(sizes, truth, sizes))


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(InvalidConfiguration, match=r"complexities differ in number: \[2, 2, 1\]"):
        complexity_bias([1, 2], [1, 2], [1])
