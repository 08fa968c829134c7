"""Claims in MongoDB: one document per trial.

Every change is one compare-and-set on the document's generation, acknowledged by a majority of the servers and
in their journals; times are the server's own. The database is passed in: nothing here knows how to connect.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pymongo
from pymongo import ReadPreference, WriteConcern
from pymongo.collection import ReturnDocument
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from harness.documents import problem
from harness.errors import Unreachable, UserError
from harness.owner import this_process
from harness.schema import MongoClaimDocument
from harness.stores.claims.lease import (
    LEASE,
    NEWER,
    RENEWALS,
    SCHEMA,
    Claim,
    ClaimLost,
    ClaimRecord,
    Claims,
    is_held,
    newer,
    seconds_ahead,
)
from harness.stores.mongo.connection import Document, translated

COLLECTION = "harness_claims"

SHORTEST_WAIT, LONGEST_WAIT = 2.0, 10.0
"""Minimum and maximum seconds that one operation waits for the server, whatever the client's own settings."""


class MongoClaims(Claims):
    """Claims in a collection of the database, which needs no index besides `_id`.

    While a server is down no claim can be renewed. During the first lease after its start a claim therefore
    counts as alive unless its owner is seen to be dead, so that owners which kept working are not taken over.
    """

    def __init__(self, database: Database[Document], lease: float = LEASE, collection: str = COLLECTION) -> None:
        self.lease = lease
        self._collection = database.get_collection(
            collection,
            write_concern=WriteConcern(w="majority", j=True),
            read_preference=ReadPreference.PRIMARY,
        )

    def acquire(self, key: str, at_least: int = 0) -> Claim | None:
        with self._answering():
            last = self._read(key)
            record = None if last is None else self._seen(last)
            if record is not None and record.alive:
                return None
            token = uuid.uuid4().hex
            change = {
                "schema": SCHEMA,
                "attempt": 1 + max(record.attempt if record else 0, at_least),
                "owner": this_process(),
                "held": True,
                "lease": self.lease,
                "token": token,
            }
            new = self._replace(key, last, change)
            return None if new is None else MongoClaim(self, key, new)

    def redeem(self, ticket: Mapping[str, Any]) -> Claim:
        return MongoClaim(self, ticket["key"], ticket)

    def holder(self, key: str) -> ClaimRecord | None:
        with self._answering():
            document = self._read(key)
            record = None if document is None else self._seen(document)
        return record if record is not None and record.alive else None

    def held(self, keys: Collection[str]) -> set[str]:
        with self._answering():
            found = list(self._collection.aggregate([{"$match": {"_id": {"$in": [*keys]}, "held": True}}, _AGE]))
            seen = [self._seen(document) for document in found]
        return {record.key for record in seen if record.alive}

    def records(self) -> list[ClaimRecord]:
        with self._answering():
            found = self._collection.aggregate([{"$sort": {"_id": 1}}, _AGE])
            return [self._record(document) for document in found]

    def drop(self, record: ClaimRecord) -> bool:
        with self._answering():
            last = self._read(record.key)
            now = None if last is None else _no_newer(self._record(last))
            if now is None or not now.held or now.alive or now.generation != record.generation:
                return False
            sound = {"schema": SCHEMA, "attempt": now.attempt, "lease": LEASE} if now.damage else {}
            return self._replace(record.key, last, {**sound, **_FREED}) is not None

    def restart(self, record: ClaimRecord) -> bool:
        with self._answering():
            last = self._read(record.key)
            return last is not None and bool(self._seen(last).ahead)

    def change(self, key: str, token: str, stages: list[Document]) -> Document | None:
        """Change the claim that is held under that token; returns the new document, None if there is no such claim."""
        with self._answering():
            where = {"_id": key, "token": token, "held": True}
            return self._collection.find_one_and_update(where, stages, return_document=ReturnDocument.AFTER)

    def look(self, key: str) -> ClaimRecord | None:
        with self._answering():
            document = self._read(key)
            return None if document is None else self._record(document)

    def _read(self, key: str) -> Document | None:
        return next(iter(self._collection.aggregate([{"$match": {"_id": key}}, _AGE])), None)

    def _replace(self, key: str, last: Document | None, change: Document) -> Document | None:
        """Write and return the next generation if the document is still as it was read; None otherwise."""
        # An upsert makes a missing document from the query, so the update starts from generation 0.
        where: Document = {"_id": key, "generation": 0} if last is None else _as_read(last)
        try:
            return self._collection.find_one_and_update(
                where, _stages(change), upsert=last is None, return_document=ReturnDocument.AFTER
            )
        except DuplicateKeyError:
            return None  # another process made it in between

    def _seen(self, document: Document) -> ClaimRecord:
        """The record as it is now. A time ahead of the clock, or none, is set to now, so that the lease ends."""
        record = _no_newer(self._record(document))
        if record.ahead:
            self._collection.update_one(_as_read(document), [{"$set": {"renewed": "$$NOW"}}])
        return record

    def _record(self, document: Document) -> ClaimRecord:
        age = document["age"] / 1000 if isinstance(document["age"], int) else -float("inf")
        damage = _damage(document)
        generation, attempt = (_whole(document.get(name)) for name in ("generation", "attempt"))
        owner, held, lease = None, True, LEASE  # held by an unknown owner until it expires
        if damage is None:
            owner, held, lease = document["owner"], document["held"], document["lease"]
        alive = is_held(owner, held, age, lease)
        if held and not alive and age > lease:
            alive = is_held(owner, held, min(age, self._uptime()), lease)
        ahead = seconds_ahead(age, lease) if held else 0.0
        key = str(document["_id"])
        return ClaimRecord(key, generation, attempt, owner, held, alive, max(0.0, age), ahead, damage)

    def _uptime(self) -> float:
        """Seconds since the server started; infinite if the server does not report it."""
        answer = self._collection.database.command("hello", read_preference=ReadPreference.PRIMARY)
        if "topologyVersion" not in answer:
            return float("inf")
        # The ObjectId of the server's process: like every ObjectId it begins with its time of creation.
        started = answer["topologyVersion"]["processId"].generation_time.replace(tzinfo=None)
        return float((answer["localTime"].replace(tzinfo=None) - started).total_seconds())

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        """Translate errors of the driver into those of the contract, and wait no longer than a claim can afford."""
        wait = min(LONGEST_WAIT, max(SHORTEST_WAIT, self.lease / RENEWALS))
        with translated(), pymongo.timeout(wait):
            yield


