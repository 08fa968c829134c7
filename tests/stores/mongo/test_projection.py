"""One run directory into MongoDB: what Sacred's tools need, the same however often, and nothing older over newer."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId
from pymongo import MongoClient, ReadPreference
from pymongo.database import Database
from pymongo.monitoring import CommandListener, CommandStartedEvent

from harness.errors import DataError
from harness.files import write_json
from harness.owner import start_ticks
from harness.stores.directory.observer import DirectoryObserver
from harness.stores.directory.run_directory import (
    COMPLETION,
    INFO,
    LOG,
    METRICS,
    POINTS,
    SOURCES,
    TRIAL,
    WEIGHTS,
    RunDirectory,
    declare_invalid,
    write_ranking,
)
from harness.stores.directory.store import DirectoryStore
from harness.stores.mongo import gridfs, projection
from harness.stores.mongo.projection import project, revision
from harness.stores.mongo.sacred_document import LONGEST_VALUE
from harness.stores.mongo.snapshot import INLINE, Snapshot
from harness.stores.mongo.store import MongoStore
from harness.stores.mongo.sync import unsynced
from tests.stored_runs import STOPPED, judged
from tests.stores.conftest import CURVES, NUMBERS, RESULT, TIME, finish, trial

Make = Callable[..., Path]
Mongo = Database[dict[str, Any]]


def everything(database: Mongo) -> dict[str, list[dict[str, Any]]]:
    names = ("runs", "metrics", "fs.files", "fs.chunks")
    return {name: list(database[name].find().sort("_id")) for name in names}


def counts(database: Mongo) -> dict[str, int]:
    return {name: len(documents) for name, documents in everything(database).items()}


def begin(store: DirectoryStore) -> tuple[RunDirectory, DirectoryObserver]:
    """A run of this process that goes on."""
    directory = store.create(trial(), "tiny", {})
    observer = DirectoryObserver(directory, trial().config.json(), {"key": trial().key})
    info = {"name": "cell", "mainfile": "experiment.py"}
    observer.started_event(info, "train_rank_judge", {}, TIME, {}, {}, None)
    (directory.path / LOG).write_text("begun\n")
    return directory, observer


def give_to(directory: RunDirectory, owner: dict[str, Any]) -> None:
    """Another process's run."""
    document = json.loads((directory.path / TRIAL).read_text())
    write_json(directory.path / TRIAL, document | {"owner": document["owner"] | owner})


def rank(path: Path, key: str, tau: float = 0.75, predictions: int = 1) -> None:
    accuracies = {str(number): 12.5 for number in range(predictions)}
    own = {"schema": 2, "images": None, "batch_size": 256, "accuracies": accuracies}
    write_ranking(path, key, trial().config.json(), judged(tau), {}, own)


def test_a_document_is_what_sacreds_tools_need(make_run: Make, mongo_database: Mongo) -> None:
    path = make_run()
    number = project(path, mongo_database)
    run = mongo_database["runs"].find_one({"_id": number})
    assert run is not None and number == 1
    assert run["status"] == "COMPLETED" and run["config"].items() >= trial().config.json().items()
    assert run["info"]["result"] == RESULT
    assert run["start_time"] == TIME and run["stop_time"] == run["heartbeat"] == STOPPED
    assert run["experiment"]["name"] == "spos" and run["experiment"]["sources"] == []
    assert run["captured_out"] == "trained\n" and isinstance(run["host"]["hostname"], str)
    assert run["command"] == "train_rank_judge" and run["resources"] == [] and "fail_trace" not in run
    assert [one["name"] for one in run["artifacts"]] == ["predictions.json", "weights.pt"]
    (curve,) = mongo_database["metrics"].find(CURVES)
    assert run["info"]["metrics"][0] == {"name": "train_loss", "id": str(curve["_id"])}
    assert (curve["run_id"], curve["name"], curve["steps"], curve["values"]) == (1, "train_loss", [1, 2], [2.5, 1.25])
    assert all(isinstance(one, datetime) for one in curve["timestamps"])
    for one in run["artifacts"]:
        file = mongo_database["fs.files"].find_one({"_id": one["file_id"]})
        assert file is not None and file["filename"] == one["name"]


