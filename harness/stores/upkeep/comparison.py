"""Two stored runs side by side: what differs between them, section by section. Imports no torch.

The runs may be in different stores. Measurements (cost, environment) never make two runs different, nor does
what only one of them observed; both are listed.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.documents import flatten, parsed
from harness.errors import DataError
from harness.schema import PANEL, CompletionDocument, RunDocument
from harness.stores.directory.run_directory import COMPLETION, RUN, WEIGHTS
from harness.stores.store import Store
from harness.stores.stored import Status, StoredRun, agree, without_curves

OUTCOME = ("result", "rankings", "metrics", "predictions", "weights")
"""The sections that are deterministic: equal trials are equal in them."""

ABSENT = "—"


@dataclass(frozen=True)
class Difference:
    """One thing that is not the same in both runs."""

    name: str
    one: str
    other: str
    counts: bool = True
    """Whether it is a contradiction: false for what only one run observed, or has not reached yet."""


@dataclass(frozen=True)
class Comparison:
    """The differences by section; a section without any is left out."""

    sections: Mapping[str, list[Difference]] = field(default_factory=dict)

    @property
    def contradicting(self) -> list[str]:
        """The deterministic sections in which the runs contradict each other: none for equal results."""
        return [name for name in OUTCOME if any(one.counts for one in self.sections.get(name, ()))]


@dataclass(frozen=True)
class Side:
    """A run and the place that holds it."""

    store: Store
    run: StoredRun


def compare(one: Side, other: Side) -> Comparison:
    """Raises `DataError` when a file that is needed is damaged."""
    sections = {
        "run": _values(_heading(one.run), _heading(other.run)),
        "configuration": _values(flatten(one.run.trial["config"]), flatten(other.run.trial["config"])),
        "result": _result(one.run, other.run),
        "rankings": _rankings(one.run, other.run),
        "metrics": _metrics(one, other),
        "predictions": _predictions(one, other),
        "weights": _weights(one, other),
        "cost": _values(flatten(one.run.cost or {}), flatten(other.run.cost or {})),
        "environment": _values(_environment(one), _environment(other)),
    }
    return Comparison({name: found for name, found in sections.items() if found})


def _values(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[Difference]:
    return [
        Difference(key, _text(one, key), _text(other, key), key in one and key in other)
        for key in dict.fromkeys([*one, *other])
        if key not in one or key not in other or one[key] != other[key]
    ]


def _text(values: Mapping[str, Any], key: str) -> str:
    if key not in values:
        return ABSENT
    return values[key] if isinstance(values[key], str) else json.dumps(values[key], ensure_ascii=False)


def _heading(run: StoredRun) -> dict[str, Any]:
    overrides = " ".join(f"{key}={value}" for key, value in run.overrides.items())
    return {"trial": run.key[:16], "status": run.status.value, "preset": run.preset, "overrides": overrides}


def _result(one: StoredRun, other: StoredRun) -> list[Difference]:
    """A run that has no result differs from one that has."""
    if one.result is None or other.result is None:
        return [] if one.result is other.result else [Difference("result", one.status.value, other.status.value)]
    ours, theirs = (without_curves(run.result) for run in (one, other) if run.result)
    if PANEL in ours and PANEL in theirs:  # its measures one by one
        ours, theirs = (own | flatten({PANEL: own[PANEL]}) for own in (ours, theirs))
    return _values(*({k: "measured" if k == PANEL else v for k, v in own.items()} for own in (ours, theirs)))


def _rankings(one: StoredRun, other: StoredRun) -> list[Difference]:
    """Differences of the further rankings: the runs' own rankings are their results."""
    own = {one.own_ranking, other.own_ranking}
    ours, theirs = ({k: v for k, v in run.rankings.items() if k not in own} for run in (one, other))
    same = {key for key in ours.keys() & theirs.keys() if agree(ours[key], theirs[key])}
    return _values(*({k: v for k, v in own.items() if k not in same} for own in (ours, theirs)))


def _metrics(one: Side, other: Side) -> list[Difference]:
    """Each curve by its first step that differs. A shorter curve of a run that is not done is not a contradiction."""
    both_done = one.run.status is other.run.status is Status.DONE
    ours, theirs = one.store.metrics(one.run), other.store.metrics(other.run)
    found = []
    for name in sorted(ours.keys() | theirs.keys()):
        if name not in ours or name not in theirs:
            there = [f"{len(curves[name])} points" if name in curves else ABSENT for curves in (ours, theirs)]
            found.append(Difference(name, there[0], there[1], counts=False))
            continue
        mine, its = ([(point["step"], point["value"]) for point in curves[name]] for curves in (ours, theirs))
        for number, points in enumerate(itertools.zip_longest(mine, its)):
            if points[0] != points[1]:
                first, second = (f"{p[1]} at step {p[0]}" if p else f"ends after {number} points" for p in points)
                counts = both_done or None not in points
                found.append(Difference(f"{name}, from point {number + 1} on", first, second, counts))
                break
    return found


def _predictions(one: Side, other: Side) -> list[Difference]:
    ours, theirs = one.store.predictions(one.run), other.store.predictions(other.run)
    both = ours.keys() & theirs.keys()
    differing = sorted(number for number in both if ours[number] != theirs[number])
    found = []
    if differing:
        at = differing[0]
        name = f"{len(differing)} of {len(both)}, the first architecture {at}"
        found.append(Difference(name, str(ours[at]), str(theirs[at])))
    if ours.keys() != theirs.keys():
        found.append(Difference("architectures", str(len(ours)), str(len(theirs)), counts=False))
    return found


def _weights(one: Side, other: Side) -> list[Difference]:
    """Compares the checksums that were recorded when the runs were completed."""
    ours, theirs = (_completion(side).get(WEIGHTS) for side in (one, other))
    if ours == theirs or None in (ours, theirs):
        return []
    return [Difference("SHA-256", str(ours)[:16], str(theirs)[:16])]


def _completion(side: Side) -> dict[str, str]:
    if COMPLETION not in side.store.files(side.run):
        return {}
    files: dict[str, str] = _document(side, COMPLETION, CompletionDocument)["files"]
    return files


def _environment(side: Side) -> dict[str, Any]:
    """Host, commit and packages, each package by itself."""
    if RUN not in side.store.files(side.run):
        return {}
    record = _document(side, RUN, RunDocument)
    host, experiment = record.get("host") or {}, record.get("experiment") or {}
    found = {key: host[key] for key in ("hostname", "os", "python_version", "cpu", "cores", "gpus") if key in host}
    for repository in experiment.get("repositories", ()):
        found |= {"commit": repository.get("commit"), "changed files": repository.get("dirty")}
        if repository.get("commit") is None:
            found["version"] = repository.get("version")
    packages = (text.partition("==") for text in experiment.get("dependencies", ()))
    return flatten(found) | {name: version for name, _, version in packages}


def _document(side: Side, name: str, kind: type) -> dict[str, Any]:
    try:
        return parsed(side.store.read(side.run, name), kind)
    except DataError as error:
        raise DataError(f"{side.store.name}: {side.run.id}/{name}: {error}") from error
