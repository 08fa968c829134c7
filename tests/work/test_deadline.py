"""When a worker must be gone, and what it may still begin."""

from __future__ import annotations

import time
from datetime import datetime

import pytest

from harness.work.deadline import START, Deadline, moment

NOW = datetime(2026, 11, 17, 14, 30)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("18:00", datetime(2026, 11, 17, 18, 0)),
        ("9:05:30", datetime(2026, 11, 18, 9, 5, 30)),
        ("2026-12-24T18:00", datetime(2026, 12, 24, 18, 0)),
        ("2026-12-24 18:00:01", datetime(2026, 12, 24, 18, 0, 1)),
        ("25:00", None),
        ("4h", None),
        ("90", None),
        ("2026-13-01T10:00", None),
    ],
)
def test_a_time_is_read_and_a_time_of_the_day_is_the_next_one(text: str, expected: datetime | None) -> None:
    assert moment(text, NOW) == (expected and expected.timestamp())


@pytest.mark.parametrize(("seconds", "margin"), [(10_000.0, 300.0), (1000.0, 100.0), (0.0, 0.0)])
def test_there_is_time_to_save(seconds: float, margin: float) -> None:
    assert Deadline(end=1000.0 + seconds, begun=1000.0).stop == 1000.0 + seconds - margin


def test_what_could_not_be_saved_may_not_begin() -> None:
    now = time.time()
    late, early = Deadline(now + 100, begun=now - 900), Deadline(now + 4000, begun=now)
    assert late.left == 0.0 and not late.allows(0.0) and late.ever_allowed(800.0)
    assert early.allows(3000.0) and not early.allows(3700.0)
    assert not Deadline(100.0, begun=0.0).ever_allowed(90.0 - START + 0.1)
