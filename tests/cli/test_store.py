"""`harness store …` as a user calls it: on directories, on a real database, and between the two."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from bson import Decimal128, ObjectId
from pymongo.database import Database

from harness.cli import main
from harness.components import discovery
from harness.components.preset import get_preset
from harness.stores.claims import Claims
from harness.stores.directory.records import DirectoryRecords
from harness.stores.directory.run_directory import RunDirectory, predictions_document, write_ranking
from harness.stores.directory.store import DirectoryStore
from harness.stores.mongo.connection import connect
from harness.stores.mongo.store import MongoStore
from harness.stores.server.ports import free_port
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from harness.study.study import Request
from harness.truth.table import Table
from tests.conftest import TOY
from tests.jobs import run_job
from tests.mongod import Mongod
from tests.stored_runs import forge, judged, store_run
from tests.toy import user_folder

REPOSITORY = Path(discovery.__file__).resolve().parents[2]
TINY = ["--preset", "tiny", "--seeds", "3"]
Capture = pytest.CaptureFixture[str]
Mongo = Database[dict[str, Any]]

STUDY = """
from harness.study import Column, Row, Study

toy = {"space": "toy", "dataset": "toy", "benchmark": "toy", "train.epochs": 2, "train.batch_size": 20,
       "network.width": 2, "rank.images": 50, "rank.bins": 3}
rows = [Row({"Schedule": name}, toy | {"schedule.name": name}) for name in ("cosine", "calr")]
study = Study("mine", "Mine", rows, [Column("τ", "kendall_tau")])
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, toy_table: Table) -> Iterator[Path]:
    """A user's folder with the toy space and a study of two rows, as the current directory."""
    toy_table.write(tmp_path / "toy.npz")
    with user_folder(tmp_path, {"spaces/toy.py": TOY, "studies/mine.py": STUDY}):
        yield tmp_path


@pytest.fixture
def requests(folder: Path) -> list[Request]:
    """The study's: two rows, three seeds."""
    return expand(find_studies("mine")[0], get_preset("tiny"), 3)


@pytest.fixture
def mongo(mongod: str, mongo_database: Mongo) -> str:
    """The address of an empty database."""
    return mongod.replace("/?", f"/{mongo_database.name}?")


MEASURED = {"panel": {}, "partial_tau": 0.25, "top1_accuracy_predicted": 90.0}
"""What a run of the present version has measured."""


def fill(requests: list[Request], count: int = 3) -> list[str]:
    """Store done runs; gives their ids."""
    known: dict[str, Any] = {"curve": {1: 0.25}, "predictions": {3: 40.0}, "more": MEASURED}
    return [store_run(Path("runs"), one, 0.5, **known).id for one in requests[:count]]


# sync


def test_sync_brings_runs_to_the_database_once(requests: list[Request], mongo: str, capsys: Capture) -> None:
    fill(requests)
    assert main(["store", "sync", "--mongo", mongo]) == 0
    assert capsys.readouterr().out == "3 of 3 local runs copied to the database; the others were there\n"
    assert MongoStore(connect(mongo)).runs() == DirectoryStore(Path("runs")).runs()
    assert main(["store", "sync", "--mongo", mongo]) == 0
    assert capsys.readouterr().out == "0 of 3 local runs copied to the database; the others were there\n"


def test_sync_names_what_it_could_not_bring(requests: list[Request], mongo: str, capsys: Capture) -> None:
    ids = fill(requests)
    (Path("runs") / ids[1] / "result.json").write_text("{}")
    assert main(["store", "sync", "--mongo", mongo]) == 1
    captured = capsys.readouterr()
    assert captured.out.startswith("2 of 3 local runs")
    assert captured.err.startswith(f"not copied: {ids[1]}: ") and captured.err.count("\n") == 1


def test_sync_without_a_database_says_what_to_do(requests: list[Request], capsys: Capture) -> None:
    assert main(["store", "sync"]) == 2
    said = capsys.readouterr().err
    assert said == "error: there is no database: name one with --mongo URI, or with HARNESS_MONGO in the environment\n"


