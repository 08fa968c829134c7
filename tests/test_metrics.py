"""Kendall's τ-b against its definition."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import InvalidConfiguration
from harness.metrics import kendall_tau

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
