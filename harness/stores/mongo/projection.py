"""Projects a run directory into MongoDB, in Sacred's schema. Idempotent.

A run is one document of `runs`, with its curves in `metrics` and its larger files in GridFS. What the harness
itself reads is kept exactly in the sub-document `harness`: the run's summary, the text of small files, and
where the others are. Ids are derived from run, name and content. The document is written last, and only over
the version that was read: any process may project, from any machine, any number of times, and be killed.

Copies of one complete run may have had different rankings added, on different machines: the mirror has them all.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

from bson import Decimal128, ObjectId
from pymongo import DESCENDING, ReadPreference, UpdateOne
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from harness.documents import problem
from harness.errors import DataError
from harness.files import open_regular, read_regular
from harness.schema import NOBODY, SCHEMA, MirroredDocument, Naming
from harness.stores.directory.reading import Damaged, is_beside
from harness.stores.directory.run_directory import INVALID, SOURCES, TRIAL, WEIGHTS
from harness.stores.mongo import gridfs, listing
from harness.stores.mongo.connection import translated
from harness.stores.mongo.indexes import prepare
from harness.stores.mongo.sacred_document import asked, final_documents, metric_document, sacred_document
from harness.stores.mongo.seal import from_files, seal, wrong_document
from harness.stores.mongo.snapshot import (
    COMPLETE,
    OPEN,
    WEIGHTS_MAX,
    Piece,
    Snapshot,
    explained,
    is_addition,
    phase_of,
    revision,
    take,
)

__all__ = ["project", "revision"]

Document = dict[str, Any]

ATTEMPTS = 20
"""Maximum number of tries if the directory or the document changes during a projection."""

LONGEST_SUMMARY = 4 << 20

SMALL_NUMBER, LARGEST_NUMBER = 1 << 31, 1 << 53
"""Numbers of runs follow those of other users' documents below the first, and our own below the second, which is the
largest that JavaScript, and so Omniboard, can hold exactly."""

MISSING = object()
"""Stands for a version that a document does not have."""


def project(
    path: Path,
    database: Database[Document],
    weights_max: int = WEIGHTS_MAX,
    *,
    again: bool = False,
    naming: Naming = NOBODY,
) -> int:
    """Bring the database up to date with a run directory, at any stage; returns the run's number there.

    Newer data in the database is left alone. With `again`, everything is written even if it seems to be there. `naming`
    is what studies call the run besides what is known in both places.
    Raises `DataError` for a directory that is damaged or cannot be stored, and what `translated` raises.
    """
    # Overrides the address: what is read here is written over, so it must be the newest version.
    database = database.with_options(read_preference=ReadPreference.PRIMARY)
    with translated():
        prepare(database)
        for _ in range(ATTEMPTS):
            snapshot = take(path)
            try:
                number = _project(snapshot, database, weights_max, again, naming)
            except gridfs.Changed as error:
                if snapshot.state.phase == COMPLETE and not is_addition(str(error)):
                    reason = "has another checksum than the completion record says"
                    raise Damaged(path / str(error), reason) from None
                continue
            if number is not None:
                return number
    raise DataError(f"{path}: changes faster than it can be mirrored")


@dataclass(frozen=True)
class _Entries:
    """The files of a run, as its document has them."""

    documents: dict[str, Document]
    files: dict[str, Document]

    @property
    def names(self) -> set[str]:
        """Names of all files that are really stored."""
        return {*self.documents, *(name for name, entry in self.files.items() if entry["id"] is not None)}

    @property
    def ids(self) -> set[ObjectId]:
        """Ids of the files in GridFS that belong to this run alone."""
        own = (entry["id"] for name, entry in self.files.items() if not name.startswith(f"{SOURCES}/"))
        return {identifier for identifier in own if identifier is not None}

    def plus(self, other: _Entries, names: set[str]) -> _Entries:
        documents = {name: entry for name, entry in other.documents.items() if name in names}
        files = {name: entry for name, entry in other.files.items() if name in names}
        mine = {name: entry for name, entry in self.files.items() if name not in names}
        return _Entries(dict(sorted({**self.documents, **documents}.items())), dict(sorted({**mine, **files}.items())))


def _project(
    snapshot: Snapshot, database: Database[Document], weights_max: int, again: bool, naming: Naming
) -> int | None:
    """One attempt; None if the document changed meanwhile."""
    number, known, version, omniboard = _ensure(snapshot, database["runs"])
    there = _Entries(*({entry["name"]: entry for entry in known[part]} for part in ("documents", "files")))
    ours = _entries(snapshot, weights_max)
    damaged = known["damage"] is not None
    newer = snapshot.revision > known["revision"] or ((again or damaged) and snapshot.revision == known["revision"])
    complete = COMPLETE == snapshot.state.phase == phase_of(known["revision"])
    if newer:
        further = {name for name in there.names - ours.names if _outlives(name, complete)}
        merged = ours.plus(there, further)
    else:
        further = {name for name in ours.names - there.names if _outlives(name, complete)}
        if not further and not damaged:
            return number
        merged = there.plus(ours, further)
    _upload(snapshot, database, {name: merged.files[name] for name in merged.files.keys() & ours.files.keys()}, again)
    change: Document = {}
    update: Document = {}
    fields = {"artifacts": _artifacts(merged), "experiment.sources": _sources(merged)}
    if newer:
        naming = listing.merged(asked(snapshot), listing.read_shown(known.get("shown")), naming)
        change = sacred_document(snapshot, naming)
        final = write_final_values(database, number, snapshot.summary, naming)
        change["info"]["metrics"] = _write_metrics(snapshot, database, number, again) + final
        change["experiment"]["sources"] = fields.pop("experiment.sources")
        change["harness.shown"] = listing.shown(naming)
        update = listing.tagging(omniboard, listing.tags(snapshot.summary, naming))
    change |= _own_fields(snapshot, database, known, merged, newer)
    update["$set"] = change | fields | update.get("$set", {})
    if not _update(database["runs"], number, version, update, snapshot.state.phase != OPEN):
        _take_back(snapshot, database, ours.ids)
        return None
    gridfs.delete(database, there.ids - merged.ids)
    if newer and snapshot.completion is not None:
        record = snapshot.completion["files"]
        gridfs.sweep(database, snapshot.id, [gridfs.file_id(snapshot.id, name, sum_) for name, sum_ in record.items()])
    return number


def _ensure(snapshot: Snapshot, runs: Collection[Document]) -> tuple[int, Document, Any, Any]:
    """The number of the run's document, which is made if missing, what is usable of `harness` in it, its version, and
    what users of Omniboard wrote.

    Numbers are counted up, since Omniboard needs small ones. If two processes take the same number, the database
    refuses the second. Other users of Sacred choose their own: whatever it is, it does not matter here.
    """
    summary = snapshot.summary
    origin = snapshot.pieces[TRIAL].sha256
    number = 0
    while True:
        found = runs.find_one({"harness.run_id": snapshot.id}, {"harness": 1, "omniboard": 1})
        if found is not None:
            known = _usable(found.get("harness"))
            if known["schema"] > SCHEMA:
                reason = f"has schema {known['schema']} in the database"
                raise DataError(f"{snapshot.id}: {reason}; this version of the harness knows up to {SCHEMA}: update it")
            stored = {entry["sha256"] for entry in known["documents"] if entry["name"] == TRIAL}
            if origin not in (known["origin"], *stored):  # possible with ids of schema 1
                raise DataError(f"{snapshot.id}: the database has another run with that id")
            own = found.get("harness")
            version = own.get("version", MISSING) if isinstance(own, dict) else MISSING
            return found["_id"], known, version, found.get("omniboard")
        number = 1 + max(number, _last_number(runs))
        own = {
            "schema": SCHEMA,
            "run_id": snapshot.id,
            "key": summary["key"],
            "cell16": snapshot.id[:16],
            "attempt": summary["attempt"],
            "preset": summary["preset"],
            "origin": origin,
            "recorded": "open",
            "revision": 0,
            "version": 0,
        }
        try:
            # Our fields first: the harness finds them without reading past those for display.
            runs.insert_one({"_id": number, "harness": own, **sacred_document(snapshot, NOBODY), "artifacts": []})
        except DuplicateKeyError:
            continue
        return number, _usable(own), 0, None


def _last_number(runs: Collection[Document]) -> int:
    """The largest number so far; 0 if there is none. It need not be whole, nor an integer in BSON."""
    ours = {"harness.run_id": {"$type": "string"}}
    where = {
        "_id": {"$type": "number", "$gte": 0, "$lt": LARGEST_NUMBER},
        "$or": [{"_id": {"$lt": SMALL_NUMBER}}, ours],
    }
    last = runs.find_one(where, {"_id": 1}, sort=[("_id", DESCENDING)], hint="_id_")
    value = last["_id"] if last else 0
    return int(value.to_decimal() if isinstance(value, Decimal128) else value)


def _usable(own: Any) -> Document:
    """What is usable of a mirrored run, with defaults for the rest, which the directory has."""
    found = own if isinstance(own, dict) else {}
    kinds = get_type_hints(MirroredDocument)
    sound = {name: value for name, value in found.items() if name in kinds and problem(kinds[name], value) is None}
    defaults = {"schema": SCHEMA, "origin": "", "version": 0, "documents": [], "files": [], "problems": []}
    known: Document = {**defaults, **sound}
    entries = {entry["name"]: entry for part in ("documents", "files") for entry in known[part]}
    known["damage"] = wrong_document(found, entries)
    if known["damage"] is not None:
        known["revision"] = explained(entries)
    return known


def _outlives(name: str, complete: bool) -> bool:
    """Whether a file that only the directory or only the database has belongs to the run in both."""
    return name == INVALID or (complete and (is_addition(name) or name == WEIGHTS or is_beside(name)))


def _entries(snapshot: Snapshot, weights_max: int) -> _Entries:
    documents: dict[str, Document] = {}
    files: dict[str, Document] = {}
    for name, piece in snapshot.pieces.items():
        about = {"name": name, "size": piece.size, "sha256": piece.sha256, "modified": piece.modified}
        if piece.text is not None:
            documents[name] = {**about, "text": piece.text}
        else:
            files[name] = {**about, "id": _identifier(snapshot, piece, weights_max)}
    return _Entries(documents, files)


def _identifier(snapshot: Snapshot, piece: Piece, weights_max: int) -> ObjectId | None:
    if piece.name == WEIGHTS and piece.size > weights_max:
        return None
    if piece.name.startswith(f"{SOURCES}/"):
        return gridfs.source_id(piece.sha256)
    return gridfs.file_id(snapshot.id, piece.name, piece.sha256)


def _upload(snapshot: Snapshot, database: Database[Document], files: Mapping[str, Document], again: bool) -> None:
    wanted = {entry["id"] for entry in files.values() if entry["id"] is not None}
    absent = wanted if again else gridfs.missing(database, wanted)
    for name, entry in files.items():
        piece = snapshot.pieces[name]
        if entry["id"] not in absent or entry["sha256"] != piece.sha256:
            continue
        shared = name.startswith(f"{SOURCES}/")
        about = {"name": name} if shared else {"name": name, "run_id": snapshot.id}
        try:
            with open_regular(snapshot.path / name) as source:
                gridfs.put(database, entry["id"], source, piece.size, piece.sha256, name, about)
        except OSError as error:
            raise Damaged(snapshot.path / name, f"cannot be read: {error.strerror or error}") from error


def _write_metrics(snapshot: Snapshot, database: Database[Document], number: int, again: bool) -> list[dict[str, str]]:
    """Write the curves, each as far as it goes; returns their entries for the run's document."""
    ours = {"run_id": number, "harness": snapshot.id}
    known = {one["name"]: one["points"] for one in database["metrics"].find(ours, {"name": 1, "points": 1})}
    listed, operations = [], []
    for name, columns in snapshot.metrics.items():
        identifier = gridfs.file_id(snapshot.id, f"metrics/{name}", "")
        listed.append({"name": name, "id": str(identifier)})
        points = len(columns["values"])
        if known.get(name, -1) >= points and not again:
            continue
        # Points are only ever appended: the longer curve is the newer.
        older = {"points": {"$lte" if again else "$lt": points}}
        where = {"_id": identifier, "$or": [older, {"run_id": {"$ne": number}}]}
        operations.append(UpdateOne(where, {"$set": {"name": name, **ours, **metric_document(columns)}}, upsert=True))
    gridfs.write_all(database, "metrics", operations)
    return listed


