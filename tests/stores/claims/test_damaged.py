"""Damaged claims, and claims of wrong clocks: named, and no longer than a lease in the way of anybody."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from harness.stores.claims import LONGEST, Claim, Claims, Renewal
from harness.stores.directory.records import DirectoryRecords
from harness.stores.mongo.records import MongoRecords
from harness.stores.upkeep.checking import orphaned

KEY = "0123456789abcdef"
YEAR = 365 * 86400.0
ELSEWHERE = {"host": "another machine", "pid": 1, "started": 1}
"""An owner that nobody here can see."""


@dataclass(frozen=True)
class Place:
    """A place of claims, and what a user with an editor, or a wrong clock, can do to the claim there."""

    claims: Claims
    edit: Callable[[dict[str, Any]], object]
    age: Callable[[float], object]
    """Sets when it was renewed, in seconds ago."""


@pytest.fixture(params=["directory", "mongo"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """The place, with one claim in it."""
    if request.param == "directory":
        claims = Claims(DirectoryRecords(tmp_path))

        def latest() -> Path:
            return max((tmp_path / "claims" / KEY).glob("[0-9]*"), key=lambda file: int(file.name))

        def rewrite(values: dict[str, Any]) -> None:
            file = latest()
            when = file.stat().st_mtime
            document = json.loads(file.read_text()) | values
            file.write_text(json.dumps({key: value for key, value in document.items() if value != "REMOVED"}))
            os.utime(file, (when, when))

        def shift(seconds: float) -> None:
            os.utime(latest(), (time.time() - seconds,) * 2)
    else:
        database: Database[dict[str, Any]] = request.getfixturevalue("mongo_database")
        claims = Claims(MongoRecords(database))
        documents = database["harness_claims"]

        def rewrite(values: dict[str, Any]) -> None:
            gone = {key: 1 for key, value in values.items() if value == "REMOVED"}
            new = {key: value for key, value in values.items() if value != "REMOVED"}
            documents.update_one({"_id": KEY}, {**({"$set": new} if new else {}), **({"$unset": gone} if gone else {})})

        def shift(seconds: float) -> None:
            now = documents.database.command("hello")["localTime"]
            documents.update_one({"_id": KEY}, {"$set": {"renewed": now - timedelta(seconds=seconds)}})

    assert claims.acquire(KEY) is not None
    return Place(claims, rewrite, shift)


DAMAGES: dict[str, dict[str, Any]] = {
    "host misspelt": {"owner": {"iost": "x", "pid": 1, "started": 1}},
    "owner of another type": {"owner": 5},
    "pid of another type": {"owner": {**ELSEWHERE, "pid": "many"}},
    "no schema": {"schema": "REMOVED"},
    "no lease": {"lease": "REMOVED"},
    "lease of another type": {"lease": [60]},
    "held of another type": {"held": "yes"},
    "attempt of another type": {"attempt": {}},
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_claim_is_named_and_expires(place: Place, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place.edit(DAMAGES[damage])
    monkeypatch.setattr(MongoRecords, "_uptime", lambda self: float("inf"))  # else the server may have started just now
    [record] = place.claims.records()
    assert record.alive and record.damage is not None
    [finding] = orphaned(place.claims, "here")
    assert finding.kind == "claim" and record.damage in finding.reason and finding.repair is None
    assert place.claims.acquire(KEY) is None and place.claims.holder(KEY) is not None
    place.age(1000.0)
    [finding] = orphaned(place.claims, "here")
    assert finding.repair is not None and finding.repair() == "freed"
    assert list(orphaned(place.claims, "here")) == []
    place.edit(DAMAGES[damage])
    place.age(1000.0)
    assert place.claims.acquire(KEY) is not None
    [record] = place.claims.records()
    assert record.alive and record.damage is None


def _looping(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize("instead", [os.mkfifo, os.mkdir, _looping])
def test_what_is_no_file_in_place_of_a_claim_is_named_and_expires(
    instead: Callable[[Path], object], tmp_path: Path
) -> None:
    claims = Claims(DirectoryRecords(tmp_path))
    assert claims.acquire(KEY) is not None
    [file] = (tmp_path / "claims" / KEY).glob("[0-9]*")
    file.unlink()
    instead(file)
    [record] = claims.records()
    assert record.alive and record.damage is not None and "cannot be read" in record.damage
    assert claims.acquire(KEY) is None
    os.utime(file, (time.time() - 1000.0,) * 2, follow_symlinks=False)
    assert claims.acquire(KEY) is not None
    [record] = claims.records()
    assert record.alive and record.damage is None


def test_a_claim_from_the_future_ends_one_lease_after_it_was_first_seen(place: Place) -> None:
    place.edit({"owner": ELSEWHERE})
    place.age(-YEAR)
    [record] = place.claims.records()
    assert record.alive and record.ahead == pytest.approx(YEAR, rel=0.01)
    [finding] = orphaned(place.claims, "here")
    assert (finding.kind, finding.place) == ("claim", f"here: {KEY[:16]}")
    assert "its time is 365.0 days ahead" in finding.reason
    assert place.claims.acquire(KEY) is None  # its owner may be alive, and the clock was set right just now
    [record] = place.claims.records()
    assert record.alive and record.ahead == 0 and record.age < LONGEST
    assert list(orphaned(place.claims, "here")) == []


def test_check_restarts_the_lease_of_a_claim_from_the_future(place: Place) -> None:
    place.edit({"owner": ELSEWHERE})
    place.age(-YEAR)
    [finding] = orphaned(place.claims, "here")
    assert finding.repair is not None and finding.repair() == "its lease counts from now on"
    assert list(orphaned(place.claims, "here")) == []


def test_a_time_that_is_no_more_than_a_lease_ahead_is_left_alone(place: Place) -> None:
    place.edit({"owner": ELSEWHERE})
    place.age(-20.0)
    assert place.claims.acquire(KEY) is None
    assert list(orphaned(place.claims, "here")) == []


def test_no_lease_is_longer_than_a_day(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MongoRecords, "_uptime", lambda self: float("inf"))
    place.edit({"owner": ELSEWHERE, "lease": 1e12})
    place.age(LONGEST + 100)
    assert place.claims.acquire(KEY) is not None


def test_documents_that_are_no_claims_are_named(mongo_database: Database[dict[str, Any]]) -> None:
    claims = Claims(MongoRecords(mongo_database))
    documents = mongo_database["harness_claims"]
    odd: list[dict[str, Any]] = [
        {"_id": KEY, "owner": 5, "held": True},
        {"_id": 7},
        {"_id": "x", "renewed": "yesterday", "schema": 1},
    ]
    documents.insert_many(odd)
    assert len([*orphaned(claims, "here")]) == len(odd)
    assert claims.acquire(KEY) is None  # its lease counts from now on: nobody knows when it was renewed
    [record] = (one for one in claims.records() if one.key == KEY)
    assert record.alive and record.ahead == 0


class _Failing(Claim):
    """A claim whose renewal fails as nobody expected."""

    def __init__(self, error: BaseException) -> None:
        self.key, self.lease, self.error = KEY, 0.3, error
        self.renewals = threading.Semaphore(0)

    def renew(self) -> None:
        self.renewals.release()
        raise self.error

    def confirm(self) -> None:
        raise self.error

    def release(self) -> None:
        raise self.error


@pytest.mark.parametrize("error", [KeyError("host"), SystemExit()])
def test_the_thread_that_renews_survives_what_nobody_expected(error: BaseException) -> None:
    claim, told = _Failing(error), list[str]()
    with contextlib.closing(Renewal(told.append)) as renewal:
        renewal.keep(claim)
        for _ in range(3):
            assert claim.renewals.acquire(timeout=60)
    assert told == []