def test_projecting_again_changes_nothing(make_run: Make, mongo_database: Mongo) -> None:
    path = make_run()
    project(path, mongo_database)
    before = everything(mongo_database)
    assert [project(path, mongo_database) for _ in range(5)] == [1] * 5
    assert everything(mongo_database) == before
    assert project(path, mongo_database, again=True) == 1
    assert counts(mongo_database) == {name: len(documents) for name, documents in before.items()}


def test_several_processes_at_once_make_one_of_everything(make_run: Make, mongod: str, mongo_database: Mongo) -> None:
    paths = [make_run(seed) for seed in range(3)]
    script = (
        "import sys, pathlib, pymongo; from harness.stores.mongo.projection import project\n"
        "database = pymongo.MongoClient(sys.argv[1])[sys.argv[2]]; sys.stdin.read(1)\n"
        "for _ in range(5):\n    for path in sys.argv[3:]: project(pathlib.Path(path), database)\n"
    )
    command = [sys.executable, "-c", script, mongod, mongo_database.name, *map(str, paths)]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(2)]
    for process in processes:
        process.communicate(b"\n")
    assert [process.returncode for process in processes] == [0] * 2
    assert counts(mongo_database) == {"runs": 3, "metrics": 3 * (1 + len(NUMBERS)), "fs.files": 6, "fs.chunks": 6}
    assert sorted(run["_id"] for run in mongo_database["runs"].find()) == [1, 2, 3]


def test_a_run_is_one_document_from_its_start_to_its_end(store: DirectoryStore, mongo_database: Mongo) -> None:
    directory, observer = begin(store)
    revisions = [revision(directory.path)]
    project(directory.path, mongo_database)
    run = mongo_database["runs"].find_one()
    assert run is not None and (run["status"], run["captured_out"], run["stop_time"]) == ("RUNNING", "begun\n", None)
    directory.log_metric("train_loss", 1, 2.5)
    project(directory.path, mongo_database)
    assert [one["values"] for one in mongo_database["metrics"].find()] == [[2.5]]
    directory.log_metric("train_loss", 2, float("nan"))
    observer.failed_event(TIME, ["Traceback\n", "ValueError: no\n"])
    revisions.append(revision(directory.path))
    directory.gather_metrics()
    project(directory.path, mongo_database)
    run = mongo_database["runs"].find_one()
    assert run is not None and (run["status"], run["stop_time"]) == ("FAILED", TIME)
    assert run["fail_trace"] == ["Traceback\n", "ValueError: no\n"]
    assert [one["values"] for one in mongo_database["metrics"].find()] == [[2.5, None]]
    assert counts(mongo_database)["runs"] == 1 and revisions == sorted(set(revisions))


def test_an_older_state_never_replaces_a_newer(store: DirectoryStore, tmp_path: Path, mongo_database: Mongo) -> None:
    directory, _ = begin(store)
    directory.log_metric("train_loss", 1, 2.5)
    older = tmp_path / "older" / directory.id
    shutil.copytree(directory.path, older)
    finish(directory, trial(), RESULT)
    project(directory.path, mongo_database)
    before = everything(mongo_database)
    project(older, mongo_database)
    assert everything(mongo_database) == before


def test_copies_with_different_rankings_give_all_of_them(make_run: Make, tmp_path: Path, mongo_database: Mongo) -> None:
    path = make_run()
    copy = tmp_path / "elsewhere" / path.name
    shutil.copytree(path, copy)
    rank(copy, "0" * 16)
    rank(path, "1" * 16, predictions=20_000)
    for one in (path, copy, path):
        project(one, mongo_database)
    database = MongoStore(mongo_database)
    (run,) = database.runs()
    assert list(run.rankings) == [trial().ranking_key, "0" * 16, "1" * 16]
    assert len(database.predictions(run)) == 20_000
    before = everything(mongo_database)
    for one in (copy, path):
        project(one, mongo_database)
    assert everything(mongo_database) == before


