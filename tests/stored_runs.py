"""Run directories as training processes write them, made in a moment: for tests of whatever reads them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from harness.schema import OBSERVED, SCHEMA, UNRANKED
from harness.stores.directory.observer import DirectoryObserver
from harness.stores.directory.reading import read_small
from harness.stores.directory.run_directory import PREDICTIONS, TRIAL, RunDirectory, predictions_document
from harness.stores.directory.store import DirectoryStore, StoredRun
from harness.study.study import Request
from harness.study.trial import Trial

COST = {"wall_seconds": 2.5, "passes": 30, "images": 7680, "evaluations": 25, "peak_memory_bytes": 1_000_000}
STARTED, STOPPED = datetime(2026, 1, 1, 10), datetime(2026, 1, 1, 10, 0, 2, 500_000)
ERROR = ["Traceback (most recent call last):\n", '  File "x.py", line 1, in <module>\n', "ValueError: 5 % of a_b\n"]

NO_PREDICTIONS: dict[str, Any] = {"schema": SCHEMA, "images": None, "batch_size": 256, "accuracies": {}}


def judged(tau: Any) -> dict[str, Any]:
    """What a ranking gave that found nothing but Kendall's τ."""
    return {**UNRANKED, "kendall_tau": tau}


def store_run(
    store: Path,
    request: Request,
    tau: float | None = None,
    accuracy: float = 60.0,
    status: str = "done",
    preset: str = "tiny",
    overrides: Mapping[str, Any] | None = None,
    diverged: dict[str, Any] | None = None,
    curve: Mapping[int, float] | None = None,
    predictions: Mapping[int, float] | None = None,
    cost: Mapping[str, Any] | None = None,
    more: Mapping[str, Any] | None = None,
    observed: Mapping[str, Any] | None = None,
    machine: Mapping[str, Any] | None = None,
    sources: bool = False,
) -> StoredRun:
    """Store a run of the request's trial, as it would stand there with that status.

    `more` is added to its result, `observed` are its curves, `machine` is what it was made on. With `sources` it has
    copies of the files of its components.
    """
    opened = DirectoryStore(store)
    directory = opened.create(request.trial, preset, overrides or {})
    if sources:
        directory.write_sources(request.trial)
    for step, value in (curve or {}).items():
        directory.log_metric("kendall_tau", step, value)
    if status == "lost":
        trial = read_small(directory.path / TRIAL)
        directory.write(TRIAL, trial | {"owner": trial["owner"] | {"started": -1}})
        return opened.find(directory.id)
    observer = start(directory, request.trial, machine)
    if status == "failed":
        observer.failed_event(STOPPED, ERROR)
    elif status == "interrupted":
        observer.interrupted_event(STOPPED, "INTERRUPTED")
    elif status == "done":
        ranked = {"kendall_tau": tau, "selected": 15, "top1": [1, 2, 3, 4, 0, 1], "top1_accuracy": accuracy}
        if diverged:
            ranked = {}
        rest = {OBSERVED: dict(observed or {}), "diverged": diverged, "ranked": len(predictions or {})}
        result = {**UNRANKED, **ranked, **rest, **(more or {})}
        finish(directory, request.trial, observer, result, COST | dict(cost or {}), predictions or {})
    return opened.find(directory.id)


def start(directory: RunDirectory, trial: Trial, machine: Mapping[str, Any] | None = None) -> DirectoryObserver:
    """The run's record, begun as Sacred begins it."""
    observer = DirectoryObserver(directory, trial.config.json(), {"key": trial.key}, machine)
    info = {"name": trial.config.method.name, "mainfile": "experiment.py"}
    observer.started_event(info, "train_rank_judge", {}, STARTED, {}, {}, None)
    return observer


def finish(
    directory: RunDirectory,
    trial: Trial,
    observer: DirectoryObserver,
    result: Mapping[str, Any],
    cost: Mapping[str, Any],
    predictions: Mapping[int, float],
    weights: bytes | None = None,
) -> None:
    """All that a run which went well writes at its end."""
    directory.write_result(result, cost)
    directory.write(PREDICTIONS, predictions_document(trial.config.json(), predictions))
    if weights is not None:
        directory.write_weights(lambda file: file.write(weights))
    observer.completed_event(STOPPED, dict(result))
    directory.gather_metrics()
    directory.complete()


def forge(run: Path) -> None:
    """Give a done run another result, and a completion record that agrees."""
    document = json.loads((run / "result.json").read_text())
    document["result"]["selected"] += 1
    _rewrite(run, document)


def forget_panel(run: Path) -> None:
    """Make a done run as older versions stored it: without a panel."""
    document = json.loads((run / "result.json").read_text())
    del document["result"]["panel"]
    _rewrite(run, document)


def forget_losses(run: Path) -> None:
    """Make a done run as older versions stored it: without the losses of the architectures that it ranked."""
    document = json.loads((run / PREDICTIONS).read_text())
    del document["losses"]
    _rewrite(run, document, PREDICTIONS)


def _rewrite(run: Path, document: Mapping[str, Any], name: str = "result.json") -> None:
    text = json.dumps(document)
    (run / name).write_text(text)
    record = json.loads((run / "completion.json").read_text())
    record["files"][name] = hashlib.sha256(text.encode()).hexdigest()
    record["sizes"][name] = len(text)
    (run / "completion.json").write_text(json.dumps(record))
