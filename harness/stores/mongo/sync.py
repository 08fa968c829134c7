"""Mirrors a whole directory store into its database, references included, and copies invalid marks back.

Compares before it writes: a run that is already in the database costs only a look at its directory. Any number
of processes may do this at the same time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pymongo.database import Database

from harness.documents import parsed, problem
from harness.errors import DataError
from harness.schema import NOBODY, MirroredState, Naming, Projected, Summary
from harness.stores.directory.reading import Damaged
from harness.stores.directory.run_directory import COMPLETION, INVALID, TRIAL
from harness.stores.directory.store import DirectoryStore
from harness.stores.mongo import listing
from harness.stores.mongo.connection import translated
from harness.stores.mongo.fetching import add
from harness.stores.mongo.projection import project, write_final_values
from harness.stores.mongo.sacred_document import fitting
from harness.stores.mongo.seal import is_sealed
from harness.stores.mongo.snapshot import COMPLETE, WEIGHTS_MAX, State, additions, look
from harness.stores.mongo.store import MongoStore, whole
from harness.stores.store import same_reference

Document = dict[str, Any]

BATCH = 1000

_LISTED = dict.fromkeys(("experiment", "meta", "config", "info", "omniboard", "harness.version"), 1)
_LISTED |= {f"harness.{key}": 1 for key in Projected.__annotations__}
_STATE = {f"harness.{name}": 1 for name in ("run_id", "revision", "added")}


@dataclass
class Synced:
    """The outcome of a sync."""

    runs: int = 0
    """How many were examined."""
    projected: int = 0
    listed: int = 0
    """How many other lists show differently."""
    references: int = 0
    """How many references were copied."""
    failed: dict[str, str] = field(default_factory=dict)
    """Reasons by run, or by reference."""


def sync(
    store: DirectoryStore,
    database: Database[Document],
    *,
    weights_max: int = WEIGHTS_MAX,
    report: Callable[[int, int], None] = lambda done, total: None,
    names: Mapping[str, Naming] = MappingProxyType({}),
) -> Synced:
    """Project every run that the database lacks or has older. A failure is reported and does not stop the others.

    `names` is what studies call runs, by run; lists in other tools show these runs as `listing` says, older ones, too.
    Raises `UserError` if the database refuses, `Unreachable` if it does not answer; runs projected before stay.
    """
    here = sorted(store.ids())
    found = _mirrored(database, here)
    done = Synced(len(here))
    behind = []
    for name in here:
        try:
            mirrored = found.get(name)
            if mirrored and INVALID in mirrored.added and not (store.path / name / INVALID).exists():
                _pull_mark(store, database, name)
            if _is_behind(mirrored, store.path / name):
                behind.append(name)
        except DataError as error:
            done.failed[name] = str(error)
    # The oldest first: the database numbers runs in order of arrival, and tools show the highest number on top.
    for number, name in enumerate(sorted(behind, key=lambda name: _began(store.path / name)), 1):
        try:
            project(store.path / name, database, weights_max, naming=names.get(name, NOBODY))
            done.projected += 1
        except DataError as error:
            done.failed[name] = str(error)
        report(number, len(behind))
    _seal_older(MongoStore(database))
    done.listed = _list_again(database, names)
    done.references = _copy_references(store, MongoStore(database), done.failed)
    return done


def _list_again(database: Database[Document], names: Mapping[str, Naming]) -> int:
    """Let lists show these runs as `listing` says; returns how many changed. Older versions wrote less.

    A run that has a name keeps it, and studies that are known to ask for it stay known.
    """
    behind: dict[str, Naming] = {}
    with translated():
        where = {"harness.run_id": {"$in": list(names)}, "harness.revision": {"$gt": 0}}
        for one in database["runs"].find(where, {"harness.run_id": 1, "harness.shown": 1}, batch_size=BATCH):
            own: dict[str, Any] = one.get("harness") or {}
            known, run_id = own.get("shown"), str(own.get("run_id"))
            if run_id not in names:  # a damaged reply
                continue
            wanted = listing.merged(listing.read_shown(known), names[run_id])
            if known != listing.shown(wanted):
                behind[run_id] = wanted
        return sum(_list_run(database, run_id, naming) for run_id, naming in behind.items())


def _list_run(database: Database[Document], run_id: str, naming: Naming) -> bool:
    """One of them. False if it is damaged, or was changed meanwhile: then its entry stays as it is."""
    found = database["runs"].find_one({"harness.run_id": run_id}, _LISTED)
    own: Any = found.get("harness") if found else None
    if found is None or problem(Projected, own) is not None or not is_sealed(own):
        return False
    try:
        summary = parsed(own["summary"], Summary)
    except DataError:
        return False
    change = {key: fitting(value) for key, value in listing.listed(found, summary, naming).items()}
    final = write_final_values(database, found["_id"], summary, naming)
    known = {one["id"] for one in final}
    curves = listing.mapping(found.get("info")).get("metrics") or []
    change["info"]["metrics"] = [one for one in curves if listing.mapping(one).get("id") not in known] + final
    change |= {"harness.shown": listing.shown(naming), "harness.version": whole(own.get("version")) + 1}
    update = listing.tagging(found.get("omniboard"), listing.tags(summary, naming))
    update["$set"] = change | update.get("$set", {})
    where = {"_id": found["_id"], "harness.version": own.get("version")}
    return database["runs"].update_one(where, update).matched_count == 1


_OLD_CODE = r'"versions": \{[^}]*"[0-9a-f]{16}"'
"""In a `cell.json`, a component of the user's own whose version is the hash of its file's text."""


def _seal_older(mirror: MongoStore) -> None:
    """Give the runs of older versions the checksums of their summaries, after a comparison with their files.

    So do summaries get the code of users' components that older versions left out.
    """
    with translated():
        uncoded = {"harness.summary": {"$not": {"$regex": '"code": '}}, "harness.documents.text": {"$regex": _OLD_CODE}}
        where = {"harness.revision": {"$gt": 0}, "$or": [{"harness.seal": None}, uncoded]}
        found = mirror.database["runs"].find(where, {"_id": 0, **_STATE}, batch_size=BATCH)
        own: Iterator[Any] = (document.get("harness") for document in found)
        names = [one["run_id"] for one in own if problem(MirroredState, one) is None]
    for name in names:
        with contextlib.suppress(DataError):
            if mirror.wrong_summary(name) is None:
                mirror.summarise_again(name)


def _copy_references(store: DirectoryStore, mirror: MongoStore, failed: dict[str, str]) -> int:
    """Copy the references that the database lacks; returns how many. Reasons why others were not go into `failed`."""
    here, damaged = store.references()
    failed |= {one.place: f"{one.reason}; `harness run` makes it again, unless it was imported" for one in damaged}
    there, _ = mirror.references() if here else ({}, [])
    other = {key for key in here.keys() & there.keys() if not same_reference(here[key], there[key])}
    failed |= {f"reference {key}": "the database holds another result of it" for key in sorted(other)}
    return len(mirror.add_references({key: document for key, document in here.items() if key not in other}))


def unsynced(store: DirectoryStore, database: Database[Document]) -> list[str]:
    """The runs of the directory that the database lacks, or has older; those that cannot be read are left out."""
    here = sorted(store.ids())
    found = _mirrored(database, here)
    behind = []
    for name in here:
        try:
            if _is_behind(found.get(name), store.path / name):
                behind.append(name)
        except Damaged:
            continue
    return behind


def _mirrored(database: Database[Document], names: Sequence[str]) -> dict[str, State]:
    """How new those of the named runs are that the database has. A shared one may have many more."""
    with translated():
        usable = [one for one in _states(database, names) if problem(MirroredState, one) is None]
    return {one["run_id"]: State(one["revision"], tuple(one.get("added", ()))) for one in usable}


def _states(database: Database[Document], names: Sequence[str]) -> Iterator[Any]:
    for start in range(0, len(names), BATCH):
        where = {"harness.run_id": {"$in": names[start : start + BATCH]}, "harness.revision": {"$gt": 0}}
        for document in database["runs"].find(where, {"_id": 0, **_STATE}, batch_size=BATCH):
            yield document.get("harness")


def _is_behind(mirrored: State | None, path: Path) -> bool:
    """Whether the mirror is older. If it has the complete run, only files added since can be newer."""
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
