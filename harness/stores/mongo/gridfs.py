"""Files in GridFS, written so that any number of processes may store one file at once, be killed, and retry.

A file's id is derived from its run, its name and its content, so every process that stores it writes the same.
Its chunks are written first and its entry last: a file that is listed is complete. The driver's own writer is
not used, since it removes the chunks of others when it gives up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from typing import IO, Any

from bson import Binary, ObjectId
from gridfs import GridFSBucket
from gridfs.errors import CorruptGridFile, NoFile
from pymongo import UpdateOne
from pymongo.database import Database
from pymongo.errors import BulkWriteError, DuplicateKeyError

from harness.documents import utc_now
from harness.errors import DataError

Document = dict[str, Any]

CHUNK = 255 * 1024
BATCH = 16
"""Number of chunks that are sent at once: 4 MB."""

DUPLICATE = 11000

DAMAGE = (NoFile, CorruptGridFile)
"""What the driver raises for a file that is missing or incomplete."""


class Changed(Exception):
    """A file has changed since it was examined."""


def file_id(run: str, name: str, sha256: str) -> ObjectId:
    """The id of a run's file. The ids of a run's own files form one range; those of files added later do not."""
    if "/" in name:
        return ObjectId(_digest(run, name, sha256)[:12])
    return ObjectId(_digest(run)[:6] + _digest(name, sha256)[:6])


def source_id(sha256: str) -> ObjectId:
    """The id of a source file: runs of equal sources share it."""
    return ObjectId(_digest("source", sha256)[:12])


def missing(database: Database[Document], ids: Collection[ObjectId]) -> set[ObjectId]:
    """Those of the ids that have no complete file."""
    if not ids:
        return set()
    found = database["fs.files"].find({"_id": {"$in": list(ids)}}, {"_id": 1})
    return set(ids) - {document["_id"] for document in found}


def put(
    database: Database[Document],
    identifier: ObjectId,
    source: IO[bytes],
    size: int,
    sha256: str,
    name: str,
    metadata: Mapping[str, Any],
) -> None:
    """Store a file of that size and checksum. Raises `Changed` if its checksum differs; it is then not listed."""
    digest = hashlib.sha256()
    batch: list[UpdateOne] = []
    for number in range((size + CHUNK - 1) // CHUNK):
        data = source.read(min(CHUNK, size - number * CHUNK))
        digest.update(data)
        place = {"files_id": identifier, "n": number}
        batch.append(UpdateOne(place, {"$set": {"data": Binary(data)}}, upsert=True))
        if len(batch) == BATCH:
            write_all(database, "fs.chunks", batch)
            batch = []
    write_all(database, "fs.chunks", batch)
    if digest.hexdigest() != sha256:
        raise Changed(name)
    entry = {"filename": name, "length": size, "chunkSize": CHUNK, "metadata": {**metadata, "sha256": sha256}}
    change = {"$set": entry, "$setOnInsert": {"uploadDate": utc_now()}}
    write_all(database, "fs.files", [UpdateOne({"_id": identifier}, change, upsert=True)])


def get(database: Database[Document], identifier: ObjectId, target: IO[bytes], sha256: str) -> None:
    """Copy a file into `target`. Raises `DataError` if it is not what was stored; see `translated` for others."""
    digest = hashlib.sha256()
    try:
        with GridFSBucket(database).open_download_stream(identifier) as stream:
            while data := stream.read(BATCH * CHUNK):
                digest.update(data)
                target.write(data)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        # The driver believes what the entry and the chunks say.
        reason = f"{type(error).__name__}: {error}"
        raise DataError(f"file {identifier} in the database, or a part of it, is damaged ({reason})") from error
    if digest.hexdigest() != sha256:
        raise DataError(f"file {identifier} in the database has another checksum than its run says")


def delete(database: Database[Document], ids: Iterable[ObjectId]) -> None:
    """Delete files, entries first: no file is ever listed without its chunks."""
    if doomed := list(ids):
        database["fs.files"].delete_many({"_id": {"$in": doomed}})
        database["fs.chunks"].delete_many({"files_id": {"$in": doomed}})


def sweep(database: Database[Document], run: str, keep: Collection[ObjectId]) -> None:
    """Delete all of a run's own files except these, and the remains of interrupted writes."""
    first = _digest(run)[:6]
    mine = {"$gte": ObjectId(first + bytes(6)), "$lte": ObjectId(first + b"\xff" * 6), "$nin": list(keep)}
    database["fs.files"].delete_many({"_id": mine})
    database["fs.chunks"].delete_many({"files_id": mine})


def write_all(database: Database[Document], collection: str, operations: list[UpdateOne]) -> None:
    """Write upserts. Where another process was faster, it wrote the same, or something newer."""
    if not operations:
        return
    try:
        database[collection].bulk_write(operations, ordered=False)
    except DuplicateKeyError:
        pass
    except BulkWriteError as error:
        failures = error.details.get("writeErrors", [])
        if error.details.get("writeConcernErrors") or any(one.get("code") != DUPLICATE for one in failures):
            raise


def _digest(*parts: str) -> bytes:
    return hashlib.sha256("\0".join(parts).encode()).digest()
