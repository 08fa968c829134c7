"""The text around a table or figure: its scale above, and below it notes on the runs behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from harness.schema import PANEL
from harness.study.layout import Column
from harness.study.study import Study

from .evidence import Evidence, Findings
from .selections import LATER
from .values import ValueColumn, row_name, shown

NEED_TRUTH = (
    "kendall_tau",
    "top1_accuracy",
    "top1_accuracy_predicted",
    "partial_tau",
    "complexity_bias",
    "neutral_complexity_bias",
    "complexity_convergence",
)
"""The metrics that need a table of truth."""

NAMED = 4
"""Maximum number of rows that a note on passes names together."""


def title(text: str, paper: str) -> str:
    """A title, with the part of the paper that it reproduces."""
    return text + (f" ({paper} of the paper)" if paper else "")


def scale(findings: Findings, spread: str = "Mean ± sample standard deviation over the seeds.") -> str:
    """The scale for a caption, so that no table can be mistaken for one of another scale.

    `spread` says how several seeds are shown.
    """
    requests = [one.request for one in findings.counted] or findings.requests
    seeds = len({request.seed for request in requests})
    configs = [request.trial.config for request in requests]
    # Rows may name another data set than the preset; a preset may judge by more data sets than it trains on.
    trained = not findings.preset.trained_on
    datasets = dict.fromkeys(one.trial.config.dataset if trained else one.dataset for one in requests)
    parts = [
        ", ".join(datasets),
        f"{seeds} seed{'s' * (seeds > 1)}",
        f"{_span(epochs := [config.train.epochs for config in configs])} epoch{'s' * (max(epochs) != 1)}",
        *_sizes([config.network for config in configs]),
    ]
    retrained = [config.retrain.epochs for config in configs if config.retrain is not None]
    if retrained:
        parts.append(f"retrained for {_span(retrained)} epoch{'s' * (max(retrained) > 1)}")
    text = f"Preset {findings.preset.name}: {', '.join(parts)}"
    if findings.overrides:
        text += f", {_settings(findings.overrides)}"
    if findings.where:
        text += f", only where {findings.where}"
    return f"{text}. {spread}" if seeds > 1 and spread else f"{text}."


def notes(findings: Findings, columns: Sequence[ValueColumn]) -> list[str]:
    """Notes on missing values: one line per reason and its seeds, with the rows and data sets concerned."""
    found, asked = findings.counted, len(findings.found)
    rows = findings.study.rows
    reasons: dict[tuple[int, str, str], list[int]] = {}
    for one in found:
        row, dataset = one.request.row, one.request.dataset
        lacking = [
            column.label
            for column in columns
            if column.dataset == dataset and column.of(one.metrics, rows[row].metrics) is None
            if PANEL in one.metrics or not column.metric.startswith(f"{PANEL}.")  # else told of all together
            if column.metric not in LATER
        ]
        reason = one.reason
        if one.run and one.state == "done":
            reason = _undefined(lacking, [c.label for c in columns if c.metric in NEED_TRUTH], one)
        if one.state != "done" or lacking:
            reasons.setdefault((row, dataset, reason), []).append(one.request.seed)
    lines = []
    if findings.left_out:
        lines.append(f"The condition leaves out {findings.left_out} of {asked} runs.")
    lines += _best_of(findings)
    states = Counter(one.state for one in found)
    if states["done"] < len(found):
        diverged = states["diverged"]
        which = f", {diverged} of them diverged" if diverged else ""
        lines.append(f"{states['done'] + diverged} of {len(found)} runs are done{which}; without a value are:")
    several = len({column.dataset for column in columns}) > 1
    places: dict[tuple[str, str], list[str]] = {}
    for (row, dataset, text), seeds in reasons.items():
        which = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
        place = ", ".join(filter(None, [row_name(rows[row].labels), dataset if several else ""]))
        places.setdefault((text, which), []).append(place)
    for (text, which), those in places.items():
        # A reason that many rows share is printed once: before any run, all forty rows of a table are missing.
        lines.append(f"{those[0]}, {which}: {text}" if len(those) == 1 else f"{text}, {which}: {'; '.join(those)}")
    return lines


def _best_of(findings: Findings) -> list[str]:
    """Which rows show the best of several retrained architectures, and how it is chosen."""
    several: dict[int, list[str]] = {}
    for number, row in enumerate(findings.study.rows):
        if among := {one.among for one in findings.counted if one.request.row == number and one.among > 1}:
            several.setdefault(max(among), []).append(row_name(row.labels))
    return [
        f"{'; '.join(rows)}: of {count} retrained architectures per seed the one with the best accuracy on the test "
        "images, which favours it a little."
        for count, rows in several.items()
    ]


def _undefined(lacking: Sequence[str], need_truth: Sequence[str], one: Evidence) -> str:
    """Why a done run has no value for these columns."""
    untold = [label for label in lacking if one.request.trial.config.benchmark is None and label in need_truth]
    reasons = []
    if untold:
        has = "has" if len(untold) == 1 else "have"
        reasons.append(f"{', '.join(untold)} {has} no value, because there is no table of truth")
    if others := [label for label in lacking if label not in untold]:
        run = one.run.id if one.run else ""
        reasons.append(f"{', '.join(others)} {'is' if len(others) == 1 else 'are'} undefined (run {run})")
    return "; ".join(reasons)


def column_notes(asked: Sequence[Column], columns: Sequence[ValueColumn], found: Sequence[Evidence]) -> list[str]:
    """Notes on the metrics: their neutral values per data set, and the study's remarks."""
    lines = []
    several = len({column.dataset for column in columns}) > 1
    for column in asked:
        mine = [one for one in columns if (one.label, one.metric) == (column.label, column.metric)]
        told = []
        if column.reference is not None:
            varies = several and isinstance(column.reference, str)
            neutral = [_neutral(one, found) + (f" on {one.dataset}" if varies else "") for one in mine]
            told.append(f"The neutral value is {', '.join(dict.fromkeys(neutral))}.")
        told += [column.remark] if column.remark else []
        if mine and told:
            lines.append(f"{column.label}: {' '.join(told)}")
    once = [column for column in columns if column.once]
    if several and once:
        lines.append(f"{', '.join(column.label for column in once)}: of {once[0].dataset}.")
    return lines


