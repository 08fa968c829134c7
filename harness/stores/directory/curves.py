"""The curves of a run in their two forms: a sequence of points, and the columns of Sacred's `metrics.json`.

Does not access files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from harness.documents import parsed, problem
from harness.errors import DataError
from harness.schema import CurvesDocument, Point
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


def from_columns(columns: Any) -> Metrics:
    """The points of columns. Raises `DataError` if they are no `CurvesDocument`, or of unequal length."""
    check_columns(columns)
    found: Metrics = {}
    for name, own in columns.items():
        rows = zip(*(own[column] for column in _COLUMNS), strict=True)
        found[name] = [dict(zip(_COLUMNS.values(), row, strict=True)) for row in rows]
    return found


def check_columns(columns: Any) -> None:
    """Raise `DataError` unless these are curves, each with columns of equal length."""
    if (wrong := problem(CurvesDocument, columns)) is not None:
        raise DataError(wrong)
    if uneven := [name for name, own in columns.items() if len({len(own[column]) for column in _COLUMNS}) > 1]:
        raise DataError(f"{uneven[0]} has columns of unequal length")


def read_line(line: str) -> dict[str, Any]:
    """One point of a run under way. Raises `DataError`."""
    return parsed(line, Point)
