"""What runs say on a comparison, seed by seed: the input of a verdict. Knows no statement of the paper.

Rows are compared under equal seeds: two rows under one seed saw the same data and initial weights. An effect above 0
speaks for what is compared.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.components.preset import Preset
from harness.statistics import Block, Estimate, contrast
from harness.study.comparisons import Weights, effects, main_column, pairings, primary_contrasts
from harness.study.curves import AVERAGED
from harness.study.edges import CLUSTERS, SPLIT, drawn_edges
from harness.study.layout import Column
from harness.study.study import Study

from .evidence import Evidence
from .paper.numbers import beside, quoted
from .paper.statements import Pair, Side, Term
from .values import look_up
from .words import in_words

Margins = Mapping[str, float]
"""By metric, the difference below which values count as equal, in the column's unit; "" is a study's main column."""

PAIRED, POOLED, MIXED, WELCH, BOUNDED, FIELLER, SPREAD = (
    "paired t-test",
    "t-test with the variance of all rows of a method",
    "t-test with the variance of all rows of a method; edges that seeds draw are random effects",
    "Welch's test",
    "paired t-test of what is left up to the bound",
    "Fieller's test: paired t-test of bound × second − first, as a share of the second's mean",
    "test of Pitman and Morgan",
)


COMPARABLE = ("kendall_tau", AVERAGED)
"""The metrics whose deviations are comparable from row to row."""


@dataclass(frozen=True)
class Checked:
    """A premise of a statement, as the store has it."""

    premise: str
    how: str
    """How it is checked."""
    dataset: str
    about: str
    """The method whose training it is about; empty for a premise about the truth."""
    holds: bool | None
    """None where the store does not have the numbers, or where these do not decide."""
    numbers: str
    """The numbers that say so."""


@dataclass(frozen=True)
class Compared:
    """One comparison on one data set: who is compared, and the effect under each seed that all rows have."""

    study: str
    kind: str
    """"primary", "statement", "rows" or "effect"."""
    name: str
    """The statement, or the effect's factors; empty for rows."""
    rows: str
    """The rows in words."""
    numbers: frozenset[int]
    """The rows of the study that it needs runs of."""
    column: str
    metric: str
    digits: int | None
    dataset: str
    planned: int
    """The number of seeds that the preset plans; at any other number verdicts need a test that allows for that."""
    key: Hashable
    """Equal for comparisons of one study that ask the same."""
    seeds: tuple[int, ...] = ()
    effects: tuple[float, ...] = ()
    """One per seed."""
    sides: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    """The values of both rows, where there are just two."""
    units: tuple[float, ...] = ()
    """For a factor: its effect in each group of rows under each seed."""
    method: str = PAIRED
    margin: float | None = None
    printed: float | None = None
    """The effect by the paper's own numbers."""
    where: str = ""
    """The table or figure of the paper that shows it."""
    premises: tuple[Checked, ...] = ()
    """What the statement takes for granted."""
    primary: bool = False
    """Whether it asks what a primary contrast of the study asks."""
    estimate: Estimate | None = None
    """The effect by all rows of the methods compared; None where only the differences of the seeds count."""

    @property
    def question(self) -> Hashable:
        """Equal for comparisons that ask the same, and so count once."""
        return self.study, self.key


def column_of(study: Study, metric: str) -> Column | None:
    """The study's column for a metric, if there is one."""
    return next((column for column in study.columns if column.metric == metric), None)


def margin_of(study: Study, metric: str, own: float | None, margins: Margins) -> float | None:
    """The margin of a comparison: its own, or else the user's."""
    column = main_column(study)
    first = column is not None and metric == column.metric
    return own if own is not None else margins.get(metric, margins.get("") if first else None)


def linear_key(dataset: str, weights: Iterable[tuple[int, str, float]]) -> Hashable:
    """Equal for contrasts of the same rows and metrics, whichever side is first."""
    found: dict[tuple[int, str], float] = {}
    for row, metric, weight in weights:
        found[row, metric] = found.get((row, metric), 0.0) + weight
    ordered = sorted(found.items())
    sign = next((math.copysign(1.0, weight) for _, weight in ordered if weight), 1.0)
    return dataset, tuple((place, round(sign * weight, 9)) for place, weight in ordered if weight)


