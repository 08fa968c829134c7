"""A whole store into the database and back: all of it, once, whoever else does the same."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.monitoring import CommandListener, CommandSucceededEvent

from harness.stores.directory.run_directory import TRIAL, declare_invalid, write_ranking
from harness.stores.directory.store import DirectoryStore
from harness.stores.mongo.store import MongoStore
from harness.stores.mongo.sync import sync, unsynced
from tests.stored_runs import judged
from tests.stores.conftest import NUMBERS, RESULT, finish, trial

Make = Callable[..., Path]
Mongo = Database[dict[str, Any]]

PREDICTIONS = {"schema": 2, "images": None, "batch_size": 256, "accuracies": {"9": 1.0}}


def counts(database: Mongo) -> dict[str, int]:
    return {name: database[name].count_documents({}) for name in ("runs", "metrics", "fs.files", "fs.chunks")}


def test_every_run_is_brought_once(store: DirectoryStore, make_run: Make, mongo_database: Mongo) -> None:
    assert sync(store, mongo_database).runs == 0
    paths = [make_run(seed) for seed in range(3)]
    store.create(trial(), "tiny", {})
    assert len(unsynced(store, mongo_database)) == 4
    told: list[tuple[int, int]] = []
    done = sync(store, mongo_database, report=lambda number, total: told.append((number, total)))
    assert (done.runs, done.projected, done.failed) == (4, 4, {})
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)] and unsynced(store, mongo_database) == []
    numbers = {run["harness"]["run_id"]: run["_id"] for run in mongo_database["runs"].find()}
    assert [numbers[path.name] for path in paths] == [1, 2, 3]  # as they began
    before = counts(mongo_database)
    done = sync(store, mongo_database)
    assert (done.runs, done.projected, counts(mongo_database)) == (4, 0, before)
    write_ranking(paths[1], "0123456789abcdef", trial().config.json(), judged(0.75), {}, PREDICTIONS)
    assert unsynced(store, mongo_database) == [paths[1].name]
    assert sync(store, mongo_database).projected == 1
    assert MongoStore(mongo_database).runs() == store.runs()


class Replies(CommandListener):
    """The runs in the replies of the database."""

    def __init__(self) -> None:
        self.runs: list[str] = []

    def started(self, event: Any) -> None:
        pass

    def succeeded(self, event: CommandSucceededEvent) -> None:
        batch = event.reply.get("cursor", {}).get("firstBatch", [])
        self.runs += [document["harness"]["run_id"] for document in batch]

    def failed(self, event: Any) -> None:
        pass


def test_only_runs_of_the_directory_are_asked_for(
    store: DirectoryStore, make_run: Make, tmp_path: Path, mongod: str, mongo_database: Mongo
) -> None:
    paths = [make_run(seed) for seed in range(3)]
    sync(store, mongo_database)
    mine = DirectoryStore(tmp_path / "elsewhere")
    replies = Replies()
    with MongoClient[dict[str, Any]](mongod, event_listeners=[replies]) as client:
        assert unsynced(mine, client[mongo_database.name]) == [] and replies.runs == []
        shutil.copytree(paths[1], mine.path / paths[1].name)
        assert unsynced(mine, client[mongo_database.name]) == [] and replies.runs == [paths[1].name]


def test_more_runs_than_are_asked_for_at_once(
    store: DirectoryStore, make_run: Make, mongo_database: Mongo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.stores.mongo.sync.BATCH", 2)
    for seed in range(5):
        make_run(seed)
    assert sync(store, mongo_database).projected == 5
    assert unsynced(store, mongo_database) == [] and sync(store, mongo_database).projected == 0


def test_several_processes_sync_at_once(
    store: DirectoryStore, make_run: Make, mongod: str, mongo_database: Mongo
) -> None:
    for seed in range(6):
        make_run(seed)
    script = (
        "import sys, pathlib, pymongo\n"
        "from harness.stores.directory.store import DirectoryStore\nfrom harness.stores.mongo.sync import sync\n"
        "database = pymongo.MongoClient(sys.argv[1])[sys.argv[2]]; sys.stdin.read(1)\n"
        "print(*sync(DirectoryStore(pathlib.Path(sys.argv[3])), database).failed)\n"
    )
    command = [sys.executable, "-c", script, mongod, mongo_database.name, str(store.path)]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
    assert [process.communicate(b"\n")[0].strip() for process in processes] == [b""] * 2
    assert [process.returncode for process in processes] == [0] * 2
    before = counts(mongo_database)
    assert before == {"runs": 6, "metrics": 6 * (1 + len(NUMBERS)), "fs.files": 12, "fs.chunks": 12}
    assert sync(store, mongo_database).projected == 0 and counts(mongo_database) == before


def test_what_fails_is_told_and_stops_nothing(store: DirectoryStore, make_run: Make, mongo_database: Mongo) -> None:
    broken, half, whole = make_run(), make_run(1), make_run(2)
    (broken / TRIAL).write_text("{")
    (half / "predictions.json").unlink()
    done = sync(store, mongo_database)
    assert (done.runs, done.projected) == (3, 1) and done.failed.keys() == {broken.name, half.name}
    assert "is not whole JSON" in done.failed[broken.name] and "predictions.json" in done.failed[half.name]
    assert MongoStore(mongo_database).ids() == [whole.name]


def test_a_mark_made_in_the_database_comes_to_the_directory(
    store: DirectoryStore, make_run: Make, mongo_database: Mongo
) -> None:
    path = make_run()
    sync(store, mongo_database)
    MongoStore(mongo_database).invalidate(path.name, "wrong data")
    assert sync(store, mongo_database).failed == {}
    assert [run.invalid for run in store.runs()] == ["wrong data"]
    sync(store, mongo_database)
    assert unsynced(store, mongo_database) == [] and MongoStore(mongo_database).runs() == store.runs()


def test_copies_on_two_machines_come_to_agree(
    store: DirectoryStore, make_run: Make, tmp_path: Path, mongo_database: Mongo
) -> None:
    path = make_run()
    other = DirectoryStore(tmp_path / "elsewhere")
    shutil.copytree(store.path, other.path)
    for place, key in ((other, "0" * 16), (store, "1" * 16), (other, "2" * 16)):
        write_ranking(place.path / path.name, key, trial().config.json(), judged(0.75), {}, PREDICTIONS)
    for place in (store, other):
        sync(place, mongo_database)
    assert unsynced(store, mongo_database) == unsynced(other, mongo_database) == []
    database = MongoStore(mongo_database)
    assert [*database.runs()[0].rankings][1:] == ["0" * 16, "1" * 16, "2" * 16]
    for place in (store, other):
        database.fetch(path.name, place.path)
        assert place.runs() == database.runs()


def test_a_run_that_ends_meanwhile_is_brought_again(store: DirectoryStore, mongo_database: Mongo) -> None:
    directory = store.create(trial(), "tiny", {})
    sync(store, mongo_database)
    finish(directory, trial(), RESULT)
    assert unsynced(store, mongo_database) == [directory.id]
    sync(store, mongo_database)
    assert MongoStore(mongo_database).runs() == store.runs() and counts(mongo_database)["runs"] == 1


def test_a_copy_left_behind_adds_its_mark_and_is_in_step(
    store: DirectoryStore, tmp_path: Path, mongo_database: Mongo
) -> None:
    directory = store.create(trial(), "tiny", {})
    behind = DirectoryStore(tmp_path / "elsewhere")
    shutil.copytree(store.path, behind.path)
    finish(directory, trial(), RESULT)
    sync(store, mongo_database)
    declare_invalid(behind.path / directory.id, "wrong data")
    assert unsynced(behind, mongo_database) == [directory.id]
    sync(behind, mongo_database)
    assert unsynced(behind, mongo_database) == []
    (run,) = MongoStore(mongo_database).runs()
    assert (run.status, run.invalid) == ("done", "wrong data")
    sync(store, mongo_database)
    assert store.runs() == [run] and unsynced(store, mongo_database) == []
