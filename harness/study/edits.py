"""Edits of the user's own components since runs were made, and edits that are declared to change nothing.

A run whose code differs belongs to another trial, so it answers no request: readers must be told, or its results just
disappear. Imports neither torch nor pandas.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from harness.components.code import UNNAMED_PART, RecordedCode, own_part
from harness.components.own_code import code_version, files_of, is_ours
from harness.components.registries import REGISTRIES
from harness.documents import canonical, utc_text
from harness.errors import HarnessError, UserError
from harness.schema import AcceptedDocument
from harness.study.study import Request
from harness.study.trial import Trial
from harness.study.versions import Recorded, ranking_of

if TYPE_CHECKING:
    from harness.stores.stored import StoredRun


@dataclass(frozen=True)
class Edit:
    """A file of the user's that has changed since runs were made."""

    file: str
    """Its name in the user's folder."""
    parts: tuple[str, ...]
    """What it is for the trials: method, sampler, …"""
    runs: tuple[StoredRun, ...]
    """The runs that were made before, and answer nothing now."""
    imported: bool
    """Whether the file is the same and only what it imports has changed."""

    def __str__(self) -> str:
        count = len(self.runs)
        runs, counts = (f"{count} runs", "they count") if count > 1 else ("1 run", "it counts")
        what = f"what {self.file} imports" if self.imported else self.file
        return f"{what} has changed since {runs} ({_span(self.runs)}); {counts} as another {' and '.join(self.parts)}"


def edits(requests: Iterable[Request], runs: Callable[[], Sequence[StoredRun]]) -> list[Edit]:
    """The edits that keep stored runs from answering these requests, by file."""
    trials = {request.trial.key: request.trial for request in requests if request.trial.own_code}
    if not trials:
        return []
    known = runs()
    counted = {run.key: run for run in known if run.counts}
    found: dict[str, dict[str, StoredRun]] = {}
    parts: dict[str, set[str]] = {}
    whole: dict[str, bool] = {}
    for trial in trials.values():
        files = trial.own_files()
        for run in _before(trial, counted, _combinations(known)):
            for part, today in trial.own_code.items():
                recorded = run.code.get(part)
                if recorded is None or recorded.is_like(today):
                    continue
                file = files[part]
                found.setdefault(file, {})[run.id] = run
                parts.setdefault(file, set()).add(part)
                whole[file] = whole.get(file, False) or own_part(today) != own_part(recorded.code)
    return [
        Edit(file, tuple(sorted(parts[file])), tuple(own.values()), not whole[file])
        for file, own in sorted(found.items())
    ]


@dataclass(frozen=True)
class Accepting:
    """A component whose versions are to be declared equal."""

    file: str
    versions: tuple[str, ...]
    """Today's first."""
    runs: tuple[StoredRun, ...]
    """The runs that count again."""


def accepting(file: Path, runs: Iterable[StoredRun], only: StoredRun | None, every: bool) -> list[Accepting]:
    """What to declare equal, so that runs made before an edit of the file count again: for each component of the file,
    and for each that imports it, the version of today and that of the run `only`, of all runs, or the only other one.

    Raises `UserError` if that is not clear, or if there is nothing to accept.
    """
    entries = _registered_with(file)
    before: dict[str, dict[str, dict[str, StoredRun]]] = {}
    for run in runs:
        if run.code and run.status == "done" and run.invalid is None and (only is None or run.id == only.id):
            for today, recorded in _other_versions(run, entries):
                before.setdefault(today, {}).setdefault(recorded.code, {})[run.id] = run
    if not before:
        about = f"run {only.id}" if only is not None else "every stored run"
        raise UserError(f"{about} has today's version of {file}, or does not use it: there is nothing to accept")
    if not every and (several := [versions for versions in before.values() if len(versions) > 1]):
        lines = [f"  {len(own)} run{'s' * (len(own) != 1)}, the last is {[*own][-1]}" for own in several[0].values()]
        raise UserError(
            f"{file} had {len(lines)} other versions:\n" + "\n".join(lines) + "\n"
            "Name a run of the version that is equal to today's with --run, or give --all"
        )
    return [
        Accepting(entries[today], (today, *versions), tuple(run for own in versions.values() for run in own.values()))
        for today, versions in sorted(before.items())
    ]