def rows_compared(
    study: Study, preset: Preset, found: Sequence[Evidence], margins: Margins, covered: Iterable[Hashable] = ()
) -> Iterator[Compared]:
    """The comparisons that the study declares, or of each row with the first of its group; without covered ones."""
    covered, asked = set(covered), {one.request.row for one in found}
    for dataset in preset.datasets:
        for one in pairings(study):
            if not _is_shown(one.column, preset, dataset) or not {one.first, one.second} <= asked:
                continue
            key = _key(dataset, one.column, {one.first: 1.0, one.second: -1.0})
            if key in covered:
                continue
            sides = [merits(study, number, one.column, dataset, found) for number in (one.first, one.second)]
            seeds = tuple(sorted(set(sides[0]) & set(sides[1])))
            first, second = (tuple(side[seed] for seed in seeds) for side in sides)
            terms = [Term(study.rows[number].labels, one.column.metric) for number in (one.first, one.second)]
            yield Compared(
                study=study.name,
                kind="rows",
                name="",
                rows=in_words(Pair(Side(terms[0]), Side(terms[1]))),
                numbers=frozenset({one.first, one.second}),
                column=one.column.label,
                metric=one.column.metric,
                digits=one.column.digits,
                dataset=dataset,
                planned=preset.seeds,
                key=key,
                seeds=seeds,
                effects=_differences(first, second),
                sides=(first, second),
                margin=margin_of(study, one.column.metric, one.margin, margins),
                printed=_printed(study, one.column, dataset, {one.first: 1.0, one.second: -1.0}),
            )


def primary_compared(study: Study, preset: Preset, found: Sequence[Evidence], margins: Margins) -> Iterator[Compared]:
    """The primary contrasts of the study, on the first data set."""
    asked, dataset = {one.request.row for one in found}, preset.datasets[0]
    for one in (one for one in primary_contrasts(study) if set(one.weights) <= asked):
        values = {row: merits(study, row, one.column, dataset, found) for row in one.weights}
        seeds = tuple(sorted(set.intersection(*(set(of) for of in values.values()))))
        yield Compared(
            study=study.name,
            kind="primary",
            name=one.name,
            rows=one.name,
            numbers=frozenset(one.weights),
            column=one.column.label,
            metric=one.column.metric,
            digits=one.column.digits,
            dataset=dataset,
            planned=preset.seeds,
            key=_key(dataset, one.column, one.weights),
            seeds=seeds,
            effects=tuple(_contrast(one.weights, values, seed) for seed in seeds),
            margin=margin_of(study, one.column.metric, one.margin, margins),
            printed=_printed(study, one.column, dataset, one.weights),
            primary=True,
        )


def estimated(study: Study, found: Sequence[Evidence], compared: Sequence[Compared]) -> Iterator[Compared]:
    """The same comparisons, with estimates by all rows of a method where these are linear contrasts of its rows.

    Rows of a study without groups, bounds, distances and quoted values keep the paired t-test.
    """
    tables: dict[tuple[str, str], dict[int, dict[int, float]]] = {}
    draws = drawn_by_row(found)
    for one in compared:
        weights = _weights(one)
        if study.group is None or weights is None or len(one.seeds) < 2:
            yield one
            continue
        place = one.metric, one.dataset
        if place not in tables:
            numbers = [number for number, row in enumerate(study.rows) if row.source == "runs"]
            every = {row: measured(study, row, *place, found) for row in numbers}
            tables[place] = {row: {seed: value for seed, value, _ in of} for row, of in every.items()}
        blocks = list(method_blocks(study, one, weights, tables[place], draws))
        estimate = contrast(sum(one.effects) / len(one.effects), blocks)
        method = WELCH if one.metric not in COMPARABLE else MIXED if any(len(b.basis) for b in blocks) else POOLED
        yield one if estimate is None else replace(one, estimate=estimate, method=method)


def _weights(one: Compared) -> dict[int, float] | None:
    """By row, the weights of a contrast that is linear in the rows' values of one metric; None of any other."""
    if not (isinstance(one.key, tuple) and len(one.key) == 2 and one.key[0] == one.dataset):
        return None
    weights: tuple[tuple[tuple[int, str], float], ...] = one.key[1]
    rows = {row: weight for (row, metric), weight in weights if metric == one.metric}
    return rows if len(rows) == len(weights) and set(rows) == one.numbers else None


def method_blocks(
    study: Study,
    one: Compared,
    weights: Weights,
    table: Mapping[int, Mapping[int, float]],
    draws: Mapping[int, Sequence[str]],
) -> Iterator[Block]:
    """The rows of each method compared that have all the seeds."""
    assert study.group is not None
    for label in dict.fromkeys(study.rows[row].labels[study.group] for row in sorted(weights)):
        rows = [
            row
            for row, of in table.items()
            if study.rows[row].labels[study.group] == label and set(one.seeds) <= set(of)
        ]
        own = np.array([weights.get(row, 0.0) for row in rows])
        lines = {edge: np.array([float(edge in draws.get(row, ())) for row in rows]) for edge in (SPLIT, CLUSTERS)}
        # Clusters move few rows: where they cancel out, their part of the variance is left in rather than its degrees
        # of freedom out.
        drawn = [line for edge, line in lines.items() if line.any() and (edge == SPLIT or abs(line @ own) > 1e-12)]
        yield Block(
            np.array([[table[row][seed] for seed in one.seeds] for row in rows]),
            own,
            one.metric in COMPARABLE,
            np.array(drawn).reshape(-1, len(rows)),
        )


