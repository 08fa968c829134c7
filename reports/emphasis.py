"""Which values of a table are emboldened: the best of each block, as its column says."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from .values import Label, TableRow, Value, ValueColumn

Neutral = Mapping[tuple[int, int], float]
"""By row and place of the column, the reference that "nearest" is near to."""


def emboldened(
    rows: Sequence[TableRow], columns: Sequence[ValueColumn], group: int | None, neutral: Neutral
) -> list[TableRow]:
    """Mark the best of each group, all of them where the shown means tie.

    Only means over equally many seeds compete, those with the most; a single one is not the best of anything.
    What was not measured by runs does not compete: it was made otherwise, or is out of reach.
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
    """The mean reference of each row that has any."""
    numbers = {row: [one for one in values if one is not None] for row, values in found.items()}
    return {row: statistics.fmean(values) for row, values in numbers.items() if values}


def block(row: TableRow, group: int | None) -> Label:
    """What the rows of one block share."""
    return None if group is None else row.labels[group]


def _merit(best: str | None, value: Value, neutral: float | None) -> float | None:
    """The higher, the better; None without anything to compare with. Of the mean as shown: what looks equal is."""
    mean = float(value.mean)
    if best == "nearest":
        # Rounded: 0.52 and 0.48 are equally far from 0.5, whatever binary fractions say.
        return None if neutral is None else -round(abs(mean - neutral), 9)
    return mean if best == "max" else -mean
