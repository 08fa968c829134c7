"""Unfinished runs whose records are damaged, as nothing but the schema can tell: named, skipped, in nobody's way."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from harness import results
from harness.cli import main
from harness.components.preset import get_preset
from harness.owner import is_alive
from harness.stores.directory.store import DirectoryStore
from harness.stores.mongo.projection import project
from harness.stores.mongo.store import MongoStore
from harness.stores.stored import Status
from harness.stores.upkeep.checking import check_directory
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from harness.study.study import Request
from tests.stored_runs import store_run

STUDY = "ablation_calr_ms"
Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def request_() -> Request:
    return expand(find_studies(STUDY)[0], get_preset("tiny"), 1)[0]


def misspell(document: dict[str, Any]) -> None:
    document["owner"]["iost"] = document["owner"].pop("host")


def change(path: Path, edit: Change) -> None:
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))


ODD: dict[str, tuple[str, str, Change, str]] = {
    "host misspelt": ("lost", "cell.json", misspell, "owner.host is missing"),
    "no owner": ("lost", "cell.json", lambda d: d.update(owner=None), "owner: expected `object`"),
    "no pid": ("lost", "cell.json", lambda d: d["owner"].update(pid=None), "owner.pid: expected `int`"),
    "ranking": ("lost", "cell.json", lambda d: d.update(ranking=[]), "ranking: expected `str`"),
    "attempt": ("lost", "cell.json", lambda d: d.update(attempt=9), "attempt 9, not about"),
    "configuration": ("lost", "cell.json", lambda d: d["cell"]["config"].update(rank=5), "cell.config.rank: expected"),
    "seed": ("failed", "cell.json", lambda d: d["cell"]["config"].update(seed="x"), "cell.config.seed: expected"),
    "parent": ("failed", "cell.json", lambda d: d["cell"].update(parent=5), "cell.parent: expected `str | null`"),
    "overrides": ("failed", "cell.json", lambda d: d.update(overrides=[]), "overrides: expected"),
    "trace": ("failed", "run.json", lambda d: d.update(fail_trace=5), "fail_trace: expected `array | null`"),
    "time": ("failed", "run.json", lambda d: d.update(stop_time="noon"), "stop_time: "),
}


@pytest.mark.parametrize("case", ODD)
def test_a_damaged_record_is_named_and_ends_no_command(
    case: str, tmp_path: Path, request_: Request, capsys: pytest.CaptureFixture[str]
) -> None:
    status, name, edit, reason = ODD[case]
    run = store_run(tmp_path, request_, status=status)
    change(tmp_path / run.id / name, edit)
    there = ["--store", str(tmp_path)]
    for command, naming in {
        ("status", STUDY): True,
        ("query", "--all", "--study", STUDY): True,
        ("show", run.id): True,
        ("store", "check"): True,
        ("store", "check", "--fix"): True,
        ("store", "clean", "--dry-run"): False,
    }.items():
        main([*command, *there])
        printed = "".join(capsys.readouterr())
        assert "Traceback" not in printed
        assert not naming or (reason in printed and name in printed), command


def test_a_damaged_trial_of_an_unfinished_run_is_restored_from_the_database(
    tmp_path: Path, request_: Request, mongo_database: Database[dict[str, Any]]
) -> None:
    run = store_run(tmp_path, request_, status="lost")
    file = tmp_path / run.id / "cell.json"
    whole = file.read_bytes()
    project(tmp_path / run.id, mongo_database)
    change(file, misspell)
    [finding] = check_directory(DirectoryStore(tmp_path), MongoStore(mongo_database))
    assert finding.repair is not None and str(finding.repair()).startswith("restored")
    assert file.read_bytes() == whole


def test_a_run_whose_configuration_fits_no_column_is_left_out_of_the_frame(tmp_path: Path, request_: Request) -> None:
    """The schema does not know every key of a configuration; the columns do."""
    done, failed = store_run(tmp_path, request_, 0.5), store_run(tmp_path, request_, status="failed")
    change(tmp_path / failed.id / "cell.json", lambda d: d["cell"]["config"]["train"].update(epochs="many"))
    store = DirectoryStore(tmp_path)
    frame = results.runs(store=store, all=True, where="train.epochs >= 0")
    assert list(frame.run_id) == [done.id]
    assert [(failed.id in one.place, one.reason) for one in store.problems] == [
        (True, "its configuration: train_epochs is 'many'")
    ]


def test_a_heartbeat_from_the_future_does_not_keep_a_run_alive(tmp_path: Path, request_: Request) -> None:
    elsewhere = {"host": "another machine", "pid": 1, "started": 1}
    assert not is_alive(elsewhere, "2226-01-01T00:00:00")
    run = store_run(tmp_path, request_, status="running")
    change(tmp_path / run.id / "cell.json", lambda d: d.update(owner=elsewhere))
    change(tmp_path / run.id / "run.json", lambda d: d.update(heartbeat="2226-01-01T00:00:00"))
    assert [one.status for one in DirectoryStore(tmp_path).runs()] == [Status.LOST]


def test_a_pid_that_no_process_has_is_dead(tmp_path: Path, request_: Request) -> None:
    run = store_run(tmp_path, request_, status="running")
    for pid in (-1, 0, 10**30):
        change(tmp_path / run.id / "cell.json", lambda d, pid=pid: d["owner"].update(pid=pid))  # type: ignore[misc]
        assert [one.status for one in DirectoryStore(tmp_path).runs()] == [Status.LOST]
