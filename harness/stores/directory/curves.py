"""The curves of a run in their two forms: a sequence of points, and the columns of Sacred's `metrics.json`.

Does not access files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from harness.stores.store import Metrics

Columns = dict[str, dict[str, list[Any]]]
"""Steps, values and timestamps by metric."""

_COLUMNS = {"steps": "step", "values": "value", "timestamps": "timestamp"}


def to_columns(points: Iterable[Mapping[str, Any]]) -> Columns:
    """The columns of points that carry their metric's name."""
    columns: Columns = {}
    for point in points:
        own = columns.setdefault(point["name"], {column: [] for column in _COLUMNS})
        for column, key in _COLUMNS.items():
            own[column].append(point[key])
    return columns


def by_metric(points: Iterable[Mapping[str, Any]]) -> Metrics:
    """Points that carry their metric's name, grouped by metric."""
    found: Metrics = {}
    for point in points:
        found.setdefault(point["name"], []).append({key: item for key, item in point.items() if key != "name"})
    return found


def from_columns(columns: Mapping[str, Mapping[str, Iterable[Any]]]) -> Metrics:
    """The points of columns. Raises KeyError for a missing column, ValueError for columns of unequal length."""
    found: Metrics = {}
    for name, own in columns.items():
        rows = zip(*(own[column] for column in _COLUMNS), strict=True)
        found[name] = [dict(zip(_COLUMNS.values(), row, strict=True)) for row in rows]
    return found
