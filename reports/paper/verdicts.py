"""Whether a store's runs support the paper's statements. Knows the kinds of statements and no particular one.

Rows are compared per seed: two rows under one seed saw the same data and initial weights. The interval is
that of the mean over resampled seeds; if it is entirely on one side of 0, the statement is decided. A single
seed decides nothing, however large its effect.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.components.preset import Preset
from harness.study.layout import Column, Row
from harness.study.study import Study

from ..evidence import Evidence
from ..values import look_up
from .bootstrap import Numbers, Resamples, interval, mean_interval
from .numbers import beside, datasets, quoted
from .statements import Pair, Side, Statement, Term, effect_of, printed_effect, statements

SUPPORTED, CONTRADICTED, UNDECIDED, NO_DATA = VERDICTS = ("supported", "contradicted", "undecided", "no data")
FEWEST = 2
"""Minimum number of common seeds for a decision."""


@dataclass(frozen=True)
class Judgement:
    """The verdict of the runs on a statement, for one pair of rows on one data set."""

    statement: Statement
    pair: Pair
    dataset: str
    seeds: tuple[int, ...]
    """The seeds for which every row involved has a value."""
    effect: float | None
    """The mean over these seeds; above 0 it supports the statement. None without seeds."""
    interval: tuple[float, float] | None
    verdict: str
    printed: float | None
    """The effect by the paper's own numbers."""


@dataclass(frozen=True)
class _Series:
    """A side's values by seed, each with its neutral value; a quoted value holds for every seed."""

    values: Mapping[int, tuple[float, float]]
    constant: float | None = None

    def at(self, seed: int) -> tuple[float, float]:
        return self.values[seed] if self.constant is None else (self.constant, math.nan)


def judge(study: Study, preset: Preset, found: Sequence[Evidence]) -> list[Judgement]:
    """Judge every statement about the study for each pair and each data set of the preset, from the counted evidence.

    A metric that the study shows for one data set only is judged there only. Pairs with rows that the study
    does not have are skipped: a study may be changed, or may not yet have all rows of the paper.
    """
    judgements = []
    for statement in statements():
        if statement.study != study.name:
            continue
        for dataset in preset.datasets:
            for pair in statement.pairs:
                if _is_asked(study, preset, pair, dataset):
                    judgements.append(_judged(study, statement, pair, dataset, found))
    return judgements


def column_of(study: Study, metric: str) -> Column | None:
    """The study's column for a metric, if there is one."""
    return next((column for column in study.columns if column.metric == metric), None)


def _is_asked(study: Study, preset: Preset, pair: Pair, dataset: str) -> bool:
    for term in (term for side in pair.sides for term in side.terms):
        column = column_of(study, term.metric)
        if _row(study, term) is None or (column and not column.each_dataset and dataset != preset.datasets[0]):
            return False
    return True


def _judged(study: Study, statement: Statement, pair: Pair, dataset: str, found: Sequence[Evidence]) -> Judgement:
    printed = printed_effect(statement, pair, beside(dataset, study.name))
    sides = [_side(study, statement, side, dataset, found) for side in pair.sides]
    seeds = _common(sides)
    if not seeds:
        return Judgement(statement, pair, dataset, (), None, None, NO_DATA, printed)
    if statement.kind == "more_spread":
        effect, span = _spread(*([side.at(seed)[0] for seed in seeds] for side in sides))
    else:
        effects = np.array([_effect(statement, [side.at(seed) for side in sides]) for seed in seeds])
        effect, span = round(float(effects.mean()), 12), mean_interval(effects)
    if len(seeds) < FEWEST:
        return Judgement(statement, pair, dataset, seeds, effect, None, UNDECIDED, printed)
    verdict = SUPPORTED if span[0] > 0 else CONTRADICTED if span[1] < 0 else UNDECIDED
    return Judgement(statement, pair, dataset, seeds, effect, span, verdict, printed)


def _effect(statement: Statement, sides: Sequence[tuple[float, float]]) -> float:
    (first, near), (second, other) = sides[0], sides[-1]
    return effect_of(statement.kind, first, second, statement.bound or 0.0, (near, other))


def _spread(first: Sequence[float], second: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """The difference of two sample deviations over the same seeds, and its interval."""
    if len(first) < FEWEST:
        return 0.0, (0.0, 0.0)
    one, other = np.array(first), np.array(second)

    def difference(chosen: Resamples) -> Numbers:
        found: Numbers = one[chosen].std(axis=1, ddof=1) - other[chosen].std(axis=1, ddof=1)
        return found

    return round(float(difference(np.arange(len(one))[None])[0]), 12), interval(len(one), difference)


def _common(sides: Sequence[_Series]) -> tuple[int, ...]:
    measured = [set(side.values) for side in sides if side.constant is None]
    return tuple(sorted(set.intersection(*measured))) if measured else ()


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
    return _Series(dict(_measured(study, statement, row, term.metric, dataset, found)))


def _measured(
    study: Study, statement: Statement, row: Row, metric: str, dataset: str, found: Sequence[Evidence]
) -> Iterator[tuple[int, tuple[float, float]]]:
    """By seed, the row's value in its column's unit, and the neutral value."""
    column = column_of(study, metric)
    scale = column.scale if column else 1.0
    number = study.rows.index(row)
    for one in found:
        if (one.request.row, one.request.dataset, one.state) == (number, dataset, "done"):
            value = look_up(one.metrics, row.metrics.get(metric, metric))
            neutral = _neutral(statement, column, one)
            if _is_number(value) and neutral is not None:
                yield one.request.seed, (float(value) * scale, neutral)


def _neutral(statement: Statement, column: Column | None, one: Evidence) -> float | None:
    """The value of the statement's metric without any effect: from the column, or else from the paper."""
    if statement.reference is None:
        return math.nan
    if column is None or column.reference is None:
        return statement.reference
    if not isinstance(column.reference, str):
        return column.reference
    known = look_up(one.metrics, column.reference)
    return float(known) * column.scale if _is_number(known) else None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _row(study: Study, term: Term) -> Row | None:
    return next((row for row in study.rows if dict(row.labels) == dict(term.labels)), None)
