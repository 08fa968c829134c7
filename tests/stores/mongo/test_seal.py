"""A summary that was changed in the database is never counted, or found by `check`; and `--fix` puts it right."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from harness.stores.directory.run_directory import declare_invalid, write_ranking
from harness.stores.directory.store import DirectoryStore
from harness.stores.mongo import store as mongo_store
from harness.stores.mongo.projection import project
from harness.stores.mongo.seal import is_sealed, seal
from harness.stores.mongo.store import MongoStore
from harness.stores.mongo.sync import sync
from harness.stores.stored import Status
from harness.stores.upkeep.checking import check_database
from harness.stores.upkeep.mirror_checking import check_mirror
from tests.stored_runs import NO_PREDICTIONS, judged
from tests.stores.conftest import RESULT, trial

Mongo = Database[dict[str, Any]]
MakeRun = Callable[..., Path]


def own(database: Mongo, run: Path) -> dict[str, Any]:
    found = database["runs"].find_one({"harness.run_id": run.name})
    assert found is not None
    inside: dict[str, Any] = found["harness"]
    return inside


def put(database: Mongo, run: Path, **fields: Any) -> None:
    change = {f"harness.{key}": value for key, value in fields.items()}
    database["runs"].update_one({"harness.run_id": run.name}, {"$set": change})


def tamper(database: Mongo, run: Path, tau: float = 0.99, reseal: bool = False, **more: Any) -> None:
    """Give the summary another τ, as somebody with an editor would; also with the checksum that fits."""
    inside = own(database, run)
    summary = json.loads(inside["summary"])
    for result in (summary["result"], *summary["rankings"].values()):
        result["kendall_tau"] = tau
    fields: dict[str, Any] = {"summary": json.dumps(summary | more)}
    if reseal:
        fields["seal"] = seal({**inside, **fields})
    put(database, run, **fields)


def taus(store: MongoStore) -> list[Any]:
    return [run.result and run.result["kendall_tau"] for run in store.runs()]


@pytest.fixture
def mirrored(store: DirectoryStore, make_run: MakeRun, mongo_database: Mongo) -> Path:
    run = make_run()
    write_ranking(run, "ab" * 8, {"rank": {}, "benchmark": "x"}, judged(0.25), {}, NO_PREDICTIONS)
    project(run, mongo_database)
    return run


def test_a_changed_summary_is_named_and_never_counted(mirrored: Path, mongo_database: Mongo) -> None:
    database = MongoStore(mongo_database)
    assert taus(database) == [RESULT["kendall_tau"]] and is_sealed(own(mongo_database, mirrored))
    tamper(mongo_database, mirrored)
    assert database.runs() == [] and database.done(mirrored.name[:16]) is None
    [found] = database.problems
    assert mirrored.name in found.place
    assert "its summary says result.kendall_tau 0.99, its files say 0.5" in found.reason


@pytest.mark.parametrize("reseal", [False, True])
@pytest.mark.parametrize("beside", [False, True])
def test_check_compares_the_summary_with_the_files_and_makes_it_again(
    store: DirectoryStore, mirrored: Path, mongo_database: Mongo, reseal: bool, beside: bool
) -> None:
    database = MongoStore(mongo_database)

    def findings() -> list[Any]:
        return [*(check_mirror(store, mongo_database) if beside else check_database(database))]

    assert findings() == []
    tamper(mongo_database, mirrored, reseal=reseal)
    assert taus(database) == ([0.99] if reseal else [])
    [found] = findings()
    assert "its summary says result.kendall_tau 0.99, its files say 0.5" in found.reason
    assert found.repair is not None and found.repair()
    assert taus(database) == [RESULT["kendall_tau"]] and findings() == []


def test_a_lost_run_does_not_become_done(store: DirectoryStore, mirrored: Path, mongo_database: Mongo) -> None:
    directory = store.create(trial(1), "tiny", {})
    project(directory.path, mongo_database)
    told = json.loads(own(mongo_database, mirrored)["summary"])
    summary = json.loads(own(mongo_database, directory.path)["summary"])
    summary |= {key: told[key] for key in ("recorded", "result", "cost", "rankings", "ranking")}
    put(mongo_database, directory.path, summary=json.dumps(summary))
    database = MongoStore(mongo_database)
    assert [run.id for run in database.runs() if run.status is Status.DONE] == [mirrored.name]
    assert any("its summary says recorded 'done', its files say 'open'" in one.reason for one in database.problems)
    put(mongo_database, directory.path, seal=seal(own(mongo_database, directory.path)))
    assert ["recorded 'done'" in one.reason for one in check_database(database)] == [True]


def test_a_mark_cannot_be_taken_away(mirrored: Path, mongo_database: Mongo) -> None:
    database = MongoStore(mongo_database)
    database.invalidate(mirrored.name, "wrong data")
    assert [run.invalid for run in database.runs()] == ["wrong data"] and is_sealed(own(mongo_database, mirrored))
    put(mongo_database, mirrored, invalid=None)
    assert database.runs() == []
    assert "says invalid None, its files say 'wrong data'" in database.problems[0].reason


def test_older_documents_are_compared_with_their_files_once_per_process(
    store: DirectoryStore, mirrored: Path, mongo_database: Mongo, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = MongoStore(mongo_database)
    mongo_database["runs"].update_many({}, {"$unset": {"harness.seal": 1}})
    summary = json.loads(own(mongo_database, mirrored)["summary"])
    older = {key: value for key, value in summary.items() if key not in ("ranking", "asked", "recomputed")}
    put(mongo_database, mirrored, summary=json.dumps(older))
    expected = store.runs()
    assert database.runs() == expected and database.problems == []
    with monkeypatch.context() as patched:
        patched.setattr(MongoStore, "_made", lambda *_: pytest.fail("compared again"))
        assert database.runs() == expected
    tamper(mongo_database, mirrored)
    assert database.runs() == [] and "0.99" in database.problems[0].reason


def test_sync_gives_older_documents_their_checksum(
    store: DirectoryStore, make_run: MakeRun, mirrored: Path, mongo_database: Mongo
) -> None:
    other = make_run(1)
    project(other, mongo_database)
    mongo_database["runs"].update_many({}, {"$unset": {"harness.seal": 1}})
    tamper(mongo_database, other)
    sync(store, mongo_database)
    assert is_sealed(own(mongo_database, mirrored)) and not is_sealed(own(mongo_database, other))
    assert [run.id for run in MongoStore(mongo_database).runs()] == [mirrored.name]


def test_what_an_older_version_writes_over_a_checksum_is_compared(mirrored: Path, mongo_database: Mongo) -> None:
    """It knows of no checksum, and leaves the one that was there."""
    inside = own(mongo_database, mirrored)
    summary = json.dumps(dict(reversed(json.loads(inside["summary"]).items())))
    put(mongo_database, mirrored, summary=summary, version=inside["version"] + 1)
    assert taus(MongoStore(mongo_database)) == [RESULT["kendall_tau"]]


DAMAGES: dict[str, dict[str, Any]] = {
    "revision of another type": {"revision": "new"},
    "revision of nothing": {"revision": 2**62},
    "no list of files": {"documents": 5},
    "no name of a file": {"documents": [{}]},
    "version of another type": {"version": []},
    "origin of another type": {"origin": None},
    "another trial": {"cell16": "0" * 16},
    "problems": {"problems": [["a"]]},
    "schema": {"schema": None},
    "added": {"added": 7},
    "checksums": {"seal": 3},
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_document_is_projected_again(
    store: DirectoryStore, mirrored: Path, mongo_database: Mongo, damage: str
) -> None:
    expected = store.runs()
    put(mongo_database, mirrored, **DAMAGES[damage])
    database = MongoStore(mongo_database)
    counted = database.runs()
    assert counted == [] or counted == expected
    findings = list(check_mirror(store, mongo_database))
    assert findings
    for one in findings:
        assert one.repair is None or one.repair() is not None
    assert MongoStore(mongo_database).runs() == expected
    assert list(check_mirror(store, mongo_database)) == []


def test_documents_that_are_no_runs_are_named(mirrored: Path, mongo_database: Mongo) -> None:
    mongo_database["runs"].insert_many([{"_id": 77, "harness": 5}, {"_id": 78, "harness": [{"revision": 5}]}])
    mongo_database["runs"].insert_one({"_id": 79, "config": {}, "status": "COMPLETED"})  # of others
    database = MongoStore(mongo_database)
    assert taus(database) == [RESULT["kendall_tau"]]
    assert sorted(one.place.partition("document ")[2] for one in database.problems) == ["77 of runs", "78 of runs"]
    assert len(list(check_database(database))) == 2


def test_a_ranking_is_taken_from_its_file_when_a_run_is_projected_again(
    store: DirectoryStore, mirrored: Path, make_run: MakeRun, mongo_database: Mongo
) -> None:
    """Not from the summary: another machine made it, and here is only the changed one."""
    for file in (mirrored / "rankings").iterdir():
        file.unlink()
    tamper(mongo_database, mirrored, reseal=True)
    declare_invalid(mirrored, "to have something new")
    project(mirrored, mongo_database)
    [run] = MongoStore(mongo_database).runs()
    assert run.rankings["ab" * 8]["kendall_tau"] == 0.25 and run.result is not None
    assert run.result["kendall_tau"] == RESULT["kendall_tau"]


def test_the_memory_of_a_process_is_of_its_own_database(mirrored: Path, mongo_database: Mongo) -> None:
    mongo_database["runs"].update_many({}, {"$unset": {"harness.seal": 1}})
    database = MongoStore(mongo_database)
    database.runs()
    assert (database.name, mirrored.name) in mongo_store._VERIFIED
