"""The curves of a run in their two forms: points one after the other, and the columns of Sacred's `metrics.json`.

Knows no files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from harness.stores.store import Metrics

Columns = dict[str, dict[str, list[Any]]]
"""Steps, values and timestamps by metric."""

_COLUMNS = {"steps": "step", "values": "value", "timestamps": "timestamp"}


def to_columns(points: Iterable[Mapping[str, Any]]) -> Columns:
    """Of points that say their metric's name."""
    columns: Columns = {}
    for point in points:
        own = columns.setdefault(point["name"], {column: [] for column in _COLUMNS})
        for column, key in _COLUMNS.items():
            own[column].append(point[key])
    return columns


def by_metric(points: Iterable[Mapping[str, Any]]) -> Metrics:
    """Of points that say their metric's name."""
    found: Metrics = {}
    for point in points:
        found.setdefault(point["name"], []).append({key: item for key, item in point.items() if key != "name"})
    return found


def from_columns(columns: Mapping[str, Mapping[str, Iterable[Any]]]) -> Metrics:
    """Raises KeyError without a column, and ValueError for columns that are not equally long."""
    found: Metrics = {}
    for name, own in columns.items():
        rows = zip(*(own[column] for column in _COLUMNS), strict=True)
        found[name] = [dict(zip(_COLUMNS.values(), row, strict=True)) for row in rows]
    return found
