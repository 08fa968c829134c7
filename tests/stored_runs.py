"""Run directories as training processes write them, made in a moment: for tests of whatever reads them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.stores.directory.reading import read_small
from harness.stores.directory.run_directory import PREDICTIONS, RUN, TRIAL, predictions_document
from harness.stores.directory.store import DirectoryStore, StoredRun
from harness.study.study import Request

COST = {"wall_seconds": 2.5, "passes": 30, "images": 7680, "evaluations": 25, "peak_memory_bytes": 1_000_000}
ERROR = ["Traceback (most recent call last):\n", '  File "x.py", line 1, in <module>\n', "ValueError: 5 % of a_b\n"]


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
    made: Mapping[str, Any] | None = None,
) -> StoredRun:
    """Store a run of the request's trial, as it would stand there with that status.

    `more` is added to its result, `observed` are its curves, `made` is added to Sacred's record.
    """
    opened = DirectoryStore(store)
    directory = opened.create(request.trial, preset, overrides or {})
    for step, value in (curve or {}).items():
        directory.log_metric("kendall_tau", step, value)
    record: dict[str, Any] = {"start_time": "2026-01-01T10:00:00.000000", "stop_time": "2026-01-01T10:00:02.500000"}
    record |= dict(made or {})
    if status == "lost":
        trial = read_small(directory.path / TRIAL)
        directory.write(TRIAL, trial | {"owner": trial["owner"] | {"started": -1}})
    elif status == "failed":
        directory.write(RUN, record | {"status": "FAILED", "fail_trace": ERROR})
    elif status == "interrupted":
        directory.write(RUN, record | {"status": "INTERRUPTED"})
    elif status == "done":
        judged = {"kendall_tau": tau, "selected": 15, "top1": [1, 2, 3, 4, 0, 1], "top1_accuracy": accuracy}
        if diverged:
            judged = dict.fromkeys(judged)
        rest = {"observed": dict(observed or {}), "diverged": diverged, "ranked": len(predictions or {})}
        directory.write_result(judged | rest | dict(more or {}), COST | dict(cost or {}))
        directory.write(PREDICTIONS, predictions_document(request.trial.config.json(), predictions or {}))
        directory.gather_metrics()
        directory.write(RUN, record | {"status": "COMPLETED"})
        directory.complete()
    return opened.find(directory.id)


def forge(run: Path) -> None:
    """Give a done run another result, and a completion record that agrees."""
    document = json.loads((run / "result.json").read_text())
    document["result"]["selected"] += 1
    text = json.dumps(document)
    (run / "result.json").write_text(text)
    record = json.loads((run / "completion.json").read_text())
    record["files"]["result.json"] = hashlib.sha256(text.encode()).hexdigest()
    record["sizes"]["result.json"] = len(text)
    (run / "completion.json").write_text(json.dumps(record))