def _registered_with(file: Path) -> dict[str, str]:
    """By version, the files of the components that are registered by this file, or import it."""
    place, found = file.resolve(), {}
    own: set[str] = set()
    for registry in REGISTRIES.values():
        for name, entry in registry.items():
            if is_ours(entry.file) or not entry.file.is_file():
                continue
            registry.get(name)  # imports what was registered by its module's name
            entry = registry.entries[name]
            files = files_of(entry)
            own.add(next(iter(files)))
            if place in [one.resolve() for one in files.values()]:
                found[code_version(entry)] = next(iter(files))
    if not found:
        known = f"; yours are in {', '.join(sorted(own))}" if own else "; there are none of your own here"
        raise UserError(f"no component of your own is in {file}, or imports it{known}")
    return found


def _other_versions(run: StoredRun, versions: Container[str]) -> Iterator[tuple[str, RecordedCode]]:
    """For the components of the run that have one of these versions today, that and the run's, if it is another."""
    try:
        today = Trial.from_json(run.trial).today.own_code
    except HarnessError:  # a component that is no longer here, or a configuration of another version
        return
    for part, version in today.items():
        recorded = run.code.get(part)
        if version in versions and recorded is not None and not recorded.is_like(version):
            yield version, recorded


def accepted_in(requests: Iterable[Request], runs: Mapping[str, StoredRun]) -> list[RecordedCode]:
    """The versions other than today's that these runs, by key, were made with, and that are declared equal to it."""
    found: dict[str, RecordedCode] = {}
    for request in requests:
        run = runs.get(request.trial.key)
        for part, today in request.trial.own_code.items() if run is not None else ():
            recorded = run.code.get(part) if run is not None else None
            if recorded is not None and recorded.is_like(today) and today in recorded.equal - {recorded.code}:
                found[recorded.code] = recorded
    return list(found.values())


def accepted(file: str, versions: Iterable[str], reason: str) -> tuple[str, AcceptedDocument]:
    """The record that declares these versions of a file equal, and its key."""
    document: AcceptedDocument = {
        "accepted": file,
        "versions": sorted(set(versions)),
        "reason": reason,
        "time": utc_text(),
    }
    return hashlib.sha256(canonical(document).encode()).hexdigest()[:32], document


def _combinations(runs: Iterable[StoredRun]) -> list[Mapping[str, RecordedCode]]:
    """The different versions that runs were made with, by part."""
    known = {tuple(sorted((part, one.version) for part, one in run.code.items())): run.code for run in runs}
    return [code for code in known.values() if code]


def _before(
    trial: Trial, counted: Mapping[str, StoredRun], combinations: Sequence[Mapping[str, RecordedCode]]
) -> Iterator[StoredRun]:
    """The runs that would answer the trial if its code had not changed."""
    run = counted.get(trial.key)
    if run is not None:
        if ranking_of(trial) not in run.rankings:  # trained with the same code, but not judged by it
            yield run
        return
    seed = trial.config.seed
    starts: list[Trial | None] = [trial.start]
    if trial.start is not None:
        starts += [one.twin(seed, None) for one in _earlier(trial.start, combinations)]
    for earlier, start in product(_earlier(trial, combinations), starts):
        if (known := counted.get(earlier.twin(seed, start).key)) is not None:
            yield known


def _earlier(trial: Trial, combinations: Sequence[Mapping[str, RecordedCode]]) -> list[Trial]:
    """The trial, whatever its seed, under the versions that runs were made with."""
    like = trial.today
    chosen = dict.fromkeys(own for versions in combinations for own in _recorded(like, versions))
    return [like.under(recorded, like.start) for recorded in chosen]


def _recorded(trial: Trial, versions: Mapping[str, RecordedCode]) -> Iterator[Recorded]:
    """The versions in place of today's, for the parts that the trial has; nothing if they are all today's.

    Runs of earlier versions do not say which of their files were metrics and searches: each may have been.
    """
    today = trial.own_code
    same = {today[part]: versions[part].version for part in today.keys() & versions.keys()}  # parts of one file
    unnamed = [one.version for part, one in versions.items() if part.startswith(UNNAMED_PART)]
    options = {version: [same[version]] if version in same else [version, *unnamed] for version in {*today.values()}}
    for chosen in product(*options.values()):
        then = dict(zip(options, chosen, strict=True))
        if any(then[version] != version for version in today.values()):
            yield tuple(sorted((part, then[version]) for part, version in today.items()))


def _span(runs: Sequence[StoredRun]) -> str:
    """The time that the runs took, for the reader."""
    seconds = sum((run.cost or {}).get("wall_seconds", 0.0) for run in runs)
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
