"""The effects of the paper's statements in a store's runs, seed by seed. Knows the kinds of statements, none of them.

A statement that is made of several methods is measured for each of them, and on average over them within a seed.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.components.preset import Preset
from harness.study.layout import Row
from harness.study.study import Study

from ..compared import BOUNDED, FIELLER, PAIRED, SPREAD, Compared, Margins, column_of, linear_key, margin_of, measured
from ..evidence import Evidence
from ..words import in_words, without
from .numbers import beside, datasets, quoted
from .statements import Pair, Side, Statement, Term, effect_of, printed_effect, statements

_METHODS = {"factor_at_most": FIELLER, "gain_at_most": BOUNDED, "more_spread": SPREAD}
_DIFFERENCES = {"higher": 1.0, "lower": -1.0}
"""The kinds that are differences, and their sign."""


@dataclass(frozen=True)
class _Series:
    """A side's values by seed, each with its neutral value; a quoted value holds for every seed."""

    values: Mapping[int, tuple[float, float]]
    constant: float | None = None

    def at(self, seed: int) -> tuple[float, float]:
        return self.values[seed] if self.constant is None else (self.constant, math.nan)


def statements_compared(
    study: Study, preset: Preset, found: Sequence[Evidence], margins: Margins
) -> Iterator[tuple[Statement, Compared]]:
    """Every statement about the study for each pair and each data set of the preset, from the counted evidence.

    A metric that the study shows for one data set only is compared there only. Pairs with rows that the study does
    not have, or that were not asked for, are skipped.
    """
    for statement in statements():
        if statement.study != study.name:
            continue
        for dataset in preset.datasets:
            asked = [pair for pair in statement.pairs if _is_asked(study, preset, pair, dataset, found)]
            for pair in asked:
                yield statement, _compared(study, preset, statement, pair, dataset, found, margins)
            for pattern in statement.everywhere if statement.kind != "more_spread" else ():
                pairs = [pair for pair in pattern if pair in asked]
                if len(pairs) > 1:
                    some = [_compared(study, preset, statement, pair, dataset, found, margins) for pair in pairs]
                    yield statement, _average(study, statement, pairs, some)


def _is_asked(study: Study, preset: Preset, pair: Pair, dataset: str, found: Sequence[Evidence]) -> bool:
    asked = {one.request.row for one in found}
    for term in (term for side in pair.sides for term in side.terms):
        column, row = column_of(study, term.metric), _row(study, term)
        if row is None or (column and not column.each_dataset and dataset != preset.datasets[0]):
            return False
        if row.source == "runs" and study.rows.index(row) not in asked:
            return False
    return True


def _compared(
    study: Study,
    preset: Preset,
    statement: Statement,
    pair: Pair,
    dataset: str,
    found: Sequence[Evidence],
    margins: Margins,
) -> Compared:
    column = column_of(study, statement.metric)
    sides = [_side(study, statement, side, dataset, found) for side in pair.sides]
    seeds = _common(sides)
    values = [[side.at(seed) for seed in seeds] for side in sides]
    numbers = [study.rows.index(row) for row, _, _ in _terms(study, pair) if row.source == "runs"]
    return Compared(
        study=study.name,
        kind="statement",
        name=statement.text,
        rows=in_words(pair),
        numbers=frozenset(numbers),
        column=column.label if column else statement.metric,
        metric=statement.metric,
        digits=3 if statement.kind == "factor_at_most" else column.digits if column else None,
        dataset=dataset,
        planned=preset.seeds,
        key=_key(study, statement, pair, dataset),
        seeds=seeds,
        effects=_effects(statement, values),
        sides=_two(statement, values),
        method=_METHODS.get(statement.kind, PAIRED),
        margin=margin_of(study, statement.metric, statement.margin, margins)
        if statement.kind in _DIFFERENCES
        else None,
        printed=printed_effect(statement, pair, beside(dataset, study.name)),
        where=statement.where,
    )


