"""Small shared documents, by kind and key: the contract of every place that keeps them. Claims are built on it.

A record is changed by compare-and-set: whoever has read it may replace it if nobody has changed it since. Its age is
measured by the clock of the place, so the clocks of the machines do not matter. `harness.testing.records` tests the
contract; a directory (`harness.stores.directory.records`) and a MongoDB (`harness.stores.mongo.records`) keep it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Record:
    """A record as it was read."""

    key: str
    version: Any
    """A whole number that grows with every change of the value; anything in a damaged record."""
    value: Mapping[str, Any]
    """Plain JSON types; empty if it cannot be read."""
    age: float
    """Seconds since it was last put or touched, or since the server of the place started, if that is later. Negative
    for a time in the future; minus infinity if no time is stored."""
    damage: str | None = None
    """Why the record cannot be read as one, if that is so. It can be replaced like any other."""


class Records(ABC):
    """A place of records, for any number of threads, processes and machines.

    Every method raises `Unreachable`, within a bounded time, if the place does not answer or cannot be read now, and
    `UserError` if it refuses (no space, read-only, no such place). A key that could lead elsewhere is a `ValueError`.
    """

    name: str
    """The place in messages."""

    @abstractmethod
    def get(self, kind: str, key: str) -> Record | None:
        """The record; None if there is none."""

    @abstractmethod
    def put(self, kind: str, key: str, value: Mapping[str, Any], last: Record | None) -> Record | None:
        """Replace the record that was read as `last` (None: there was none), and return the new one.

        Returns None if the record has changed since: of all processes that replace the same record, one succeeds.
        A process that is killed leaves the old record or the new one. One with the value of the last needs no space.
        """

    @abstractmethod
    def touch(self, kind: str, record: Record, *, expire: bool = False) -> bool:
        """Set the age of the record to 0, or to decades with `expire`; returns False if it was changed or deleted.

        Needs no space.
        """

    @abstractmethod
    def list(self, kind: str, keys: Collection[str] | None = None) -> list[Record]:
        """All records of a kind, or those of the keys that exist; sorted by key."""

    @abstractmethod
    def delete(self, kind: str, record: Record) -> bool:
        """Delete the record if it was not changed; returns whether that was done. Versions then begin again."""
