"""What a worker does around a child: takeover, what is left in folders, and a child that is run by hand."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.owner import lives_here
from harness.stores.claims import Claims
from harness.stores.directory.records import DirectoryRecords
from harness.stores.directory.run_directory import RunDirectory
from harness.stores.directory.store import DirectoryStore
from harness.stores.places import Places
from harness.study.study import Request
from harness.study.trial import Trial
from harness.truth.table import Table
from harness.work.assignment import Computing
from harness.work.attempts import Attempts, Training
from harness.work.compute import compute
from harness.work.states import Kind, stand
from harness.work.worker import Settings
from tests.jobs import attempt
from tests.many_trials import REPOSITORY, finish, make_project, standing, start
from tests.processes import await_that
from tests.toy import toy_config

SECRET = "s3cret-of-the-lab"


def trial(**more: Any) -> Trial:
    return Trial(toy_config(rank={"images": 40, "candidates": 4, "bins": 3}, **more))


def begun(store: Path, one: Trial) -> Training:
    """An attempt of this process, whose child has not started."""
    place = Settings(Places(store)).open()
    runs = place.reader.runs()
    work = stand("", [Request("", 0, "toy", one.config.seed, one, False)], runs)
    claim = place.claims.acquire(one.key, at_least=max((run.attempt for run in runs), default=0))
    assert claim is not None
    made = Attempts(place, Computing(device="cpu"), "tiny", {}).begin(work, Kind.TRAIN, claim, runs)
    assert isinstance(made, Training)
    return made


def test_the_child_imports_no_driver_of_a_database() -> None:
    script = "import sys; import harness.work.compute; print('pymongo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


def test_nothing_that_counts_is_there_before_the_commit(toy_project: Path, tmp_path: Path) -> None:
    one = begun(tmp_path, trial())
    assert compute(one.folder) == {"status": "done"}
    (run,) = DirectoryStore(tmp_path).runs()
    assert not run.counts and (one.folder / "inputs").is_dir()
    assert one.end({"status": "done"}, print)["status"] == "done"
    (run,) = DirectoryStore(tmp_path).runs()
    assert run.counts and not (one.folder / "inputs").exists()
    assert Claims(DirectoryRecords(tmp_path)).holder(run.key) is None


def test_what_was_computed_under_a_lost_claim_does_not_count(toy_project: Path, tmp_path: Path) -> None:
    one = begun(tmp_path, trial())
    assert compute(one.folder) == {"status": "done"}
    assert one.claim is not None
    one.claim.release()
    other = Claims(DirectoryRecords(tmp_path)).acquire(one.claim.key)
    assert one.end({"status": "done"}, print)["status"] == "elsewhere"
    (run,) = DirectoryStore(tmp_path).runs()
    assert run.status == "interrupted" and other is not None
    other.confirm()  # nothing of it was released


def test_a_child_that_dies_before_its_first_act_leaves_a_lost_run(toy_project: Path, tmp_path: Path) -> None:
    one = begun(tmp_path, trial())
    one.started(None)
    one.end({"status": "lost", "error": "killed by signal 9 (SIGKILL)"}, print)
    (run,) = DirectoryStore(tmp_path).runs()
    assert (run.status, run.fail_trace) == ("lost", ["killed by signal 9 (SIGKILL)"])


def test_an_attempt_whose_child_never_started_leaves_nothing(toy_project: Path, tmp_path: Path) -> None:
    one = begun(tmp_path, trial())
    one.discard()
    assert DirectoryStore(tmp_path).ids() == [] and not one.folder.exists()
    assert attempt(trial(), tmp_path)["run_id"].split("-")[1] == "2"


def test_a_takeover_ends_the_child_of_the_last_attempt(toy_project: Path, tmp_path: Path) -> None:
    """Its worker was suspended for longer than its lease, and cannot end it."""
    one = begun(tmp_path, trial())
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        document = json.loads((one.folder / "cell.json").read_text())
        one.started(child.pid)
        RunDirectory(one.folder).write("cell.json", document | {"owner": one.child})
        RunDirectory(one.folder).write("run.json", {"status": "RUNNING", "heartbeat": "2020-01-01T00:00:00"})
        assert one.claim is not None and one.child is not None and lives_here(one.child)
        one.claim.release()
        assert attempt(trial(), tmp_path)["status"] == "done"
        assert child.wait(60) == -signal.SIGKILL
    finally:
        child.kill()
        child.wait()
    assert [run.status for run in DirectoryStore(tmp_path).runs()] == ["lost", "done"]


def test_a_run_by_hand_is_the_same_and_stores_nothing_elsewhere(toy_project: Path, tmp_path: Path) -> None:
    one = begun(tmp_path / "store", trial())
    shutil.copytree(one.folder, tmp_path / "again")
    one.started(None)
    assert compute(one.folder) == {"status": "done"}
    one.end({"status": "done"}, print)
    before = sorted(path for path in (tmp_path / "store").rglob("*"))
    command = [sys.executable, "-m", "harness.work.compute", str(tmp_path / "again")]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, cwd=toy_project, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "epoch 2/" in done.stdout and done.stderr.endswith("done\n"), done.stderr
    for name in ("weights.pt", "predictions.json"):
        assert (tmp_path / "again" / name).read_bytes() == (one.folder / name).read_bytes()
    assert sorted(path for path in (tmp_path / "store").rglob("*")) == before


def test_no_folder_holds_the_address_of_the_database_or_variables(
    tmp_path: Path, toy_table: Table, mongod: str
) -> None:
    """Neither that of a killed worker, nor that of one that got its trials done."""
    folder = make_project(tmp_path / "project", toy_table, milliseconds=20, epochs=4)
    uri = mongod.replace("/?", "/folders?") + f"&appName={SECRET}"
    command = ("run", "many", "--preset", "tiny", "--seeds", "1", "--jobs", "2", "--no-references")
    first = start(folder, *command, mongo=uri, LAB_TOKEN=SECRET)
    await_that(lambda: list((folder / "runs").glob("*-*/run.json")))
    first.kill()
    first.wait()
    killed = list((folder / "runs").glob("*-*/inputs/assignment.json"))
    assert killed
    second = start(folder, *command, mongo=uri, LAB_TOKEN=SECRET)
    said = finish(second)
    assert second.returncode == 0, said
    assert standing(folder / "runs")[1]["counts"] == 2
    files = [path for path in (folder / "runs").rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"assignment.json", "completion.json", "cout.txt", "weights.pt"}
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


def test_a_folder_without_an_assignment_is_refused(tmp_path: Path) -> None:
    answer = compute(tmp_path)
    assert answer["status"] == "failed" and "assignment.json: is missing" in answer["error"]


@pytest.fixture(autouse=True)
def nothing_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HARNESS_STORE", "HARNESS_MONGO"):
        monkeypatch.delenv(name, raising=False)
