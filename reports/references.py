"""Reference rows: results of predictors without training, judged as the study judges its runs.

`harness run` makes them, per seed; here they are only read. A store that lacks some shows the others, and the command
that makes the rest.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.components.registries import METRICS, PROXIES
from harness.errors import DataError, InvalidConfiguration, UnknownName
from harness.study.references import (
    Reference,
    command_for,
    reference_names,
    references_of,
    stored_document,
    stored_result,
)

from .grid import Grid
from .values import Measurement, Table, TableRow, Value, ValueColumn, look_up, row_name, shown

if TYPE_CHECKING:
    from harness.stores.store import Store

    from .evidence import Findings

HEADINGS = ("Reference", "Data set", "τ", "95 % of τ", "τ given parameters", "Spearman's ρ", "Top-1 acc. (%)")

WIDTH = 1.96
"""Standard errors on either side of a 95 % interval."""


@dataclass(frozen=True)
class References:
    """The references of a study that are stored, and what is to be said of the others."""

    documents: Mapping[Reference, Mapping[str, Any]]
    """Of those whose documents are stored for all seeds and data sets, and that apply."""
    notes: tuple[str, ...] = ()
    lacking: str | None = None
    """How to make those that are not stored."""


def stored_references(findings: Findings, store: Store) -> References:
    """The references of the findings' study that the store holds."""
    study, preset = findings.study, findings.preset
    asked = references_of(study, preset, store.runs, findings.seeds, findings.overrides)
    if not asked:
        return References({}, lacking=f"{study.name} has no references: its trials have no ground truth to judge by")
    found: dict[Reference, Mapping[str, Any] | None] = dict.fromkeys(asked)
    unjudged: list[DataError] = []
    for one in asked:
        try:
            found[one] = stored_document(store, one)
        except DataError as error:  # it may still be stored, and the store cannot say so without what judges it
            unjudged.append(error)
    if unjudged and not any(found.values()):
        text = f"references of {study.name} are not shown: ground truth is not available: {unjudged[0]}"
        return References({}, lacking=text)
    missing = {(one.group, one.name) for one, document in found.items() if document is None}
    whole = {one: document for one, document in found.items() if document and (one.group, one.name) not in missing}
    reasons = {one.label: str(document["inapplicable"]) for one, document in whole.items() if _is_void(document)}
    notes = tuple(f"{label} is left out: {reason}." for label, reason in reasons.items())
    lacking = None
    if count := sum(document is None for document in found.values()):
        command = command_for(study, preset, findings.seeds, findings.overrides, store.name)
        lacking = f"{count} of {len(asked)} references of {study.name} are not stored; this makes them: {command}"
    return References({one: own for one, own in whole.items() if not _is_void(own)}, notes, lacking)


def reference_rows(references: References, columns: Sequence[ValueColumn], labels: int, place: int) -> list[TableRow]:
    """One row per reference, its name in label column `place` of `labels`. Metrics that it lacks are left empty.

    Rows of the study that differ in space, data set, benchmark or network have reference rows of their own, which
    name the difference.
    """
    rows: list[TableRow] = []
    for label, own in _by_label(references).items():
        shown = tuple(label if index == place else None for index in range(labels))
        values = tuple(_value(own, column) for column in columns)
        rows.append(TableRow(shown, values, len(rows), next(iter(own)).name, source="reference"))
    return rows


def reference_grid(references: References, table: Table, findings: Findings) -> list[Grid]:
    """τ with its interval over architectures, τ given the parameters, top-1 and seconds of every reference.

    Rows of the study follow, each blended with the number of parameters.
    """
    rows: list[tuple[str, ...]] = []
    for label, own in _by_label(references).items():
        for dataset in dict.fromkeys(one.dataset for one in own):
            rows.append((label, dataset, *_summary([own[one] for one in own if one.dataset == dataset])))
    if not rows:
        return []
    rows += _blends(findings)
    return [
        Grid(
            name=f"{table.study}-references",
            title=f"{table.title}: references",
            scale=table.scale,
            headings=(*HEADINGS, "Seconds"),
            rows=tuple(rows),
            numeric=(False, False, *(True,) * 6),
            notes=(
                "References train no supernet. Values are means over seeds. The interval is over the architectures "
                "of τ (bootstrap). ρ is over all that are ranked. Seconds are those of one seed's scores.",
                *references.notes,
            ),
        )
    ]


