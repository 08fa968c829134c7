"""What is wrong with stored runs is found, and put right where that is safe: in directories and in a database."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from harness.cli import main
from harness.files import DAY
from harness.owner import machine
from harness.stores.claims import Claims
from harness.stores.directory.records import DirectoryRecords
from harness.stores.directory.run_directory import COMPLETION, METRICS, RUN, WEIGHTS, declare_absent, write_ranking
from harness.stores.directory.store import DirectoryStore
from harness.stores.mongo.projection import project
from harness.stores.mongo.store import MongoStore
from harness.stores.mongo.sync import sync
from harness.stores.upkeep.checking import Finding, check_database, check_directory, examine, orphaned
from harness.stores.upkeep.cleaning import (
    OF_DONE,
    busy_trials,
    checkpoints,
    done_trials,
    old_claims,
    stale_index,
    unfinished,
)
from harness.stores.upkeep.mirror_checking import check_mirror
from tests.stored_runs import NO_PREDICTIONS, judged
from tests.stores.conftest import trial

MakeRun = Callable[..., Path]
Mongo = Database[dict[str, Any]]


def reasons(findings: Iterable[Finding]) -> list[tuple[str, str, str]]:
    return [(one.kind, Path(one.place).name, one.reason) for one in findings]


def repair(findings: Iterable[Finding]) -> list[str | None]:
    """As `check --fix` does: each as soon as it is found."""
    return [one.repair() if one.repair else None for one in findings]


def ranked(run: Path) -> Path:
    """Add a further ranking; gives its record."""
    write_ranking(run, "ab" * 8, {"rank": {}, "benchmark": "x"}, judged(0.25), {}, NO_PREDICTIONS)
    return run / "rankings" / f"{'ab' * 8}.json"


def age(path: Path, seconds: float) -> None:
    before = time.time() - seconds
    for one in [path, *path.rglob("*")]:
        os.utime(one, (before, before))


def test_a_whole_store_has_no_problems(store: DirectoryStore, make_run: MakeRun) -> None:
    ranked(make_run(0))
    store.create(trial(1), "tiny", {})
    assert list(check_directory(store)) == []


def test_damage_that_readers_do_not_see_is_found(store: DirectoryStore, make_run: MakeRun) -> None:
    run = make_run()
    (run / WEIGHTS).write_bytes(b"weightz")  # as long as before
    assert store.runs()[0].counts
    assert reasons(check_directory(store)) == [
        ("damaged", WEIGHTS, "has another checksum than the completion record says")
    ]


def test_every_damaged_file_is_named_not_only_the_first(store: DirectoryStore, make_run: MakeRun) -> None:
    run = make_run()
    size = (run / "result.json").stat().st_size
    (run / "result.json").write_text("{}")
    (run / "cout.txt").unlink()
    (run / WEIGHTS).write_bytes(b"")
    record = ranked(run)
    record.with_name(f"{'ab' * 8}.predictions.json").write_text("{}")
    found = {name: reason for _, name, reason in reasons(check_directory(store))}
    assert found == {
        "result.json": f"has 2 bytes instead of {size}",
        "cout.txt": "is missing; no result depends on it",
        WEIGHTS: "has another checksum than the completion record says",
    }


def test_a_damaged_ranking_is_found(store: DirectoryStore, make_run: MakeRun) -> None:
    record = ranked(make_run())
    record.with_name(f"{'ab' * 8}.predictions.json").write_text("{}")
    assert reasons(check_directory(store)) == [
        ("damaged", f"{'ab' * 8}.predictions.json", "has another checksum than its ranking says")
    ]


def test_wrong_numbers_of_points_are_told_as_such(store: DirectoryStore, make_run: MakeRun) -> None:
    import hashlib

    run = make_run()
    metrics = json.loads((run / "metrics.json").read_text())
    for column in metrics["train_loss"].values():
        column.pop()
    text = json.dumps(metrics)
    (run / "metrics.json").write_text(text)
    record = json.loads((run / COMPLETION).read_text())
    record["files"]["metrics.json"] = hashlib.sha256(text.encode()).hexdigest()
    record["sizes"]["metrics.json"] = len(text)
    (run / COMPLETION).write_text(json.dumps(record))
    (found,) = check_directory(store)
    assert found.kind == "metrics" and "has {'train_loss': 1} points instead of {'train_loss': 2}" in found.reason


def test_a_newer_schema_is_said_to_be_newer(store: DirectoryStore, make_run: MakeRun) -> None:
    run = make_run()
    record = json.loads((run / COMPLETION).read_text())
    (run / COMPLETION).write_text(json.dumps(record | {"schema": 99}))
    (found,) = check_directory(store)
    assert "has schema 99; this version of the harness reads up to" in found.reason and found.repair is None


def test_runs_of_one_trial_that_differ_are_duplicates(store: DirectoryStore, make_run: MakeRun) -> None:
    make_run()
    assert list(check_directory(store)) == []
    make_run()  # the same once more is superseded, and no problem
    assert list(check_directory(store)) == []
    make_run(result=judged(0.75))
    kinds = {kind for kind, _, _ in reasons(check_directory(store))}
    assert kinds == {"duplicate"}
    assert "are runs of one trial, but ranking" in next(iter(check_directory(store))).reason


def test_a_damaged_list_of_points_of_an_unfinished_run_is_found(store: DirectoryStore) -> None:
    directory = store.create(trial(), "tiny", {})
    directory.log_metric("train_loss", 1, 0.5)
    (directory.path / "metrics.jsonl").write_text("{}}\n")
    assert [Path(problem.place).name for problem in examine(directory.path)] == ["metrics.jsonl"]


def test_claims_of_dead_owners_are_found_and_freed(store: DirectoryStore) -> None:
    script = (
        "import sys, time; from pathlib import Path; from harness.stores.claims import Claims\n"
        "from harness.stores.directory.records import DirectoryRecords\n"
        "claims = Claims(DirectoryRecords(Path(sys.argv[1])))\n"
        "assert claims.acquire('ab' * 32); print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(store.path)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout and owner.stdout.readline() == "held\n"
        claims = Claims(DirectoryRecords(store.path))
        held = claims.acquire("cd" * 32)
        assert held and list(orphaned(claims, "here")) == []
        assert busy_trials([claims], []) == {"ab" * 8, "cd" * 8}
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    (found,) = orphaned(claims, "here")
    assert (found.kind, found.place) == ("claim", f"here: {'ab' * 8}") and f"process {owner.pid}" in found.reason
    assert found.repair and found.repair() == "freed"
    assert list(orphaned(claims, "here")) == [] and found.repair() is None
    assert busy_trials([claims], []) == {"cd" * 8}


def test_unfinished_things_are_leftovers_once_they_rest_and_their_writer_is_dead(
    store: DirectoryStore, make_run: MakeRun
) -> None:
    run = make_run()
    elsewhere = f"1.{'0' * 16}"  # a process of another machine
    files = [
        run / f".weights.pt.{elsewhere}",
        run / "rankings" / f".x.json.{elsewhere}",
        store.path / "index" / f".ab.json.{elsewhere}",
    ]
    folders = [store.path / ".new-abc", store.path / ".import-abc"]
    for path in files:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"12345")
    for path in folders:
        path.mkdir()
        (path / "cell.json").write_text("{}")
    living = run / f".weights.pt.{os.getpid()}.{machine()}00000001"
    living.write_bytes(b"")
    assert unfinished(store.path) == []  # just written
    for path in [*files, *folders, living]:
        age(path, 3600)
    found = unfinished(store.path)
    assert {one.path for one in found} == {*files, *folders}
    assert {one.size for one in found if one.path in files} == {5}
    assert all(one.remove() for one in found) and living.exists()
    age(living, 2 * DAY)  # by now the number is another's
    assert [one.path for one in unfinished(store.path)] == [living]
    assert [run.counts for run in store.runs()] == [True]


def test_checkpoints_are_leftovers_unless_somebody_uses_them(store: DirectoryStore, make_run: MakeRun) -> None:
    run = make_run(0)
    work = store.path / "work"
    work.mkdir()
    key, other, busy = run.name[:16], "ab" * 8, "cd" * 8
    names = [f"{key}-1.checkpoint", f"{key}-2.checkpoint", f"{other}-1.checkpoint", f"{busy}-1.checkpoint"]
    half = f".{other}-1.checkpoint.1.{machine()}00000001"
    for name in [*names, half]:
        (work / name).write_bytes(b"123")
    os.utime(work / names[0], (1, 1))  # from before it was done; the other is of a run that observes more
    done = done_trials(store.runs())
    found = {one.path.name: one.what for one in checkpoints(work, {busy}, done)}
    unused = "unused checkpoint"
    assert found == {names[0]: OF_DONE, names[1]: unused, names[2]: unused, half: unused}


def test_when_a_trial_was_done_does_not_depend_on_the_time_zone(
    store: DirectoryStore, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(0)
    found = []
    for zone in ("UTC", "EAST-9"):
        with monkeypatch.context() as patch:
            patch.setenv("TZ", zone)
            time.tzset()
            found.append(done_trials(store.runs()))
    time.tzset()
    assert found[0] == found[1] and len(found[0]) == 1


def test_old_claims_of_done_trials_and_an_index_of_no_run_go(store: DirectoryStore, make_run: MakeRun) -> None:
    make_run(0)
    key = store.runs()[0].key
    claims = Claims(DirectoryRecords(store.path))
    for name in (key, f"{key}-{'0' * 16}", "ab" * 32):
        claim = claims.acquire(name)
        assert claim is not None
        claim.release()
    done = done_trials(store.runs())
    assert old_claims(store.path, done) == []
    age(store.path / "claims", 2 * DAY)
    found = old_claims(store.path, done)
    assert sorted(one.path.name for one in found) == sorted([key, f"{key}-{'0' * 16}"])
    assert all(one.remove() for one in found)
    assert [record.key for record in claims.records()] == ["ab" * 32]
    index = store.path / "index"
    (index / "zz.json").write_text("{}")
    assert [one.path.name for one in stale_index(store.path)] == ["zz.json"]


def test_damaged_files_are_restored_from_the_database(
    store: DirectoryStore, make_run: MakeRun, mongo_database: Mongo
) -> None:
    runs = [make_run(seed) for seed in range(3)]
    record = ranked(runs[2])
    assert sync(store, mongo_database).failed == {}
    before = store.runs()
    (runs[0] / WEIGHTS).write_bytes(b"weightz")
    (runs[0] / "result.json").unlink()
    (runs[1] / COMPLETION).write_text("{")
    record.write_text("{}")
    found = repair(check_directory(store, MongoStore(mongo_database)))
    assert len(found) >= 4 and all(text and text.startswith("restored from mongodb://") for text in found)
    assert store.runs() == before and list(check_directory(store)) == []
    assert list(check_mirror(store, mongo_database)) == []


def test_what_the_database_has_not_as_it_was_is_not_restored(
    store: DirectoryStore, make_run: MakeRun, mongo_database: Mongo
) -> None:
    run = make_run()
    (run / "result.json").unlink()
    assert repair(check_directory(store, MongoStore(mongo_database))) == [None]
    other = make_run(1)
    sync(store, mongo_database)
    # A file with a checksum of its own, which is not the one that was written down here.
    content = (other / "result.json").read_text()
    where = {"harness.run_id": other.name}
    documents = mongo_database["runs"].find_one(where)["harness"]["documents"]  # type: ignore[index]
    for one in documents:
        if one["name"] == "result.json":
            import hashlib

            one["text"] = content.replace("0.5", "0.9")
            one["sha256"] = hashlib.sha256(one["text"].encode()).hexdigest()
    mongo_database["runs"].update_one(where, {"$set": {"harness.documents": documents}})
    (other / "result.json").unlink()
    assert repair(check_directory(store, MongoStore(mongo_database))) == [None, None]
    assert not (other / "result.json").exists()


def test_mirror_differences_are_found_and_projected_again(
    store: DirectoryStore, make_run: MakeRun, mongo_database: Mongo
) -> None:
    runs = [make_run(seed) for seed in range(6)]
    for run in runs[1:]:
        project(run, mongo_database)
    assert [(kind, reason) for kind, _, reason in reasons(check_mirror(store, mongo_database))] == [
        ("mirror", "is not in the database")
    ]
    ranked(runs[1])
    mongo_database["metrics"].update_one({"harness": runs[2].name}, {"$set": {"values": [0.0, 0.0]}})
    mongo_database["metrics"].delete_one({"harness": runs[3].name})
    entry = mongo_database["fs.files"].find_one({"metadata.run_id": runs[4].name, "filename": WEIGHTS})
    assert entry
    mongo_database["fs.chunks"].update_one({"files_id": entry["_id"]}, {"$set": {"data": b"wrong"}})
    found = {Path(one.place).name.split()[-1]: one for one in check_mirror(store, mongo_database)}
    assert found[runs[0].name].reason == "is not in the database"
    assert found[runs[1].name].reason == "is older in the database than here"
    assert found[runs[2].name].reason == "metric train_loss has different points"
    assert found[runs[3].name].reason == "metric train_loss is missing"
    assert WEIGHTS in found[runs[4].name].reason
    assert runs[5].name not in found
    assert repair(found.values()) == ["projected again"] * 5
    assert list(check_mirror(store, mongo_database)) == []
    assert MongoStore(mongo_database).runs() == store.runs()
    # What is damaged here is the directory's problem.
    (runs[5] / WEIGHTS).write_bytes(b"weightz")
    os.utime(runs[5] / WEIGHTS, (1, 1))
    assert list(check_mirror(store, mongo_database)) == []


def test_what_cannot_be_read_here_is_named_beside_the_database(
    store: DirectoryStore, make_run: MakeRun, mongo_database: Mongo
) -> None:
    one = store.create(trial(0), "tiny", {})
    one.write(RUN, {"status": "FAILED", "fail_trace": []})
    one.write(METRICS, {})
    project(one.path, mongo_database)
    (one.path / METRICS).unlink()
    (one.path / METRICS).symlink_to(METRICS)
    [found] = check_mirror(store, mongo_database)
    assert f"{METRICS} cannot be read in the directory: Too many levels of symbolic links" in found.reason


@pytest.mark.parametrize("name", [[[]], None, {"a": 1}])
def test_a_curve_whose_name_is_damaged_is_a_difference(
    name: Any, store: DirectoryStore, make_run: MakeRun, mongo_database: Mongo
) -> None:
    project(make_run(), mongo_database)
    mongo_database["metrics"].update_many({}, {"$set": {"name": name}})
    found = [one.reason for one in check_mirror(store, mongo_database)]
    assert any("metric train_loss is missing" in reason for reason in found)


def test_runs_of_others_and_weights_too_large_for_it_are_no_differences(
    store: DirectoryStore, make_run: MakeRun, mongo_database: Mongo
) -> None:
    make_run(0)
    sync(store, mongo_database, weights_max=3)
    other = DirectoryStore(store.path.with_name("other"))
    elsewhere = other.create(trial(1), "tiny", {})
    project(elsewhere.path, mongo_database)
    assert list(check_mirror(store, mongo_database)) == []
    # A run whose weights are declared absent here is compared without them.
    assert MongoStore(mongo_database).fetch(store.ids()[0], other.path).is_dir()
    assert [run.counts for run in other.runs() if run.status == "done"] == [True]
    assert list(check_mirror(other, mongo_database)) == []


def test_a_repair_brings_weights_up_to_the_size_that_is_asked_for(
    store: DirectoryStore, make_run: MakeRun, mongod: str, mongo_database: Mongo
) -> None:
    runs = [make_run(0), make_run(1)]
    project(runs[1], mongo_database, weights_max=0)
    address = mongod.replace("/?", f"/{mongo_database.name}?")
    check = ["store", "check", "--store", str(store.path), "--mongo", address, "--fix", "--mirror-weights-max"]

    def weights() -> list[bool]:
        mirror = MongoStore(mongo_database)
        return [WEIGHTS in mirror.files(mirror.find(run.name)) for run in runs]

    assert main([*check, "0"]) == 0
    assert weights() == [False, False]
    mongo_database["metrics"].update_many({}, {"$set": {"values": [0.0, 0.0]}})
    assert main([*check, "1"]) == 0
    assert weights() == [True, True]
    mongo_database["metrics"].update_many({}, {"$set": {"values": [0.0, 0.0]}})
    assert main([*check, "0"]) == 0
    assert weights() == [True, True]  # what is there stays


def test_what_is_left_of_a_run_that_somebody_removed_is_found(
    store: DirectoryStore, make_run: MakeRun, mongo_database: Mongo
) -> None:
    run = make_run(0)
    sync(store, mongo_database)
    mongo_database["runs"].delete_many({})
    found = list(check_mirror(store, mongo_database))
    assert [one.reason for one in found][0] == "is not in the database"
    assert any("the database has metrics of it, but not the run itself" in one.reason for one in found)
    assert all(run.name in one.place for one in found)
    # Repaired as it is found: with the run itself back, nothing is left over.
    assert repair(check_mirror(store, mongo_database)) == ["projected again"]


def test_a_database_is_checked_by_itself(store: DirectoryStore, make_run: MakeRun, mongo_database: Mongo) -> None:
    runs = [make_run(0), make_run(1), make_run(1, result=judged(0.75))]
    sync(store, mongo_database)
    mirror = MongoStore(mongo_database)
    assert {one.kind for one in check_database(mirror)} == {"duplicate"}
    entry = mongo_database["fs.files"].find_one({"metadata.run_id": runs[0].name, "filename": WEIGHTS})
    assert entry
    mongo_database["fs.chunks"].delete_many({"files_id": entry["_id"]})
    mongo_database["runs"].update_one({"harness.run_id": runs[1].name}, {"$set": {"harness.schema": 99}})
    found = list(check_database(mirror))
    assert any(one.kind == "damaged" and one.place.endswith(f"{runs[0].name}/{WEIGHTS}") for one in found)
    assert any("has schema 99" in one.reason and runs[1].name in one.place for one in found)


def test_absent_weights_are_no_damage_unless_they_are_others(store: DirectoryStore, make_run: MakeRun) -> None:
    run = make_run()
    checksum = json.loads((run / COMPLETION).read_text())["files"][WEIGHTS]
    (run / WEIGHTS).unlink()
    declare_absent(run, {WEIGHTS: checksum})
    assert list(check_directory(store)) == []
    declare_absent(run, {WEIGHTS: "0" * 64})
    assert [one.reason for one in check_directory(store)] == ["is missing"]