def elsewhere(findings: Findings) -> list[str]:
    """Runs of equal identity with another preset or other overrides: their cost may include more observations."""
    asked = (findings.preset.name, dict(findings.overrides))
    runs = [one.run for one in findings.counted if one.run and one.state == "done"]
    others = {run.id: run for run in runs if (run.preset, run.overrides) != asked}
    kinds = sorted({f"{run.preset} {_settings(run.overrides)}".strip() for run in others.values()})
    return (
        [f"Of equal identity, but requested with other settings: {len(others)} runs ({'; '.join(kinds)})."]
        if others
        else []
    )


def several_versions(findings: Findings) -> list[str]:
    """Runs of several versions of the harness: one trial may give another value under another version."""
    if len(findings.versions) < 2:
        return []
    told = ", ".join(f"{name} ({count} run{'s' * (count != 1)})" for name, count in findings.versions.items())
    return [
        f"The runs come from {len(findings.versions)} versions of the harness, which may differ in results: {told}."
    ]


def edited(findings: Findings) -> list[str]:
    """Files of the user's that have changed since runs of the study were made."""
    return [f"{edit}." for edit in findings.edits]


def declared_equal(findings: Findings) -> list[str]:
    """The edits across which runs of the table were made, and why they are declared to change nothing."""
    return [
        f"{one['accepted']} was edited between runs of this table; declared on {one['time'][:10]} to change no result: "
        f"{one['reason']}."
        for one in findings.accepted
    ]


def chosen_by(findings: Findings) -> list[str]:
    """By which accuracies the option is chosen that the table is there to choose."""
    configs = [one.trial.config for one in findings.requests]
    if not findings.study.chooses:
        return []
    if all(config.benchmark is None for config in configs):
        by = "the accuracy on the test images after retraining"
    elif all(config.rank.truth_split == "valid" for config in configs):
        return [f"{findings.study.chooses} is chosen here by Kendall's τ with validation accuracies."]
    else:
        by = "Kendall's τ with test accuracies"
    also = "" if by.startswith("the accuracy") else " `with rank.truth_split=valid` judges by validation accuracies."
    return [f"{findings.study.chooses} is chosen by {by}, which also judge what was chosen.{also}"]


