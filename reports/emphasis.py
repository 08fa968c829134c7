"""Marks the values of a table that are printed in bold: the best of each block, by the rule of its column."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from .values import Label, TableRow, Value, ValueColumn

Neutral = Mapping[tuple[int, int], float]
"""By row and column index, the reference value that "nearest" compares with."""


def emboldened(
    rows: Sequence[TableRow], columns: Sequence[ValueColumn], group: int | None, neutral: Neutral
) -> list[TableRow]:
    """Mark the best value of each group; if the shown means tie, mark all of them.

    Only the means over the most seeds of the group compete, and a single competitor is not marked.
    Rows that do not come from runs do not compete: they were made in another way, or are out of reach.
    """
    marked = [list(row.values) for row in rows]
    for place, column in enumerate(columns):
        groups: dict[Label, list[int]] = {}
        for number, row in enumerate(rows):
            if column.best is not None and row.source == "runs" and row.values[place].numbers:
                groups.setdefault(block(row, group), []).append(number)
        for members in groups.values():
            most = max(len(rows[number].values[place].numbers) for number in members)
            rivals = [number for number in members if len(rows[number].values[place].numbers) == most]
            merits = {
                number: _merit(column.best, rows[number].values[place], neutral.get((rows[number].number, place)))
                for number in rivals
            }
            known = [merit for merit in merits.values() if merit is not None]
            for number, merit in merits.items():
                if len(known) > 1 and merit == max(known):
                    marked[number][place] = replace(marked[number][place], best=True)
    return [replace(row, values=tuple(values)) for row, values in zip(rows, marked, strict=True)]


def references(found: Mapping[int, Sequence[float | None]]) -> dict[int, float]:
    """The mean reference of each row that has one."""
    numbers = {row: [one for one in values if one is not None] for row, values in found.items()}
    return {row: statistics.fmean(values) for row, values in numbers.items() if values}


def block(row: TableRow, group: int | None) -> Label:
    """The label that the rows of one block share."""
    return None if group is None else row.labels[group]


def _merit(best: str | None, value: Value, neutral: float | None) -> float | None:
    """Score of the mean as shown, so that equal texts tie; higher is better. None without a reference."""
    mean = float(value.mean)
    if best == "nearest":
        # Rounded: 0.52 and 0.48 are equally far from 0.5, despite binary rounding.
        return None if neutral is None else -round(abs(mean - neutral), 9)
    return mean if best == "max" else -mean