@pytest.mark.parametrize("recomputed_first", [True, False])
@pytest.mark.parametrize("mirrored_first", [True, False])
def test_a_recomputed_result_is_mirrored_whatever_another_copy_has(
    make_run: Make, tmp_path: Path, mongo_database: Mongo, recomputed_first: bool, mirrored_first: bool
) -> None:
    path = make_run()
    copy = tmp_path / "elsewhere" / path.name
    shutil.copytree(path, copy)
    project(path, mongo_database)
    own, further = (path, trial().ranking_key), (copy, "0" * 16)
    for folder, key in (own, further) if recomputed_first else (further, own):
        rank(folder, key)
    for folder in (path, copy) if mirrored_first else (copy, path):
        project(folder, mongo_database)
    (here,), (run,) = DirectoryStore(path.parent).runs(), MongoStore(mongo_database).runs()
    assert run.result == here.result == RESULT | judged(0.75)
    assert list(run.rankings) == [trial().ranking_key, "0" * 16]


def test_copies_projected_at_once_lose_nothing(make_run: Make, tmp_path: Path, mongo_database: Mongo) -> None:
    path = make_run()
    copies = [tmp_path / str(number) / path.name for number in range(8)]
    for number, copy in enumerate(copies):
        shutil.copytree(path, copy)
        rank(copy, f"{number:016d}")
    with ThreadPoolExecutor(len(copies)) as pool:
        assert {*pool.map(lambda copy: project(copy, mongo_database), copies)} == {1}
    (run,) = MongoStore(mongo_database).runs()
    assert list(run.rankings)[1:] == [f"{number:016d}" for number in range(8)]


def test_another_run_of_the_same_id_is_refused(store: DirectoryStore, mongo_database: Mongo) -> None:
    directory, _ = begin(store)
    project(directory.path, mongo_database)
    give_to(directory, {"pid": 1})
    with pytest.raises(DataError, match="another run with that id"):
        project(directory.path, mongo_database)


def test_a_newer_schema_is_left_alone(make_run: Make, mongo_database: Mongo) -> None:
    path = make_run()
    project(path, mongo_database)
    mongo_database["runs"].update_one({}, {"$set": {"harness.schema": 99}})
    with pytest.raises(DataError, match="schema 99.*update it"):
        project(path, mongo_database, again=True)


def test_what_others_stored_is_left_alone(make_run: Make, mongo_database: Mongo) -> None:
    foreign: list[dict[str, Any]] = [{"_id": 41, "status": "COMPLETED"}, {"_id": "by name"}, {"_id": 7}]
    mongo_database["runs"].insert_many(foreign)
    mongo_database["metrics"].insert_many([{"run_id": 41, "name": "loss"}, {"run_id": 41, "name": "loss"}])
    path = make_run()
    assert project(path, mongo_database) == 42
    assert list(mongo_database["runs"].find({"harness": {"$exists": False}})) == foreign
    mongo_database["runs"].update_one({"_id": 42}, {"$set": {"omniboard": {"tags": ["kept"]}}})
    project(path, mongo_database, again=True)
    assert mongo_database["runs"].count_documents({"omniboard.tags": "kept"}) == 1


def test_a_removed_run_comes_back_whole(make_run: Make, mongo_database: Mongo) -> None:
    path = make_run()
    project(path, mongo_database)
    mongo_database["runs"].delete_many({})
    mongo_database["fs.files"].delete_many({})
    mongo_database["runs"].insert_one({"_id": 5})
    assert project(path, mongo_database) == 6
    assert {one["run_id"] for one in mongo_database["metrics"].find()} == {6}
    database = MongoStore(mongo_database)
    assert database.read(database.runs()[0], WEIGHTS) == b"weights"


