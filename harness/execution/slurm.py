"""What the harness asks of SLURM: the end of a job's time, another start, arrays of workers. Imports no torch.

Only SLURM's own commands are called. Whether a worker lives is never asked of SLURM: claims decide that.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime

from harness.errors import HarnessError, UserError

PATIENCE = 60.0
"""Seconds that one of SLURM's commands may take."""


class SlurmFailed(HarnessError):
    """A command of SLURM's failed."""


def job_id(environment: Mapping[str, str] = os.environ) -> str | None:
    """The job of this process as SLURM's commands name it, such as 1234_5; None outside of SLURM."""
    array, task = environment.get("SLURM_ARRAY_JOB_ID"), environment.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else environment.get("SLURM_JOB_ID") or None


def end_time(environment: Mapping[str, str] = os.environ) -> float | None:
    """When the time of this job is over, in seconds since 1970; None if it has no limit.

    Raises `UserError` outside of SLURM, and `SlurmFailed` if SLURM does not say.
    """
    if (job := job_id(environment)) is None:
        raise UserError("this is not a job of SLURM: SLURM_JOB_ID is not set. Give a time or a duration instead")
    if given := environment.get("SLURM_JOB_END_TIME"):  # of newer versions
        return float(given)
    said = _output(["squeue", "-h", "-j", job, "-O", "EndTime"]).strip()
    if said in ("N/A", "NONE", "Unknown", "UNLIMITED"):
        return None
    try:
        return datetime.fromisoformat(said).timestamp()
    except ValueError as error:
        raise SlurmFailed(f"squeue says {said!r} of the end of job {job}, which is not a time") from error


def requeue() -> str:
    """Have SLURM start this job again later, with the same command; returns its id. SLURM then ends this process."""
    job = job_id() or ""
    _output(["scontrol", "requeue", job])
    return job


def _output(command: Sequence[str]) -> str:
    """What a command prints. Raises `SlurmFailed`."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SlurmFailed(f"{command[0]} could not be run: {error}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip() or f"exit status {done.returncode}"
        raise SlurmFailed(f"`{' '.join(command)}` failed: {said}")
    return done.stdout
