"""Points and columns are two forms of the same curves."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import DataError
from harness.stores.directory.curves import by_metric, from_columns, to_columns

POINT = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["train_loss", "kendall_tau"]),
        "step": st.integers(0, 9),
        "value": st.none() | st.floats(allow_nan=False),
        "timestamp": st.datetimes().map(datetime.isoformat),
    }
)


@given(st.lists(POINT))
def test_both_forms_hold_the_same_points(points: list[dict[str, Any]]) -> None:
    columns = to_columns(points)
    assert from_columns(columns) == by_metric(points)
    assert [[*own] for own in columns.values()] == [["steps", "values", "timestamps"]] * len(columns)
    assert sum(len(own["steps"]) for own in columns.values()) == len(points)


def test_columns_of_unequal_lengths_are_refused() -> None:
    with pytest.raises(DataError, match="train_loss has columns of unequal length"):
        from_columns({"train_loss": {"steps": [1, 2], "values": [0.5], "timestamps": ["2026-01-01T10:00:00"] * 2}})
