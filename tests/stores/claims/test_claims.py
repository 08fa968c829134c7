"""The contract of claims, kept by every place they can be kept in: real processes, real signals, a real server."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pymongo
import pytest
from pymongo.database import Database

from harness.errors import Unreachable, UserError
from harness.stores.claims import KIND, Claim, ClaimLost, Claims, Renewal
from harness.stores.directory.records import DirectoryRecords
from harness.stores.mongo.records import WAIT, MongoRecords
from tests.mongod import Mongod, free_port
from tests.processes import await_that

KEY = "0123456789abcdef"
LONG = 600.0
"""A lease that does not end while a test runs."""
SHORT = 0.2

PROGRAM = """
import json, os, sys, threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from harness.errors import Unreachable
from harness.stores.claims import ClaimLost, Claims, Renewal

kind, where, name, lease = sys.argv[1:]
if kind == "directory":
    from harness.stores.directory.records import DirectoryRecords
    claims = Claims(DirectoryRecords(Path(where)), float(lease))
else:
    import pymongo
    from harness.stores.mongo.records import MongoRecords
    claims = Claims(MongoRecords(pymongo.MongoClient(where)[name]), float(lease))
held = {}

def acquire(key):
    try:
        claim = held[key] = claims.acquire(key)
    except Unreachable:
        return "unreachable"
    return claim and [claim.generation, claim.attempt]

def become(ids):
    user, group, mask = ids
    os.setgroups([]), os.setgid(group), os.setuid(user), os.umask(mask)

def confirm(key):
    try:
        held[key].confirm()
    except ClaimLost:
        return "lost"

def race(keys):
    with ThreadPoolExecutor(2) as threads:
        won = threads.map(lambda _: [key for key in keys if claims.acquire(key)], range(2))
        return [key for keys in won for key in keys]

def keep(key):
    gone = threading.Event()
    renewal = Renewal(lambda key: gone.set())
    renewal.keep(claims.acquire(key))
    say("kept")
    lost = gone.wait(20)
    renewal.close()
    return lost

def say(answer):
    print(json.dumps(answer), flush=True)

for line in sys.stdin:
    function, argument = json.loads(line)
    say({"acquire": acquire, "become": become, "confirm": confirm, "race": race, "keep": keep}[function](argument))