def test_weights_above_the_limit_stay_in_the_directory(make_run: Make, mongo_database: Mongo) -> None:
    path = make_run()
    project(path, mongo_database, weights_max=6)
    store = MongoStore(mongo_database)
    (run,) = store.runs()
    assert run.counts and WEIGHTS not in store.files(run)
    with pytest.raises(DataError, match="weights.pt: is not in the database: it is too large"):
        store.read(run, WEIGHTS)
    project(path, mongo_database, weights_max=7)
    assert store.read(run, WEIGHTS) == b"weights"
    project(path, mongo_database, weights_max=6, again=True)
    assert store.read(run, WEIGHTS) == b"weights"


def test_sources_are_shared_by_runs(store: DirectoryStore, mongo_database: Mongo) -> None:
    for seed in range(2):
        directory = store.create(trial(seed), "tiny", {})
        (directory.path / SOURCES).mkdir()
        (directory.path / SOURCES / "spos.py").write_text("# a method\n")
        finish(directory, trial(seed), RESULT)
        project(directory.path, mongo_database)
    first, second = (run["experiment"]["sources"] for run in mongo_database["runs"].find())
    assert first == second == [["spos.py", first[0][1]]] and isinstance(first[0][1], ObjectId)
    assert mongo_database["fs.files"].count_documents({"filename": f"{SOURCES}/spos.py"}) == 1


def test_large_files_of_a_run_under_way_come_when_it_ends(store: DirectoryStore, mongo_database: Mongo) -> None:
    directory, _ = begin(store)
    owner = subprocess.Popen(["sleep", "600"])
    give_to(directory, {"pid": owner.pid, "started": start_ticks(owner.pid)})
    text = "a line of output\n" * 100_000
    (directory.path / LOG).write_text(text)
    for step in range(3000):
        directory.log_metric("train_loss", step, 0.5)
    project(directory.path, mongo_database)
    database = MongoStore(mongo_database)
    (run,) = database.runs()
    assert run.status == "running" and LOG not in database.files(run) and counts(mongo_database)["fs.files"] == 0
    shown = mongo_database["runs"].find_one({}, {"captured_out": 1})
    assert shown is not None and shown["captured_out"].startswith("[…") and len(shown["captured_out"]) > 1_000_000
    points = database.metrics(run)["train_loss"]
    assert [(one["step"], one["value"]) for one in points] == [(step, 0.5) for step in range(3000)]
    # Nothing of the directory changes when its process is killed; yet what it left is all there will be.
    owner.kill()
    owner.wait()
    assert unsynced(store, mongo_database) == [run.id]
    project(directory.path, mongo_database)
    assert unsynced(store, mongo_database) == []
    (run,) = database.runs()
    assert run.status == "lost" and database.read(run, LOG).decode() == text
    assert database.metrics(run) == store.metrics(run) and POINTS in database.files(run)


def test_replaced_and_left_over_files_go(store: DirectoryStore, mongo_database: Mongo) -> None:
    directory, observer = begin(store)
    observer.failed_event(TIME, [])
    for size in (INLINE + 1, INLINE + 2):
        (directory.path / LOG).write_bytes(b"x" * size)
        project(directory.path, mongo_database)
    (file,) = mongo_database["fs.files"].find()
    assert file["length"] == INLINE + 2 and counts(mongo_database)["fs.chunks"] == 1
    # Somebody was killed while writing a log that is no longer the log.
    stray = gridfs.file_id(directory.id, LOG, "0" * 64)
    mongo_database["fs.chunks"].insert_one({"files_id": stray, "n": 0, "data": b"half"})
    finish(directory, trial(), RESULT)
    project(directory.path, mongo_database)
    assert sorted(file["filename"] for file in mongo_database["fs.files"].find()) == ["predictions.json", "weights.pt"]
    assert counts(mongo_database)["fs.chunks"] == 2