def _blends(findings: Findings) -> list[tuple[str, ...]]:
    """By row of the study and data set, τ of the mean of ranks by the supernet and by the number of parameters."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for one in findings.counted:
        if one.state == "done" and one.metrics.get("blended_tau") is not None:
            label = row_name(findings.study.rows[one.request.row].labels)
            blend = {"result": {"kendall_tau": one.metrics["blended_tau"]}}
            found.setdefault((f"{label}, and parameters", one.request.dataset), []).append(blend)
    return [(*place, *_summary(own)) for place, own in found.items()]


def _by_label(references: References) -> dict[str, dict[Reference, Mapping[str, Any]]]:
    found: dict[str, dict[Reference, Mapping[str, Any]]] = {}
    for one, document in references.documents.items():
        found.setdefault(one.label, {})[one] = document
    return found


def _summary(documents: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The cells of one reference on one data set: means over its seeds."""

    def mean(path: str) -> float | None:
        known = [float(value) for one in documents if (value := look_up(one, path)) is not None]
        return statistics.fmean(known) if known else None

    def cell(value: float | None, digits: int = 3) -> str:
        return "" if value is None else shown(value, digits)

    tau, error = mean("result.kendall_tau"), mean("result.panel.selected.error")
    ends = None if tau is None or error is None else (max(-1.0, tau - WIDTH * error), min(1.0, tau + WIDTH * error))
    interval = "" if ends is None else f"[{shown(ends[0], 3)}, {shown(ends[1], 3)}]"
    more = cell(mean("result.partial_tau")), cell(mean("result.panel.spearman")), cell(mean("result.top1_accuracy"), 2)
    return (cell(tau), interval, *more, cell(mean("cost.seconds"), 1))


def _is_void(document: Mapping[str, Any]) -> bool:
    return "inapplicable" in document


def random_choice(
    findings: Findings, columns: Sequence[ValueColumn], labels: int, place: int
) -> tuple[list[TableRow], list[str]]:
    """Rows beside top-1 values that the truth has chosen from the winners of several supernets, and what they are.

    Choosing the best of as many random candidates by the same truth needs no training at all.
    """
    counts = sorted({one.metrics.get("top1_of") or 0 for one in findings.counted} - {0, 1})
    if not any(column.metric == "top1_accuracy" for column in columns):
        return [], []
    rows: list[TableRow] = []
    notes: list[str] = []
    for count in counts:
        own = [one for one in findings.counted if one.metrics.get("top1_of") == count]
        values = []
        for column in columns:
            known = {
                one.metrics["top1_accuracy_random"]
                for one in own
                if one.request.dataset == column.dataset and column.metric == "top1_accuracy"
            }
            found = [Measurement(None, column.scaled(value), "candidates", "truth") for value in sorted(known)]
            values.append(Value(tuple(found), column.digits))
        name = f"Best of {count} random candidates"
        named = tuple(name if index == place else None for index in range(labels))
        rows.append(TableRow(named, tuple(values), len(rows), name, source="reference"))
        label = next(column.label for column in columns if column.metric == "top1_accuracy")
        chosen = dict.fromkeys(row_name(findings.study.rows[one.request.row].labels) for one in own)
        notes.append(
            f"{label} is the best of {count} winners by looked-up accuracy for: {'; '.join(chosen)}. {name}: the "
            "expected result of the same choice without any training."
        )
    return rows, notes


def reference_values(findings: Findings, store: Store, name: str, metric: str) -> dict[tuple[str, int], float | None]:
    """The metric of one reference by data set and seed; None where the store has none.

    Raises `UnknownName` for a reference that there is not, `InvalidConfiguration` if rows have different ones.
    """
    if name not in reference_names():
        raise UnknownName.among("reference", name, reference_names())
    asked = references_of(findings.study, findings.preset, store.runs, findings.seeds, findings.overrides)
    if any(one.group for one in asked):
        raise InvalidConfiguration(
            f"rows of study {findings.study.name} differ in space, data set, benchmark or network and have references "
            "of their own; compare them with a row"
        )
    has = _has(name, metric)
    own = {one: look_up(stored_result(store, one) or {}, metric) if has else None for one in asked if one.name == name}
    return {(one.dataset, one.seed): None if value is None else float(value) for one, value in own.items()}


def _has(name: str, metric: str) -> bool:
    """Whether the metric has a meaning for the reference."""
    return metric not in METRICS or PROXIES.get(name).accuracies


def _value(documents: Mapping[Reference, Mapping[str, Any]], column: ValueColumn) -> Value:
    numbers = {
        one: column.of(own["result"])
        for one, own in documents.items()
        if one.dataset == column.dataset and _has(one.name, column.metric)
    }
    measurements = [
        Measurement(one.seed, value, f"reference {one.name}", "done")
        for one, value in numbers.items()
        if value is not None
    ]
    return Value(tuple(measurements), column.digits)
