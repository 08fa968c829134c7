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

import msgspec
from pymongo.database import Database

from harness.documents import check, parsed, problem, utc_text
from harness.errors import DataError, HarnessError, UnknownName, UserError
from harness.schema import SCHEMA, CompletionDocument, Listed, Projected, Summary, Versioned
from harness.stores.directory.curves import by_metric, from_columns, read_line
from harness.stores.directory.run_directory import COMPLETION, INVALID, METRICS, POINTS
from harness.stores.mongo import gridfs
from harness.stores.mongo.connection import address, translated
from harness.stores.mongo.seal import contradiction, from_files, is_sealed, seal, wrong_document
from harness.stores.mongo.snapshot import phase_of
from harness.stores.store import REFERENCE, Metrics, Store
from harness.stores.stored import OPEN, Problem, Status, StoredRun, stored_run

Document = dict[str, Any]

REFERENCES = "harness_references"
BATCH = 1000
VERIFIED = 100
"""Number of runs whose files are read at once."""

_SUMMARY = {f"harness.{name}": 1 for name in ("schema", "revision", *Projected.__annotations__)}
RECORDED = {OPEN, *(status.value for status in Status)} - {Status.RUNNING.value, Status.LOST.value}
"""What a summary may say about a run's end."""

_VERIFIED: dict[tuple[str, str], tuple[str, Document]] = {}
"""By database and run, the summaries without a fitting checksum that this process has compared with their files, and
what those add.
"""

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
            own = (document.get("harness") for document in found)
            return [one["run_id"] for one in own if isinstance(one, dict) and isinstance(one.get("run_id"), str)]

    def load(self, trials: Collection[str] | None, problems: list[Problem]) -> list[StoredRun]:
        where = {"harness": {"$exists": True}} if trials is None else {"harness.cell16": {"$in": sorted(trials)}}
        runs: list[StoredRun] = []
        unsealed: list[tuple[Document, Document]] = []
        with translated():
            for document in self.database["runs"].find(where, _SUMMARY, batch_size=BATCH):
                own: Any = document.get("harness")
                try:
                    if (summary := _summary(own)) is None:
                        continue  # made just now
                    if not is_sealed(own):
                        unsealed.append((own, summary))
                        continue
                    self._add(runs, problems, own, summary)
                except DataError as error:
                    problems.append(Problem(self._place(document), str(error)))
            self._verify(unsealed, runs, problems)
        return runs

    def _add(self, runs: list[StoredRun], problems: list[Problem], own: Document, summary: Document) -> None:
        summary["invalid"] = own["invalid"]
        runs.append(stored_run(summary))
        problems += [Problem(f"{self.name}/{own['run_id']}/{inside}", reason) for inside, reason in own["problems"]]

    def _place(self, document: Document) -> str:
        own = document.get("harness")
        known = own.get("run_id") if isinstance(own, dict) else None
        return f"{self.name}/{known}" if isinstance(known, str) else f"{self.name}: document {document['_id']} of runs"

    def _verify(
        self, unsealed: list[tuple[Document, Document]], runs: list[StoredRun], problems: list[Problem]
    ) -> None:
        """Add runs whose summaries have no checksum, or another: an older version wrote them, or they were changed.

        Their files decide, once per process.
        """
        names = {own["run_id"]: _told(own) for own, _ in unsealed}
        new = [name for name, told in names.items() if _VERIFIED.get((self.name, name), ("",))[0] != told]
        wrong: dict[str, str] = {}
        for start in range(0, len(new), VERIFIED):
            where = {"harness.run_id": {"$in": new[start : start + VERIFIED]}}
            for document in self.database["runs"].find(where, {"harness": 1}):
                own: Any = document.get("harness")
                try:
                    if (summary := _summary(own)) is None:
                        continue
                    made = self._made(own)
                    if (told := contradiction(summary | {"invalid": own["invalid"]}, made)) is not None:
                        raise DataError(f"{told}; `harness store check --fix` makes it again")
                    added = {key: value for key, value in made.items() if key not in summary}
                    _VERIFIED[self.name, own["run_id"]] = (_told(own), added)
                except DataError as error:
                    wrong[str(own.get("run_id") if isinstance(own, dict) else None)] = str(error)
        for own, summary in unsealed:
            known, added = _VERIFIED.get((self.name, own["run_id"]), ("", {}))
            if known == _told(own):
                self._add(runs, problems, own, {**added, **summary})
            else:
                reason = wrong.get(own["run_id"], "changed while it was read")
                problems.append(Problem(f"{self.name}/{own['run_id']}", reason))

    def _made(self, own: Document) -> Document:
        """The summary that the run's files in the database give. Raises `DataError`."""
        entries = by_name(own)
        return from_files(entries, lambda name: self._content(own["run_id"], name, entries))

    def wrong_summary(self, run_id: str) -> str | None:
        """What is wrong with a run's summary, compared with its files in the database; None if nothing is."""
        with translated():
            try:
                own = self._own(run_id)
                summary = _summary(own)
                if summary is None:
                    return None
                made = self._made(own)
                if (wrong := contradiction(summary | {"invalid": own["invalid"]}, made)) is not None:
                    return wrong
                return wrong_document(own, by_name(own))
            except DataError as error:
                return str(error)

    def summarise_again(self, run_id: str) -> None:
        """Write the summary that the run's files give, with its checksum. Raises `DataError` if they do not agree."""
        with translated():
            own = self._own(run_id)
            made = self._made(own)
            fields = {**own, "summary": json.dumps(made), "invalid": made["invalid"], "recorded": made["recorded"]}
            fields["problems"] = own["problems"] if problem(list[tuple[str, str]], own.get("problems")) is None else []
            change = {name: fields[name] for name in ("summary", "invalid", "recorded", "problems")}
            change |= {"seal": seal(fields), "cell16": run_id[:16], "version": whole(own.get("version")) + 1}
            where = {"harness.run_id": run_id, "harness.version": {"$eq": own.get("version")}}
            self.database["runs"].update_one(where, {"$set": {f"harness.{key}": one for key, one in change.items()}})

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
                    found = from_columns(parsed(self._content(run.id, METRICS, entries)))
                elif POINTS in entries:
                    lines = self._content(run.id, POINTS, entries).decode().split("\n")[:-1]
                    found = by_metric(read_line(line) for line in lines)
                else:
                    found = self._curves(run.id)
                if COMPLETION in entries:
                    expected = parsed(self._content(run.id, COMPLETION, entries), CompletionDocument)["metrics"]
                    counts = {name: len(points) for name, points in found.items()}
                    if counts != expected:
                        raise DataError(f"{self.name}/{run.id}: has {counts} points instead of {expected}")
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise DataError(f"{self.name}/{run.id}: its metrics are damaged: {error}") from error
            except DataError as error:
                place = f"{self.name}/{run.id}"
                raise error if place in str(error) else DataError(f"{place}: its metrics: {error}") from error
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
                by_name(own)
                version = own["version"]
                others = [one for one in own["documents"] if one["name"] != INVALID]
                change = {
                    "invalid": reason,
                    "version": version + 1,
                    "documents": [*others, entry],
                    "added": sorted({*own["added"], INVALID}),
                }
                if is_sealed(own):  # a summary that may have been changed gets no checksum
                    change["seal"] = seal({**own, **change})
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
        own: Document = found.get("harness") or {}  # a reply may be damaged, whatever was asked for
        check(Versioned, own)
        return own

    def _content(self, run_id: str, name: str, entries: Mapping[str, Document]) -> bytes:
        target = io.BytesIO()
        self.copy(run_id, entries.get(name, {"name": name}), target)
        return target.getvalue()

    def _curves(self, run_id: str) -> Metrics:
        found = self.database["metrics"].find({"harness": run_id}).sort("name")
        texts = ({**one, "timestamps": [time.isoformat() for time in one["timestamps"]]} for one in found)
        return from_columns({one["name"]: one for one in texts})


