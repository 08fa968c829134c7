"""Marks the values of a table: the best of each block in bold, by the rule of its column, and what equals it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from .values import TIED, Label, TableRow, Value, ValueColumn

Neutral = Mapping[tuple[int, int], float]
"""By row and column index, the reference value that "nearest" compares with."""


def emboldened(
    rows: Sequence[TableRow], columns: Sequence[ValueColumn], group: int | None, neutral: Neutral, planned: int
) -> list[TableRow]:
    """Mark the best value of each group, and those that are not distinguishable from it.

    If the shown means tie, all of them are the best. Only the means over the most seeds of the group compete, and a
    single competitor is not marked. `planned` is the number of seeds that the preset plans.
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
            if len(known) < 2:
                continue
            best = next(number for number, merit in merits.items() if merit == max(known))
            for number, merit in merits.items():
                value = marked[number][place]
                if merit == max(known):
                    marked[number][place] = replace(value, best=True)
                elif merit is not None:
                    near = [neutral.get((rows[one].number, place)) for one in (best, number)]
                    both = (marked[best][place], value)
                    differences = _differences(column.best, both, near)
                    constant = all(len(set(one.numbers)) == 1 for one in both)  # such as memory: no seed changes it
                    told = constant or _are_told_apart(differences, math.comb(len(known), 2), planned)
                    marked[number][place] = replace(value, tied=not told)
    return [replace(row, values=tuple(values)) for row, values in zip(rows, marked, strict=True)]


def references(found: Mapping[int, Sequence[float | None]]) -> dict[int, float]:
    """The mean reference of each row that has one."""
    numbers = {row: [one for one in values if one is not None] for row, values in found.items()}
    return {row: fmean(values) for row, values in numbers.items() if values}


def block(row: TableRow, group: int | None) -> Label:
    """The label that the rows of one block share."""
    return None if group is None else row.labels[group]


def tied_note(rows: Sequence[TableRow]) -> list[str]:
    """What the mark means, if any value has it."""
    if not any(value.tied for row in rows for value in row.values):
        return []
    return [
        f"{TIED} Not distinguishable from the best of its block: paired over seeds, at 5 % for all pairs of its rows "
        "together."
    ]


def _are_told_apart(differences: Sequence[float], pairs: int, planned: int) -> bool:
    """Whether the seeds tell two values apart, as one of so many pairs; which is the best is seen in the same data.

    With one seed there is nothing to tell: such tables have no marks.
    """
    n = len(differences)
    if n < 2:
        return True
    from harness import statistics

    if n == planned:
        sample = statistics.Sample.of(differences)
        return bool(statistics.t_test(sample) * pairs <= statistics.ALPHA)
    return bool((statistics.anytime_p(statistics.looks(differences)) * pairs <= statistics.ALPHA).any())


def _differences(best: str | None, values: Sequence[Value], neutral: Sequence[float | None]) -> list[float]:
    """By how much the first of two is better, seed by seed."""
    scores = []
    for value, near in zip(values, neutral, strict=True):
        known = {one.seed: one.value for one in value.measurements if one.value is not None}
        scores.append({seed: _score(best, number, near) for seed, number in known.items()})
    found = [one - scores[1][seed] for seed, one in scores[0].items() if seed in scores[1]]
    return [one for one in found if one == one]


def _score(best: str | None, number: float, neutral: float | None) -> float:
    """How good a number is; higher is better, nan without a reference."""
    if best == "nearest":
        # Rounded: 0.52 and 0.48 are equally far from 0.5, despite binary rounding.
        return math.nan if neutral is None else -round(abs(number - neutral), 9)
    return number if best == "max" else -number


def _merit(best: str | None, value: Value, neutral: float | None) -> float | None:
    """Score of the mean as shown, so that equal texts tie; higher is better. None without a reference."""
    score = _score(best, float(value.mean), neutral)
    return None if math.isnan(score) else score
