"""Where runs are kept: one directory per run, in Sacred's layout, optionally mirrored to MongoDB.

The run directory is the source of truth. The rest of the harness reads runs through `Store`, whichever kind
of place holds them.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from harness.components.code import RecordedCode
from harness.documents import parsed, problem, sealed
from harness.errors import DataError, InvalidConfiguration, UnknownName, UserError
from harness.schema import (
    OBSERVED,
    AcceptedDocument,
    ImportedDocument,
    PredictionsDocument,
    RankingDocument,
    ReferenceDocument,
    Searched,
)
from harness.stores import collector
from harness.stores.stored import Problem, Status, StoredRun, agree

LISTED = 20
"""Maximum number of runs that a message lists."""

REFERENCE = re.compile(r"[0-9a-f]{32}")
"""The key of a reference."""

Metrics = dict[str, list[dict[str, Any]]]
"""Points (step, value, timestamp) by metric; a value that is not a number is None."""


class Store(ABC):
    """A place to read runs from. Both kinds give equal answers for equal runs.

    Any number of processes may read while others write. Reading never raises for a damaged run: it becomes a
    `Problem`, which is named, and is not counted. A done run never changes, but rankings may be added to it,
    and it may be declared invalid.
    """

    name: str
    """The name used in messages; never contains a password."""
    problems: list[Problem]
    """What the last call of `runs` could not use."""

    @abstractmethod
    def ids(self) -> list[str]:
        """The ids of all runs, in any order. Raises `UserError` or `Unreachable`."""

    @abstractmethod
    def load(self, trials: Collection[str] | None, problems: list[Problem]) -> list[StoredRun]:
        """The runs of these trials (the first 16 digits of their keys), or all, in any order."""

    @abstractmethod
    def files(self, run: StoredRun) -> dict[str, int]:
        """Names and sizes of the files of a run's directory, as far as the place holds them."""

    @abstractmethod
    def read(self, run: StoredRun, name: str) -> bytes:
        """One of these files, verified where a checksum is known. Raises `DataError`."""

    def folder_of(self, run: StoredRun) -> Path | None:
        """The directory that holds these files; None for a place that is not a directory."""
        return None

    @abstractmethod
    def metrics(self, run: StoredRun) -> Metrics:
        """All points of every metric so far. Raises `DataError` when they are damaged."""

    @abstractmethod
    def recall(self, key: str) -> dict[str, Any] | None:
        """The document remembered under that key; None if there is none, or it is unreadable."""

    @abstractmethod
    def remember(self, key: str, document: Mapping[str, Any]) -> None:
        """Keep a document. A place that is not writable keeps nothing: `add_references` verifies that it did."""

    @abstractmethod
    def forget(self, key: str) -> None:
        """Remove the document remembered under that key. Raises `UserError` if that is not possible."""

    @abstractmethod
    def remembered(self) -> dict[str, dict[str, Any] | None]:
        """All remembered documents by key; None for one that is unreadable."""

    def references(self) -> tuple[dict[str, dict[str, Any]], list[Problem]]:
        """The references and imported predictions that the place holds, by key, and those that are damaged.

        `run` makes references again.
        """
        found, damaged = {}, []
        for key, document in sorted(self.remembered().items()):
            wrong = "is unreadable" if document is None else problem(kind_of(document), document)
            if wrong is None and document is not None:
                found[key] = document
            else:
                damaged.append(Problem(f"{self.name}: reference {key}", str(wrong)))
        return found, damaged

    def check_references(self, references: Mapping[str, Mapping[str, Any]]) -> set[str]:
        """The keys of those that the place holds. Raises `DataError` if it holds another result of one of them."""
        there, _ = self.references() if references else ({}, [])
        for key in sorted(references.keys() & there.keys()):
            if not same_reference(there[key], references[key]):
                raise DataError(f"{self.name} holds another result of reference {key}; nothing was added")
        return references.keys() & there.keys()

    def add_references(self, references: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Store the references that the place lacks; returns their keys. Those that are there stay as they are.

        Raises `DataError`, and stores nothing, if the place holds another result under the same key: references are
        deterministic. Also raises it if the place keeps nothing.
        """
        new = sorted(references.keys() - self.check_references(references))
        for key in new:
            self.remember(key, references[key])
            if self.recall(key) != references[key]:
                raise DataError(f"{self.name}: reference {key} could not be written")
        return new

    def runs(self, keys: Collection[str] | None = None) -> list[StoredRun]:
        """All runs, or those of the trials with these keys, sorted by trial and attempt.

        Of two done runs of a trial the newer counts, and the older is superseded. If they differ in what both
        observed, that is a problem that names both.
        """
        self.problems = []
        trials = None if keys is None else {key[:16] for key in keys}
        with collector.paused():
            return self._with_equal(supersede(self.load(trials, self.problems), self.problems))

    def accepted(self) -> list[AcceptedDocument]:
        """The records that declare versions of a user's code equal, the oldest first."""
        found = [cast(AcceptedDocument, one) for one in self.references()[0].values() if "accepted" in one]
        return sorted(found, key=lambda one: (one["time"], one["versions"]))

    def _with_equal(self, runs: list[StoredRun]) -> list[StoredRun]:
        """The runs with the versions that are declared equal to those of their code."""
        if not any(run.code for run in runs) or not (classes := _classes(self.accepted())):
            return runs

        def equal(one: RecordedCode) -> RecordedCode:
            return replace(one, equal=classes.get(one.code, frozenset()))

        return [
            replace(run, code={part: equal(one) for part, one in run.code.items()}) if run.code else run for run in runs
        ]

    def done(self, key: str) -> StoredRun | None:
        """The run that counts for the trial with that key, if there is one."""
        found = supersede(self.load({key[:16]}, []), [])
        return next((run for run in found if run.key == key and run.counts), None)

    def find(self, prefix: str) -> StoredRun:
        """The run whose id begins with `prefix`.

        Raises `UnknownName` when there is none, `InvalidConfiguration` when there are several, and
        `UserError` when it is damaged.
        """
        names = sorted(self.ids())
        matching = [name for name in names if name == prefix] or [name for name in names if name.startswith(prefix)]
        if not matching:
            near = difflib.get_close_matches(prefix, names, n=1)
            suggestion = f"; did you mean {near[0]}?" if near else "."
            raise UnknownName(f"no run's id begins with {prefix!r}{suggestion} {self.name} holds {len(names)} runs")
        if len(matching) > 1:
            some = ", ".join(matching[:LISTED]) + (f" and {len(matching) - LISTED} more" * (len(matching) > LISTED))
            raise InvalidConfiguration(f"{prefix!r} is not unique; matching runs: {some}")
        problems: list[Problem] = []
        for run in supersede(self.load({matching[0][:16]}, problems), problems):
            if run.id == matching[0]:
                return run
        reasons = [f"{one.place}: {one.reason}" for one in problems if matching[0] in one.place]
        raise UserError(f"run {matching[0]} is damaged: {'; '.join(reasons)}")

    def predictions(self, run: StoredRun, rank: Mapping[str, Any] | None = None) -> dict[int, float]:
        """The known predicted accuracies of the run's weights, by architecture number.

        From all rankings on the same images as the run's own ranking, or as `rank` if given.
        """
        return self._known(run, rank, "accuracies")

    def losses(self, run: StoredRun, rank: Mapping[str, Any] | None = None) -> dict[int, float]:
        """The known losses on the same images; runs of older versions have none."""
        return self._known(run, rank, "losses")

    def _known(self, run: StoredRun, rank: Mapping[str, Any] | None, key: str) -> dict[int, float]:
        from harness.stores.directory.run_directory import PREDICTIONS

        wanted = rank or run.trial["config"]["rank"]
        found: dict[int, float] = {}
        further = (name for files in self.sound_rankings(run).values() for name in files)
        for name in dict.fromkeys([PREDICTIONS, *further]):
            document = self._predicted(run, name)
            if document is None:
                continue
            same = (document["images"], document["batch_size"]) == (wanted["images"], wanted["batch_size"])
            defaults = {"calibration": 0, "calibration_images": "plain", "precision": "float32"}  # not written
            if same and all(document.get(name, usual) == wanted.get(name, usual) for name, usual in defaults.items()):
                values = cast(dict[str, float], document.get(key, {}))
                found |= {int(number): value for number, value in values.items()}
        return dict(sorted(found.items()))

    def searched(self, run: StoredRun, ranking: str) -> Searched | None:
        """All scores of the search that was made with that ranking of the run; None if there was none.

        Searches that were stored without this list have None, too. Raises `DataError`.
        """
        from harness.stores.directory.run_directory import PREDICTIONS, ranking_version

        # Recomputed rankings come after the one that was made with the run.
        own = [PREDICTIONS] if ranking == run.own_ranking else []
        for name, files in self.sound_rankings(run).items():
            own += files if ranking_version(name)[0] == ranking else []
        document = self._predicted(run, own[-1]) if own else None
        return None if document is None else document.get("searched")

    def sound_rankings(self, run: StoredRun) -> dict[str, list[str]]:
        """The run's further rankings that are as they were written, by file, the newest last: the files of predictions
        of each. A damaged one counts as missing."""
        from harness.stores.directory.run_directory import RANKINGS, is_ranking, ranking_version

        found = {}
        for name in sorted(filter(is_ranking, self.files(run)), key=ranking_version):
            with suppress(DataError):
                document = parsed(self.read(run, name), RankingDocument)
                beside = {f"{RANKINGS}/{other}": checksum for other, checksum in document["files"].items()}
                checksums = {own: hashlib.sha256(self.read(run, own)).hexdigest() for own in beside}
                if checksums == beside and ("checksum" not in document or document == sealed(document)):
                    found[name] = list(beside)
        return found

    def _predicted(self, run: StoredRun, name: str) -> PredictionsDocument | None:
        """The predictions in that file of a run; None if the run has no such file. Raises `DataError`."""
        if name not in self.files(run):
            return None
        what = f"{self.name}: {run.id}/{name}: does not hold predictions"
        try:
            return cast(PredictionsDocument, parsed(self.read(run, name), PredictionsDocument))
        except DataError as error:
            raise DataError(f"{what}: {error}") from error


def _classes(records: Iterable[AcceptedDocument]) -> dict[str, frozenset[str]]:
    """By version, all versions that are equal to it by these records, directly or not."""
    found: dict[str, frozenset[str]] = {}
    for record in records:
        joined = frozenset(record["versions"]).union(*(found.get(one, ()) for one in record["versions"]))
        found |= dict.fromkeys(joined, joined)
    return found


def kind_of(document: Mapping[str, Any]) -> type:
    """The type of a remembered document: a reference, predictions from elsewhere, or versions declared equal."""
    if "accepted" in document:
        return AcceptedDocument
    return ImportedDocument if "imported" in document else ReferenceDocument


def same_reference(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two documents of one reference do not contradict each other. Costs may differ."""
    rest, others = ({key: value for key, value in own.items() if key not in ("result", "cost")} for own in (one, other))
    return rest == others and agree(one.get("result"), other.get("result"))


def supersede(runs: Collection[StoredRun], problems: list[Problem]) -> list[StoredRun]:
    """The runs in order. A done run with a newer done one is marked superseded, and the two are compared."""
    ordered = sorted(runs, key=lambda run: run.order)
    newest = {run.key: run for run in ordered if run.status is Status.DONE and run.invalid is None}
    marked = []
    for run in ordered:
        newer = newest.get(run.key, run)
        if run.status is Status.DONE and run.invalid is None and newer is not run:
            for difference in _differences(run, newer):
                problems.append(Problem(run.id, f"{run.id} and {newer.id} are runs of one trial, but {difference}"))
            run = replace(run, superseded=True)
        marked.append(run)
    return marked


def _differences(one: StoredRun, other: StoredRun) -> list[str]:
    """The differences between the two runs in what both observed.

    Recomputed rankings are left out: only the run that counts is recomputed, so a difference is not a contradiction.
    """
    mine, its = one.first_rankings, other.first_rankings
    found = [
        f"ranking {key} gave {json.dumps(mine[key])} and {json.dumps(its[key])}"
        for key in sorted(mine.keys() & its.keys())
        if not agree(mine[key], its[key])
    ]
    if one.own_ranking == other.own_ranking and one.result and other.result:
        ours, theirs = (run.result.get(OBSERVED, {}) for run in (one, other) if run.result)
        for name in sorted(ours.keys() & theirs.keys()):
            points, others = dict(map(tuple, ours[name])), dict(map(tuple, theirs[name]))
            steps = [step for step in points.keys() & others.keys() if points[step] != others[step]]
            if steps:
                found.append(f"{name} differs at step {min(steps)}")
    return found
