"""Rows of imported predictions: judged as the table judges its runs, marked, and apart from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from harness.errors import UserError
from harness.study.predictions import Imported, judged

from .values import Measurement, TableRow, Value, ValueColumn

if TYPE_CHECKING:
    from .evidence import Findings


def imported_rows(
    findings: Findings, columns: Sequence[ValueColumn], labels: int, place: int
) -> tuple[list[TableRow], list[str]]:
    """One row per name, in label column `place` of `labels`; and the notes that say what these rows are.

    Names without a value are left out: their predictions are about other data sets.
    """
    rows: list[TableRow] = []
    notes: list[str] = []
    for name in dict.fromkeys(one.name for one in findings.imported):
        own = [one for one in findings.imported if one.name == name]
        try:
            values = tuple(_value(own, column, findings) for column in columns)
        except UserError as error:  # the table of truth is not here
            notes.append(f"Imported predictions {name!r} are not shown: ground truth is not available: {error}")
            continue
        if any(value.numbers for value in values):
            shown = tuple(f"{name} (imported)" if index == place else None for index in range(labels))
            rows.append(TableRow(shown, values, len(rows), name, source="imported"))
            files = ", ".join(dict.fromkeys(one.source for one in own))
            notes.append(f"{name} (imported): predictions from {files}, not runs; judged as the runs are.")
    return rows, notes


def _value(own: Sequence[Imported], column: ValueColumn, findings: Findings) -> Value:
    """The value by the ranking that the table's runs have on the column's data set."""
    configs = [one.trial.config for one in findings.requests if one.dataset == column.dataset]
    for config in configs:
        for imported in own:
            same = (imported.space, imported.dataset) == (config.space, config.dataset)
            if same and config.benchmark is not None:
                result: dict[str, Any] = judged(imported, config.benchmark, config.rank)
                number = column.of(result)
                measurement = Measurement(None, number, f"imported {imported.name}", "imported")
                return Value((measurement,) if number is not None else (), column.digits)
    return Value((), column.digits)