"""
"""Another owner: does what it is told, line by line."""


@dataclass
class Owner:
    """A process of this machine that claims."""

    process: subprocess.Popen[str]

    def tell(self, function: str, argument: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([function, argument]) + "\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, function: str, argument: Any) -> Any:
        self.tell(function, argument)
        return self.hear()


@dataclass
class Place:
    """Where claims are kept, opened by this process and by others."""

    kind: str
    open: Callable[[float], Claims]
    arguments: tuple[str, str]
    owners: list[Owner] = field(default_factory=list)

    def owner(self, lease: float) -> Owner:
        command = [sys.executable, "-c", PROGRAM, self.kind, *self.arguments, str(lease)]
        pipe = subprocess.PIPE
        self.owners.append(Owner(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)))
        return self.owners[-1]


@pytest.fixture(params=["directory", "mongo"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "directory":
        one = Place("directory", lambda lease: Claims(DirectoryRecords(tmp_path), lease), (str(tmp_path), ""))
    else:
        uri: str = request.getfixturevalue("mongod")
        database: Database[dict[str, Any]] = request.getfixturevalue("mongo_database")
        one = Place("mongo", lambda lease: Claims(MongoRecords(database), lease), (uri, database.name))
    try:
        yield one
    finally:
        for owner in one.owners:
            owner.process.kill()
            with owner.process:
                pass


def acquired(claims: Claims, key: str = KEY, at_least: int = 0) -> Claim:
    claim = claims.acquire(key, at_least)
    assert claim is not None
    return claim


def awaited(claims: Claims, key: str = KEY) -> Claim:
    """The claim, as soon as it can be had."""
    found: list[Claim] = []

    def is_had() -> bool:
        claim = claims.acquire(key)
        found.extend([claim] if claim else [])
        return bool(found)

    await_that(is_had)
    return found[0]


def test_only_one_holds_a_claim(place: Place) -> None:
    claims = place.open(LONG)
    claim = acquired(claims)
    assert (claim.key, claim.generation, claim.attempt, claim.lease) == (KEY, 1, 1, LONG)
    assert claims.acquire(KEY) is None
    assert place.open(SHORT).acquire(KEY) is None  # how long it lives, its owner said
    assert acquired(claims, "another").attempt == 1


def test_the_holder_is_told(place: Place) -> None:
    claims = place.open(LONG)
    assert claims.holder(KEY) is None
    assert claims.records() == []
    claim = acquired(claims)
    holder = claims.holder(KEY)
    assert holder is not None
    assert holder.owner is not None
    assert (holder.key, holder.generation, holder.attempt) == (KEY, 1, 1)
    assert (holder.held, holder.alive, holder.owner["pid"]) == (True, True, os.getpid())
    assert 0 <= holder.age < 20
    claim.release()
    assert claims.holder(KEY) is None
    (record,) = claims.records()
    assert (record.key, record.attempt, record.held, record.alive, record.owner) == (KEY, 1, False, False, None)


def test_records_are_of_all_trials_in_order(place: Place) -> None:
    claims = place.open(LONG)
    for key in ("b", "c", "a"):
        acquired(claims, key)
    acquired(claims, "d").release()
    assert [(record.key, record.held) for record in claims.records()] == [
        ("a", True),
        ("b", True),
        ("c", True),
        ("d", False),
    ]


def test_a_released_claim_is_to_be_had_again_with_the_next_attempt(place: Place) -> None:
    claims = place.open(LONG)
    generation = 0
    for attempt in (1, 2, 3):
        claim = acquired(claims)
        assert claim.attempt == attempt
        assert claim.generation > generation
        generation = claim.generation
        claim.release()
        claim.release()


def test_attempts_known_from_elsewhere_are_counted(place: Place) -> None:
    claims = place.open(LONG)
    for at_least, attempt in ((4, 5), (0, 6), (2, 7), (7, 8)):
        claim = acquired(claims, at_least=at_least)
        assert claim.attempt == attempt
        claim.release()


def test_confirming_raises_the_generation_and_keeps_the_claim(place: Place) -> None:
    claims = place.open(LONG)
    claim = acquired(claims)
    for generation in (2, 3):
        claim.confirm()
        assert claim.generation == generation
        holder = claims.holder(KEY)
        assert holder is not None
        assert (holder.generation, holder.attempt) == (generation, 1)
        claim.renew()
    assert claims.acquire(KEY) is None
    claim.release()
    assert acquired(claims).attempt == 2


def test_a_claim_that_is_not_renewed_is_taken_over_and_its_late_result_does_not_count(place: Place) -> None:
    late = acquired(place.open(SHORT))
    taker = awaited(place.open(LONG))
    assert (taker.attempt, taker.generation) == (2, 2)
    for _ in range(2):
        with pytest.raises(ClaimLost, match=f"trial {KEY} is lost: process {os.getpid()} on"):
            late.renew()
        with pytest.raises(ClaimLost):
            late.confirm()
    late.release()
    taker.renew()
    taker.confirm()
    assert taker.generation == 3
    with pytest.raises(ClaimLost):
        late.confirm()
    assert place.open(LONG).acquire(KEY) is None


def test_a_claim_that_was_released_cannot_be_renewed(place: Place) -> None:
    claim = acquired(place.open(LONG))
    claim.release()
    for use in (claim.renew, claim.confirm):
        with pytest.raises(ClaimLost, match="freed"):
            use()
    assert acquired(place.open(LONG)).attempt == 2


@pytest.mark.parametrize("use", ["renew", "confirm"])
def test_a_lease_that_is_over_goes_on_if_nobody_has_taken_it(place: Place, use: str) -> None:
    claims = place.open(SHORT)
    claim = acquired(claims)
    await_that(lambda: claims.holder(KEY) is None)
    (record,) = claims.records()
    assert (record.held, record.alive) == (True, False)
    assert record.age > SHORT

    def is_alive_again() -> bool:
        getattr(claim, use)()
        return claims.holder(KEY) is not None

    await_that(is_alive_again)  # at once, but for a machine that is slower than the lease


def test_of_several_trials_those_with_a_live_owner_are_told(place: Place) -> None:
    claims = place.open(LONG)
    acquired(claims, "alive")
    acquired(claims, "unasked")
    acquired(claims, "free").release()
    acquired(place.open(SHORT), "orphan")
    await_that(lambda: claims.holder("orphan") is None)
    assert claims.held({"alive", "free", "orphan", "unclaimed"}) == {"alive"}


def test_a_claim_is_dropped_only_if_it_is_orphaned_and_unchanged(place: Place) -> None:
    claims = place.open(SHORT)
    claim = acquired(claims, "orphan")
    acquired(place.open(LONG), "alive")
    acquired(claims, "free").release()
    await_that(lambda: claims.holder("orphan") is None)
    alive, free, orphan = claims.records()
    assert not claims.drop(alive)
    assert not claims.drop(free)
    claim.confirm()
    assert not claims.drop(orphan)  # changed since
    claim.release()
    assert not claims.drop(orphan)
    assert [record.held for record in claims.records()] == [True, False, False]


def test_dropping_frees_and_fences(place: Place) -> None:
    owner = place.owner(LONG)
    assert owner.ask("acquire", KEY) == [1, 1]
    claims = place.open(LONG)
    (record,) = claims.records()
    assert not claims.drop(record)  # its owner lives
    owner.process.kill()
    os.waitid(os.P_PID, owner.process.pid, os.WEXITED | os.WNOWAIT)
    (record,) = claims.records()
    assert (record.held, record.alive) == (True, False)
    assert claims.drop(record)
    assert not claims.drop(record)
    (record,) = claims.records()
    assert (record.generation, record.attempt, record.held, record.owner) == (2, 1, False, None)
    assert acquired(claims).attempt == 2


def test_a_killed_owner_is_taken_over_at_once(place: Place) -> None:
    owner = place.owner(LONG)
    assert owner.ask("acquire", KEY) == [1, 1]
    claims = place.open(LONG)
    assert claims.acquire(KEY) is None
    owner.process.kill()
    os.waitid(os.P_PID, owner.process.pid, os.WEXITED | os.WNOWAIT)
    assert acquired(claims).attempt == 2


def test_a_stopped_owner_that_goes_on_learns_that_it_was_taken_over(place: Place) -> None:
    confirming, keeping = place.owner(SHORT), place.owner(SHORT)
    assert confirming.ask("acquire", KEY) == [1, 1]
    assert keeping.ask("keep", "kept") == "kept"
    for owner in (confirming, keeping):
        owner.process.send_signal(signal.SIGSTOP)
    claims = place.open(LONG)
    takers = [awaited(claims), awaited(claims, "kept")]
    for owner in (confirming, keeping):
        owner.process.send_signal(signal.SIGCONT)
    assert keeping.hear() is True
    assert confirming.ask("confirm", KEY) == "lost"
    for taker in takers:
        assert taker.attempt == 2
        taker.confirm()


def test_of_many_that_race_for_a_trial_one_wins(place: Place) -> None:
    keys = [f"trial{number}" for number in range(50)]
    owners = [place.owner(LONG) for _ in range(2)]
    for owner in owners:
        assert owner.ask("race", []) == []  # up and ready
    for owner in owners:
        owner.tell("race", keys)
    won = [key for owner in owners for key in owner.hear()]
    assert sorted(won) == sorted(keys)


def test_no_two_threads_hold_a_claim_that_changes_hands_all_the_time(place: Place) -> None:
    claims = place.open(LONG)
    inside: list[int] = []
    seen: list[tuple[int, int]] = []

    def work(number: int) -> None:
        for _ in range(10):
            claim = awaited(claims)
            inside.append(number)
            assert inside == [number]
            claim.confirm()
            seen.append((claim.generation, claim.attempt))
            assert inside == [number]
            inside.remove(number)
            claim.release()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert seen == sorted(set(seen))  # each later one has a higher generation
    assert [attempt for _, attempt in seen] == list(range(1, 41))


def test_all_claims_are_renewed_until_they_are_released(place: Place) -> None:
    claims = place.open(3.0)
    own = [acquired(claims, key) for key in (KEY, "another")]
    with contextlib.closing(Renewal()) as renewal:
        for claim in own:
            renewal.keep(claim)
        until = time.monotonic() + 3.2
        while time.monotonic() < until:
            assert claims.acquire(KEY) is None and claims.acquire("another") is None
            time.sleep(0.02)
        own[0].confirm()
        renewal.release(own[0])
        assert claims.holder(KEY) is None and claims.holder("another") is not None
        assert acquired(claims).attempt == 2


def test_a_claim_whose_work_stands_still_is_not_renewed(place: Place) -> None:
    """As that of a trial whose process is suspended."""
    works = False
    with contextlib.closing(Renewal()) as renewal:
        renewal.keep(acquired(place.open(SHORT)), lambda: works)
        awaited(place.open(LONG))


def test_a_claim_that_is_lost_is_told_once(place: Place) -> None:
    claims = place.open(SHORT)
    claim = acquired(claims)
    taker = awaited(place.open(LONG))
    told: list[str] = []
    gone = threading.Event()

    def lost(key: str) -> None:
        told.append(f"{key} by {threading.current_thread().name}")
        gone.set()

    with contextlib.closing(Renewal(lost)) as renewal:
        renewal.keep(claim)
        assert gone.wait(20)
        with pytest.raises(ClaimLost):
            claim.confirm()
        renewal.release(claim)
    assert told == [f"{KEY} by renewal of claims"]
    taker.confirm()  # still its own: the release of the lost claim released nothing


# Of directories only


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "claims"


def test_only_the_highest_generation_stays(folder: Path) -> None:
    claims = Claims(DirectoryRecords(folder.parent))
    for _ in range(3):
        claim = acquired(claims)
        claim.confirm()
        claim.release()
    assert os.listdir(folder / KEY) == ["9"]


def test_the_name_of_a_generation_that_has_come_and_gone_is_worth_nothing(folder: Path) -> None:
    """Of one that looked, was stopped, and goes on when its next generation was made and removed by others."""
    claims = Claims(DirectoryRecords(folder.parent))
    late = acquired(claims)
    old = claims.place.get(KIND, KEY)
    assert old is not None
    late.release()
    acquired(claims).confirm()
    assert os.listdir(folder / KEY) == ["4"]
    assert claims.place.put(KIND, KEY, {**old.value, "attempt": 9}, replace(old, version=2)) is None
    assert os.listdir(folder / KEY) == ["4"]
    (folder / KEY / "1").write_text(json.dumps(old.value))
    with pytest.raises(ClaimLost):
        late.confirm()
    assert [record.generation for record in claims.records()] == [4]


def test_clocks_of_machines_do_not_matter(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claims = Claims(DirectoryRecords(folder.parent))
    acquired(claims)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 86400)
    assert claims.acquire(KEY) is None
    assert claims.records()[0].age < 60


def test_a_record_that_was_cut_short_runs_out(folder: Path) -> None:
    claims = Claims(DirectoryRecords(folder.parent))
    (folder / KEY).mkdir(parents=True)
    (folder / KEY / "7").write_bytes(b'{"schema": 1, "attempt": 3')
    assert claims.acquire(KEY) is None
    os.utime(folder / KEY / "7", (0, 0))
    claim = acquired(claims, at_least=3)
    assert (claim.generation, claim.attempt) == (8, 4)


def test_a_claim_of_a_newer_version_is_refused(folder: Path) -> None:
    claims = Claims(DirectoryRecords(folder.parent))
    acquired(claims)
    path = folder / KEY / "1"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": 99}))
    [record] = claims.records()
    assert record.alive and "reads up to" in str(record.damage)
    for use in (lambda: claims.acquire(KEY), lambda: claims.holder(KEY), lambda: claims.drop(record)):
        with pytest.raises(UserError, match="reads up to"):
            use()


def test_a_removed_folder_is_a_lost_claim(folder: Path) -> None:
    claim = acquired(Claims(DirectoryRecords(folder.parent)))
    (folder / KEY / "1").unlink()
    for use in (claim.renew, claim.confirm):
        with pytest.raises(ClaimLost, match="removed"):
            use()
    claim.release()


def test_what_killed_processes_left_is_swept(folder: Path) -> None:
    claims = Claims(DirectoryRecords(folder.parent))
    claim = acquired(claims)
    left = [folder / ".new-1", folder / KEY / ".new-2"]
    for rubbish in left:
        rubbish.touch()
        os.utime(rubbish, (0, 0))
    fresh = folder / KEY / ".new-3"  # of one that is about to link it
    fresh.touch()
    claims.records()
    claim.release()
    assert not any(rubbish.exists() for rubbish in left)
    assert fresh.exists()


def test_a_place_that_is_no_folder_is_the_readers_to_put_right(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot use the claims in .*: Not a directory"):
        Claims(DirectoryRecords(tmp_path / "file")).acquire(KEY)
    with pytest.raises(ValueError, match="not the key of a record"):
        Claims(DirectoryRecords(tmp_path)).acquire("../elsewhere")


def test_claims_are_confirmed_and_released_on_a_full_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claims = Claims(DirectoryRecords(folder.parent))
    claim = acquired(claims)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(UserError, match="No space left"):
            claims.acquire("another")
        claim.renew()
        claim.confirm()
        assert claim.generation == 2 and claims.acquire(KEY) is None
        claim.release()
        assert claims.holder(KEY) is None
    assert acquired(claims).attempt == 2
    with pytest.raises(ClaimLost):
        claim.confirm()


USER, OTHER, GROUP = 12345, 12346, 12347
"""Ids that no user of a machine has."""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as two users")
def test_two_users_share_claims_by_their_umask(place: Place, tmp_path: Path) -> None:
    if place.kind != "directory":
        pytest.skip("a database has users of its own")
    for parent in (tmp_path, *tmp_path.parents[:-2]):
        parent.chmod(0o755)
    tmp_path.chmod(0o775)
    os.chown(tmp_path, USER, GROUP)
    first, second, alone = (place.owner(LONG) for _ in range(3))
    for owner, ids in ((first, [USER, GROUP, 0o002]), (second, [OTHER, GROUP, 0o002]), (alone, [OTHER, OTHER, 0o022])):
        owner.ask("become", ids)
    assert first.ask("acquire", KEY) == [1, 1]
    assert second.ask("acquire", KEY) is None
    first.process.kill()
    os.waitid(os.P_PID, first.process.pid, os.WEXITED | os.WNOWAIT)
    assert second.ask("acquire", KEY) == [2, 2]
    assert second.ask("confirm", KEY) is None
    folder = tmp_path / "claims"
    assert {oct(path.stat().st_mode & 0o777) for path in (folder, folder / KEY)} == {"0o775"}
    assert oct((folder / KEY / "3").stat().st_mode & 0o777) == "0o664"
    second.process.kill()
    os.waitid(os.P_PID, second.process.pid, os.WEXITED | os.WNOWAIT)
    assert alone.ask("acquire", KEY) == "unreachable"  # without the group it may read the claim, and not replace it


# Of MongoDB only


SOON = 0.3
"""Seconds after which operations give up a server that is gone."""


@pytest.fixture
def server() -> Iterator[Mongod]:
    with tempfile.TemporaryDirectory(prefix="mongod-") as folder:
        one = Mongod(Path(folder))
        one.start()
        try:
            yield one
        finally:
            one.kill()


def test_an_owner_goes_on_while_the_server_is_gone_and_renews_when_it_is_back(server: Mongod) -> None:
    client = pymongo.MongoClient[dict[str, Any]](server.uri)
    place = MongoRecords(client["lab"])
    claims = Claims(place, lease=1.2)
    told: list[str] = []
    claim = acquired(claims)
    with contextlib.closing(Renewal(told.append)) as renewal:
        renewal.keep(claim)
        server.kill()
        place.wait = SOON
        for use in (claim.confirm, lambda: claims.acquire("another"), lambda: claims.holder(KEY), claims.records):
            with pytest.raises(Unreachable, match=r"^the database does not answer: .*\Z"):
                use()
        place.wait = WAIT
        server.start()
        claim.confirm()
        before = claims.records()[0].age
        await_that(lambda: claims.records()[0].age < max(before, 0.2))
        assert claims.acquire(KEY) is None
        assert acquired(claims, "another").attempt == 1
        server.kill()
        place.wait = SOON
        renewal.release(claim)
    assert told == []  # and the end came, though nothing could be released
    with pymongo.timeout(0.1):
        client.close()  # says good-bye, and waits for an answer


def test_who_could_not_renew_because_the_server_was_down_is_not_taken_over(
    mongo_database: Database[dict[str, Any]],
) -> None:
    months = 1e7  # the server started less than such a lease ago, 2020 was longer ago
    documents, long_ago = mongo_database["harness_claims"], {"renewed": datetime(2020, 1, 1)}
    claims = Claims(MongoRecords(mongo_database), months)
    claim = acquired(claims)
    documents.update_one({"_id": KEY}, {"$set": long_ago})
    assert claims.acquire(KEY) is None
    (record,) = claims.records()
    assert record.alive and record.age < months
    claim.renew()
    assert claims.records()[0].age < months
    documents.update_one({"_id": KEY}, {"$set": long_ago | {"owner.started": 1}})
    assert acquired(claims).attempt == 2  # but a dead one is


def test_credentials_are_in_no_message(mongod: str) -> None:
    nothing = f"127.0.0.1:{free_port()}"
    for server, kind in ((mongod.split("/")[2], UserError), (nothing, Unreachable)):
        uri = f"mongodb://someone:secret@{server}/?authSource=admin"
        with pymongo.MongoClient[dict[str, Any]](uri) as client, pytest.raises(kind) as caught:
            Claims(MongoRecords(client["lab"], SOON), SHORT).acquire(KEY)
        assert "secret" not in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_document_of_a_newer_version_is_refused(mongo_database: Database[dict[str, Any]]) -> None:
    claims = Claims(MongoRecords(mongo_database))
    acquired(claims)
    mongo_database["harness_claims"].update_one({"_id": KEY}, {"$set": {"schema": 99}})
    [record] = claims.records()
    assert record.alive and "reads up to" in str(record.damage)
    for use in (lambda: claims.acquire(KEY), lambda: claims.holder(KEY), lambda: claims.drop(record)):
        with pytest.raises(UserError, match="reads up to"):
            use()


def test_a_removed_document_is_a_lost_claim(mongo_database: Database[dict[str, Any]]) -> None:
    claim = acquired(Claims(MongoRecords(mongo_database)))
    mongo_database["harness_claims"].delete_one({"_id": KEY})
    for use in (claim.renew, claim.confirm):
        with pytest.raises(ClaimLost, match="removed"):
            use()
    claim.release()


def test_a_claim_survives_a_power_failure(folder: Path, synced: list[str]) -> None:
    acquired(Claims(DirectoryRecords(folder.parent)))
    assert len(synced) == 1 and Path(synced[0]).parent == folder / KEY