def _average(study: Study, statement: Statement, pairs: Sequence[Pair], members: Sequence[Compared]) -> Compared:
    """The mean of a statement's effects over all that it is made of, within each seed."""
    seeds = tuple(sorted(set.intersection(*(set(one.seeds) for one in members))))
    values = [[one.effects[one.seeds.index(seed)] for seed in seeds] for one in members]
    printed = [one.printed for one in members if one.printed is not None]
    key: Hashable = ("mean", *(one.key for one in members))
    if statement.kind in _DIFFERENCES:
        terms = [(study.rows.index(row), metric, w) for pair in pairs for row, metric, w in _terms(study, pair)]
        key = linear_key(members[0].dataset, [(row, metric, weight / len(pairs)) for row, metric, weight in terms])
    return replace(
        members[0],
        rows=f"mean over every {' and '.join(statement.each)}: {in_words(without(pairs[0], statement.each))}",
        numbers=frozenset().union(*(one.numbers for one in members)),
        key=key,
        seeds=seeds,
        effects=tuple(round(float(one), 12) for one in np.mean(values, axis=0)) if seeds else (),
        sides=None,
        units=tuple(effect for effects in values for effect in effects),
        printed=round(sum(printed) / len(printed), 12) if len(printed) == len(members) else None,
    )


def _key(study: Study, statement: Statement, pair: Pair, dataset: str) -> Hashable:
    """Equal for pairs that ask the same, whatever the statement."""
    terms = [(study.rows.index(row), metric, weight) for row, metric, weight in _terms(study, pair)]
    if statement.kind in _DIFFERENCES:
        return linear_key(dataset, terms)
    if statement.kind == "nearer":
        return "nearest", linear_key(dataset, terms)
    return statement.kind, statement.bound, dataset, tuple(terms)


def _terms(study: Study, pair: Pair) -> Iterator[tuple[Row, str, float]]:
    """Row, metric and weight of everything in a pair."""
    for side, sign in zip(pair.sides, (1.0, -1.0), strict=False):
        for term, weight in zip(side.terms, (sign, -sign), strict=False):
            row = _row(study, term)
            assert row is not None  # checked by `_is_asked`
            yield row, term.metric, weight


def _effects(statement: Statement, values: Sequence[Sequence[tuple[float, float]]]) -> tuple[float, ...]:
    """By how much the statement holds under each seed; for deviations there is no such number."""
    if statement.kind == "more_spread":
        return ()
    bound = statement.bound or 0.0
    if statement.kind == "factor_at_most":
        first, second = ([value for value, _ in side] for side in values)
        # Of 0 there is no share: the differences stand for themselves.
        mean = sum(second) / len(second) if second and sum(second) else 1.0
        return tuple(round((bound * two - one) / mean, 12) for one, two in zip(first, second, strict=True))
    return tuple(
        effect_of(statement.kind, sides[0][0], sides[-1][0], bound, (sides[0][1], sides[-1][1]))
        for sides in zip(*values, strict=True)
    )


def _two(
    statement: Statement, values: Sequence[Sequence[tuple[float, float]]]
) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Both sides' values, first those that are to be higher or to vary more; None where that is not the question."""
    if statement.kind not in (*_DIFFERENCES, "more_spread"):
        return None
    first, second = (tuple(value for value, _ in side) for side in values)
    return (second, first) if statement.kind == "lower" else (first, second)


def _common(sides: Sequence[_Series]) -> tuple[int, ...]:
    found = [set(side.values) for side in sides if side.constant is None]
    return tuple(sorted(set.intersection(*found))) if found else ()


def _side(study: Study, statement: Statement, side: Side, dataset: str, found: Sequence[Evidence]) -> _Series:
    terms = [_series(study, statement, term, dataset, found) for term in side.terms]
    if len(terms) == 1:
        return terms[0]
    seeds = _common(terms)
    return _Series({seed: (terms[0].at(seed)[0] - terms[1].at(seed)[0], math.nan) for seed in seeds})


def _series(study: Study, statement: Statement, term: Term, dataset: str, found: Sequence[Evidence]) -> _Series:
    row = _row(study, term)
    assert row is not None  # checked by `_is_asked`
    if row.source == "paper":
        # The paper's value on another data set cannot be compared.
        number = quoted(study.name, row.labels, term.metric, dataset) if dataset in datasets() else None
        return _Series({}) if number is None else _Series({}, float(number.mean))
    column = column_of(study, term.metric)
    values = {}
    for seed, value, neutral in measured(study, study.rows.index(row), term.metric, dataset, found):
        if statement.reference is None:
            values[seed] = value, math.nan
        elif column is None or column.reference is None:  # the paper's own neutral value
            values[seed] = value, statement.reference
        elif neutral is not None:
            values[seed] = value, neutral
    return _Series(values)


def _row(study: Study, term: Term) -> Row | None:
    return next((row for row in study.rows if dict(row.labels) == dict(term.labels)), None)