def test_whatever_a_run_says_can_be_stored(store: DirectoryStore, mongo_database: Mongo) -> None:
    directory = store.create(trial(), "tiny", {})
    odd = {"a.b": {"$set": 2**70}, "\0": "\ud800", "x": [float("inf"), {"c.d": None}]}
    finish(directory, trial(), RESULT)
    (directory.path / INFO).write_text(json.dumps(odd))
    (directory.path / LOG).write_bytes(b"\xff\0\r\n")
    (directory.path / COMPLETION).unlink()
    directory.complete()
    project(directory.path, mongo_database)
    run = mongo_database["runs"].find_one()
    assert run is not None and run["captured_out"] == "�\0\r\n"
    assert {key: value for key, value in run["info"].items() if key not in ("metrics", "result")} == {
        "a_b": {"_set": str(2**70)},
        "_": "?",
        "x": [None, {"c_d": None}],
    }
    database = MongoStore(mongo_database)
    (stored,) = database.runs()
    assert {name: database.read(stored, name) for name in database.files(stored)} == {
        name: store.read(stored, name) for name in store.files(stored)
    }


def test_what_is_too_long_for_a_document_is_said_and_stays_in_the_files(
    store: DirectoryStore, mongo_database: Mongo
) -> None:
    directory = store.create(trial(), "tiny", {})
    finish(directory, trial(), RESULT)
    (directory.path / INFO).write_text(json.dumps({"said": "x" * LONGEST_VALUE}))
    (directory.path / COMPLETION).unlink()
    directory.complete()
    project(directory.path, mongo_database)
    run = mongo_database["runs"].find_one()
    assert run is not None and run["info"]["note"] == "too long to be shown; see the artifacts"
    database = MongoStore(mongo_database)
    (stored,) = database.runs()
    assert stored.counts and database.read(stored, INFO) == (directory.path / INFO).read_bytes()


def test_a_damaged_directory_is_not_mirrored(make_run: Make, mongo_database: Mongo) -> None:
    path = make_run()
    project(path, mongo_database)
    before = everything(mongo_database)
    (path / METRICS).write_text("{}")
    with pytest.raises(DataError, match=r"metrics\.json"):
        project(path, mongo_database)
    assert everything(mongo_database) == before


def test_damaged_weights_are_not_mirrored(store: DirectoryStore, mongo_database: Mongo) -> None:
    directory = store.create(trial(), "tiny", {})
    directory.write_weights(lambda file: file.write(b"w" * 2_000_000))
    finish(directory, trial(), RESULT)
    directory.write_weights(lambda file: file.write(b"w" * 2_000_000))
    (directory.path / COMPLETION).unlink()
    directory.complete()
    (directory.path / WEIGHTS).write_bytes(b"v" * 2_000_000)
    with pytest.raises(DataError, match=r"weights\.pt: has another checksum"):
        project(directory.path, mongo_database)
    assert MongoStore(mongo_database).runs() == [] and mongo_database["fs.files"].count_documents({}) <= 1


def test_a_mark_is_mirrored(make_run: Make, mongo_database: Mongo) -> None:
    path = make_run()
    project(path, mongo_database)
    declare_invalid(path, "wrong data")
    project(path, mongo_database)
    assert [run.invalid for run in MongoStore(mongo_database).runs()] == ["wrong data"]


