"""Tables as values: what stands in each place and which runs are behind it. Knows no format and no study.

A table takes the runs of the cells that the study asks for under one preset, by identity, and of each
run the metrics of the ranking asked for. Whatever is missing, failed, diverged, interrupted, lost or
damaged is listed under the table; nothing is averaged away.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from harness.presets import Preset
from harness.study import Study, expand_stored

from .evidence import Evidence, gather
from .remarks import damage, elsewhere, invalidated, notes, scale

if TYPE_CHECKING:
    from harness.stores import Store

Label = str | bool | None
"""What stands in a label column; None where it has no meaning (reference rows)."""


@dataclass(frozen=True)
class Measurement:
    """What one seed gave: a value, or why there is none. `state` is "done" or what is wrong."""

    seed: int
    value: float | None
    run_id: str
    state: str


@dataclass(frozen=True)
class Value:
    """One place of a table: the measurements of all seeds asked for, and what is shown of them."""

    measurements: tuple[Measurement, ...]
    digits: int
    best: bool = False

    @property
    def numbers(self) -> list[float]:
        return [one.value for one in self.measurements if one.value is not None]

    @property
    def mean(self) -> str:
        """As shown; empty without any measurement."""
        return _shown(statistics.fmean(self.numbers), self.digits) if self.numbers else ""

    @property
    def deviation(self) -> str:
        """The sample standard deviation as shown; empty with fewer than two measurements."""
        return _shown(statistics.stdev(self.numbers), self.digits) if len(self.numbers) > 1 else ""

    @property
    def count(self) -> str:
        """How many seeds are behind the value, if they are fewer than asked for; otherwise empty."""
        n, asked = len(self.numbers), len(self.measurements)
        return f"{n} of {asked} seed{'s' * (asked > 1)}" if n < asked else ""


@dataclass(frozen=True)
class ValueColumn:
    """A column of values: one metric on one data set."""

    label: str
    metric: str
    dataset: str
    digits: int
    best: str | None


@dataclass(frozen=True)
class TableRow:
    """A row; `name` is a reference's name, None for a row of the study."""

    labels: tuple[Label, ...]
    values: tuple[Value, ...]
    number: int
    name: str | None = None


@dataclass(frozen=True)
class Table:
    """A whole table. Blocks are the rows between two rules, references the last block if there are any."""

    study: str
    preset: str
    title: str
    scale: str
    """What every caption must say: preset, data sets, seeds, epochs, width, depth, overrides, conditions."""
    labels: tuple[str, ...]
    group: int | None
    """Which label column is shown once a block."""
    columns: tuple[ValueColumn, ...]
    blocks: tuple[tuple[TableRow, ...], ...]
    notes: tuple[str, ...]

    @property
    def datasets(self) -> list[str]:
        return list(dict.fromkeys(column.dataset for column in self.columns))

    @property
    def caption(self) -> str:
        return f"{self.title}. {self.scale}"

    def has_text(self, place: int) -> bool:
        """Whether a label column holds words, not only yes and no."""
        return any(isinstance(row.labels[place], str) for block in self.blocks for row in block)


