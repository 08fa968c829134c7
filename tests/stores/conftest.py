"""Runs as a training process leaves them, made without training."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.stores.directory.run_directory import LOG, RunDirectory
from harness.stores.directory.store import DirectoryStore
from harness.study.configuration import RunConfig
from harness.study.trial import Trial
from tests import stored_runs

RESULT = {
    "kendall_tau": 0.5,
    "selected": 3,
    "top1": [1, 0, 1],
    "top1_accuracy": 40.0,
    "ranked": 3,
    "diverged": None,
    "observed": {},
}
TIME = stored_runs.STARTED
NUMBERS = {"result.kendall_tau": 0.5, "result.selected": 3, "result.top1_accuracy": 40.0, "result.ranked": 3}
"""The numbers of `RESULT`, as the database has them: each is a metric of one point."""
CURVES = {"harness": {"$exists": True}}
"""What distinguishes curves from these in the database."""


def trial(seed: int = 0, **more: Any) -> Trial:
    return Trial(RunConfig.from_json({"seed": seed, **more}))


def finish(directory: RunDirectory, one: Trial, result: dict[str, Any]) -> None:
    """All that a run which went well writes."""
    observer = stored_runs.start(directory, one)
    (directory.path / LOG).write_text("trained\n")
    for step in (1, 2):
        directory.log_metric("train_loss", step, 2.5 / step)
    stored_runs.finish(directory, one, observer, result, {"wall_seconds": 1.0}, {7: 12.5, 3: 50.0}, b"weights")


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(tmp_path / "runs")


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the files and folders that are written through to the disk, in order."""
    names: list[str] = []
    really = os.fsync

    def fsync(descriptor: int) -> None:
        names.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        really(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return names


@pytest.fixture
def make_run(store: DirectoryStore) -> Callable[..., Path]:
    """Makes a done run of `trial(seed, **more)` and gives its directory."""

    def make(seed: int = 0, result: dict[str, Any] | None = None, **more: Any) -> Path:
        one = trial(seed, **more)
        directory = store.create(one, "tiny", {})
        finish(directory, one, RESULT | (result or {}))
        return directory.path

    return make