@pytest.mark.long
def test_watching_survives_an_outage(requests: list[Request], folder: Path) -> None:
    server = Mongod(folder / "mongod")
    server.start()
    fill(requests, 1)
    command = [sys.executable, "-m", "harness", "store", "sync", "--watch", "0.2", "--mongo", server.uri]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"}
    try:
        with subprocess.Popen(
            command,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # A shell's background jobs ignore Ctrl-C, and so would all that is started below them.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as watcher:
            said = iter(watcher.stdout or ())
            assert next(said).startswith("1 of 1 local runs")
            server.kill()
            assert "continuing when it is back" in next(said)
            store_run(Path("runs"), requests[1], 0.5)
            server.start()
            assert next(said).startswith("1 of 2 local runs")
            assert "answers again" in next(said)
            watcher.send_signal(signal.SIGINT)
            assert next(said) == "stopped\n"
        assert watcher.returncode == 0
        assert MongoStore(connect(server.uri)).runs() == DirectoryStore(Path("runs")).runs()
    finally:
        server.kill()


ODD_NUMBERS = (float("nan"), float("inf"), 1e300, 2**63 - 1, 2**62, 2**53 - 1, -5, 6.5, 7.0)
ODD_DECIMALS = (Decimal128("8"), Decimal128("1E+6000"))
ODD_IDS = (*ODD_NUMBERS, *ODD_DECIMALS, "text", None, {"a": 1}, True, ObjectId(), datetime(2026, 11, 18), b"bytes")


def test_documents_of_other_users_of_sacred_stop_nothing(
    requests: list[Request], mongo: str, mongo_database: Mongo, capsys: Capture
) -> None:
    fields: list[Any] = [None, 5, {}, [], "text", float("nan"), [{"run_id": "x"}], {"run_id": 5}, {"run_id": ["y"]}]
    foreign: list[dict[str, Any]] = [{"_id": one, "status": "COMPLETED"} for one in ODD_IDS]
    foreign += [{"_id": 20 + number, "harness": one} for number, one in enumerate(fields)]
    foreign += [{"_id": 2**63 - 1 - number, "harness": one} for number, one in enumerate(fields[:6], 1)]
    foreign += [{"_id": one, "harness": {"run_id": f"of {one}"}} for one in (2**61, 2**53 - 2, Decimal128("-1E+99"))]
    mongo_database["runs"].insert_many(foreign)
    mongo_database["metrics"].insert_many([{"harness": one, "run_id": one} for one in fields])
    fill(requests)
    assert main(["store", "sync", "--mongo", mongo]) == 0, capsys.readouterr().err
    numbers = [one["_id"] for one in mongo_database["runs"].find({"harness.revision": {"$gt": 0}}).sort("_id")]
    assert len(numbers) == 3 and MongoStore(connect(mongo)).runs() == DirectoryStore(Path("runs")).runs()
    for command in (
        ["store", "sync"],
        ["store", "check"],
        ["store", "check", "--fix"],
        ["status", "mine", "--preset", "tiny"],
        ["query", "kendall_tau > 0.1", "--preset", "tiny"],
        ["report", "mine", "--preset", "tiny", "--out", "report"],
        ["plan", "mine", "--preset", "tiny"],
    ):
        for place in ("--mongo", "--store") if command[1] != "sync" else ("--mongo",):
            assert main([*command, place, mongo]) in (0, 1), (command, capsys.readouterr().err)
            assert "Traceback" not in capsys.readouterr().err
    assert mongo_database["runs"].count_documents({}) == len(foreign) + 3


def test_numbers_follow_those_of_other_users(requests: list[Request], mongo: str, mongo_database: Mongo) -> None:
    mongo_database["runs"].insert_many([{"_id": one} for one in (41, 42.0, float("inf"), 2**53 - 1, "text")])
    fill(requests)
    assert main(["store", "sync", "--mongo", mongo]) == 0
    ours = mongo_database["runs"].find({"harness.revision": {"$gt": 0}})
    assert sorted(one["_id"] for one in ours) == [43, 44, 45]


# check


def test_check_of_nothing_and_of_whole_runs(requests: list[Request], capsys: Capture) -> None:
    assert main(["store", "check"]) == 0
    assert capsys.readouterr().out == "0 runs\nno problems\n"
    assert not Path("runs").exists()
    fill(requests)
    for request, status in zip(requests[3:], ["failed", "lost", "interrupted"], strict=False):
        store_run(Path("runs"), request, status=status)
    assert main(["store", "check"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("6 runs: ") and second == "no problems"
    assert set(first.removeprefix("6 runs: ").split(", ")) == {"3 done", "1 failed", "1 lost", "1 interrupted"}


def test_check_finds_and_fixes_what_is_safe(requests: list[Request], mongo: str, capsys: Capture) -> None:
    ids = fill(requests)
    assert main(["store", "sync", "--mongo", mongo]) == 0
    (Path("runs") / ids[0] / "predictions.json").write_text("{}")
    store_run(Path("runs"), requests[5], 0.5)
    leftover = Path("runs") / ".new-abc"
    leftover.mkdir()
    os.utime(leftover, (1, 1))
    capsys.readouterr()
    assert main(["store", "check", "--mongo", mongo]) == 1
    captured = capsys.readouterr()
    assert "--fix` repairs" in captured.err
    lines = captured.out.splitlines()
    assert lines[0].startswith(f"damaged: runs/{ids[0]}/predictions.json: ")
    assert [line.partition(":")[0] for line in lines[:-2]] == ["damaged", "mirror", "leftover"]
    assert lines[-1] == "3 problems"
    assert main(["store", "check", "--mongo", mongo, "--fix"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.strip().partition(" ")[0] for line in lines[1:6:2]] == ["restored", "projected", "removed"]
    assert lines[-1] == "3 problems, 3 repaired"
    assert main(["store", "check", "--mongo", mongo]) == 0
    assert not leftover.exists()


def test_check_leaves_what_cannot_be_repaired(requests: list[Request], capsys: Capture) -> None:
    ids = fill(requests)
    (Path("runs") / ids[0] / "predictions.json").write_text("{}")
    assert main(["store", "check", "--fix"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "  not repaired" and lines[-1] == "1 problem, 0 repaired"
    assert (Path("runs") / ids[0] / "predictions.json").read_text() == "{}"


def test_check_of_a_database_alone(requests: list[Request], mongo: str, capsys: Capture) -> None:
    fill(requests)
    main(["store", "sync", "--mongo", mongo])
    capsys.readouterr()
    assert main(["store", "check", "--store", mongo]) == 0
    assert capsys.readouterr().out == "3 runs: 3 done\nno problems\n"
    connect(mongo)["runs"].update_one({}, {"$set": {"harness.schema": 99}})
    assert main(["store", "check", "--store", mongo]) == 1
    assert "has schema 99" in capsys.readouterr().out


SILENT = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=200"
"""Where nobody answers."""


@pytest.mark.long
def test_a_silent_database_keeps_nobody_from_looking_after_the_directory(
    requests: list[Request], capsys: Capture
) -> None:
    (run,) = fill(requests, 1)
    assert main(["store", "check", "--mongo", SILENT]) == 1
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("database: not compared: mongodb://127.0.0.1:1/ does not answer")
    assert rest == ["1 run: 1 done", "1 problem"]
    assert main(["store", "invalidate", run, "--reason", "no", "--mongo", SILENT]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"run {run} is invalid from now on, in runs\n"
    assert "does not answer" in captured.err and captured.err.endswith("use `harness store sync` when it is back\n")
    # Whether a checkpoint is in use is not known then.
    for command in (
        ["clean"],
        ["sync"],
        ["sync", "--watch"],
        ["check", "--store", SILENT],
        ["recompute", "mine", *TINY],
    ):
        assert main(["store", *command, "--mongo", SILENT]) == 1
        said = capsys.readouterr().err
        assert said.startswith("error: ") and "does not answer" in said and said.count("\n") == 1


# clean


def test_clean_removes_what_nobody_uses_and_says_how_much(requests: list[Request], capsys: Capture) -> None:
    ids = fill(requests, 1)
    work = Path("runs") / "work"
    work.mkdir()
    busy = requests[1].trial.key
    names = [f"{ids[0][:16]}-1.checkpoint", f"{'ab' * 8}-1.checkpoint", f"{busy[:16]}-1.checkpoint"]
    for name in names:
        (work / name).write_bytes(bytes(2048))
    os.utime(work / names[0], (1, 1))
    assert Claims(DirectoryRecords(Path("runs"))).acquire(busy)
    assert main(["store", "clean", "--dry-run"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.strip() for line in said] == [
        "1 × checkpoint of a done trial, 2.0 kB",
        "1 × unused checkpoint, 2.0 kB",
        "4.0 kB would be freed",
    ]
    assert len(list(work.iterdir())) == 3
    assert main(["store", "clean"]) == 0
    assert capsys.readouterr().out.endswith("4.0 kB were freed\n")
    assert [path.name for path in work.iterdir()] == [names[2]]
    assert main(["store", "clean"]) == 0
    assert capsys.readouterr().out == "nothing to remove\n"
    elsewhere = Path("elsewhere")
    elsewhere.mkdir()
    (elsewhere / names[1]).write_bytes(b"")
    assert main(["store", "clean", "--work", "elsewhere"]) == 0
    assert list(elsewhere.iterdir()) == []


# invalidate


def test_an_invalid_run_is_kept_not_counted_and_listed(requests: list[Request], capsys: Capture) -> None:
    (run,) = fill(requests, 1)
    assert main(["store", "invalidate", run[:20], "--reason", "a broken fan"]) == 0
    assert capsys.readouterr().out == f"run {run} is invalid from now on, in runs\n"
    (stored,) = DirectoryStore(Path("runs")).runs()
    assert (stored.invalid, stored.counts, stored.status) == ("a broken fan", False, "done")
    assert main(["report", "mine", *TINY]) == 0
    assert "a broken fan" in capsys.readouterr().out
    assert main(["store", "invalidate", run, "--reason", "again"]) == 2
    assert capsys.readouterr().err == f"error: run {run} is invalid already: a broken fan\n"


def test_a_run_is_invalid_in_both_places_or_in_the_one_that_has_it(
    requests: list[Request], mongo: str, capsys: Capture
) -> None:
    both, here = fill(requests, 2)
    os.rename(f"runs/{here}", "aside")
    main(["store", "sync", "--mongo", mongo])
    os.rename("aside", f"runs/{here}")
    capsys.readouterr()
    for run, places in {both: "runs and the database", here: "runs"}.items():
        assert main(["store", "invalidate", run, "--reason", "no", "--mongo", mongo]) == 0
        assert capsys.readouterr().out == f"run {run} is invalid from now on, in {places}\n"
    assert [run.invalid for run in DirectoryStore(Path("runs")).runs()] == ["no", "no"]
    assert [run.invalid for run in MongoStore(connect(mongo)).runs()] == ["no"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing", "--reason", "x"], "no run's id begins with 'nothing'"),
        (["{run}", "--reason", " "], "--reason must not be empty"),
        (["{run}"], "Missing option '--reason'"),
    ],
)
def test_mistakes_of_invalidate(requests: list[Request], arguments: list[str], message: str, capsys: Capture) -> None:
    (run,) = fill(requests, 1)
    assert main(["store", "invalidate", *(word.format(run=run) for word in arguments)]) == 2
    assert message in capsys.readouterr().err


def test_a_run_that_cannot_be_written_stays_valid_and_the_message_says_where(
    requests: list[Request], capsys: Capture
) -> None:
    (run,) = fill(requests, 1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))  # as a full disk; a superuser may write anywhere else
    try:
        status = main(["store", "invalidate", run, "--reason", "x"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert status == 2 and capsys.readouterr().err.startswith(f"error: cannot write to runs/{run}: ")
    assert DirectoryStore(Path("runs")).runs()[0].counts


# export and import


def test_a_study_goes_from_one_directory_to_another(requests: list[Request], capsys: Capture) -> None:
    ids = fill(requests)
    store_run(Path("runs"), requests[3], status="failed")
    assert main(["store", "export", "mine", "paper.tar.gz", *TINY]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("wrote 3 runs of mine to paper.tar.gz, ")
    assert captured.err.count("missing: ") == 3 and captured.err.count(": failed\n") == 1
    assert main(["store", "import", "paper.tar.gz", "--store", "other"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "3 runs added to other, 0 extended, 0 already there\n"
    assert captured.err == "3 trials of mine are not in the archive\n"
    assert sorted(DirectoryStore(Path("other")).ids()) == sorted(ids)
    assert main(["store", "import", "paper.tar.gz", "--store", "other"]) == 0
    assert capsys.readouterr().out == "0 runs added to other, 0 extended, 3 already there\n"
    assert main(["store", "export", "mine", "all.tar", *TINY, "--all-attempts"]) == 0
    assert capsys.readouterr().out.startswith("wrote 4 runs of ")


def test_an_archive_is_the_same_from_either_kind_of_store_and_goes_into_either(
    requests: list[Request], mongo: str, capsys: Capture
) -> None:
    fill(requests)
    main(["store", "sync", "--mongo", mongo])
    assert main(["store", "export", "mine", "one.tar", *TINY]) == 0
    assert main(["store", "export", "mine", "other.tar", *TINY, "--store", mongo]) == 0
    assert Path("one.tar").read_bytes() == Path("other.tar").read_bytes()
    database = connect(mongo)
    for name in database.list_collection_names():
        database.drop_collection(name)
    database.client.close()
    capsys.readouterr()
    assert main(["store", "import", "one.tar", "--store", mongo]) == 0
    assert capsys.readouterr().out == "3 runs added to the database, 0 extended, 0 already there\n"
    assert MongoStore(connect(mongo)).runs() == DirectoryStore(Path("runs")).runs()
    assert main(["store", "import", "one.tar", "--store", mongo]) == 0
    assert capsys.readouterr().out == "0 runs added to the database, 0 extended, 3 already there\n"


def test_an_archive_that_contradicts_the_database_changes_nothing(
    requests: list[Request], mongo: str, capsys: Capture
) -> None:
    ids = fill(requests, 2)
    main(["store", "export", "mine", "one.tar", *TINY])
    forge(Path("runs") / ids[1])
    os.rename(f"runs/{ids[0]}", "aside")
    main(["store", "sync", "--mongo", mongo])
    capsys.readouterr()
    assert main(["store", "import", "one.tar", "--store", mongo]) == 2
    assert f"run {ids[1]} already exists, but with a different" in capsys.readouterr().err
    assert MongoStore(connect(mongo)).ids() == [ids[1]]


def log_and_source(ids: list[str]) -> None:
    """Give done runs what a training process leaves beside their results."""
    for name in ids:
        path = Path("runs") / name
        (path / "cout.txt").write_text(f"trained {name}\n" * 5000)
        (path / "sources").mkdir()
        (path / "sources" / "spaces-toy.py").write_text(TOY)
        (path / "completion.json").unlink()
        RunDirectory(path).complete()


@pytest.mark.parametrize(
    ("how", "name"), [("cut", "cout.txt"), ("changed", "cout.txt"), ("missing", "sources/spaces-toy.py")]
)
def test_a_damaged_log_or_source_is_left_out_of_copies(
    how: str, name: str, requests: list[Request], mongo: str, capsys: Capture
) -> None:
    """As after a power cut of an older version: the result is whole, so it is copied everywhere."""
    ids = fill(requests)
    log_and_source(ids)
    main(["store", "export", "mine", "whole.tar", *TINY])
    file = Path("runs") / ids[1] / name
    content = file.read_bytes()
    if how == "missing":
        file.unlink()
    else:
        file.write_bytes(content[:10] if how == "cut" else bytes([content[0] ^ 1]) + content[1:])
    capsys.readouterr()

    assert main(["store", "sync", "--mongo", mongo]) == 0
    assert capsys.readouterr().out == "3 of 3 local runs copied to the database; the others were there\n"
    counted = MongoStore(connect(mongo))
    assert [run.counts for run in counted.runs()] == [True] * 3
    assert [Path(problem.place).name for problem in counted.problems] == [file.name]
    assert main(["store", "check", "--store", "runs", "--mongo", mongo]) == 1
    said = capsys.readouterr().out
    assert f"damaged: {file}: " in said and "1 problem" in said, said  # the database misses nothing else

    for archive, place in (("one.tar", "runs"), ("other.tar", mongo)):
        assert main(["store", "export", "mine", archive, *TINY, "--store", place]) == 0
        captured = capsys.readouterr()
        assert captured.out.startswith(f"wrote 3 runs of mine to {archive}, ")
        assert "not usable: " in captured.err and f"{ids[1]}/{name}: " in captured.err
        assert main(["store", "import", archive, "--store", f"from-{archive}"]) == 0
        assert capsys.readouterr().out == f"3 runs added to from-{archive}, 0 extended, 0 already there\n"
        imported = DirectoryStore(Path(f"from-{archive}"))
        assert imported.runs() == DirectoryStore(Path("runs")).runs()
        assert not (imported.path / ids[1] / name).exists()
    assert Path("one.tar").read_bytes() == Path("other.tar").read_bytes()

    # A whole copy of the run completes the others.
    for place in ("from-one.tar", "runs", mongo):
        assert main(["store", "import", "whole.tar", "--store", place]) == 0
        assert "0 runs added to " in (said := capsys.readouterr().out) and "1 extended, 2 already there" in said
    assert file.read_bytes() == content
    assert main(["store", "check", "--store", "runs", "--mongo", mongo]) == 0
    assert MongoStore(connect(mongo)).read(counted.runs()[0], "cout.txt")
    assert main(["store", "export", "mine", "again.tar", *TINY, "--store", mongo]) == 0
    assert Path("again.tar").read_bytes() == Path("whole.tar").read_bytes()


def test_a_damaged_result_is_not_copied(requests: list[Request], mongo: str, capsys: Capture) -> None:
    ids = fill(requests)
    log_and_source(ids)
    (Path("runs") / ids[1] / "metrics.json").write_text("{}")
    assert main(["store", "sync", "--mongo", mongo]) == 1
    assert f"not copied: {ids[1]}: " in capsys.readouterr().err
    assert main(["store", "export", "mine", "one.tar", *TINY]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("wrote 2 runs of mine") and f"{ids[1]}/metrics.json: " in captured.err


def test_mistakes_of_export_and_import_are_one_line(requests: list[Request], capsys: Capture) -> None:
    assert main(["store", "export", "mine", "x.tar", *TINY]) == 2
    first, said = capsys.readouterr().err.splitlines()
    assert first.startswith("there is no store runs yet")
    assert said == "error: runs has no run of mine under preset tiny: there is nothing to export"
    fill(requests, 1)
    Path("x.tar").write_text("mine")
    assert main(["store", "export", "mine", "x.tar", *TINY]) == 2
    assert "x.tar exists already" in capsys.readouterr().err and Path("x.tar").read_text() == "mine"
    assert main(["store", "import", "x.tar", "--store", "other"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: x.tar: cannot be read as an archive of runs") and said.count("\n") == 1
    assert main(["store", "import", "nothing.tar", "--store", "other"]) == 2
    assert capsys.readouterr().err == "error: there is no file nothing.tar\n"


# recompute


def test_recompute_says_what_would_need_training(requests: list[Request], capsys: Capture) -> None:
    fill(requests, 2)
    assert main(["store", "recompute", "mine", *TINY]) == 0
    said = "0 recomputed\n4 of 6 trials need training: use `harness run`\n"
    assert capsys.readouterr().out == said
    assert len(DirectoryStore(Path("runs")).ids()) == 2


@pytest.mark.long
def test_recompute_ranks_what_is_stored_and_trains_nothing(requests: list[Request], capsys: Capture) -> None:
    job: dict[str, Any] = {"kind": "train", "trial": requests[0].trial.json(), "store": "runs", "preset": "tiny"}
    assert run_job(job | {"overrides": {}, "threads": 1}, lambda report: None)["status"] == "done"
    (before,) = DirectoryStore(Path("runs")).runs()
    weights = Path("runs") / before.id / "weights.pt"
    untouched = weights.stat().st_mtime_ns
    assert main(["store", "recompute", "mine", *TINY, "with", "rank.candidates=12"]) == 0
    said = capsys.readouterr().out
    assert "1 recomputed\n5 of 6 trials need training: use `harness run`\n" in said
    (after,) = DirectoryStore(Path("runs")).runs()
    assert len(after.rankings) == 2 and after.result == before.result
    assert weights.stat().st_mtime_ns == untouched
    assert (
        len(json.loads(next((weights.parent / "rankings").glob("*.predictions.json")).read_text())["accuracies"]) == 12
    )
    assert main(["store", "recompute", "mine", *TINY, "with", "rank.candidates=12"]) == 0
    assert capsys.readouterr().out.startswith("0 recomputed\n")


@pytest.mark.long
def test_recompute_tells_what_it_could_not_do(requests: list[Request], capsys: Capture) -> None:
    fill(requests, 2)
    taken, weightless = (request.trial for request in requests[:2])
    claim = Claims(DirectoryRecords(Path("runs")), 60.0).acquire(f"{taken.key}-{taken.ranking_key}")
    assert claim is not None
    assert main(["store", "recompute", "mine", *TINY, "--again", "--jobs", "1"]) == 1
    captured = capsys.readouterr()
    assert "0 recomputed, 1 elsewhere, 1 failed\n" in captured.out
    here, broken = sorted(captured.err.splitlines())
    assert here.startswith("elsewhere: mine/cosine seed 0: running in another process")
    assert broken.startswith("failed: mine/cosine seed 1: ") and "weights.pt" in broken and weightless.config.seed == 1
    claim.release()


def test_recompute_says_which_database_is_silent_and_why(requests: list[Request], capsys: Capture) -> None:
    fill(requests, 1)
    address = f"127.0.0.1:{free_port()}"
    assert main(["store", "recompute", "mine", *TINY, "--mongo", f"mongodb://{address}/runs"]) == 1
    said = capsys.readouterr().err
    assert address in said and "refused" in said and said.count("\n") == 1


# without the table of ground truth that runs were judged by


def test_what_was_judged_by_a_table_that_is_not_here_is_counted(requests: list[Request], capsys: Capture) -> None:
    ids = fill(requests, 4)
    Path("toy.npz").unlink()
    assert main(["status", "mine", "--preset", "tiny", "--seeds", "3"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:4] == ["mine", "tiny", "6", "4"]
    assert main(["plan", "mine", *TINY]) == 0
    assert "mine: Mine, 6 trials, 4 done\n" in capsys.readouterr().out
    assert main(["report", "mine", *TINY]) == 0
    assert "0.500" in capsys.readouterr().out
    assert main(["query", "--study", "mine", "--columns", "kendall_tau", "--format", "csv"]) == 0
    assert capsys.readouterr().out == "kendall_tau\n" + "0.5\n" * 4
    assert main(["store", "export", "mine", "mine.tar", *TINY]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("wrote 4 runs of mine") and captured.err.count("missing: ") == 2
    # What is to run needs it; what is done does not.
    assert main(["run", "mine", *TINY]) == 2
    assert "toy.npz: no such table" in capsys.readouterr().err
    assert main(["store", "recompute", "mine", *TINY, "--again"]) == 2
    assert "toy.npz: no such table" in capsys.readouterr().err
    assert sorted(DirectoryStore(Path("runs")).ids()) == sorted(ids)
    assert main(["run", "mine", "--preset", "tiny", "--seeds", "1"]) == 0
    assert "2 of 2 trials done" in capsys.readouterr().out


@pytest.mark.parametrize("mirrored", [False, True])
def test_a_further_ranking_is_known_without_its_table(
    requests: list[Request], mongo: str, mirrored: bool, capsys: Capture
) -> None:
    (run,) = (store_run(Path("runs"), one, 0.5) for one in requests[:1])
    (other,) = expand(find_studies("mine")[0], get_preset("tiny"), 1, {"rank.candidates": 5, "schedule.name": "cosine"})
    config, folder = other.trial.config.json(), Path("runs") / run.id
    if mirrored:
        assert main(["store", "sync", "--mongo", mongo]) == 0
    write_ranking(folder, other.trial.ranking_key, config, judged(0.75), {}, predictions_document(config, {}))
    if mirrored:
        assert main(["store", "sync", "--mongo", mongo]) == 0
    capsys.readouterr()
    Path("toy.npz").unlink()
    place = ["--store", mongo] if mirrored else []
    asked = ["with", "rank.candidates=5", "schedule.name=cosine"]
    assert main(["report", "mine", "--preset", "tiny", "--seeds", "1", *place, *asked]) == 0
    assert "0.750" in capsys.readouterr().out
    # Another one nobody made: that of a run is not taken for it.
    assert main(["report", "mine", "--preset", "tiny", "--seeds", "1", *place, "with", "rank.candidates=6"]) == 0
    said = capsys.readouterr().out
    assert "0.750" not in said and "0.500" not in said


def test_two_versions_of_a_table_that_is_not_here_are_told(
    requests: list[Request], toy_table: Table, capsys: Capture
) -> None:
    one = store_run(Path("runs"), requests[0], 0.5)
    replace(toy_table, test=toy_table.test[::-1].copy()).write(Path("toy.npz"))
    other = store_run(Path("runs"), expand(find_studies("mine")[0], get_preset("tiny"), 3)[1], 0.25)
    assert one.own_ranking != other.own_ranking
    Path("toy.npz").unlink()
    for command in (["status", "mine"], ["report", "mine", *TINY], ["query", "--study", "mine"]):
        assert main(command) == 2
        said = capsys.readouterr().err
        assert "toy.npz: no such table" in said and "the stored runs were judged by 2 versions of it" in said


def test_help_of_every_command(capsys: Capture) -> None:
    for name in ("sync", "check", "clean", "invalidate", "recompute", "export", "import"):
        assert main(["store", name, "--help"]) == 0
        assert "--store" in capsys.readouterr().out
