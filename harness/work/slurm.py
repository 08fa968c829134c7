"""What the harness asks of SLURM: the end of a job's time, another start, arrays of workers. Imports no torch.

Only SLURM's own commands are called. Whether a worker lives is never asked of SLURM: claims decide that.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from harness.errors import HarnessError, UserError
from harness.owner import job_name, slurm_job

PATIENCE = 60.0
"""Seconds that one of SLURM's commands may take."""


class SlurmFailed(HarnessError):
    """A command of SLURM's failed."""


def require_job(environment: Mapping[str, str] = os.environ) -> str:
    """The job of this process as SLURM's commands name it. Raises `UserError` outside of SLURM."""
    if not (job := slurm_job(environment)):
        raise UserError("this is not a job of SLURM (SLURM_JOB_ID is not set): name a time, and leave --requeue out")
    return job_name(job)


def end_time(environment: Mapping[str, str] = os.environ) -> float | None:
    """When the time of this job is over, in seconds since 1970; None if it has no limit.

    Raises `UserError` outside of SLURM, and `SlurmFailed` if SLURM does not say.
    """
    job = require_job(environment)
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
    job = require_job()
    _output(["scontrol", "requeue", job])
    return job


def max_array_size() -> int:
    """The most tasks that an array of this cluster may have. Raises `SlurmFailed`."""
    config = _output(["scontrol", "show", "config"])
    if (match := re.search(r"^MaxArraySize\s*=\s*(\d+)", config, re.MULTILINE)) is None:
        raise SlurmFailed("`scontrol show config` does not name MaxArraySize")
    return int(match[1])


def submit(script: Path, environment: Mapping[str, str]) -> str:
    """Submit a script with these additional variables; returns the job's id."""
    said = _output(["sbatch", "--parsable", str(script)], {**os.environ, **environment}).strip()
    job = said.partition(";")[0]  # a cluster's name may follow
    if not job.isdigit():
        raise SlurmFailed(f"sbatch says {said!r}, which is not the id of a job")
    return job


def cancel(job: str) -> bool:
    """Cancel a job with all of its tasks; False if SLURM does not know it any more. Raises `SlurmFailed`."""
    try:
        _output(["scancel", job])
    except SlurmFailed as error:
        if "invalid job id" in str(error).lower():
            return False
        raise
    return True


def _output(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """What a command prints. Raises `SlurmFailed`."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL, env=environment
        )
    except FileNotFoundError as error:
        raise SlurmFailed(
            f"SLURM is not available: {command[0]} is not on the PATH. Use a node of the cluster, or start "
            "`harness worker` directly"
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SlurmFailed(f"{command[0]} could not be run: {error}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip() or f"exit status {done.returncode}"
        raise SlurmFailed(f"`{' '.join(command)}` failed: {said}")
    return done.stdout
