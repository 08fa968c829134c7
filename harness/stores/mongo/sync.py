"""All of a directory store into the database that mirrors it, and what was declared invalid there back.

Compares before it writes: what is in the database already costs a look at its directory. Any number of
processes may do this at the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pymongo.database import Database

from harness.errors import DataError
from harness.stores.directory.reading import Damaged
from harness.stores.directory.run_directory import COMPLETION, INVALID, TRIAL
from harness.stores.directory.store import DirectoryStore
from harness.stores.mongo.connection import translated
from harness.stores.mongo.fetching import add
from harness.stores.mongo.projection import project
from harness.stores.mongo.snapshot import COMPLETE, WEIGHTS_MAX, State, additions, look
from harness.stores.mongo.store import MongoStore

Document = dict[str, Any]

BATCH = 1000


@dataclass
class Synced:
    """What was done."""

    runs: int = 0
    """How many were looked at."""
    projected: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    """Why, by run."""


def sync(
    store: DirectoryStore,
    database: Database[Document],
    *,
    weights_max: int = WEIGHTS_MAX,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Synced:
    """Project every run that the database lacks or has older; what fails is told, and does not stop the others.

    Raises `UserError` when the database refuses, `Unreachable` when it does not answer: what was projected is.
    """
    found = _mirrored(database)
    done = Synced()
    behind = []
    for name in sorted(store.ids()):
        done.runs += 1
        try:
            mirrored = found.get(name)
            if mirrored and INVALID in mirrored.added and not (store.path / name / INVALID).exists():
                _pull_mark(store, database, name)
            if _is_behind(mirrored, store.path / name):
                behind.append(name)
        except DataError as error:
            done.failed[name] = str(error)
    # The oldest first: the database numbers runs as they come, and tools show the highest number on top.
    for number, name in enumerate(sorted(behind, key=lambda name: _began(store.path / name)), 1):
        try:
            project(store.path / name, database, weights_max)
            done.projected += 1
        except DataError as error:
            done.failed[name] = str(error)
        report(number, len(behind))
    return done


def unsynced(store: DirectoryStore, database: Database[Document]) -> list[str]:
    """The runs of the directory that the database lacks, or has older; those that cannot be read are left out."""
    found = _mirrored(database)
    behind = []
    for name in sorted(store.ids()):
        try:
            if _is_behind(found.get(name), store.path / name):
                behind.append(name)
        except Damaged:
            continue
    return behind


def _mirrored(database: Database[Document]) -> dict[str, State]:
    """How new each run of the database is."""
    fields = {"_id": 0, "harness.run_id": 1, "harness.revision": 1, "harness.added": 1}
    with translated():
        found = database["runs"].find({"harness.revision": {"$gt": 0}}, fields, batch_size=BATCH)
        own = (document["harness"] for document in found)
        return {one["run_id"]: State(one["revision"], tuple(one.get("added", ()))) for one in own}


def _is_behind(mirrored: State | None, path: Path) -> bool:
    """Of a run that was complete when it was mirrored only what was added since can be new."""
    if mirrored is not None and mirrored.phase == COMPLETE:
        here = additions(path)
        newer = max(here.values(), default=0) > mirrored.newest and (path / COMPLETION).exists()
        return newer or not here.keys() <= set(mirrored.added)
    return mirrored is None or mirrored.revision < look(path).revision


def _began(path: Path) -> float:
    try:
        return (path / TRIAL).stat().st_mtime
    except OSError:
        return 0.0


def _pull_mark(store: DirectoryStore, database: Database[Document], name: str) -> None:
    mirror = MongoStore(database)
    add(mirror, name, store.path / name, mirror.entries(name, (INVALID,)))
