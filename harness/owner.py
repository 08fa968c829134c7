"""Which process owns a run or a claim, and whether it still lives.

A process is known by its machine, number and start time: a number that the system gave to another process
later is not mistaken for the owner. The machine is known by its boot and its process namespace, since two
containers may share a host name and process numbers; records without these are judged by the host name.
"""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

FRESH = timedelta(minutes=2)
"""How old the last heartbeat of a run on another host may be."""


def this_process() -> dict[str, Any]:
    return {
        "host": platform.node(),
        "pid": os.getpid(),
        "started": start_ticks(os.getpid()),
        "boot": _boot(),
        "pid_namespace": _pid_namespace(),
    }


def is_alive(owner: Mapping[str, Any], heartbeat: str | None) -> bool:
    """Whether the owner goes on. Of a process that cannot be seen from here only its heartbeat (UTC) tells."""
    lives = lives_here(owner)
    if lives is not None:
        return lives
    if heartbeat is None:
        return False
    beat = datetime.fromisoformat(heartbeat)
    beat = beat if beat.tzinfo else beat.replace(tzinfo=timezone.utc)
    return datetime.now(timezone.utc) - beat < FRESH


def lives_here(owner: Mapping[str, Any]) -> bool | None:
    """Whether the owner is a living process of this machine; None when that cannot be seen from here."""
    if not _same_machine(owner) or owner["started"] is None:
        return None
    pid = int(owner["pid"])
    if (ticks := start_ticks(pid)) is None and _is_hidden(pid):
        return None
    return bool(ticks == owner["started"])


def describe(owner: Mapping[str, Any] | None) -> str:
    """The owner in a message."""
    return f"process {owner['pid']} on {owner['host']}" if owner else "an unknown process"


def start_ticks(pid: int) -> int | None:
    """When the process started, in the kernel's ticks; None when it is gone, or dead and not yet reaped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The name, in parentheses, may hold anything; fields are counted after it, from the third on.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def _same_machine(owner: Mapping[str, Any]) -> bool:
    """Whether process numbers of the owner's machine mean the same here. A reboot makes another machine of it."""
    here, there = (_boot(), _pid_namespace()), (owner.get("boot"), owner.get("pid_namespace"))
    known = None not in here and None not in there
    return bool(owner["host"] == platform.node()) and (here == there or not known)


def _is_hidden(pid: int) -> bool:
    """Whether there is such a process although /proc does not show it: mount options hide those of other users."""
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
    """What tells this boot of this machine from all others; containers of one machine share it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() or None
    except OSError:
        return None


def _pid_namespace() -> str | None:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None
