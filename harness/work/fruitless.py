"""Trials that the tasks of a job begin again and again without coming further. Imports no torch.

Training goes on from its last checkpoint, but some stages begin anew. A job whose time never suffices for such a stage
would start again for ever.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from harness.owner import slurm_job
from harness.stores.checkpoints import stored_checkpoints
from harness.stores.stored import Status, StoredRun

TIMES = 5
"""So many attempts in a row, without another state saved, are enough."""


def fruitless(runs: Iterable[StoredRun], folder: Path, job: Mapping[str, str] | None = None) -> set[str]:
    """Keys of the trials whose last attempts were all made and interrupted by tasks of this job, and saved nothing.

    `folder` has the checkpoints. Another job has other times, and may try them again.
    """
    job = slurm_job() if job is None else job
    if not job:
        return set()
    saved: dict[str, float] = defaultdict(float)
    for one in stored_checkpoints(folder):
        saved[one.key16] = max(saved[one.key16], one.mtime)
    attempts: dict[str, list[StoredRun]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.order):
        attempts[run.key].append(run)
    return {
        key
        for key, own in attempts.items()
        if len(own) >= TIMES
        and all(
            run.status is Status.INTERRUPTED
            and _submitted(run.owner.get("slurm") or {}) == _submitted(job)
            and _began(run) > saved[key[:16]]
            for run in own[-TIMES:]
        )
    }


def _submitted(job: Mapping[str, str]) -> str | None:
    """The number that SLURM gave when it was submitted: all tasks of an array have the same."""
    return job.get("array", job.get("job"))


def _began(run: StoredRun) -> float:
    text = run.start_time or run.stop_time
    return 0.0 if text is None else datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