def drawn_by_row(found: Sequence[Evidence]) -> dict[int, tuple[str, ...]]:
    """By row, the edges that its seeds draw."""
    trials = {one.request.row: one.request.trial for one in found}
    return {row: drawn_edges(trial.config) for row, trial in trials.items() if trial is not None}


def effects_compared(study: Study, preset: Preset, found: Sequence[Evidence], margins: Margins) -> Iterator[Compared]:
    """The effects and interactions of the study's factors on its main column, averaged within each seed."""
    asked, column = {one.request.row for one in found}, main_column(study)
    for dataset in preset.datasets if column else ():
        if column and _is_shown(column, preset, dataset):
            for one in (one for one in effects(study) if set(one.weights) <= asked):
                values = {row: merits(study, row, column, dataset, found) for row in one.weights}
                seeds = tuple(sorted(set.intersection(*(set(of) for of in values.values()))))
                yield Compared(
                    study=study.name,
                    kind="effect",
                    name=one.name,
                    rows=one.name,
                    numbers=frozenset(one.weights),
                    column=column.label,
                    metric=column.metric,
                    digits=column.digits,
                    dataset=dataset,
                    planned=preset.seeds,
                    key=_key(dataset, column, one.weights),
                    seeds=seeds,
                    effects=tuple(_contrast(one.weights, values, seed) for seed in seeds),
                    units=tuple(_contrast(block, values, seed) for block in one.blocks for seed in seeds),
                    margin=margin_of(study, column.metric, None, margins),
                    printed=_printed(study, column, dataset, one.weights),
                )


def merits(study: Study, row: int, column: Column, dataset: str, found: Sequence[Evidence]) -> dict[int, float]:
    """By seed, how good a row's value is by its column's rule: higher is better, in the column's unit."""
    values: dict[int, float] = {}
    for seed, value, neutral in measured(study, row, column.metric, dataset, found):
        if column.best == "nearest":
            if neutral is not None:
                values[seed] = -abs(value - neutral)
        else:
            values[seed] = -value if column.best == "min" else value
    return values


def measured(
    study: Study, row: int, metric: str, dataset: str, found: Sequence[Evidence]
) -> Iterator[tuple[int, float, float | None]]:
    """By seed, the row's value in its column's unit, and the column's neutral value, if it is known."""
    column = column_of(study, metric)
    scale = column.scale if column else 1.0
    for one in found:
        if (one.request.row, one.request.dataset, one.state) == (row, dataset, "done"):
            value = look_up(one.metrics, study.rows[row].metrics.get(metric, metric))
            if is_number(value):
                yield one.request.seed, float(value) * scale, _neutral(column, one)


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _neutral(column: Column | None, one: Evidence) -> float | None:
    if column is None or not isinstance(column.reference, str):
        return None if column is None or column.reference is None else float(column.reference)
    known = look_up(one.metrics, column.reference)
    return float(known) * column.scale if is_number(known) else None


def _is_shown(column: Column, preset: Preset, dataset: str) -> bool:
    return column.each_dataset or dataset == preset.datasets[0]


def _key(dataset: str, column: Column, weights: Weights) -> Hashable:
    key = linear_key(dataset, ((row, column.metric, weight) for row, weight in weights.items()))
    return ("nearest", key) if column.best == "nearest" else key


def _contrast(weights: Weights, values: Mapping[int, Mapping[int, float]], seed: int) -> float:
    return round(sum(weight * values[row][seed] for row, weight in weights.items()), 12)


def _differences(first: Sequence[float], second: Sequence[float]) -> tuple[float, ...]:
    return tuple(round(float(one), 12) for one in np.subtract(first, second))


def _printed(study: Study, column: Column, dataset: str, weights: Weights) -> float | None:
    """The contrast by the paper's own numbers; None if it does not print all of them."""
    if column.best == "nearest":
        return None
    theirs, total = beside(dataset, study.name), 0.0
    for row, weight in weights.items():
        number = quoted(study.name, study.rows[row].labels, column.metric, theirs)
        if number is None:
            return None
        total += weight * float(number.mean)
    return round(-total if column.best == "min" else total, 12)
