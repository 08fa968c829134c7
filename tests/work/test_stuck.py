"""Trials that the tasks of one job of SLURM cannot bring further: known after some attempts, and left to other jobs."""

from __future__ import annotations

import os
from datetime import UTC
from pathlib import Path

import pytest

from harness.cli import main
from harness.components.preset import get_preset
from harness.stores.directory.store import DirectoryStore
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from harness.study.study import Request
from harness.work.unattended import TIMES, stuck
from tests.stored_runs import STARTED, store_run

OURS, OTHERS = ({"job": str(int(job) + 3), "array": job, "task": "3"} for job in ("1000", "2000"))
WORKER = ["worker", "ablation_calr_ms", "--preset", "tiny", "--seeds", "1", "--only", "method.name=spos", "--offline"]


@pytest.fixture
def request_of_spos(monkeypatch: pytest.MonkeyPatch) -> Request:
    """A trial; runs stored from now on are made by a task of our job."""
    monkeypatch.setenv("SLURM_JOB_ID", OURS["job"])
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", OURS["array"])
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", OURS["task"])
    return next(iter(expand(find_studies("ablation_calr_ms")[0], get_preset("tiny"), 1)))


def save(store: Path, key: str, seconds: float) -> None:
    """A checkpoint that was written so many seconds after the attempts began."""
    (store / "work").mkdir(exist_ok=True)
    file = store / "work" / f"{key[:16]}-0123456789abcdef.checkpoint"
    file.write_bytes(b"")
    moment = STARTED.replace(tzinfo=UTC).timestamp() + seconds
    os.utime(file, (moment, moment))


def test_attempts_that_saved_nothing_are_counted_by_job(request_of_spos: Request, tmp_path: Path) -> None:
    store, key = DirectoryStore(tmp_path), request_of_spos.trial.key
    for _ in range(TIMES - 1):
        store_run(tmp_path, request_of_spos, status="interrupted")
    assert not stuck(store.runs(), tmp_path / "work", OURS)
    store_run(tmp_path, request_of_spos, status="interrupted")
    assert stuck(store.runs(), tmp_path / "work", OURS) == {key}
    assert not stuck(store.runs(), tmp_path / "work", OTHERS)  # it may have more time
    assert not stuck(store.runs(), tmp_path / "work", {})
    save(tmp_path, key, -60.0)
    assert stuck(store.runs(), tmp_path / "work", OURS) == {key}
    save(tmp_path, key, 60.0)
    assert not stuck(store.runs(), tmp_path / "work", OURS)
    store_run(tmp_path, request_of_spos, status="lost")
    save(tmp_path, key, -60.0)
    assert not stuck(store.runs(), tmp_path / "work", OURS)  # killed before its time was over


def test_a_worker_leaves_such_a_trial_and_does_not_start_again(
    request_of_spos: Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLURM_JOB_END_TIME", "4102444800")
    for _ in range(TIMES):
        store_run(tmp_path, request_of_spos, status="interrupted")
    words = [*WORKER, "--store", str(tmp_path), "--until-deadline", "slurm", "--requeue", "--jobs", "1"]
    one = [*words[:7], f"{words[7]},schedule.name=cosine,clusters.name=none", *words[8:]]
    assert main(one) == 1
    said = capsys.readouterr()
    assert f"was interrupted {TIMES} times in a row" in said.err and "more time" in said.err
    assert "0 of 1 trials done" in said.out and "starts again" not in said.out
    assert len(DirectoryStore(tmp_path).runs()) == TIMES