def build(
    study: Study,
    preset: Preset,
    store: Store,
    seeds: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    where: str | None = None,
    references: bool = False,
) -> Table:
    """The study's table from what is stored.

    With overrides it is the table of the runs that were made with them. `where` is a condition on the
    columns of `harness.results.runs` that says which runs count. Raises `InvalidConfiguration`.
    """
    requests = expand_stored(study, preset, store.runs, seeds, overrides)
    found = gather(requests, store.runs({request.cell.key for request in requests}))
    counted = _matching(found, where, preset.name)
    unasked = {
        column for column in study.columns if all(column.metric in r.cell.config.rank.left_out for r in requests)
    }
    columns = tuple(
        ValueColumn(column.label, column.metric, dataset, column.digits, column.best)
        for dataset in preset.datasets
        for column in study.columns
        if column not in unasked
    )
    rows = [
        TableRow(tuple(row.labels.values()), tuple(_value(counted, number, column) for column in columns), number)
        for number, row in enumerate(study.rows)
        if any(one.request.row == number for one in counted)
    ]
    labels = tuple(study.rows[0].labels)
    group = labels.index(study.group) if study.group is not None else None
    blocks = [tuple(block) for _, block in groupby(_emboldened(rows, columns, group), lambda row: _block(row, group))]
    if references:
        from .references import reference_rows

        blocks.append(tuple(reference_rows(preset, store, columns, len(labels), group or 0, seeds, overrides)))
    return Table(
        study=study.name,
        preset=preset.name,
        title=study.title + (f" ({study.paper} of the paper)" if study.paper else ""),
        scale=scale(preset, requests, overrides, where),
        labels=labels,
        group=group,
        columns=columns,
        blocks=tuple(blocks),
        notes=(
            *(f"{column.label} is not computed here." for column in study.columns if column in unasked),
            *notes(study, columns, counted, len(found)),
            *elsewhere(preset, counted, overrides or {}),
            *invalidated(found),
            *damage(store),
        ),
    )


def has_runs(study: Study, preset: Preset, store: Store, overrides: Mapping[str, Any] | None = None) -> bool:
    """Whether the store holds any run, whatever became of it, that the study asks for."""
    keys = {request.cell.key for request in expand_stored(study, preset, store.runs, None, overrides)}
    return any(run.key in keys for run in store.runs(keys))


def label_text(label: Label) -> str:
    """A label as text: ✓ and – for yes and no."""
    return "" if label is None else label if isinstance(label, str) else "✓" if label else "–"


def _value(found: Sequence[Evidence], row: int, column: ValueColumn) -> Value:
    measurements = []
    for one in found:
        if (one.request.row, one.request.dataset) == (row, column.dataset):
            value = one.metrics.get(column.metric)
            state = "undefined" if value is None and one.state == "done" else one.state
            run_id = one.run.id if one.run else ""
            measurements.append(Measurement(one.request.seed, None if value is None else float(value), run_id, state))
    return Value(tuple(measurements), column.digits)


def _block(row: TableRow, group: int | None) -> Label:
    return None if group is None else row.labels[group]


def _emboldened(rows: Sequence[TableRow], columns: Sequence[ValueColumn], group: int | None) -> list[TableRow]:
    """Mark the best of each group, all of them where the shown means tie.

    Only means over equally many seeds compete, those with the most; a single one is not the best of anything.
    """
    marked = [list(row.values) for row in rows]
    for place, column in enumerate(columns):
        groups: dict[Label, list[int]] = {}
        for number, row in enumerate(rows):
            if column.best is not None and row.values[place].numbers:
                groups.setdefault(_block(row, group), []).append(number)
        for members in groups.values():
            most = max(len(rows[number].values[place].numbers) for number in members)
            rivals = [number for number in members if len(rows[number].values[place].numbers) == most]
            best = (max if column.best == "max" else min)(float(rows[number].values[place].mean) for number in rivals)
            for number in rivals:
                if len(rivals) > 1 and float(rows[number].values[place].mean) == best:
                    marked[number][place] = replace(marked[number][place], best=True)
    return [replace(row, values=tuple(values)) for row, values in zip(rows, marked, strict=True)]


def _matching(found: list[Evidence], where: str | None, preset: str) -> list[Evidence]:
    """The evidence that a condition holds of. What has no run is judged by its configuration alone."""
    if where is None:
        return found
    from harness.expression import select
    from harness.results import columns_of, frame, record

    records = []
    for one in found:
        blank = {"status": one.state, "preset": preset, "overridden": one.request.overridden, "diverged": False}
        known = record(one.run, one.request.cell.ranking_key) if one.run else blank
        records.append({**known, **columns_of(one.request.cell.config.json())})
    return [found[number] for number in select(frame(records), where).index]


def _shown(number: float, digits: int) -> str:
    text = f"{number:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text