@pytest.mark.long
def test_long_curves_and_outputs_are_stored_and_read_back(store: DirectoryStore, mongo_database: Mongo) -> None:
    directory, _ = begin(store)
    points = [
        {"name": "train_loss", "step": step, "value": step / 7, "timestamp": f"2026-01-02T03:04:05.{step:06d}"}
        for step in range(400_000)
    ]
    directory.log_points(points)
    output = "".join(f"line {number} of a long output\n" for number in range(700_000))
    assert len(output) > 20_000_000
    project(directory.path, mongo_database)  # under way: as far as it goes into documents
    (curve,) = mongo_database["metrics"].find(CURVES)
    assert (curve["thinned"], curve["points"], len(curve["values"])) == (True, 400_000, 100_000)
    assert (curve["steps"][0], curve["steps"][-1], curve["values"][-1]) == (0, 399_999, 399_999 / 7)
    observer = DirectoryObserver(directory, trial().config.json(), {})
    directory.write_result(RESULT, {"wall_seconds": 1.0})
    directory.write("predictions.json", {"schema": 1, "images": None, "batch_size": 256, "accuracies": {}})
    (directory.path / LOG).write_text(output)
    observer.completed_event(TIME, RESULT)
    directory.gather_metrics()
    directory.complete()
    project(directory.path, mongo_database)
    database = MongoStore(mongo_database)
    (run,) = database.runs()
    assert run.counts and database.read(run, LOG).decode() == output
    assert database.metrics(run) == store.metrics(run)
    assert [(one["step"], one["value"]) for one in database.metrics(run)["train_loss"]] == [
        (point["step"], point["value"]) for point in points
    ]
    assert counts(mongo_database)["metrics"] == 1 + len(NUMBERS)


def test_a_file_that_cannot_be_read_stops_a_projection(
    store: DirectoryStore, mongo_database: Mongo, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = store.create(trial(), "tiny", {})
    finish(directory, trial(), RESULT)
    really = projection._upload

    def upload(snapshot: Snapshot, *rest: Any) -> None:
        (directory.path / WEIGHTS).unlink()  # after it was looked at
        really(snapshot, *rest)

    monkeypatch.setattr(projection, "_upload", upload)
    with pytest.raises(DataError, match=r"weights\.pt: cannot be read: No such file or directory"):
        project(directory.path, mongo_database)
    assert MongoStore(mongo_database).runs() == []


def test_uploads_of_a_projection_that_lost_its_race_are_taken_back(
    store: DirectoryStore, mongo_database: Mongo, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, observer = begin(store)
    observer.failed_event(TIME, [])
    (directory.path / LOG).write_bytes(b"x" * (INLINE + 1))
    slowly = projection._upload

    def upload(*arguments: Any) -> None:
        """Meanwhile the run ends, and another process mirrors it."""
        monkeypatch.setattr(projection, "_upload", slowly)
        finish(directory, trial(), RESULT)
        project(directory.path, mongo_database)
        (directory.path / LOG).rename(store.path / "log")
        (directory.path / LOG).write_bytes(b"x" * (INLINE + 1))
        slowly(*arguments)
        (store.path / "log").rename(directory.path / LOG)

    monkeypatch.setattr(projection, "_upload", upload)
    project(directory.path, mongo_database)
    assert sorted(file["filename"] for file in mongo_database["fs.files"].find()) == ["predictions.json", "weights.pt"]
    assert counts(mongo_database)["fs.chunks"] == 2


class Updates(CommandListener):
    """Whether each update of runs goes to the journal."""

    def __init__(self) -> None:
        self.journaled: list[bool] = []

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name == "update" and event.command["update"] == "runs":
            self.journaled.append(bool(event.command.get("writeConcern", {}).get("j")))

    def succeeded(self, event: Any) -> None:
        pass

    def failed(self, event: Any) -> None:
        pass


def test_ends_are_journaled_and_what_is_written_over_is_read_from_the_primary(
    store: DirectoryStore, mongod: str, mongo_database: Mongo, monkeypatch: pytest.MonkeyPatch
) -> None:
    updates, preferences, really = Updates(), [], projection._project

    def noting(snapshot: Snapshot, database: Mongo, *rest: Any) -> Any:
        preferences.append(database.read_preference)
        return really(snapshot, database, *rest)

    monkeypatch.setattr(projection, "_project", noting)
    with MongoClient[dict[str, Any]](mongod, event_listeners=[updates]) as client:
        database = client.get_database(mongo_database.name, read_preference=ReadPreference.SECONDARY_PREFERRED)
        directory, _ = begin(store)
        project(directory.path, database)
        assert updates.journaled == [False]
        finish(directory, trial(), RESULT)
        project(directory.path, database)
    assert updates.journaled == [False, True]
    assert preferences == [ReadPreference.PRIMARY] * 2
