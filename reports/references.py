"""Reference rows: results of predictors without training, judged as the study judges its runs.

`harness run` makes them, per seed; here they are only read. A store that lacks one shows no rows, and the command that
makes them instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from harness.errors import DataError
from harness.study.references import Reference, command_for, references_of, stored_result

from .values import Measurement, TableRow, Value, ValueColumn

if TYPE_CHECKING:
    from harness.stores.store import Store

    from .evidence import Findings

LABELS = {"untrained": "Untrained supernet", "parameters": "Number of parameters", "random": "Random numbers"}


def reference_rows(
    findings: Findings, store: Store, columns: Sequence[ValueColumn], labels: int, place: int
) -> tuple[list[TableRow], str | None]:
    """One row per reference, its name in label column `place` of `labels`; and what to do if some are not stored.

    Rows of the study that differ in space, data set, benchmark or network have reference rows of their own, which
    name the difference. Metrics that a reference lacks are left empty.
    """
    study, preset = findings.study, findings.preset
    asked = references_of(study, preset, store.runs, findings.seeds, findings.overrides)
    try:
        results = {one: stored_result(store, one) for one in asked}
    except DataError as error:
        return [], f"references of {study.name} are not shown, because what judges them is not here: {error}"
    lacking = sum(result is None for result in results.values())
    if lacking:
        command = command_for(study, preset, findings.seeds, findings.overrides, store.name)
        return [], f"{lacking} of {len(asked)} references of {study.name} are not stored; this makes them: {command}"
    rows: list[TableRow] = []
    for group in dict.fromkeys(one.group for one in asked):
        for name, label in LABELS.items():
            own = {one: result for one, result in results.items() if (one.group, one.name) == (group, name)}
            named = label + (f" ({', '.join(f'{key}={value}' for key, value in group)})" if group else "")
            shown = tuple(named if index == place else None for index in range(labels))
            values = tuple(_value(own, column) for column in columns)
            rows.append(TableRow(shown, values, len(rows), name, source="reference"))
    return rows, None


def _value(results: dict[Reference, Any], column: ValueColumn) -> Value:
    numbers = {one: column.of(result) for one, result in results.items() if one.dataset == column.dataset}
    measurements = [
        Measurement(one.seed, value, f"reference {one.name}", "done")
        for one, value in numbers.items()
        if value is not None
    ]
    return Value(tuple(measurements), column.digits)
