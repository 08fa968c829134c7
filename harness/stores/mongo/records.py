"""Records in MongoDB: one document per record, in a collection per kind.

Every change is one compare-and-set on the document as it was read, acknowledged by a majority of the servers and in
their journals; times are the server's own. The database is passed in: nothing here knows how to connect.

While a server is down no record can be touched. Ages therefore count from its start at the earliest, so that owners of
claims which kept working are not taken over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Any

import pymongo
from pymongo import ReadPreference, WriteConcern
from pymongo.collection import Collection as MongoCollection
from pymongo.collection import ReturnDocument
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from harness.stores.mongo.connection import Document, address, translated
from harness.stores.records import Record, Records

PREFIX = "harness_"
"""Before the kind in the name of a collection."""

WAIT = 10.0
"""Default maximum of seconds that one operation waits for the server, whatever the client's own settings."""


EXPIRED = 10 * 365 * 86400.0
"""Seconds: an older record was expired on purpose, whenever the server started."""


class MongoRecords(Records):
    """Records in collections of the database, which need no index besides `_id`."""

    def __init__(self, database: Database[Document], wait: float = WAIT) -> None:
        self.name = address(database)
        self.wait = wait
        self._database = database

    def get(self, kind: str, key: str) -> Record | None:
        return next(iter(self.list(kind, [key])), None)

    def put(self, kind: str, key: str, value: Mapping[str, Any], last: Record | None) -> Record | None:
        # An upsert makes a missing document from the query, so the update starts from version 0.
        where: Document = {"_id": key, "generation": 0} if last is None else _as_read(last)
        whole = {"$in": [{"$type": "$generation"}, ["int", "long"]]}
        generation = {"$add": [{"$cond": [whole, "$generation", 0]}, 1]}
        fields = {name: {"$literal": item} for name, item in value.items()}
        stages = [{"$replaceWith": {**fields, "_id": "$_id", "generation": generation, "renewed": "$$NOW"}}]
        with self._answering(), contextlib.suppress(DuplicateKeyError):  # another process made it in between
            new = self._collection(kind).find_one_and_update(
                where, stages, upsert=last is None, return_document=ReturnDocument.AFTER
            )
            return None if new is None else Record(key, new["generation"], dict(value), 0.0)
        return None

    def touch(self, kind: str, record: Record, *, expire: bool = False) -> bool:
        when = datetime(1970, 1, 1) if expire else "$$NOW"
        with self._answering():
            found = self._collection(kind).update_one(_as_read(record), [{"$set": {"renewed": when}}])
            return found.matched_count == 1

    def list(self, kind: str, keys: Collection[str] | None = None) -> list[Record]:
        chosen = [] if keys is None else [{"$match": {"_id": {"$in": [*keys]}}}]
        with self._answering():
            found = [*self._collection(kind).aggregate([*chosen, {"$sort": {"_id": 1}}, _AGE])]
            uptime = self._uptime() if found else 0.0
        return [_record(document, uptime) for document in found]

    def delete(self, kind: str, record: Record) -> bool:
        with self._answering():
            return self._collection(kind).delete_one(_as_read(record)).deleted_count == 1

    def _collection(self, kind: str) -> MongoCollection[Document]:
        return self._database.get_collection(
            f"{PREFIX}{kind}",
            write_concern=WriteConcern(w="majority", j=True),
            read_preference=ReadPreference.PRIMARY,
        )

    def _uptime(self) -> float:
        """Seconds since the server started; infinite if the server does not report it."""
        answer = self._database.command("hello", read_preference=ReadPreference.PRIMARY)
        if "topologyVersion" not in answer:
            return float("inf")
        # The ObjectId of the server's process: like every ObjectId it begins with its time of creation.
        started = answer["topologyVersion"]["processId"].generation_time.replace(tzinfo=None)
        return float((answer["localTime"].replace(tzinfo=None) - started).total_seconds())

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        """Translate errors of the driver into those of the contract, within a bounded time."""
        with translated(), pymongo.timeout(self.wait):
            yield


_AGE: Document = {
    "$set": {"age": {"$cond": [{"$eq": [{"$type": "$renewed"}, "date"]}, {"$subtract": ["$$NOW", "$renewed"]}, None]}}
}
_OURS = ("_id", "generation", "renewed", "age")
"""The fields of a document that are not of its value."""


def _record(document: Document, uptime: float) -> Record:
    key, version, age = document["_id"], document.get("generation"), document["age"]
    damage = None
    if not isinstance(key, str):
        damage = f"its key is {key!r}, not text"
    elif not isinstance(version, int) or isinstance(version, bool):
        damage = f"its version is {version!r}, not a whole number"
    elif not isinstance(age, int):
        damage = "does not say when it was renewed"
    seconds = age / 1000 if isinstance(age, int) else -float("inf")
    if seconds < EXPIRED:
        seconds = min(seconds, uptime)
    value = {name: item for name, item in document.items() if name not in _OURS}
    return Record(str(key), version, value, seconds, damage)


def _as_read(record: Record) -> Document:
    """Finds the document as long as nobody has changed it, or made it again."""
    fields = {"generation": record.version, **record.value}
    plain = {name: item for name, item in fields.items() if "." not in name and not name.startswith("$")}
    return {"_id": record.key} | {name: {"$eq": item} for name, item in plain.items()}
