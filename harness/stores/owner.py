"""Which process owns a run, and whether it still lives.

A process is known by host, number and start time: a number that the system gave to another process
later is not mistaken for the owner.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

FRESH = timedelta(minutes=2)
"""How old the last heartbeat of a run on another host may be."""


def this_process() -> dict[str, Any]:
    return {"host": platform.node(), "pid": os.getpid(), "started": start_ticks(os.getpid())}


def is_alive(owner: Mapping[str, Any], heartbeat: str | None) -> bool:
    """Whether the owner goes on. On another host only its heartbeat (UTC) tells."""
    if owner["host"] == platform.node():
        return owner["started"] is not None and start_ticks(int(owner["pid"])) == owner["started"]
    if heartbeat is None:
        return False
    beat = datetime.fromisoformat(heartbeat)
    beat = beat if beat.tzinfo else beat.replace(tzinfo=timezone.utc)
    return datetime.now(timezone.utc) - beat < FRESH


def start_ticks(pid: int) -> int | None:
    """When the process started, in the kernel's ticks; None when it is gone, or dead and not yet reaped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The name, in parentheses, may hold anything; fields are counted after it, from the third on.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])