def write_final_values(
    database: Database[Document], number: int, summary: Mapping[str, Any], naming: Naming
) -> list[dict[str, str]]:
    """Write what a done run ended with as metrics, for lists; returns their entries for the run's document.

    Without `harness`: they are no curves of the run.
    """
    listed, operations = [], []
    for name, document in final_documents(summary, naming).items():
        identifier = gridfs.file_id(summary["id"], f"final/{name}", "")
        listed.append({"name": name, "id": str(identifier)})
        change = {"$set": {"name": name, "run_id": number, **document}}
        operations.append(UpdateOne({"_id": identifier}, change, upsert=True))
    gridfs.write_all(database, "metrics", operations)
    return listed


def _own_fields(
    snapshot: Snapshot, database: Database[Document], known: Document, merged: _Entries, newer: bool
) -> Document:
    """What the harness reads of the run, as single fields: the others stay as they are."""
    entries = {**merged.documents, **merged.files}
    # From the files, and not from the two summaries: one of these may have been changed.
    summary = from_files(entries, partial(_content, snapshot, database, entries))
    problems = [[_place(snapshot, one.place), one.reason] for one in snapshot.problems]
    text = json.dumps(summary)
    if len(text) > LONGEST_SUMMARY:
        raise DataError(f"{snapshot.path}: its summary of {len(text)} bytes is too long for the database")
    fields: Document = {
        "schema": SCHEMA,
        "run_id": snapshot.id,
        "cell16": snapshot.id[:16],
        "origin": snapshot.pieces[TRIAL].sha256,
        "recorded": summary["recorded"],
        "revision": max(snapshot.revision, known["revision"]),
        "version": known["version"] + 1,
        "invalid": summary["invalid"],
        "summary": text,
        "problems": problems if newer else known.get("problems", []),
        "added": [name for name in sorted(merged.names) if is_addition(name)],
        "documents": list(merged.documents.values()),
        "files": list(merged.files.values()),
    }
    fields["seal"] = seal(fields)
    return {f"harness.{name}": value for name, value in fields.items()}


