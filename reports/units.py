"""Units that fit the numbers of a table: 0.0009 hours are 3.2 seconds. Knows no study and no format."""

from __future__ import annotations

import statistics
from dataclasses import replace

from .values import Table, Value, ValueColumn

SMALLER = {"h": (("min", 60.0), ("s", 60.0), ("ms", 1000.0)), "MB": (("kB", 1024.0),), "M": (("k", 1000.0),)}
"""By unit, as it ends a heading in parentheses: the next smaller ones, and how many of each make one before."""
SIGNIFICANT = 3
"""Digits that a usual number of a column has at least, in a smaller unit."""


def unit(label: str) -> str:
    """The unit at the end of a heading: "h" of "Training (h)"; empty if it names none."""
    head, opened, tail = label.rpartition(" (")
    return tail[:-1] if opened and head and tail.endswith(")") else ""


def fitted(table: Table) -> Table:
    """The same table; columns whose numbers are usually below their unit are in a smaller one."""
    columns = list(table.columns)
    rows = [list(row.values) for block in table.blocks for row in block]
    for place, column in enumerate(table.columns):
        numbers = [abs(number) for row in rows for number in row[place].numbers if not row[place].quotation]
        usual = statistics.median(numbers) if numbers else 0.0
        if not usual or unit(column.label) not in SMALLER:
            continue
        name, factor, digits = _fitting(column, usual)
        if factor != 1:
            label = f"{column.label.rpartition(' (')[0]} ({name})"
            columns[place] = replace(column, label=label, digits=digits, scale=column.scale * factor)
            for row in rows:
                row[place] = _scaled(row[place], factor, digits)
    values = iter(rows)
    blocks = tuple(tuple(replace(row, values=tuple(next(values))) for row in block) for block in table.blocks)
    return replace(table, columns=tuple(columns), blocks=blocks)


def _fitting(column: ValueColumn, usual: float) -> tuple[str, float, int]:
    """The first unit in which the usual number is at least 1, how many of them make the column's, and the digits."""
    name, factor = unit(column.label), 1.0
    for smaller, count in SMALLER[name]:
        if usual * factor >= 1:
            break
        name, factor = smaller, factor * count
    whole = len(str(int(usual * factor)))
    return name, factor, max(0, SIGNIFICANT - whole)


def _scaled(value: Value, factor: float, digits: int) -> Value:
    if value.quotation:
        return value
    measured = tuple(one if one.value is None else replace(one, value=one.value * factor) for one in value.measurements)
    return replace(value, measurements=measured, digits=digits)
