"""Looks for everything that can be wrong with stored runs, down to the last byte. Imports no torch.

Reading a store verifies small files and trusts the size of large ones; here every file is read. A finding
that can be repaired safely comes with its repair; no run is ever removed.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from harness.documents import parsed
from harness.errors import DataError, UserError, is_machines_fault
from harness.files import DAY, make_durable, sha256, write
from harness.owner import describe
from harness.schema import CompletionDocument, RankingDocument, TrialDocument
from harness.stores.claims import ClaimRecord, Claims
from harness.stores.directory.curves import check_columns
from harness.stores.directory.reading import (
    Damaged,
    absent_files,
    check_predictions,
    read_small,
    summarise,
    wrong_trial,
)
from harness.stores.directory.run_directory import (
    COMPLETION,
    METRICS,
    POINTS,
    PREDICTIONS,
    RANKINGS,
    TRIAL,
    read_points,
)
from harness.stores.directory.store import DirectoryStore
from harness.stores.store import Store, supersede
from harness.stores.stored import Problem, StoredRun

if TYPE_CHECKING:
    from harness.stores.mongo.store import MongoStore

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Finding:
    """Something that is wrong, and its repair if there is one."""

    kind: str
    place: str
    reason: str
    repair: Callable[[], str | None] | None = None
    """Repairs it and returns what was done; None if that was not possible after all."""


def check_directory(
    store: DirectoryStore, backup: MongoStore | None = None, progress: Progress | None = None
) -> Iterator[Finding]:
    """Everything that is wrong with the runs of a directory; damaged files can be restored from `backup`."""
    ids = sorted(store.ids())
    for number, name in enumerate(ids):
        path = store.path / name
        for problem in examine(path):
            if problem.unreadable:
                yield Finding("unreadable", problem.place, problem.reason)
                continue
            kind = (
                "metrics"
                if Path(problem.place).name == METRICS and " points instead of " in problem.reason
                else "damaged"
            )
            yield Finding(kind, problem.place, problem.reason, _restoring(path, problem, backup))
        if progress:
            progress(number + 1, len(ids))
    yield from duplicates(store.load(None, []))
    for problem in store.references()[1]:
        key = problem.place.rpartition(" ")[2]
        again = partial(_recalled, store, key, backup) if backup is not None else None
        reason = f"{problem.reason}; `harness run` makes it again, unless it was imported"
        yield Finding("damaged", problem.place, reason, again)


def _recalled(store: DirectoryStore, key: str, backup: MongoStore) -> str | None:
    """Restore a reference from the database."""
    if (document := backup.references()[0].get(key)) is None:
        return None
    store.remember(key, document)
    return "restored from the database"


def check_database(store: MongoStore, progress: Progress | None = None) -> Iterator[Finding]:
    """Everything that is wrong with the runs of a database by itself. Reads every file and every point."""
    runs = store.load(None, [])
    for name, count in Counter(store.ids()).items():
        if count > 1:
            yield Finding("duplicate", f"{store.name}: {name}", f"{count} documents have this id")
    yield from unusable(store, set())
    for number, run in enumerate(runs):
        for name, error in unreadable(store, run):
            yield Finding("damaged", f"{store.name}: {run.id}/{name}", error)
        if progress:
            progress(number + 1, len(runs))
    yield from duplicates(runs)
    yield from (Finding("damaged", problem.place, problem.reason) for problem in store.references()[1])


def unusable(store: MongoStore, here: Collection[str]) -> Iterator[Finding]:
    """Documents of a database that are no runs, and runs whose summaries are not what their files say.

    Runs that are `here`, in a directory, are left out.
    """
    problems: list[Problem] = []
    store.load(None, problems)
    ids = {*store.ids()} - {*here}
    for problem in problems:
        name, _, inside = problem.place.removeprefix(f"{store.name}/").partition("/")
        if name not in here and (inside or name not in ids):
            yield Finding("damaged", f"{store.name}: {problem.place}", problem.reason)
    for name in sorted(ids):
        if (wrong := store.wrong_summary(name)) is not None:
            yield Finding("damaged", f"{store.name}: {name}", wrong, partial(_summarised, store, name))


def _summarised(store: MongoStore, name: str) -> str | None:
    """Make the summary of a run again, from its files in the database."""
    try:
        store.summarise_again(name)
    except DataError:
        return None
    return None if store.wrong_summary(name) else "its summary was made again from its files"


def duplicates(runs: Iterable[StoredRun]) -> Iterator[Finding]:
    """Runs of one trial that contradict each other, or several of which count."""
    problems: list[Problem] = []
    marked = supersede(list(runs), problems)
    for problem in problems:
        advice = "; `harness store invalidate` declares the wrong one invalid"
        yield Finding("duplicate", problem.place, problem.reason + advice)
    for key, count in Counter(run.key for run in marked if run.counts).items():
        if count > 1:
            yield Finding("duplicate", key[:16], f"{count} runs of this trial count")


def orphaned(claims: Claims, where: str) -> Iterator[Finding]:
    """Claims whose owners are dead, or have not renewed them in time; damaged ones, and those with a wrong time."""
    for record in claims.records():
        place = f"{where}: {record.key[:16]}"

        def free(record: ClaimRecord = record) -> str | None:
            return "freed" if claims.drop(record) else None

        def restart(record: ClaimRecord = record) -> str | None:
            return "its lease counts from now on" if claims.holder(record.key) else None

        if record.ahead:
            years = f"its time is {min(record.ahead / DAY, 1e6):.1f} days ahead"
            wrong = years if record.damage is None else f"{record.damage}; it has no time that counts"
            yield Finding("claim", place, f"held by {describe(record.owner)}, but {wrong}", restart)
        elif record.damage is not None:
            repair = None if record.alive else free
            yield Finding("claim", place, f"{record.damage}; it counts as held until it expires", repair)
        elif record.held and not record.alive:
            reason = f"held by {describe(record.owner)}, which has not renewed it for {record.age:.0f} s or is dead"
            yield Finding("claim", place, reason, free)


def examine(path: Path) -> list[Problem]:
    """Everything that is wrong in a run's directory; empty for an intact one, whether done or not."""
    found: list[Problem] = []
    try:
        summarise(path, found)
    except Damaged as error:
        found.append(error.problem)
    found += _wrong_checksums(path) or _wrong_predictions(path)
    found += _wrong_curves(path)
    return list({problem.place: problem for problem in reversed(found)}.values())[::-1]