def _summary(own: Any) -> Document | None:
    """The summary of a mirrored run, without the mark; None if it has none yet. Raises `DataError`."""
    if not isinstance(own, dict):
        raise DataError("holds no run of the harness")
    revision = own.get("revision")
    if revision == 0 and "summary" not in own:
        return None
    check(Versioned, own)
    if not isinstance(revision, int) or revision <= 0:
        raise DataError(f"its revision is {revision!r}, not a number above 0")
    check(Projected, own)
    try:
        # Unlike `json`, this decoder shares the texts of keys between runs, which takes a sixth less memory.
        summary: Document = msgspec.json.decode(own["summary"])
        check(Summary, summary)
    except DataError as error:
        raise DataError(f"its summary: {error}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"its summary: is not whole JSON: {error}") from error
    if summary["id"] != own["run_id"] or own["cell16"] != own["run_id"][:16]:
        raise DataError(f"is about run {summary['id']}")
    if summary["recorded"] not in RECORDED:
        raise DataError(f"its summary: recorded is {summary['recorded']!r}")
    return summary


def _told(own: Document) -> str:
    """What a run's document says that its files must confirm."""
    return f"{own['invalid']!r} {own['summary']}"


def by_name(own: Mapping[str, Any]) -> dict[str, Document]:
    """The entries of the run's files in a document, by name. Raises `DataError`."""
    found = {part: own.get(part) or [] for part in ("documents", "files")}
    if (wrong := problem(Listed, found)) is not None:
        raise DataError(f"the list of its files: {wrong}")
    return {entry["name"]: entry for part in found.values() for entry in part}


def whole(value: Any) -> int:
    """The number, or 0 for what is not one."""
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else 0


def is_there(entry: Mapping[str, Any]) -> bool:
    """Whether the database has the file itself, not only its entry."""
    return "text" in entry or entry.get("id") is not None


def _remembered(found: Document) -> dict[str, Any] | None:
    """The document that was remembered; None if it is unreadable."""
    with contextlib.suppress(KeyError, TypeError, DataError):
        return parsed(found["text"])
    return None
