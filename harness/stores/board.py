"""Small documents about how studies are run, beside the runs: in the database if there is one, else in the directory.

Two kinds: the files that workers of a study must have, and the jobs that a scheduler was given. No result depends on
them. Imports no torch.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.documents import canonical
from harness.errors import DataError, UserError
from harness.files import make_folder, read_regular, temporary, write_json

if TYPE_CHECKING:
    from pymongo.database import Database

FILES, JOBS = "files", "jobs"
"""The kinds of notes."""

FOLDER, COLLECTION = "board", "harness_board"


class Board(ABC):
    """A place for such documents, each of a kind and under a key. Any number of processes may use it at once.

    Every method raises `UserError` if the place refuses, and `Unreachable` if it does not answer.
    """

    @abstractmethod
    def post(self, kind: str, key: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Keep the document unless there is one; returns the one that counts. Of several callers the first decides."""

    @abstractmethod
    def replace(self, kind: str, key: str, document: Mapping[str, Any]) -> None:
        """Keep the document in the place of any other."""

    @abstractmethod
    def all(self, kind: str) -> dict[str, dict[str, Any]]:
        """All documents of a kind, by key."""

    @abstractmethod
    def remove(self, kind: str, key: str) -> None:
        """Remove the document, if it is there."""


def note_key(*known_by: Any) -> str:
    """The key of what is known by these plain values."""
    return hashlib.sha256(canonical(known_by).encode()).hexdigest()[:32]


class DirectoryBoard(Board):
    """A board in a folder of the store: `board/KIND/KEY.json`."""

    def __init__(self, store: Path) -> None:
        self.folder = store / FOLDER

    def post(self, kind: str, key: str, document: Mapping[str, Any]) -> dict[str, Any]:
        place = self._place(kind, key)
        if place.exists():
            return _read(place)
        fresh = temporary(place)
        try:
            make_folder(place.parent)
            write_json(fresh, document)
            with contextlib.suppress(FileExistsError):  # another process was faster: its document counts
                os.link(fresh, place)
        except OSError as error:
            raise _refused(place, error) from error
        finally:
            fresh.unlink(missing_ok=True)
        return _read(place)

    def replace(self, kind: str, key: str, document: Mapping[str, Any]) -> None:
        place = self._place(kind, key)
        try:
            make_folder(place.parent)
            write_json(place, document)
        except OSError as error:
            raise _refused(place, error) from error

    def all(self, kind: str) -> dict[str, dict[str, Any]]:
        found = {}
        for place in sorted((self.folder / kind).glob("[!.]*.json")):
            with contextlib.suppress(FileNotFoundError):  # removed just now
                found[place.stem] = _read(place)
        return found

    def remove(self, kind: str, key: str) -> None:
        place = self._place(kind, key)
        try:
            place.unlink(missing_ok=True)
        except OSError as error:
            raise _refused(place, error) from error

    def _place(self, kind: str, key: str) -> Path:
        return self.folder / kind / f"{key}.json"


class MongoBoard(Board):
    """A board in a collection of the database."""

    def __init__(self, database: Database[dict[str, Any]]) -> None:
        self._collection = database[COLLECTION]

    def post(self, kind: str, key: str, document: Mapping[str, Any]) -> dict[str, Any]:
        from pymongo.errors import DuplicateKeyError

        from harness.stores.mongo.connection import translated

        where = {"_id": f"{kind}/{key}"}
        with translated():
            found = self._collection.find_one(where)
            if found is None:
                with contextlib.suppress(DuplicateKeyError):  # another process was faster: its document counts
                    self._collection.insert_one(where | self._stored(kind, key, document))
                found = self._collection.find_one(where)
            return _document(found or where)

    def replace(self, kind: str, key: str, document: Mapping[str, Any]) -> None:
        from harness.stores.mongo.connection import translated

        with translated():
            self._collection.replace_one({"_id": f"{kind}/{key}"}, self._stored(kind, key, document), upsert=True)

    def all(self, kind: str) -> dict[str, dict[str, Any]]:
        from harness.stores.mongo.connection import translated

        with translated():
            return {one["key"]: _document(one) for one in self._collection.find({"kind": kind}).sort("_id")}

    def remove(self, kind: str, key: str) -> None:
        from harness.stores.mongo.connection import translated

        with translated():
            self._collection.delete_one({"_id": f"{kind}/{key}"})

    def _stored(self, kind: str, key: str, document: Mapping[str, Any]) -> dict[str, Any]:
        # As text: the names of files are no keys that every server accepts.
        return {"kind": kind, "key": key, "text": canonical(document)}


def _document(stored: Mapping[str, Any]) -> dict[str, Any]:
    try:
        document = json.loads(stored["text"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"the note {stored.get('_id')} of the database is damaged: remove it") from error
    return dict(document)


def _read(place: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(read_regular(place)))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _refused(place, error) from error
    except (TypeError, ValueError) as error:
        raise DataError(f"the note {place} is damaged: remove it") from error


def _refused(place: Path, error: OSError) -> UserError:
    return UserError(f"cannot use the note {place}: {error.strerror or error}")
