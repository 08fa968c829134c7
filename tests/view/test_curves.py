"""Statistics over seeds, against slow computations."""

from __future__ import annotations

import math
import statistics
from datetime import datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from harness.view import curves

START = datetime(2026, 1, 1)
values = st.floats(-1e3, 1e3).map(lambda value: round(value, 3))


def points(numbers: list[float | None], every: float = 1.0) -> list[dict[str, object]]:
    times = [(START + timedelta(seconds=every * place)).isoformat() for place in range(len(numbers))]
    return [{"step": n + 1, "value": v, "timestamp": t} for n, (v, t) in enumerate(zip(numbers, times, strict=True))]


@given(st.lists(st.lists(values, min_size=4, max_size=4), min_size=2, max_size=6))
def test_mean_and_bands_are_those_of_the_seeds(rows: list[list[float]]) -> None:
    found = curves.group("g", [curves.series(str(n), n, points(list(row)), "step") for n, row in enumerate(rows)])
    assert found["n"] == len(rows) and found["x"] == [1, 2, 3, 4]
    for place, column in enumerate(zip(*rows, strict=True)):
        mean, deviation = statistics.fmean(column), statistics.stdev(column)
        half = stats.t.interval(0.95, len(column) - 1)[1] * deviation / math.sqrt(len(column))
        expected = {"range": (min(column), max(column)), "sd": (mean - deviation, mean + deviation)}
        expected["t"] = (mean - half, mean + half)
        assert found["mean"][place] == pytest.approx(mean, rel=1e-5, abs=1e-5)
        for name, (low, high) in expected.items():
            assert found["bands"][name]["low"][place] == pytest.approx(low, rel=1e-5, abs=1e-5)
            assert found["bands"][name]["high"][place] == pytest.approx(high, rel=1e-5, abs=1e-5)


def test_one_seed_has_no_deviation() -> None:
    found = curves.group("g", [curves.series("a", 0, points([1.0, 2.0]), "step")])
    assert found["mean"] == [1, 2] and set(found["bands"]) == {"range"}


def test_runs_of_different_lengths_are_compared_where_all_have_values() -> None:
    members = [
        curves.series("a", 0, points([1.0, 2.0, 3.0]), "step"),
        curves.series("b", 1, points([3.0, 4.0]), "step"),
    ]
    found = curves.group("g", members)
    assert (found["x"], found["mean"]) == ([1, 2], [2, 3])
    assert [run["x"] for run in found["runs"]] == [[1, 2, 3], [1, 2]]


def test_over_seconds_curves_are_interpolated_on_a_common_grid() -> None:
    fast, slow = points([0.0, 1.0, 2.0], 1.0), points([0.0, 1.0, 2.0], 2.0)
    members = [curves.series("a", 0, fast, "seconds"), curves.series("b", 1, slow, "seconds")]
    found = curves.group("g", members)
    assert found["x"][0] == 0 and found["x"][-1] == 2
    expected = (np.array(found["x"]) + np.array(found["x"]) / 2) / 2
    assert found["mean"] == pytest.approx(expected.tolist(), rel=1e-4)


def test_over_images_the_last_step_has_all_images() -> None:
    assert curves.series("a", 0, points([1.0, 2.0]), "images", 500.0).x.tolist() == [250, 500]
    assert curves.series("a", 0, points([1.0, 2.0]), "images").x.tolist() == []  # a run that is not done


def test_values_that_are_no_numbers_are_left_out() -> None:
    assert curves.series("a", 0, points([1.0, None, 3.0]), "step").x.tolist() == [1, 3]
    assert curves.group("g", [curves.series("a", 0, points([None]), "step")])["n"] == 0


@given(st.lists(values, min_size=20, max_size=200))
def test_downsampling_keeps_the_extremes_and_the_ends(numbers: list[float]) -> None:
    x, y = np.arange(len(numbers), dtype=float), np.array(numbers)
    fewer, kept = curves.downsampled(x, y, 20)
    assert len(fewer) <= 20 and fewer[0] == 0 and fewer[-1] == len(numbers) - 1
    assert (kept.min(), kept.max()) == (y.min(), y.max())
    assert all(y[int(place)] == value for place, value in zip(fewer, kept, strict=True))


def test_what_is_left_out_is_stated() -> None:
    long = points([float(n % 7) for n in range(5000)])
    (run,) = curves.group("g", [curves.series("a", 0, long, "step")])["runs"]
    assert len(run["x"]) <= curves.POINTS and run["points"] == 5000