def unreadable(store: Store, run: StoredRun) -> Iterator[tuple[str, str]]:
    """The files of a run that the store lists, but cannot return unchanged; with the reasons."""
    expected: dict[str, str] = {}
    try:
        names = store.files(run)
    except DataError as error:
        yield "", str(error)
        return
    if COMPLETION in names:
        try:
            record = parsed(store.read(run, COMPLETION), CompletionDocument)
            expected = record["files"]
            counts = {name: len(points) for name, points in store.metrics(run).items()}
            if counts != record["metrics"]:
                yield METRICS, f"has {counts} points instead of {record['metrics']}"
        except DataError as error:
            yield COMPLETION, str(error)
    for name in names:
        try:
            content = store.read(run, name)
            if name in expected and hashlib.sha256(content).hexdigest() != expected[name]:
                yield name, "has another checksum than the completion record says"
        except DataError as error:
            yield name, str(error)


def _wrong_curves(path: Path) -> list[Problem]:
    """The file of curves, if it does not hold curves."""
    name = METRICS if (path / METRICS).exists() else POINTS
    try:
        read_points(path / name) if name == POINTS else check_columns(read_small(path / name))
    except Damaged as error:
        return [error.problem]
    except DataError as error:
        return [Problem(str(path / name), str(error))]
    return []


def _wrong_predictions(path: Path) -> list[Problem]:
    """The files of predictions that do not hold what they should, in a run whose files are those of its record."""
    found = []
    for file in (path / PREDICTIONS, *sorted((path / RANKINGS).glob(f"*.{PREDICTIONS}"))):
        try:
            if file.exists():
                check_predictions(file)
        except Damaged as error:
            found.append(error.problem)
    return found


def _wrong_checksums(path: Path) -> list[Problem]:
    """The wrong files among those that the completion record names, weights included."""
    found = []
    try:
        if not (path / COMPLETION).exists():
            return []
        record = read_small(path / COMPLETION, CompletionDocument)
        for name, checksum in record["files"].items():
            file = path / name
            if not file.exists():
                if name not in absent_files(path, record):
                    found.append(Problem(str(file), "is missing"))
            elif sha256(file) != checksum:
                found.append(Problem(str(file), "has another checksum than the completion record says"))
    except Damaged as error:
        found.append(error.problem)
    except (KeyError, TypeError, AttributeError) as error:
        reason = f"not a valid completion record ({type(error).__name__}: {error})"
        found.append(Problem(str(path / COMPLETION), reason))
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
        found.append(Problem(str(path), reason, unreadable=is_machines_fault(error)))
    return found


def _restoring(path: Path, problem: Problem, backup: MongoStore | None) -> Callable[[], str | None] | None:
    """A function that restores the file that a problem is about, if there is a backup."""
    place = Path(problem.place)
    if backup is None or place == path:
        return None
    source, name = backup, place.relative_to(path).as_posix()

    def restore() -> str | None:
        from harness.stores.mongo.connection import translated

        content = io.BytesIO()
        try:
            with translated():
                entry = source.entries(path.name, (name,))[name]
                source.copy(path.name, entry, content)
        except (UserError, KeyError):  # missing or damaged there, too
            return None
        if not _is_right(path, name, content.getvalue()):
            return None
        place.parent.mkdir(exist_ok=True)
        write(place, lambda file: file.write(content.getvalue()))
        # Keep the original time: the run must not seem newer.
        os.utime(place, ns=(entry["modified"] * 1000,) * 2)
        make_durable(place.parent)
        return f"restored from {source.name}"

    return restore


def _is_right(path: Path, name: str, content: bytes) -> bool:
    """Whether that content is the original one, according to the records beside the file."""
    try:
        if name == TRIAL and not (path / COMPLETION).exists():
            return wrong_trial(parsed(content, TrialDocument), path.name) is None
        if name == COMPLETION:
            files = parsed(content, CompletionDocument)["files"]
            return all(sha256(path / other) == checksum for other, checksum in files.items())
        if name.startswith(f"{RANKINGS}/") and not name.endswith(f".{PREDICTIONS}"):
            files = parsed(content, RankingDocument)["files"]
            return all(sha256(path / RANKINGS / other) == checksum for other, checksum in files.items())
        if name.startswith(f"{RANKINGS}/"):
            record = path / f"{name.removesuffix(f'.{PREDICTIONS}')}.json"
            expected = read_small(record, RankingDocument)["files"][Path(name).name]
        else:
            expected = read_small(path / COMPLETION, CompletionDocument)["files"][name]
        return bool(hashlib.sha256(content).hexdigest() == expected)
    except (DataError, ValueError, KeyError, TypeError, AttributeError, OSError):
        return False
