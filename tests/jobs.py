"""What a training process does, done in this process or in one that may die; and what must be equal afterwards."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from harness.stores.stored import StoredRun
from harness.study.catalogue import find_studies
from harness.study.trial import Trial
from harness.work.job import run_job
from harness.work.plan import make_plan


def trials(study: str, **overrides: Any) -> list[Trial]:
    """The trials of the study, parents first."""
    plan = make_plan(find_studies(study), "tiny", [], seeds=1, overrides=overrides)
    return [work.trial for work in plan.work]


def job(trial: Trial, store: str, kind: str = "train") -> dict[str, Any]:
    """What a training process does, in this one."""
    asked = {"kind": kind, "trial": trial.json(), "store": store, "preset": "tiny", "overrides": {}, "threads": 1}
    return run_job({**asked, "device": "cpu", "checkpoint_every": 0.0}, lambda report: None)


def died(trial: Trial, store: str, kind: str = "train") -> bool:
    """Whether the job ended by SIGKILL, in a process of its own."""
    child = os.fork()
    if not child:
        os._exit(0 if job(trial, store, kind)["status"] == "done" else 1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def outcome(store: str, run: StoredRun) -> dict[str, Any]:
    """What must be the same however a run was made."""
    folder = Path(store) / run.id
    result = json.loads((folder / "result.json").read_text())["result"]
    curves = json.loads((folder / "metrics.json").read_text())
    points = {name: [curve["steps"], curve["values"]] for name, curve in curves.items()}
    return {"result": result, "points": points} | {
        name: (folder / name).read_bytes() for name in ("predictions.json", "weights.pt")
    }
