"""All of a directory store into the database that mirrors it, and what was declared invalid there back.

Compares before it writes: what is in the database already costs one look at its directory. Any number of
processes may do this at the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pymongo.database import Database

from harness.errors import DataError
from harness.stores.directory import DirectoryStore
from harness.stores.fetching import add
from harness.stores.mirror import WEIGHTS_MAX, project
from harness.stores.mongo import translated
from harness.stores.mongo_store import MongoStore
from harness.stores.reading import Damaged
from harness.stores.run_directory import INVALID
from harness.stores.snapshot import State, look

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
            state = look(store.path / name)
            if name in found and INVALID in found[name].added and INVALID not in state.added:
                _pull_mark(store, database, name)
                state = look(store.path / name)
            if _is_behind(found.get(name), state):
                behind.append(name)
        except DataError as error:
            done.failed[name] = str(error)
    for number, name in enumerate(behind, 1):
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
            if _is_behind(found.get(name), look(store.path / name)):
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


def _is_behind(mirrored: State | None, here: State) -> bool:
    """Copies of a complete run differ in what was added to them, whichever is the newer."""
    if mirrored is None or mirrored.revision < here.revision:
        return True
    return here.phase == mirrored.phase and not set(here.added) <= set(mirrored.added)


def _pull_mark(store: DirectoryStore, database: Database[Document], name: str) -> None:
    mirror = MongoStore(database)
    add(mirror, name, store.path / name, mirror.entries(name, (INVALID,)))
