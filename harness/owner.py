"""Which process owns a run or a claim, and whether it is still alive.

A process is identified by its machine, PID and start time, so that a reused PID is not mistaken for the
owner. The machine is identified by its boot and its PID namespace, since two containers may share a host
name and PIDs; records without these are judged by the host name.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

FRESH = timedelta(minutes=2)
"""Maximum age of the last heartbeat of a live run on another host."""


SLURM = {
    "job": "SLURM_JOB_ID",
    "array": "SLURM_ARRAY_JOB_ID",
    "task": "SLURM_ARRAY_TASK_ID",
    "node": "SLURMD_NODENAME",
}
"""What is recorded of a job of SLURM, and the variables that tell it."""


def this_process() -> dict[str, Any]:
    job = slurm_job()
    return {
        "host": platform.node(),
        "pid": os.getpid(),
        "started": start_ticks(os.getpid()),
        "boot": _boot(),
        "pid_namespace": _pid_namespace(),
        **({"slurm": job} if job else {}),
    }


def slurm_job(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The job of SLURM that a process belongs to, by the keys of `SLURM`; empty outside of SLURM."""
    if not environment.get(SLURM["job"]):
        return {}
    return {name: environment[variable] for name, variable in SLURM.items() if environment.get(variable)}


def job_name(job: Mapping[str, str]) -> str:
    """A job as SLURM's commands name it: 1234, or 1234_5 for a task of an array."""
    return f"{job['array']}_{job['task']}" if "array" in job and "task" in job else job["job"]


def is_alive(owner: Mapping[str, Any], heartbeat: str | None) -> bool:
    """Whether the owner is alive. For processes that are not visible from here, the heartbeat (UTC) decides."""
    lives = lives_here(owner)
    if lives is not None:
        return lives
    if heartbeat is None:
        return False
    beat = datetime.fromisoformat(heartbeat)
    beat = beat if beat.tzinfo else beat.replace(tzinfo=UTC)
    # A heartbeat from the future is that of a wrong clock: it would last until then.
    return abs(datetime.now(UTC) - beat) < FRESH


def lives_here(owner: Mapping[str, Any]) -> bool | None:
    """Whether the owner is a live process on this machine; None if its processes are not visible from here."""
    if not _same_machine(owner) or owner["started"] is None:
        return None
    pid = int(owner["pid"])
    if not 0 < pid < 1 << 31:  # no process has such a PID
        return False
    if (ticks := start_ticks(pid)) is None and _is_hidden(pid):
        return None
    return bool(ticks == owner["started"])


def is_suspended(owner: Mapping[str, Any]) -> bool:
    """Whether the owner, a process of this machine, is stopped by a signal: it does nothing until it is continued."""
    return _stat(int(owner["pid"]))[:1] in (["T"], ["t"])


def describe(owner: Mapping[str, Any] | None) -> str:
    """The owner as text for a message."""
    if not owner:
        return "an unknown process"
    job = owner.get("slurm")
    return f"process {owner['pid']} on {owner['host']}" + (f" (SLURM job {job_name(job)})" if job else "")


def machine() -> str:
    """Eight digits for this machine, by its name, boot and PID namespace: where they are equal, so are the PIDs."""
    text = f"{platform.node()} {_boot()} {_pid_namespace()}"
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def runs_here(pid: int) -> bool:
    """Whether a process of this machine has that PID."""
    return start_ticks(pid) is not None or _is_hidden(pid)


def start_ticks(pid: int) -> int | None:
    """Start time of the process in kernel ticks; None if it does not exist or is a zombie."""
    fields = _stat(pid)
    return None if not fields or fields[0] in "ZX" else int(fields[19])


def _stat(pid: int) -> list[str]:
    """The fields of the process's state from the third on: state, parent, …; empty if it does not exist."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    # The name, in parentheses, may contain any character.
    return stat.rpartition(")")[2].split()


def _same_machine(owner: Mapping[str, Any]) -> bool:
    """Whether PIDs of the owner's machine are valid here. A rebooted machine counts as another machine."""
    here, there = (_boot(), _pid_namespace()), (owner.get("boot"), owner.get("pid_namespace"))
    known = None not in here and None not in there
    return bool(owner["host"] == platform.node()) and (here == there or not known)


def _is_hidden(pid: int) -> bool:
    """Whether the process exists although /proc does not show it: mount options can hide other users' processes."""
    try:
        Path(f"/proc/{pid}/stat").read_bytes()
        return False
    except PermissionError:
        return True
    except OSError:
        pass
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        pass
    return False


@functools.cache
def _boot() -> str | None:
    """The id of this boot of this machine; containers on one machine share it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() or None
    except OSError:
        return None


def _pid_namespace() -> str | None:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None
