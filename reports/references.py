"""Reference rows: results of predictors without training, judged as the study judges its runs.

`harness run` makes them, per seed; here they are only read. A store that lacks one shows no rows, and the command that
makes them instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from harness.errors import DataError, InvalidConfiguration, UnknownName
from harness.study.references import Reference, command_for, references_of, stored_result

from .values import Measurement, TableRow, Value, ValueColumn, look_up

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


def reference_values(findings: Findings, store: Store, name: str, metric: str) -> dict[tuple[str, int], float | None]:
    """The metric of one reference by data set and seed; None where the store has none.

    Raises `UnknownName` for a reference that there is not, `InvalidConfiguration` if rows have different ones.
    """
    if name not in LABELS:
        raise UnknownName.among("reference", name, LABELS)
    asked = references_of(findings.study, findings.preset, store.runs, findings.seeds, findings.overrides)
    if any(one.group for one in asked):
        raise InvalidConfiguration(
            f"rows of study {findings.study.name} differ in space, data set, benchmark or network and have references "
            "of their own; compare them with a row"
        )
    own = {one: look_up(stored_result(store, one) or {}, metric) for one in asked if one.name == name}
    return {(one.dataset, one.seed): None if value is None else float(value) for one, value in own.items()}


def _value(results: dict[Reference, Any], column: ValueColumn) -> Value:
    numbers = {one: column.of(result) for one, result in results.items() if one.dataset == column.dataset}
    measurements = [
        Measurement(one.seed, value, f"reference {one.name}", "done")
        for one, value in numbers.items()
        if value is not None
    ]
    return Value(tuple(measurements), column.digits)
