"""Runs as a training process leaves them, made without training."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from harness.stores.directory.observer import DirectoryObserver
from harness.stores.directory.run_directory import LOG, PREDICTIONS, RunDirectory, predictions_document
from harness.stores.directory.store import DirectoryStore
from harness.study.configuration import RunConfig
from harness.study.trial import Trial

RESULT = {
    "kendall_tau": 0.5,
    "selected": 3,
    "top1": [1, 0, 1],
    "top1_accuracy": 40.0,
    "ranked": 3,
    "diverged": None,
    "observed": {},
}
TIME = datetime(2026, 1, 2, 3, 4, 5)


def trial(seed: int = 0, **more: Any) -> Trial:
    return Trial(RunConfig.from_json({"seed": seed, **more}))


def finish(directory: RunDirectory, one: Trial, result: dict[str, Any]) -> None:
    """All that a run which went well writes."""
    observer = DirectoryObserver(directory, one.config.json(), {"key": one.key})
    info = {"name": "cell", "mainfile": "experiment.py"}
    observer.started_event(info, "train_rank_judge", {}, TIME, {}, {}, None)
    (directory.path / LOG).write_text("trained\n")
    for step in (1, 2):
        directory.log_metric("train_loss", step, 2.5 / step)
    directory.write_result(result, {"wall_seconds": 1.0})
    directory.write(PREDICTIONS, predictions_document(one.config.json(), {7: 12.5, 3: 50.0}))
    directory.write_weights(lambda file: file.write(b"weights"))
    observer.completed_event(TIME, result)
    directory.gather_metrics()
    directory.complete()


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(tmp_path / "runs")


@pytest.fixture
def make_run(store: DirectoryStore) -> Callable[..., Path]:
    """Makes a done run of `trial(seed, **more)` and gives its directory."""

    def make(seed: int = 0, result: dict[str, Any] | None = None, **more: Any) -> Path:
        one = trial(seed, **more)
        directory = store.create(one, "tiny", {})
        finish(directory, one, RESULT | (result or {}))
        return directory.path

    return make
