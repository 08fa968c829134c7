"""What a database mirrors, read back: the same runs, files and answers as from the directories."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from harness.errors import DataError, UnknownName
from harness.files import write_json
from harness.stores.directory.observer import DirectoryObserver
from harness.stores.directory.reading import summarise
from harness.stores.directory.run_directory import (
    ABSENT,
    COMPLETION,
    INVALID,
    TRIAL,
    WEIGHTS,
    declare_invalid,
    write_ranking,
)
from harness.stores.directory.store import DirectoryStore
from harness.stores.mongo.fetching import is_whole
from harness.stores.mongo.projection import project, revision
from harness.stores.mongo.snapshot import look
from harness.stores.mongo.store import MongoStore
from harness.stores.upkeep.archive import export_runs
from harness.stores.upkeep.importing import import_into_directory
from tests.stored_runs import forge, judged
from tests.stores.conftest import CURVES, RESULT, TIME, finish, trial

Make = Callable[..., Path]
Mongo = Database[dict[str, Any]]

PREDICTIONS = {"schema": 2, "images": None, "batch_size": 256, "accuracies": {"9": 1.0}}


def mirror_all(store: DirectoryStore, database: Mongo) -> MongoStore:
    for name in store.ids():
        project(store.path / name, database)
    return MongoStore(database)


def contents(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_both_stores_give_equal_answers(store: DirectoryStore, make_run: Make, mongo_database: Mongo) -> None:
    make_run()
    newer = make_run(result=judged(0.25))  # differs from the first: a problem
    ranked = make_run(1)
    write_ranking(ranked, "0123456789abcdef", trial(1).config.json(), judged(0.75), {}, PREDICTIONS)
    write_ranking(ranked, "f" * 16, trial(1).config.json(), judged(0.5), {}, PREDICTIONS)
    (ranked / "rankings" / f"{'f' * 16}.predictions.json").write_text("{}")  # damaged: another problem
    declare_invalid(make_run(2), "wrong data")
    for seed, end in enumerate(("running", "lost", "FAILED", "INTERRUPTED"), 3):
        directory = store.create(trial(seed), "tiny", {"train.epochs": 1})
        observer = DirectoryObserver(directory, trial(seed).config.json(), {})
        directory.log_metric("train_loss", 1, 0.5)
        if end == "lost":
            document = json.loads((directory.path / TRIAL).read_text())
            write_json(directory.path / TRIAL, document | {"owner": document["owner"] | {"started": -1}})
        elif end == "FAILED":
            observer.failed_event(TIME, ["ValueError\n"])
        elif end == "INTERRUPTED":
            observer.interrupted_event(TIME, end)
    database = mirror_all(store, mongo_database)

    assert sorted(database.ids()) == sorted(store.ids())
    runs = store.runs()
    assert database.runs() == runs and len(runs) == 8
    assert {run.status for run in runs} == {"done", "running", "lost", "failed", "interrupted"}
    assert [problem.reason for problem in database.problems] == [problem.reason for problem in store.problems]
    assert len(store.problems) == 2 and any(ranked.name in problem.place for problem in database.problems)
    keys = {trial(0).key, trial(4).key, trial(9).key}
    assert database.runs(keys) == store.runs(keys) and len(database.runs(keys)) == 3
    assert database.done(trial().key) == store.done(trial().key) is not None
    assert database.find(newer.name) == store.find(newer.name)
    for run in runs:
        files = store.files(run)
        assert database.files(run) == files
        assert all(database.read(run, name) == store.read(run, name) for name in files)
        assert database.metrics(run) == store.metrics(run)
        if run.status == "done":
            assert database.predictions(run) == store.predictions(run)


def test_a_run_comes_back_as_it_was(make_run: Make, tmp_path: Path, mongo_database: Mongo) -> None:
    path = make_run()
    write_ranking(path, "0123456789abcdef", trial().config.json(), judged(0.75), {}, PREDICTIONS)
    project(path, mongo_database)
    database = MongoStore(mongo_database)
    brought = database.fetch(path.name, tmp_path / "elsewhere")
    assert brought == tmp_path / "elsewhere" / path.name and contents(brought) == contents(path)
    assert look(brought) == look(path) and list(brought.parent.iterdir()) == [brought]
    assert DirectoryStore(brought.parent).runs() == database.runs()
    with pytest.raises(UnknownName, match="no run 0000"):
        database.fetch("0000", tmp_path)


def test_a_directory_that_is_there_gets_what_only_the_database_has(
    make_run: Make, tmp_path: Path, mongo_database: Mongo
) -> None:
    path = make_run()
    copy = tmp_path / "elsewhere" / path.name
    shutil.copytree(path, copy)
    write_ranking(path, "0123456789abcdef", trial().config.json(), judged(0.75), {}, PREDICTIONS)
    project(path, mongo_database)
    database = MongoStore(mongo_database)
    database.invalidate(path.name, "wrong data")
    before = (copy / COMPLETION).stat().st_ctime_ns
    assert database.fetch(path.name, copy.parent) == copy
    assert (copy / COMPLETION).stat().st_ctime_ns == before
    assert {*contents(copy)} - {*contents(path)} == {INVALID} and not {*contents(path)} - {*contents(copy)}
    (run,) = DirectoryStore(copy.parent).runs()
    assert run == database.runs()[0] and run.invalid == "wrong data" and len(run.rankings) == 2


def test_a_directory_left_behind_is_replaced(store: DirectoryStore, tmp_path: Path, mongo_database: Mongo) -> None:
    directory = store.create(trial(), "tiny", {})
    behind = tmp_path / "elsewhere" / directory.id
    shutil.copytree(directory.path, behind)
    finish(directory, trial(), RESULT)
    project(directory.path, mongo_database)
    assert MongoStore(mongo_database).fetch(directory.id, behind.parent) == behind
    assert contents(behind) == contents(directory.path) and list(behind.parent.iterdir()) == [behind]


def test_weights_that_were_not_mirrored_are_declared_absent(
    make_run: Make, tmp_path: Path, mongo_database: Mongo
) -> None:
    path = make_run()
    project(path, mongo_database, weights_max=0)
    brought = MongoStore(mongo_database).fetch(path.name, tmp_path / "elsewhere")
    assert summarise(brought, [])["recorded"] == "done"
    assert {*contents(path)} - {*contents(brought)} == {WEIGHTS} and (brought / ABSENT).exists()
    # To bring the copy back must not take away what the original has.
    project(path, mongo_database)
    project(brought, mongo_database, again=True)
    database = MongoStore(mongo_database)
    assert database.read(database.runs()[0], WEIGHTS) == b"weights" and revision(brought) == revision(path)


def test_weights_that_were_left_out_come_from_the_database(
    store: DirectoryStore, make_run: Make, tmp_path: Path, mongo_database: Mongo
) -> None:
    path = make_run()
    project(path, mongo_database)
    export_runs(store, store.runs(), tmp_path / "x.tar", weights=False)
    here = tmp_path / "elsewhere"
    import_into_directory(tmp_path / "x.tar", here)
    brought = here / path.name
    assert (brought / ABSENT).exists() and not is_whole(brought) and is_whole(path)
    assert MongoStore(mongo_database).fetch(path.name, here) == brought
    assert contents(brought) == contents(path) and is_whole(brought)
    (run,) = DirectoryStore(here).runs()
    assert DirectoryStore(here).read(run, WEIGHTS) == b"weights"


def test_weights_that_nobody_has_stay_absent(make_run: Make, tmp_path: Path, mongo_database: Mongo) -> None:
    path = make_run()
    project(path, mongo_database, weights_max=0)
    database = MongoStore(mongo_database)
    brought = database.fetch(path.name, tmp_path / "elsewhere")
    before = contents(brought)
    assert database.fetch(path.name, tmp_path / "elsewhere") == brought and contents(brought) == before
    assert (brought / ABSENT).exists() and not is_whole(brought)


@pytest.mark.parametrize(
    ("name", "gone"),
    [(WEIGHTS, True), (WEIGHTS, False), ("result.json", True), ("result.json", False), (COMPLETION, False)],
)
def test_a_damaged_directory_is_mended_and_keeps_what_was_added(
    make_run: Make, mongo_database: Mongo, name: str, gone: bool
) -> None:
    path = make_run()
    project(path, mongo_database)
    write_ranking(path, "0123456789abcdef", trial().config.json(), judged(0.75), {}, PREDICTIONS)
    before = contents(path)
    (path / name).unlink() if gone else (path / name).write_bytes(before[name][:-4])
    assert not is_whole(path)
    assert MongoStore(mongo_database).fetch(path.name, path.parent) == path
    assert contents(path) == before and is_whole(path)


def test_a_directory_of_another_run_is_not_mended(make_run: Make, mongo_database: Mongo) -> None:
    path = make_run()
    project(path, mongo_database)
    forge(path)
    before = contents(path)
    with pytest.raises(DataError, match="does not belong to the run in"):
        MongoStore(mongo_database).fetch(path.name, path.parent)
    assert contents(path) == before


@pytest.mark.parametrize("damage", ["chunk", "number", "size", "file", "text", "entry"])
def test_damage_names_the_file_and_leaves_nothing(
    damage: str, make_run: Make, tmp_path: Path, mongo_database: Mongo
) -> None:
    path = make_run()
    project(path, mongo_database)
    database = MongoStore(mongo_database)
    (run,) = database.runs()
    name, part = (COMPLETION, "documents") if damage in ("text", "entry") else (WEIGHTS, "files")
    if damage in ("chunk", "number"):
        file = mongo_database["fs.files"].find_one({"filename": WEIGHTS})
        assert file is not None
        change = {"$set": {"data": b"weighty"}} if damage == "chunk" else {"$unset": {"n": 1}}
        mongo_database["fs.chunks"].update_one({"files_id": file["_id"]}, change)
    elif damage == "size":
        mongo_database["fs.files"].update_one({"filename": WEIGHTS}, {"$unset": {"chunkSize": 1}})
    elif damage == "file":
        mongo_database["fs.files"].delete_one({"filename": WEIGHTS})
    elif damage == "text":
        mongo_database["runs"].update_one(
            {}, {"$set": {"harness.documents.$[one].text": "{}"}}, array_filters=[{"one.name": name}]
        )
    else:
        mongo_database["runs"].update_one({}, {"$pull": {f"harness.{part}": {"name": "cell.json"}}})
        name = "cell.json"
    with pytest.raises(DataError, match=name):
        database.read(run, name)
    with pytest.raises(DataError, match=name):
        database.fetch(path.name, tmp_path / "elsewhere")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_no_file_is_fetched_to_another_place(make_run: Make, tmp_path: Path, mongo_database: Mongo) -> None:
    path = make_run()
    project(path, mongo_database)
    outside = tmp_path / "outside"
    change = {"$set": {"harness.documents.$[one].name": str(outside)}}
    mongo_database["runs"].update_one({}, change, array_filters=[{"one.name": "config.json"}])
    with pytest.raises(DataError, match="outside', which could lead outside the run"):
        MongoStore(mongo_database).fetch(path.name, tmp_path / "elsewhere")
    assert not outside.exists() and not list((tmp_path / "elsewhere").iterdir())


def test_missing_points_are_noticed(make_run: Make, mongo_database: Mongo) -> None:
    project(make_run(), mongo_database)
    mongo_database["runs"].update_one({}, {"$pull": {"harness.documents": {"name": "metrics.json"}}})
    database = MongoStore(mongo_database)
    (run,) = database.runs()
    assert len(database.metrics(run)["train_loss"]) == 2  # the curve's own document has them
    mongo_database["metrics"].update_one(CURVES, {"$pop": {"steps": 1, "values": 1, "timestamps": 1}})
    with pytest.raises(DataError, match="1} points instead of"):
        database.metrics(run)


def test_damaged_documents_are_problems(make_run: Make, mongo_database: Mongo) -> None:
    changes: list[tuple[str, Any, str]] = [
        ("schema", 99, "schema 99; this version of the harness reads up to"),
        ("schema", "?", "schema: expected `int`, got `str`"),
        ("summary", "{", "its summary: is not whole JSON"),
        ("summary", None, "summary: expected `str`, got `null`"),
        ("summary", '{"id": "other"}', "its summary: "),
        ("revision", -1, "its revision is -1, not a number above 0"),
    ]
    whole, *paths = [make_run(seed) for seed in range(7)]
    for path in (whole, *paths):
        project(path, mongo_database)
    for path, (field, value, _) in zip(paths, changes, strict=True):
        mongo_database["runs"].update_one({"harness.run_id": path.name}, {"$set": {f"harness.{field}": value}})
    database = MongoStore(mongo_database)
    assert [run.id for run in database.runs()] == [whole.name]
    for path, (_, _, reason) in zip(paths, changes, strict=True):
        (found,) = (problem.reason for problem in database.problems if path.name in problem.place)
        assert reason in found


def test_a_summary_is_checked_against_the_schema(make_run: Make, mongo_database: Mongo) -> None:
    path = make_run()
    project(path, mongo_database)
    [document] = mongo_database["runs"].find({"harness.run_id": path.name})
    summary = json.loads(document["harness"]["summary"])
    summary["result"]["kendall_tau"] = "0.9"
    del summary["cost"]["wall_seconds"]
    mongo_database["runs"].update_one({}, {"$set": {"harness.summary": json.dumps(summary)}})
    database = MongoStore(mongo_database)
    assert database.runs() == []
    [problem] = database.problems
    assert problem.reason == "its summary: result.kendall_tau: expected `float | null`, got `str`"


def test_documents_of_others_are_passed_over(make_run: Make, mongo_database: Mongo) -> None:
    mongo_database["runs"].insert_many([{"_id": 1, "status": "COMPLETED", "config": {}}, {"_id": "by name"}])
    path = make_run()
    project(path, mongo_database)
    database = MongoStore(mongo_database)
    assert [run.id for run in database.runs()] == database.ids() == [path.name] and not database.problems


def test_a_run_is_declared_invalid_once_and_for_all(make_run: Make, mongo_database: Mongo) -> None:
    path = make_run()
    project(path, mongo_database)
    database = MongoStore(mongo_database)
    for reason in ("a first word", "wrong data"):
        database.invalidate(path.name, reason)
    project(path, mongo_database, again=True)
    (run,) = database.runs()
    assert run.invalid == "wrong data" and not run.counts
    assert json.loads(database.read(run, INVALID))["reason"] == "wrong data"
    with pytest.raises(UnknownName):
        database.invalidate("0000", "wrong data")


def test_what_was_computed_is_remembered(mongo_database: Mongo) -> None:
    database = MongoStore(mongo_database)
    assert database.recall("a key") is None
    database.remember("a key", {"x.y": {"$z": None}})
    database.remember("a key", {"x.y": {"$z": 1}})
    assert database.recall("a key") == {"x.y": {"$z": 1}}