def unequal_passes(findings: Findings) -> list[str]:
    """Rows of one group whose trainings made different numbers of passes: values that are compared at unequal cost."""
    made: dict[tuple[str, Any, bool], dict[int, set[int]]] = {}
    for one in findings.counted:
        passes = (one.run.cost or {}).get("passes") if one.run and one.state == "done" else None
        if passes is not None:
            row, config = one.request.row, one.request.trial.config
            group = findings.study.rows[row].labels[findings.study.group] if findings.study.group else None
            # A retraining passes a single network, which is another cost than a supernet's.
            rows = made.setdefault((one.request.dataset, group, config.retrain is not None), {})
            rows.setdefault(row, set()).add(passes)
    lines: dict[str, list[str]] = {}
    for (dataset, group, _), rows in made.items():
        if len(set(map(frozenset, rows.values()))) > 1:
            lines.setdefault(_passes(findings.study, group, rows), []).append(dataset)
    everywhere = len(findings.preset.datasets)
    return [text if len(on) == everywhere else f"{text} ({', '.join(on)})" for text, on in lines.items()]


def _passes(study: Study, group: Any, rows: Mapping[int, set[int]]) -> str:
    by_passes: dict[str, list[str]] = {}
    for number, passes in sorted(rows.items(), key=lambda item: (max(item[1]), item[0])):
        labels = {name: label for name, label in study.rows[number].labels.items() if name != study.group}
        by_passes.setdefault(_span(sorted(passes)), []).append(row_name(labels) or row_name(study.rows[number].labels))
    told = ", ".join(f"{passes} ({_some(names)})" for passes, names in by_passes.items())
    which = "Rows" if study.group is None else f"Rows of {row_name({study.group: group})}"
    return f"{which} differ in training passes and are not compared at equal cost: {told}."


def _some(names: Sequence[str]) -> str:
    shown = names if len(names) <= NAMED else [*names[: NAMED - 1], f"{len(names) - NAMED + 1} more"]
    return "; ".join(shown)


def invalidated(found: Sequence[Evidence]) -> list[str]:
    """Runs that were declared invalid, and why; they are kept, but appear in no table."""
    runs = {run.id: run for one in found for run in one.invalid}
    return [f"Declared invalid and not counted: run {run.id}: {run.invalid}" for _, run in sorted(runs.items())]


def damage(findings: Findings) -> list[str]:
    """Runs of the requested trials, and rankings of these runs, that are damaged in the store."""
    inside = f"{findings.store}/"
    return sorted(
        f"{one.effect.capitalize()}: {one.place.removeprefix(inside)}: {one.reason}" for one in findings.problems
    )


def _neutral(column: ValueColumn, found: Sequence[Evidence]) -> str:
    """The reference as shown; a range from lowest to highest if runs differ."""
    if not isinstance(column.reference, str):
        # As the study wrote it: rounding it to the column's digits could make it another value.
        return f"{float(column.reference):g}" if column.reference is not None else ""
    numbers = [column.neutral(one.metrics) for one in found if one.request.dataset == column.dataset]
    known = [shown(number, column.digits) for number in sorted(one for one in numbers if one is not None)]
    if not known:
        return "not known"
    return known[0] if known[0] == known[-1] else f"{known[0]} to {known[-1]}"


def _settings(overrides: Mapping[str, Any]) -> str:
    return f"with {' '.join(f'{key}={value}' for key, value in sorted(overrides.items()))}" if overrides else ""


def _sizes(networks: Sequence[Any]) -> list[str]:
    """The whole numbers among the settings of the networks, those that all of them have."""
    names = [name for name, value in vars(networks[0]).items() if type(value) is int]
    shared = [name for name in names if all(hasattr(network, name) for network in networks)]
    return [f"{name} {_span([getattr(network, name) for network in networks])}" for name in shared]


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"
