"""Calibration: seconds per unit of work, without what every measurement costs besides."""

from __future__ import annotations

import pytest

from harness.work.calibration_job import _slope


def timed(count: int) -> tuple[float, int]:
    """As if each measurement took half a second, and each of its units another tenth."""
    return 0.5 + 0.1 * count, count


def test_what_a_measurement_costs_besides_does_not_count() -> None:
    assert _slope(timed, 60.0) == pytest.approx(0.1)


def test_without_time_the_first_measurement_is_all_there_is() -> None:
    assert _slope(timed, 0.0) == pytest.approx(0.6)


def test_where_there_is_no_more_to_do_all_of_it_counts() -> None:
    assert _slope(lambda count: (2.0, 4), 60.0) == pytest.approx(0.5)