class MongoClaim(Claim):
    """A claim that is held in MongoDB."""

    def __init__(self, claims: MongoClaims, key: str, document: Mapping[str, Any]) -> None:
        self.key, self.generation, self.attempt = key, document["generation"], document["attempt"]
        self.lease = document["lease"]
        self._claims, self._token = claims, document["token"]

    def renew(self) -> None:
        self._change([{"$set": {"renewed": "$$NOW"}}])

    def confirm(self) -> None:
        self._change(_stages({}))

    def release(self) -> None:
        try:
            self._claims.change(self.key, self._token, _stages(_FREED))
        except UserError as error:
            raise Unreachable(str(error)) from error

    def _change(self, stages: list[Document]) -> None:
        try:
            document = self._claims.change(self.key, self._token, stages)
            if document is None:
                other = self._claims.look(self.key)
                if other is None:
                    raise ClaimLost(f"the claim on trial {self.key[:16]} is lost: its record was removed")
                raise ClaimLost.to(self.key, other.owner, other.held)
        except UserError as error:
            raise Unreachable(str(error)) from error
        self.generation = max(self.generation, document["generation"])


_AGE: Document = {
    "$set": {"age": {"$cond": [{"$eq": [{"$type": "$renewed"}, "date"]}, {"$subtract": ["$$NOW", "$renewed"]}, None]}}
}
_FREED: Document = {"owner": None, "held": False, "token": None}


def _stages(change: Document) -> list[Document]:
    """The update that sets these values in a new generation, renewed now."""
    values = {name: {"$literal": value} for name, value in change.items()}
    whole = {"$in": [{"$type": "$generation"}, ["int", "long"]]}
    generation = {"$add": [{"$cond": [whole, "$generation", 0]}, 1]}
    return [{"$set": values | {"generation": generation, "renewed": "$$NOW"}}]


def _as_read(document: Document) -> Document:
    """Finds the document as long as nobody has changed it."""
    return {"_id": document["_id"]} | {name: {"$eq": document.get(name)} for name in ("generation", "renewed")}


def _damage(document: Document) -> str | None:
    """What is wrong with a claim, for the reader."""
    if newer(document.get("schema")):
        return f"{NEWER} (schema {document['schema']})"
    if not isinstance(document["_id"], str):
        return f"its key is {document['_id']!r}, not text"
    timeless = None if isinstance(document["age"], int) else "does not say when it was renewed"
    return problem(MongoClaimDocument, document) or timeless


def _no_newer(record: ClaimRecord) -> ClaimRecord:
    """Raise `UserError` for the claim of a newer version."""
    if record.damage is not None and record.damage.startswith(NEWER):
        raise UserError(f"the claim on trial {record.key[:16]} {record.damage}")
    return record


def _whole(value: Any) -> int:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else 0
