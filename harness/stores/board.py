"""Small documents about how studies are run, beside the runs: in the database if there is one, else in the directory.

Two kinds: the files that workers of a study must have, and the jobs that a scheduler was given. No result depends on
them. Each is a record (`harness.stores.records`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from harness.documents import canonical
from harness.errors import DataError
from harness.stores.records import Record, Records

FILES, JOBS = "files", "jobs"
"""The kinds of notes."""

KIND = "board"
"""The kind of these records; a key begins with the kind of the note."""


class Board:
    """The notes in a place of records, each of a kind and under a key. Any number of processes may use it at once.

    Every method raises `UserError` if the place refuses, and `Unreachable` if it does not answer.
    """

    def __init__(self, place: Records) -> None:
        self._place = place

    def post(self, kind: str, key: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Keep the document unless there is one; returns the one that counts. Of several callers the first decides."""
        while (found := self._place.get(KIND, f"{kind}-{key}")) is None:
            self._place.put(KIND, f"{kind}-{key}", _value(document), None)
        return self._document(found)

    def replace(self, kind: str, key: str, document: Mapping[str, Any]) -> None:
        """Keep the document in the place of any other."""
        name = f"{kind}-{key}"
        while self._place.put(KIND, name, _value(document), self._place.get(KIND, name)) is None:
            pass  # another process was faster

    def all(self, kind: str) -> dict[str, dict[str, Any]]:
        """All documents of a kind, by key."""
        found = [record for record in self._place.list(KIND) if record.key.startswith(f"{kind}-")]
        return {record.key.removeprefix(f"{kind}-"): self._document(record) for record in found}

    def remove(self, kind: str, key: str) -> None:
        """Remove the document, if it is there."""
        while (found := self._place.get(KIND, f"{kind}-{key}")) is not None and not self._place.delete(KIND, found):
            pass  # changed just now

    def _document(self, record: Record) -> dict[str, Any]:
        try:
            return dict(json.loads(record.value["text"]))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"the note {record.key} in {self._place.name} is damaged: remove it") from error


def note_key(*known_by: Any) -> str:
    """The key of what is known by these plain values."""
    return hashlib.sha256(canonical(known_by).encode()).hexdigest()[:32]


def _value(document: Mapping[str, Any]) -> dict[str, str]:
    return {"text": canonical(document)}  # not every server accepts the names of files as keys
