"""The runs that a database mirrors, read like any store. Imports no torch.

Lists need only a run's summary; its files are read one by one, each with the checksum that it was stored with.
Documents that others made with Sacred are skipped.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from pymongo.database import Database

from harness.documents import utc_text
from harness.errors import DataError, HarnessError, UnknownName, UserError
from harness.stores.directory.curves import by_metric, from_columns
from harness.stores.directory.run_directory import COMPLETION, INVALID, METRICS, POINTS
from harness.stores.mongo import gridfs
from harness.stores.mongo.connection import address, translated
from harness.stores.mongo.snapshot import phase_of
from harness.stores.schema import SCHEMA, Summary
from harness.stores.shapes import problem
from harness.stores.store import REFERENCE, Metrics, Store
from harness.stores.stored import Problem, StoredRun, stored_run

Document = dict[str, Any]

REFERENCES = "harness_references"
BATCH = 1000

_SUMMARY = {f"harness.{name}": 1 for name in ("schema", "run_id", "revision", "summary", "invalid", "problems")}
_PROJECTED = {"harness.revision": {"$gt": 0}}
"""A document with revision 0 was made, but has no content yet."""


class MongoStore(Store):
    """The runs of a database. Every method raises `Unreachable` when it does not answer."""

    def __init__(self, database: Database[Document]) -> None:
        self.database = database
        self.name = address(database)
        self.problems = []

    def ids(self) -> list[str]:
        with translated():
            found = self.database["runs"].find(_PROJECTED, {"_id": 0, "harness.run_id": 1}, batch_size=BATCH)
            return [str(document["harness"]["run_id"]) for document in found]

    def load(self, trials: Collection[str] | None, problems: list[Problem]) -> list[StoredRun]:
        where = _PROJECTED if trials is None else {"harness.cell16": {"$in": sorted(trials)}, **_PROJECTED}
        runs: list[StoredRun] = []
        with translated():
            for document in self.database["runs"].find(where, {"_id": 0, **_SUMMARY}, batch_size=BATCH):
                own = document["harness"]
                place = f"{self.name}/{own.get('run_id')}"
                try:
                    runs.append(_run(own))
                    problems += [Problem(f"{place}/{inside}", reason) for inside, reason in own["problems"]]
                except DataError as error:
                    problems.append(Problem(place, str(error)))
                except (KeyError, TypeError, ValueError, AttributeError) as error:
                    reason = f"not a valid run ({type(error).__name__}: {error})"
                    problems.append(Problem(place, reason))
        return runs

    def files(self, run: StoredRun) -> dict[str, int]:
        with translated():
            entries = by_name(self._own(run.id))
        return {name: entry["size"] for name, entry in sorted(entries.items()) if is_there(entry)}

    def read(self, run: StoredRun, name: str) -> bytes:
        with translated():
            entries = self.entries(run.id, (name,))
            return self._content(run.id, name, entries)

    def metrics(self, run: StoredRun) -> Metrics:
        """The points as the run itself wrote them; long curves of a run under way are thinned evenly."""
        with translated():
            entries = self.entries(run.id, (METRICS, POINTS, COMPLETION))
            try:
                if METRICS in entries:
                    found = from_columns(json.loads(self._content(run.id, METRICS, entries)))
                elif POINTS in entries:
                    lines = self._content(run.id, POINTS, entries).decode().split("\n")[:-1]
                    found = by_metric(json.loads(line) for line in lines)
                else:
                    found = self._curves(run.id)
                if COMPLETION in entries:
                    expected = json.loads(self._content(run.id, COMPLETION, entries))["metrics"]
                    counts = {name: len(points) for name, points in found.items()}
                    if counts != expected:
                        raise DataError(f"{self.name}/{run.id}: has {counts} points instead of {expected}")
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise DataError(f"{self.name}/{run.id}: its metrics are damaged: {error}") from error
        return found

    def recall(self, key: str) -> dict[str, Any] | None:
        with translated():
            found = self.database[REFERENCES].find_one({"_id": key})
        return None if found is None else _remembered(found)

    def forget(self, key: str) -> None:
        with translated():
            self.database[REFERENCES].delete_one({"_id": key})

    def remembered(self) -> dict[str, dict[str, Any] | None]:
        with translated():
            found = list(self.database[REFERENCES].find())
        return {str(one["_id"]): _remembered(one) for one in found if REFERENCE.fullmatch(str(one["_id"]))}

    def remember(self, key: str, document: Mapping[str, Any]) -> None:
        with contextlib.suppress(HarnessError), translated():
            text = json.dumps(dict(document))
            self.database[REFERENCES].update_one({"_id": key}, {"$set": {"text": text}}, upsert=True)

    def fetch(self, run_id: str, folder: Path) -> Path:
        """Make the run's directory in that folder, byte for byte as it was mirrored, and return its path.

        It is made completely or not at all. Weights that are not in the database are declared absent. An
        existing directory stays, and gets what only the database has: rankings and marks, and those files of a
        complete run that are damaged or were left out.
        Raises `UnknownName`, `UserError` if the folder is not writable, and `DataError` that names the damaged
        or missing file.
        """
        from harness.stores.mongo.fetching import bring

        with translated():
            own = self._own(run_id)
            try:
                return bring(self, run_id, folder, by_name(own), phase_of(own["revision"]))
            except OSError as error:
                raise UserError(f"cannot write to {folder}: {error.strerror or error}") from error

    def invalidate(self, run_id: str, reason: str) -> None:
        """Record why a run must not be counted. The run itself stays unchanged."""
        document = {"schema": SCHEMA, "reason": reason, "time": utc_text()}
        text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
        content = text.encode()
        entry = {"name": INVALID, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        entry |= {"modified": int(datetime.now().timestamp() * 1e6), "text": text}
        while True:
            with translated():
                own = self._own(run_id)
                version = own["version"]
                others = [one for one in own["documents"] if one["name"] != INVALID]
                change = {
                    "invalid": reason,
                    "version": version + 1,
                    "documents": [*others, entry],
                    "added": sorted({*own["added"], INVALID}),
                }
                where = {"harness.run_id": run_id, "harness.version": version}
                fields = {f"harness.{name}": value for name, value in change.items()}
                if self.database["runs"].update_one(where, {"$set": fields}).matched_count:
                    return

    def copy(self, run_id: str, entry: Mapping[str, Any], target: IO[bytes]) -> None:
        """Write one file of a run into `target`. Raises `DataError` if it is missing or damaged."""
        place = f"{self.name}/{run_id}/{entry['name']}"
        if not is_there(entry):
            raise DataError(f"{place}: is not in the database" + (": it is too large" if "size" in entry else ""))
        try:
            if "text" not in entry:
                gridfs.get(self.database, entry["id"], target, entry["sha256"])
                return
            content = entry["text"].encode()
            if hashlib.sha256(content).hexdigest() != entry["sha256"]:
                raise DataError("has another checksum than it was stored with")
            target.write(content)
        except (DataError, *gridfs.DAMAGE) as error:
            raise DataError(f"{place}: {error}") from None

    def entries(self, run_id: str, names: Iterable[str]) -> dict[str, Document]:
        """What the database knows about the run's files with these names; see `copy`."""
        wanted = list(names)
        chosen = {
            part: {"$filter": {"input": f"$harness.{part}", "cond": {"$in": ["$$this.name", wanted]}}}
            for part in ("documents", "files")
        }
        stages: list[Document] = [{"$match": {"harness.run_id": run_id, **_PROJECTED}}, {"$project": chosen}]
        with translated():
            for document in self.database["runs"].aggregate(stages):
                return by_name(document)
        raise UnknownName(f"{self.name} has no run {run_id}")

    def _own(self, run_id: str) -> Document:
        found = self.database["runs"].find_one({"harness.run_id": run_id, **_PROJECTED}, {"harness": 1})
        if found is None:
            raise UnknownName(f"{self.name} has no run {run_id}")
        own: Document = found["harness"]
        _check_schema(own)
        return own

    def _content(self, run_id: str, name: str, entries: Mapping[str, Document]) -> bytes:
        target = io.BytesIO()
        self.copy(run_id, entries.get(name, {"name": name}), target)
        return target.getvalue()

    def _curves(self, run_id: str) -> Metrics:
        found = self.database["metrics"].find({"harness": run_id}).sort("name")
        texts = ({**one, "timestamps": [time.isoformat() for time in one["timestamps"]]} for one in found)
        return from_columns({one["name"]: one for one in texts})