def _content(snapshot: Snapshot, database: Database[Document], entries: Mapping[str, Document], name: str) -> bytes:
    """A file of the run: from the document, the directory, or GridFS. Raises `DataError`."""
    entry = entries.get(name, {})
    if (text := entry.get("text")) is not None:
        content = str(text).encode()
    elif name in snapshot.pieces and snapshot.pieces[name].sha256 == entry.get("sha256"):
        content = read_regular(snapshot.path / name)
    elif entry.get("id") is not None:
        target = io.BytesIO()
        gridfs.get(database, entry["id"], target, entry["sha256"])
        content = target.getvalue()
    else:
        raise DataError(f"{snapshot.path / name}: is neither here nor in the database")
    if hashlib.sha256(content).hexdigest() != entry["sha256"]:
        raise gridfs.Changed(name)
    return content


def _place(snapshot: Snapshot, place: str) -> str:
    """The place of a problem, relative to the run."""
    inside = Path(place)
    return inside.relative_to(snapshot.path).as_posix() if inside.is_relative_to(snapshot.path) else inside.name


def _artifacts(entries: _Entries) -> list[Document]:
    """The artifacts for Omniboard, whose names cannot contain folders."""
    shown = [one for one in entries.files.values() if one["id"] and not one["name"].startswith(f"{SOURCES}/")]
    return [{"name": one["name"].replace("/", "_"), "file_id": one["id"]} for one in shown]


def _sources(entries: _Entries) -> list[list[Any]]:
    prefix = f"{SOURCES}/"
    return [[name.removeprefix(prefix), one["id"]] for name, one in entries.files.items() if name.startswith(prefix)]


def _update(runs: Collection[Document], number: int, version: Any, update: Document, final: bool) -> bool:
    """Replace exactly the version that was read. A final state is not written again, so it waits for the journal."""
    if final:
        concern = runs.write_concern
        runs = runs.with_options(write_concern=type(concern)(**{**concern.document, "j": True}))
    where = {"$exists": False} if version is MISSING else {"$eq": version}
    return runs.update_one({"_id": number, "harness.version": where}, update).matched_count == 1


def _take_back(snapshot: Snapshot, database: Database[Document], ids: set[ObjectId]) -> None:
    """Another process was faster: if the run is complete by now, delete what this older snapshot uploaded."""
    found = database["runs"].find_one({"harness.run_id": snapshot.id}, {"harness.files": 1, "harness.revision": 1})
    own = found.get("harness") or {} if found else {}
    if snapshot.state.phase != COMPLETE == phase_of(own.get("revision", 0)):
        gridfs.delete(database, ids - {entry["id"] for entry in own.get("files", ())})
