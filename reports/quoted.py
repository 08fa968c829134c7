"""Rows whose values do not come from runs: quoted from the paper, or read from the ground truth."""

from __future__ import annotations

from collections.abc import Sequence

from harness.components.benchmark import benchmark_for
from harness.errors import UserError
from harness.study.layout import Row
from harness.study.study import Request, Study

from .paper.numbers import beside, datasets, quoted
from .values import MARK, Measurement, Quotation, TableRow, Value, ValueColumn, row_name

BEST_KNOWN = ("top1_accuracy",)
"""The metrics for which the ground truth has a best value."""


def given_row(
    study: Study, number: int, columns: Sequence[ValueColumn], requests: Sequence[Request], missing: list[str]
) -> TableRow:
    """The row from its source, with a dash where the source has no value. Unavailable truth is added to `missing`."""
    row = study.rows[number]
    values = []
    # Numbers of another data set are quoted only if the table has no data set of the paper.
    known = any(column.dataset in datasets() for column in columns)
    for column in columns:
        if row.source == "paper":
            values.append(_quoted(study, row, column, column.dataset if known else beside(column.dataset, study.name)))
        else:
            values.append(_truth(row, column, requests, missing))
    return TableRow(tuple(row.labels.values()), tuple(values), number, shaded=row.shaded, source=row.source)


def remarks(study: Study, rows: Sequence[TableRow]) -> list[str]:
    """Notes on such rows."""
    lines = []
    quotations = [value.quotation for row in rows for value in row.values if value.quotation]
    if quotations:
        places = ", ".join(dict.fromkeys(one.place for one in quotations))
        others = any(one.elsewhere for one in quotations)
        warning = ", and not comparable with other data sets" if others else ""
        lines.append(f"{MARK} Quoted from the paper ({places}); not measured here{warning}.")
    empty = [_name(study, row) for row in rows if row.source == "paper" and not any(v.quotation for v in row.values)]
    if empty and any(row.values for row in rows):
        lines.append(f"The paper has no value for {', '.join(empty)} on these data sets.")
    truths = [_name(study, row) for row in rows if row.source == "truth"]
    if truths:
        lines.append(f"{', '.join(truths)}: the best accuracy that the ground truth holds, no run.")
    return lines


def _name(study: Study, row: TableRow) -> str:
    """The name of a row from its text labels; its yes/no labels mean nothing here."""
    return row_name({name: label for name, label in study.rows[row.number].labels.items() if isinstance(label, str)})


def _quoted(study: Study, row: Row, column: ValueColumn, dataset: str) -> Value:
    metric = row.metrics.get(column.metric, column.metric)
    number = quoted(study.name, row.labels, metric, dataset)
    if number is None and column.once:
        number = quoted(study.name, row.labels, metric, None)
    if number is None:
        return Value((), column.digits)
    elsewhere = dataset != column.dataset
    place = f"{number.table}, on {dataset}" if elsewhere else number.table
    quotation = Quotation(number.mean, number.deviation or "", place, elsewhere)
    measurement = Measurement(None, float(number.mean), place, "quoted")
    return Value((measurement,), column.digits, quotation=quotation)


def _truth(row: Row, column: ValueColumn, requests: Sequence[Request], missing: list[str]) -> Value:
    config = next((one.trial.config for one in requests if one.dataset == column.dataset), None)
    if config is None or config.benchmark is None or row.metrics.get(column.metric, column.metric) not in BEST_KNOWN:
        return Value((), column.digits)
    try:
        benchmark = benchmark_for(config.benchmark, config.space)
        best = float(config.rank.truth_in(benchmark, config.dataset).max())
    except UserError as error:  # the benchmark is missing, or for something else
        missing.append(f"{row_name(row.labels)}, {column.dataset}: {column.label}: {error}")
        return Value((Measurement(None, None, f"benchmark {config.benchmark}", "not here"),), column.digits)
    measurement = Measurement(None, column.scaled(best), f"benchmark {config.benchmark}", "truth")
    return Value((measurement,), column.digits)
