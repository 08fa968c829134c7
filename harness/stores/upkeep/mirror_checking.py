"""Compares a directory of runs with the database that mirrors it, file by file and point by point.

The directory is the source of truth: every difference is repaired by projecting the run again. A database may
also hold other runs, and rankings that were made elsewhere; neither is a difference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import bson
from pymongo.database import Database

from harness.errors import DataError, UserError
from harness.files import sha256
from harness.stores.directory.reading import Damaged, is_damaged_beside, read_small
from harness.stores.directory.run_directory import ABSENT, COMPLETION, WEIGHTS
from harness.stores.directory.store import DirectoryStore
from harness.stores.mongo.connection import translated
from harness.stores.mongo.projection import project
from harness.stores.mongo.sacred_document import metric_document
from harness.stores.mongo.snapshot import WEIGHTS_MAX, take
from harness.stores.mongo.store import MongoStore
from harness.stores.mongo.sync import unsynced
from harness.stores.store import same_reference
from harness.stores.stored import Status, StoredRun
from harness.stores.upkeep.checking import Finding, Progress, unusable

Document = dict[str, Any]

NAMED = 3
"""Maximum number of differences named per run."""


def check_mirror(
    store: DirectoryStore,
    database: Database[Document],
    progress: Progress | None = None,
    weights_max: int = WEIGHTS_MAX,
) -> Iterator[Finding]:
    """The differences between the directory's runs and their mirror in the database.

    A repair does not mirror weights of more than `weights_max` bytes.
    Runs that are damaged here cannot be compared, and running ones are never quite equal: both are skipped.
    """
    mirror = MongoStore(database)
    runs = [run for run in store.load(None, []) if run.status is not Status.RUNNING]
    behind, there = set(unsynced(store, database)), set(mirror.ids())
    for number, run in enumerate(runs):
        place, again = f"{mirror.name}: {run.id}", partial(_project, store.path_of(run), database, weights_max)
        if run.id not in there:
            yield Finding("mirror", place, "is not in the database", again)
        elif run.id in behind:
            yield Finding("mirror", place, "is older in the database than here", again)
        elif found := [*_wrong_summary(mirror, run), *_differences(store, mirror, run)]:
            rest = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
            yield Finding("mirror", place, "; ".join(found[:NAMED]) + rest, partial(again, again=True))
        if progress:
            progress(number + 1, len(runs))
    yield from unusable(mirror, {run.id for run in runs})
    yield from _orphans(mirror)
    yield from _references(store, mirror)


def _references(store: DirectoryStore, mirror: MongoStore) -> Iterator[Finding]:
    """References that the database lacks, or has with another result."""
    here, there = store.references()[0], mirror.references()[0]
    for key in sorted(key for key, document in here.items() if not same_reference(there.get(key, {}), document)):

        def copied(key: str = key) -> str | None:
            mirror.remember(key, here[key])
            return "copied" if mirror.recall(key) == here[key] else None

        reason = "has another result than here" if key in there else "is not in the database"
        yield Finding("mirror", f"{mirror.name}: reference {key}", reason, copied)


def _project(path: Path, database: Database[Document], weights_max: int, again: bool = False) -> str | None:
    try:
        project(path, database, weights_max, again=again)
    except UserError:  # the directory is damaged
        return None
    return "projected again"


def _wrong_summary(mirror: MongoStore, run: StoredRun) -> Iterator[str]:
    """What the summary in the database says that neither the files there nor the directory say."""
    if (wrong := mirror.wrong_summary(run.id)) is not None:
        yield wrong


def _differences(store: DirectoryStore, mirror: MongoStore, run: StoredRun) -> Iterator[str]:
    """The differences that the run's revision does not show."""
    folder = store.path_of(run)
    recorded = read_small(folder / COMPLETION)["files"] if run.status is Status.DONE else {}
    try:
        mirrored = mirror.files(run)
    except DataError as error:
        yield str(error)
        return
    for name in store.files(run):
        if name not in mirrored:
            # Weights may be too large; what is damaged here is not copied.
            if name not in (WEIGHTS, ABSENT) and not is_damaged_beside(folder, name, recorded):
                yield f"{name} is missing"
            continue
        try:
            content = mirror.read(run, name)
        except DataError as error:
            yield str(error).removeprefix(f"{mirror.name}/{run.id}/")
            continue
        try:
            here = sha256(folder / name)
        except OSError as error:
            yield f"{name} cannot be read in the directory: {error.strerror or error}"
            continue
        # Damage in the directory is not a difference of the mirror.
        if hashlib.sha256(content).hexdigest() != here == recorded.get(name, here):
            yield f"{name} has different content"
    yield from _curves(folder, mirror, run)


def _curves(folder: Path, mirror: MongoStore, run: StoredRun) -> Iterator[str]:
    """The differences in the points as other tools read them."""
    try:
        curves = take(folder).metrics
    except Damaged:
        return
    # As the database returns it: its times have no microseconds.
    expected = {name: bson.decode(bson.encode(metric_document(one))) for name, one in curves.items()}
    with translated():
        found = {str(one.get("name")): one for one in mirror.database["metrics"].find({"harness": run.id})}
    for name in sorted(expected.keys() | found.keys()):
        if name not in expected or name not in found:
            yield f"metric {name} is {'missing' if name in expected else 'not part of this run'}"
        elif any(found[name].get(key) != value for key, value in expected[name].items()):
            yield f"metric {name} has different points"


def _orphans(mirror: MongoStore) -> Iterator[Finding]:
    """Curves and files of runs that have no document, which was removed by hand."""
    runs = mirror.database["runs"]
    with translated():
        found = (one.get("harness") for one in runs.find({"harness": {"$exists": True}}, {"harness.run_id": 1}))
        known = {one["run_id"] for one in found if isinstance(one, dict) and isinstance(one.get("run_id"), str)}
        owners = {
            "metrics": mirror.database["metrics"].distinct("harness", {"harness": {"$exists": True}}),
            "files": mirror.database["fs.files"].distinct("metadata.run_id", {"metadata.run_id": {"$exists": True}}),
        }
    for what, names in owners.items():
        for name in sorted({str(name) for name in names} - known):
            reason = f"the database has {what} of it, but not the run itself"
            yield Finding("mirror", f"{mirror.name}: {name}", reason)
