"""Builds a study's table from stored runs. Knows no format and no particular study.

A table uses the runs of the study's trials under one preset, matched by identity, and from each run the
metrics of the requested ranking. Runs that are missing, failed, diverged, interrupted, lost or damaged are
listed under the table; nothing is averaged away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from harness.components.preset import Preset
from harness.study.edits import edits
from harness.study.expansion import expand_stored
from harness.study.layout import Column
from harness.study.study import Study

from .emphasis import block, emboldened, tied_note
from .emphasis import references as neutral_by_row
from .evidence import Evidence, Findings, find
from .imported import imported_rows
from .notes import (
    chosen_by,
    column_notes,
    damage,
    declared_equal,
    edited,
    elsewhere,
    invalidated,
    notes,
    scale,
    several_versions,
    title,
    unequal_passes,
)
from .quoted import given_row, remarks
from .references import References, random_choice, reference_rows, stored_references
from .selections import left_out, older_measures, unknown, winners
from .values import Label, Measurement, Table, TableRow, Value, ValueColumn, row_name

if TYPE_CHECKING:
    from harness.stores.store import Store


def build(
    study: Study,
    preset: Preset,
    store: Store,
    seeds: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    where: str | None = None,
    references: bool = False,
) -> Table:
    """The study's table; see `evidence.find`. `references` adds rows of predictors without training."""
    findings = find(study, preset, store, seeds, overrides, where)
    return lay_out(findings, stored_references(findings, store) if references else None)


def lay_out(findings: Findings, references: References | None = None) -> Table:
    """The table of the findings, with rows of these references."""
    study, preset, counted = findings.study, findings.preset, findings.counted
    unasked = [one for one in study.columns if not asked(one, findings)]
    # Imported predictions may have values where no run has one.
    empty = [] if findings.imported else unknown(study.columns, counted)
    columns = value_columns([one for one in study.columns if one not in (*unasked, *empty)], preset)
    missing: list[str] = []
    rows = []
    for number, row in enumerate(study.rows):
        if row.source != "runs":
            # A condition selects runs, and these rows have none.
            if findings.where is None:
                quotation = given_row(study, number, columns, findings.requests, missing)
                rows += [quotation] if any(value.mean for value in quotation.values) else []
        elif any(one.request.row == number for one in counted):
            values = tuple(value_of(counted, number, column, row.metrics) for column in columns)
            rows.append(TableRow(tuple(row.labels.values()), values, number, shaded=row.shaded))
    missing += [
        f"{row_name(study.rows[row.number].labels)}, {column.dataset}: {column.label} ({value.count})"
        for row in rows
        for column, value in zip(columns, row.values, strict=True)
        if row.source == "runs" and value.count
    ]
    labels = tuple(study.rows[0].labels)
    group = labels.index(study.group) if study.group is not None else None
    marked = emboldened(rows, columns, group, neutral_values(counted, columns), preset.seeds)
    blocks = [tuple(members) for _, members in groupby(marked, lambda row: _ruled(row, group))]
    references = references or References({})
    added = reference_rows(references, columns, len(labels), group or 0)
    blocks += [tuple(added)] if added else []
    by_chance, chosen = random_choice(findings, columns, len(labels), group or 0)
    blocks += [tuple(by_chance)] if by_chance else []
    given, told = imported_rows(findings, columns, len(labels), group or 0)
    blocks += [tuple(given)] if given else []
    damaged = damage(findings)
    warnings = (*edited(findings), *several_versions(findings), *unequal_passes(findings), *findings.unshown)
    return Table(
        study=study.name,
        preset=preset.name,
        title=title(study.title, study.paper),
        scale=scale(findings),
        labels=labels,
        group=group,
        columns=columns,
        blocks=tuple(blocks),
        notes=(
            *warnings,
            *declared_equal(findings),
            *study.remarks,
            *(f"{column.label} is not computed here." for column in unasked),
            *column_notes(study.columns, columns, counted),
            *remarks(study, rows),
            *tied_note(marked),
            *chosen,
            *chosen_by(findings),
            *told,
            *references.notes,
            *left_out(empty, counted),
            *older_measures(study, empty, counted, preset.name),
            *winners(study, rows, columns),
            *notes(findings, columns),
            *elsewhere(findings),
            *invalidated(findings.found),
            *damaged,
        ),
        missing=(*missing, *damaged, *([references.lacking] if references.lacking else ())),
        warnings=warnings,
        lacking=references.lacking,
    )


def asked(column: Column, findings: Findings) -> bool:
    """Whether any of the runs is to have a value in that column."""
    return not all(column.metric in one.trial.config.rank.left_out for one in findings.requests)


def has_runs(study: Study, preset: Preset, store: Store, overrides: Mapping[str, Any] | None = None) -> bool:
    """Whether the store holds any run of the study's trials, whatever its state, or had before a component's edit."""
    requests = expand_stored(study, preset, store.runs, None, overrides)
    keys = {request.trial.key for request in requests}
    return any(run.key in keys for run in store.runs(keys)) or bool(edits(requests, store.runs))


def value_columns(columns: Sequence[Column], preset: Preset) -> tuple[ValueColumn, ...]:
    """The columns of each data set, then those that appear once."""

    def under(dataset: str, each: bool) -> list[ValueColumn]:
        return [
            ValueColumn(
                *(one.label, one.metric, dataset, one.digits, one.best, one.scale, not each, one.reference),
            )
            for one in columns
            if one.each_dataset is each
        ]

    every = [column for dataset in preset.datasets for column in under(dataset, True)]
    return (*every, *under(preset.datasets[0], False))


def value_of(found: Sequence[Evidence], row: int, column: ValueColumn, instead: Mapping[str, str]) -> Value:
    """The value of a row's runs in a column."""
    measurements = []
    for one in found:
        if (one.request.row, one.request.dataset) == (row, column.dataset):
            value = column.of(one.metrics, instead)
            state = "undefined" if value is None and one.state == "done" else one.state
            run_id, cost = (one.run.id, one.run.cost or {}) if one.run else ("", {})
            measurements.append(Measurement(one.request.seed, value, run_id, state, cost.get("passes")))
    return Value(tuple(measurements), column.digits)


def _ruled(row: TableRow, group: int | None) -> tuple[str, Label]:
    """What the rows between two rules share: the group, or a source other than runs."""
    return row.source, block(row, group) if row.source == "runs" else None


def neutral_values(found: Sequence[Evidence], columns: Sequence[ValueColumn]) -> dict[tuple[int, int], float]:
    """The reference value by row and column index."""
    neutral: dict[tuple[int, int], float] = {}
    for place, column in enumerate(columns):
        by_row: dict[int, list[float | None]] = {}
        for one in found:
            if one.request.dataset == column.dataset and one.state == "done":
                by_row.setdefault(one.request.row, []).append(column.neutral(one.metrics))
        neutral |= {(row, place): value for row, value in neutral_by_row(by_row).items()}
    return neutral
