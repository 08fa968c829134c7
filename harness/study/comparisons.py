"""Which rows a study compares: its primary contrasts, those that it declares, or each row with the first of its group.

Nothing here reads runs: a contrast is a set of weights of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from harness.errors import InvalidConfiguration
from harness.study.layout import Column, Comparison, Labels, Row
from harness.study.study import Study, find_row

Weights = Mapping[int, float]
"""By row number: the contrast is the weighted sum of the rows' values."""


@dataclass(frozen=True)
class Pairing:
    """Two rows that are compared on a column: is the first better?"""

    first: int
    second: int
    column: Column
    margin: float | None = None


@dataclass(frozen=True)
class Primary:
    """A contrast that a study is about."""

    name: str
    weights: Weights
    column: Column
    margin: float | None = None


@dataclass(frozen=True)
class Effect:
    """The effect of a factor, or of two that act together, averaged over all other factors."""

    name: str
    weights: Weights
    blocks: tuple[Weights, ...] = ()
    """The same within each value of the study's group, where that is a factor that the effect is not about."""


def pairings(study: Study) -> list[Pairing]:
    """The comparisons of a study, all of rows with runs."""
    if study.comparisons is None:
        numbers = [number for number, row in enumerate(study.rows) if row.source == "runs"]
        column = main_column(study)
        return [Pairing(n, baseline(study, n), column) for n in numbers if column and n != baseline(study, n)]
    columns = {column.metric: column for column in reversed(study.columns)} | {"": main_column(study)}
    return [
        Pairing(find_row(study, one.first), find_row(study, one.second), column, one.margin)
        for one in study.comparisons
        if (column := columns[one.metric])
    ]


def primary_contrasts(study: Study) -> list[Primary]:
    """The primary contrasts of a study. Raises `InvalidConfiguration`."""
    found, columns = [], {column.metric: column for column in reversed(study.columns)} | {"": main_column(study)}
    by_name = {effect.name: effect for effect in effects(study)} if study.primary else {}
    for one in study.primary:
        column = columns[one.metric if isinstance(one, Comparison) else ""]
        if isinstance(one, str) and one not in by_name:
            raise InvalidConfiguration(
                f"study {study.name}: the primary contrast {one!r} is not an effect of its factors; "
                f"these are: {', '.join(by_name) or 'none'}"
            )
        if column is None:
            raise InvalidConfiguration(f"study {study.name}: it has primary contrasts, but no column")
        if isinstance(one, str):
            found.append(Primary(one, by_name[one].weights, column))
            continue
        sides = [_labelled(study, labels) for labels in (one.first, one.second)]
        if set(sides[0]) & set(sides[1]):
            raise InvalidConfiguration(f"study {study.name}: both sides of a primary contrast have {dict(one.first)}")
        weights = {row: sign / len(side) for side, sign in zip(sides, (1.0, -1.0), strict=True) for row in side}
        found.append(Primary(_against(one), weights, column, one.margin))
    return found


def _labelled(study: Study, labels: Labels) -> list[int]:
    """The rows with runs that have these labels."""
    found = [
        number
        for number, row in enumerate(study.rows)
        if row.source == "runs" and all(row.labels.get(name) == label for name, label in labels.items())
    ]
    if not found:
        raise InvalidConfiguration(f"study {study.name}: a primary contrast needs rows {dict(labels)}; it has none")
    return found


def _against(one: Comparison) -> str:
    """Both sides in words: first the labels that they share."""

    def words(labels: Labels) -> str:
        texts = [
            (name if label is True else f"no {name}")
            if isinstance(label, bool) or label == "–"
            else f"{name} = {label}"
            if str(label)[:1].isdigit()  # a bare number says nothing without its name
            else str(label)
            for name, label in labels.items()
        ]
        return ", ".join(texts)

    shared = {name: label for name, label in one.first.items() if one.second.get(name) == label}
    sides = [words({n: label for n, label in side.items() if n not in shared}) for side in (one.first, one.second)]
    return (f"{words(shared)}: " if shared else "") + " against ".join(sides)


def main_column(study: Study) -> Column | None:
    """The column that a study is compared on: the first that says what is better, or else the first."""
    return next((column for column in study.columns if column.best is not None), next(iter(study.columns), None))


def baseline(study: Study, number: int) -> int:
    """The number of the row that a row is compared with: the first of its group that has runs."""

    def group(row: Row) -> Any:
        return row.labels[study.group] if study.group is not None else None

    own = group(study.rows[number])
    return next(n for n, row in enumerate(study.rows) if row.source == "runs" and group(row) == own)


def effects(study: Study) -> Iterator[Effect]:
    """Main effects of the study's factors, then interactions of two. A factor's values stand against its first one.

    An interaction is by how much the first factor's effect is larger with the second's value than without.
    """
    rows = {number: row.labels for number, row in enumerate(study.rows) if row.source == "runs"}
    levels = {name: _levels([labels[name] for labels in rows.values()]) for name in study.factors}
    for count in (1, 2):
        for names in combinations(study.factors, count):
            for chosen in _choices([levels[name] for name in names]):
                weights = _contrast(rows, names, chosen, [levels[name][0] for name in names])
                title = " × ".join(_named(name, value, levels[name]) for name, value in zip(names, chosen, strict=True))
                yield Effect(title, weights, tuple(_blocks(study, weights, names, levels)))


def _levels(values: Sequence[Any]) -> list[Any]:
    """The values of a factor in the order of the rows; "no" comes before "yes"."""
    found = list(dict.fromkeys(values))
    return sorted(found) if all(isinstance(value, bool) for value in found) else found


def _choices(levels: Sequence[Sequence[Any]]) -> Iterator[tuple[Any, ...]]:
    """All values but the first of each factor, combined."""
    if not levels:
        yield ()
        return
    for value in levels[0][1:]:
        for rest in _choices(levels[1:]):
            yield (value, *rest)


def _contrast(
    rows: Mapping[int, Mapping[str, Any]], names: Sequence[str], chosen: Sequence[Any], first: Sequence[Any]
) -> dict[int, float]:
    weights: dict[int, float] = {}
    for number, labels in rows.items():
        sign = 1
        for name, value, base in zip(names, chosen, first, strict=True):
            sign *= 1 if labels[name] == value else -1 if labels[name] == base else 0
        if sign:
            weights[number] = float(sign)
    each = len(weights) / 2 ** len(names)
    return {number: weight / each for number, weight in weights.items()}


def _blocks(
    study: Study, weights: Weights, names: Sequence[str], levels: Mapping[str, Sequence[Any]]
) -> Iterator[Weights]:
    if study.group is None or study.group in names or study.group not in study.factors:
        return
    values = levels[study.group]
    for value in values:
        yield {n: one * len(values) for n, one in weights.items() if study.rows[n].labels[study.group] == value}


def _named(name: str, value: Any, levels: Sequence[Any]) -> str:
    return name if isinstance(value, bool) else f"{name} {value} against {levels[0]}"
