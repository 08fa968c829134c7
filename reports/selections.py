"""What a table with several Kendall's τ says of the selection of architectures: who wins by each, what is missing."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence

from harness.schema import PANEL
from harness.study.layout import Column
from harness.study.panel import LEAST
from harness.study.study import Study

from .evidence import Evidence
from .values import TableRow, ValueColumn, look_up, row_name

LATER = (
    "kendall_tau_by_accuracy",
    "kendall_tau_by_loss",
    "partial_tau",
    "top1_accuracy_predicted",
    "complexity_bias_z",
    "complexity_convergence_z",
)
"""Measures besides the panel that runs of older versions lack."""


def unknown(columns: Sequence[Column], counted: Sequence[Evidence]) -> list[Column]:
    """The columns of measures that older versions did not make, and that no run has a value for."""
    done = [one.metrics for one in counted if one.state == "done"]
    own = [one for one in columns if one.metric.startswith(f"{PANEL}.") or one.metric in LATER]
    return [one for one in own if done and all(look_up(metrics, one.metric) is None for metrics in done)]


def older_measures(study: Study, empty: Sequence[Column], counted: Sequence[Evidence], preset: str) -> list[str]:
    """Notes on runs of older versions, if the study shows measures that these did not make."""
    command = f"`harness store recompute {study.name} --preset {preset}`"
    done = [one for one in counted if one.state == "done"]
    lines = []
    older = [one for one in done if PANEL not in one.metrics]
    if older and any(one.metric.startswith(f"{PANEL}.") for one in study.columns):
        lines.append(
            f"{len(older)} runs were stored without a panel of measures; {command} adds it from their predictions."
        )
    later = [one for one in study.columns if one.metric in LATER]
    if without := {one.label: count for one in later if (count := sum(one.metric not in own.metrics for own in done))}:
        told = ", ".join(f"{label} ({count} of {len(done)} runs)" for label, count in without.items())
        lines.append(f"Not measured when these runs were stored: {told}; {command} adds what their predictions allow.")
    return lines


def left_out(columns: Sequence[Column], counted: Sequence[Evidence]) -> list[str]:
    """A note on columns that are not shown although runs have panels."""
    columns = [one for one in columns if one.metric.startswith(f"{PANEL}.")]
    if not any(PANEL in one.metrics for one in counted):
        return []
    names = ", ".join(dict.fromkeys(one.metric.removeprefix(f"{PANEL}.") for one in columns))
    why = f"fewer than {LEAST} of the architectures or none of their equals were predicted, or the truth has no repeats"
    return [f"Not shown, because {why}: {names}."] if columns else []


def winners(study: Study, rows: Sequence[TableRow], columns: Sequence[ValueColumn]) -> list[str]:
    """Per data set, which row has the highest mean τ by each selection, and how often two rows change their order.

    Empty for tables with fewer than two selections or rows.
    """
    lines = []
    for dataset in dict.fromkeys(column.dataset for column in columns):
        means: dict[str, dict[int, float]] = {}
        for place, column in enumerate(columns):
            if column.dataset == dataset and (column.metric == "kendall_tau" or column.metric.endswith(".tau")):
                known = {row.number: row.values[place].numbers for row in rows if row.source == "runs"}
                means[column.label] = {number: statistics.fmean(own) for number, own in known.items() if own}
        means = {label: own for label, own in means.items() if len(own) > 1}
        if len(means) > 1:
            lines.append(f"{dataset}: {_told(study, means)}")
    return lines


def _told(study: Study, means: Mapping[str, Mapping[int, float]]) -> str:
    by_row: dict[int, list[str]] = {}
    for label, own in means.items():
        by_row.setdefault(max(own, key=lambda number: own[number]), []).append(label)
    named = "; ".join(f"{row_name(study.rows[number].labels)} by {', '.join(own)}" for number, own in by_row.items())
    shared = sorted(set.intersection(*({*own} for own in means.values())))
    pairs = list(itertools.combinations(shared, 2))
    turned = sum(len({_order(own, a, b) for own in means.values()}) > 1 for a, b in pairs)
    verdict = "the winner changes with the selection" if len(by_row) > 1 else "the winner is the same by each selection"
    return f"{verdict}: {named}. {turned} of {len(pairs)} pairs of rows change their order."


def _order(means: Mapping[int, float], one: int, other: int) -> int:
    return (means[one] > means[other]) - (means[one] < means[other])
