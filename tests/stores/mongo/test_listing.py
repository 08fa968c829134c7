"""What lists of runs in other tools show: rows of a study can be told apart, and old documents catch up."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from harness.cli import main
from harness.components.preset import get_preset
from harness.schema import ASKED, NOBODY, Naming
from harness.stores.directory.run_directory import INFO
from harness.stores.directory.store import DirectoryStore
from harness.stores.mongo.projection import project
from harness.stores.mongo.store import MongoStore
from harness.stores.mongo.sync import sync
from harness.stores.upkeep.mirror_checking import check_mirror
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from tests.stored_runs import COST, store_run
from tests.stores.conftest import NUMBERS, RESULT, trial

Make = Callable[..., Path]
Mongo = Database[dict[str, Any]]

FIRST: Naming = {"rows": {"first": "SPOS 25"}, "metrics": ["wall_seconds", "kendall_tau"], "ranking": None}
SECOND: Naming = {"rows": {"second": "the row"}, "metrics": ["kendall_tau"], "ranking": None}


def only(database: Mongo) -> dict[str, Any]:
    (run,) = database["runs"].find()
    return run


def finals(database: Mongo, run: dict[str, Any]) -> dict[str, Any]:
    """The metrics that a list can show of a run, by name: their last values."""
    listed = {one["name"]: one["id"] for one in run["info"]["metrics"]}
    found = {one["name"]: one for one in database["metrics"].find({"run_id": run["_id"]})}
    assert {name: str(one["_id"]) for name, one in found.items()} == listed
    return {name: one["values"][-1] for name, one in found.items()}


def age(database: Mongo) -> None:
    """Make the documents what earlier versions wrote."""
    for run in database["runs"].find():
        config = json.loads(run["harness"]["summary"])["cell"]["config"]
        curves = [one for one in run["info"]["metrics"] if "." not in one["name"]]
        change = {"experiment.name": "spos", "result": run["info"]["result"], "config": config, "info.metrics": curves}
        unset = {"omniboard": 1, "info.result": 1, "meta.comment": 1, "harness.shown": 1}
        database["runs"].update_one({"_id": run["_id"]}, {"$set": change, "$unset": unset})
    database["metrics"].delete_many({"harness": {"$exists": False}})


def test_the_rows_of_a_study_can_be_told_apart_and_sorted(tmp_path: Path, mongod: str, mongo_database: Mongo) -> None:
    (study,) = find_studies("num_clusters")
    requests = expand(study, get_preset("tiny"), seeds=1)
    for number, request in enumerate(requests):
        cost = {**COST, "training_memory_bytes": 1000 + number}
        store_run(tmp_path / "runs", request, tau=number / 8, cost=cost)
    command = ["store", "sync", "--store", str(tmp_path / "runs")]
    command += ["--mongo", mongod.replace("/?", f"/{mongo_database.name}?")]
    assert main(command) == 0
    runs = list(mongo_database["runs"].find().sort("result", -1))
    assert [run["result"] for run in runs] == [0.375, 0.25, 0.125, 0.0]
    names = [f"num_clusters: SPOS {count}" for count in (625, 125, 25, 5)]
    assert [run["experiment"]["name"] for run in runs] == names
    assert all({"num_clusters", "tiny", "seed 0"} <= {*run["omniboard"]["tags"]} for run in runs)
    columns = [(run["config"]["method_name"], run["config"]["schedule_name"]) for run in runs]
    assert columns == [("spos", "calr")] * 4 and runs[0]["meta"]["comment"].startswith("result: kendall_tau")
    assert [run["config"]["clusters_edges"] for run in runs] == [4, 3, 2, 1]
    assert [finals(mongo_database, run)["result.kendall_tau"] for run in runs] == [0.375, 0.25, 0.125, 0.0]
    assert [finals(mongo_database, run)["cost.training_memory_bytes"] for run in runs] == [1003, 1002, 1001, 1000]
    # Earlier versions wrote less; their documents catch up, and what the harness reads stays as it is.
    read = MongoStore(mongo_database).runs()
    age(mongo_database)
    assert MongoStore(mongo_database).runs() == read
    assert main(command) == 0
    again = list(mongo_database["runs"].find().sort("result", -1))
    assert [run["experiment"]["name"] for run in again] == names and again[0]["config"] == runs[0]["config"]
    assert [run["omniboard"]["tags"] for run in again] == [run["omniboard"]["tags"] for run in runs]
    assert [finals(mongo_database, run) for run in again] == [finals(mongo_database, run) for run in runs]
    assert MongoStore(mongo_database).runs() == read == DirectoryStore(tmp_path / "runs").runs()
    assert list(check_mirror(DirectoryStore(tmp_path / "runs"), mongo_database)) == []


def test_the_first_study_that_asked_names_a_run_and_all_are_tags(
    store: DirectoryStore, make_run: Make, mongo_database: Mongo
) -> None:
    path = make_run()
    sync(store, mongo_database)
    run = only(mongo_database)
    assert run["experiment"]["name"] == "spos" and run["omniboard"]["tags"] == ["tiny", "seed 0"]
    assert run["result"] == RESULT["kendall_tau"] and finals(mongo_database, run).items() >= NUMBERS.items()
    mongo_database["runs"].update_one({}, {"$push": {"omniboard.tags": "mine"}, "$set": {"omniboard.notes": "good"}})
    assert sync(store, mongo_database, names={path.name: FIRST}).listed == 1
    assert sync(store, mongo_database, names={path.name: SECOND}).listed == 1
    assert sync(store, mongo_database, names={path.name: SECOND}).listed == 0
    run = only(mongo_database)
    assert run["experiment"]["name"] == "first: SPOS 25" and run["result"] == 1.0
    assert run["meta"]["comment"] == "result: wall_seconds; also second: the row"
    assert run["omniboard"] == {"tags": ["tiny", "seed 0", "mine", "first", "second"], "notes": "good"}
    # What is projected once more keeps what the database knows.
    project(path, mongo_database, again=True)
    assert only(mongo_database)["experiment"]["name"] == "first: SPOS 25"
    assert only(mongo_database)["omniboard"] == run["omniboard"]


def test_a_run_remembers_which_study_asked_for_it(store: DirectoryStore, mongo_database: Mongo) -> None:
    directory = store.create(trial(), "tiny", {})
    directory.write(INFO, {ASKED: FIRST})
    project(directory.path, mongo_database, naming=SECOND)
    run = only(mongo_database)
    assert run["experiment"]["name"] == "first: SPOS 25" and run["omniboard"]["tags"][:2] == ["first", "second"]
    assert run["result"] is None and run["info"]["metrics"] == []
    directory.write(INFO, {ASKED: {"rows": "first"}})
    mongo_database["runs"].delete_many({})
    project(directory.path, mongo_database)
    assert only(mongo_database)["experiment"]["name"] == "spos"


@pytest.mark.parametrize(
    "damage", [{"omniboard": 5}, {"omniboard": {"tags": None}}, {"experiment": 5, "meta": [], "config": 5, "info": 5}]
)
def test_damaged_fields_of_lists_are_made_again(
    damage: dict[str, Any], store: DirectoryStore, make_run: Make, mongo_database: Mongo
) -> None:
    path = make_run()
    sync(store, mongo_database)
    before = only(mongo_database)
    mongo_database["runs"].update_one({}, {"$set": damage, "$unset": {"harness.shown": 1}})
    assert sync(store, mongo_database, names={path.name: NOBODY}).listed == 1
    run = only(mongo_database)
    assert run["omniboard"]["tags"] == ["tiny", "seed 0"] and run["experiment"]["name"] == "spos"
    assert run["config"] == before["config"] and run["result"] == before["result"]
    assert finals(mongo_database, run).items() >= NUMBERS.items() if "info" not in damage else True


def test_a_changed_summary_is_not_shown(store: DirectoryStore, make_run: Make, mongo_database: Mongo) -> None:
    path = make_run()
    sync(store, mongo_database)
    summary = only(mongo_database)["harness"]["summary"].replace('"kendall_tau": 0.5', '"kendall_tau": 0.9')
    mongo_database["runs"].update_one({}, {"$set": {"harness.summary": summary}})
    assert sync(store, mongo_database, names={path.name: FIRST}).listed == 0
    assert only(mongo_database)["result"] == 0.5