def _run(own: Mapping[str, Any]) -> StoredRun:
    _check_schema(own)
    summary = json.loads(own["summary"])
    if summary["id"] != own["run_id"]:
        raise DataError(f"is about run {summary['id']}")
    if (wrong := problem(Summary, summary)) is not None:
        raise DataError(f"its summary: {wrong}")
    return stored_run(summary | {"invalid": own["invalid"]})


def _check_schema(own: Mapping[str, Any]) -> None:
    version = own.get("schema")
    if not isinstance(version, int):
        raise DataError("does not say its schema")
    if version > SCHEMA:
        raise DataError(f"has schema {version}; this version of the harness reads up to {SCHEMA}: update it")


def by_name(own: Mapping[str, Any]) -> dict[str, Document]:
    """The entries of the run's files in a document, by name."""
    return {entry["name"]: entry for part in ("documents", "files") for entry in own.get(part) or ()}


def is_there(entry: Mapping[str, Any]) -> bool:
    """Whether the database has the file itself, not only its entry."""
    return "text" in entry or entry.get("id") is not None


def _remembered(found: Document) -> dict[str, Any] | None:
    """The document that was remembered; None if it is unreadable."""
    with contextlib.suppress(KeyError, TypeError, ValueError):
        document = json.loads(found["text"])
        return document if isinstance(document, dict) else None
    return None
