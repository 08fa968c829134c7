"""Intervals against a slow, obvious reference."""

from __future__ import annotations

from itertools import product
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.components.discovery import component

bootstrap: Any = component("reports.paper.bootstrap")

EFFECTS = st.lists(st.integers(-1000, 1000).map(lambda n: n / 1000), min_size=1, max_size=5)


def slow_interval(values: list[float]) -> tuple[float, float]:
    """Every resample, one after the other; from either end, as many left out as 2.5 % allow."""
    means = sorted(fmean(resample) for resample in product(values, repeat=len(values)))
    left_out = 0
    while (left_out + 1) / len(means) <= 0.025:
        left_out += 1
    return means[left_out], means[-1 - left_out]


@given(EFFECTS)
@settings(max_examples=60, deadline=None)
def test_all_resamples_are_enumerated(values: list[float]) -> None:
    assert bootstrap.mean_interval(np.array(values)) == pytest.approx(slow_interval(values), abs=1e-12)


@given(EFFECTS)
@settings(max_examples=60, deadline=None)
def test_the_opposite_statement_has_the_mirrored_interval(values: list[float]) -> None:
    low, high = bootstrap.mean_interval(np.array(values))
    assert bootstrap.mean_interval(-np.array(values)) == (-high, -low)


def test_with_three_seeds_the_interval_goes_from_the_least_to_the_greatest() -> None:
    assert bootstrap.mean_interval(np.array([0.3, 0.1, 0.2])) == (0.1, 0.3)


def test_a_mean_of_0_is_0() -> None:
    assert bootstrap.mean_interval(np.array([0.1, 0.2, -0.3]))[0] == -0.3
    assert 0.0 in bootstrap.interval(3, lambda chosen: np.full(len(chosen), 0.1 + 0.2 - 0.3))


def test_six_seeds_are_enumerated_and_seven_drawn() -> None:
    assert bootstrap.resamples(6).shape == (6**6, 6)
    assert len(np.unique(bootstrap.resamples(4), axis=0)) == 4**4
    assert bootstrap.resamples(7).shape == (bootstrap.DRAWN, 7)


def test_drawn_resamples_are_always_the_same_and_near_the_normal_interval() -> None:
    values = np.random.default_rng(5).normal(1.0, 0.5, 40)
    first = bootstrap.mean_interval(values)
    bootstrap.resamples.cache_clear()
    assert bootstrap.mean_interval(values) == first
    half = 1.96 * values.std() / np.sqrt(40)
    assert first == pytest.approx((values.mean() - half, values.mean() + half), abs=0.02)


def test_any_statistic_has_an_interval() -> None:
    values = np.array([1.0, 2.0, 4.0])
    assert bootstrap.interval(3, lambda chosen: values[chosen].max(axis=1)) == (1.0, 4.0)
