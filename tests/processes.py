"""Which processes there are, and whether they end: for tests that kill."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path


def descendants(process: int) -> set[int]:
    """The process's children, their children, and so on, dead ones left out."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _fields(int(entry.name))) and fields[0] != "Z":
            parents[int(entry.name)] = int(fields[1])
    found: set[int] = set()
    while more := {child for child, parent in parents.items() if parent in found | {process}} - found:
        found |= more
    return found


def all_gone(processes: Iterable[int], within: float = 60.0) -> bool:
    """Whether all of them end in that time (a zombie has ended)."""
    return _all(processes, lambda state: state is None or state == "Z", within)


def all_stopped(processes: Iterable[int], within: float = 60.0) -> bool:
    """Whether all of them are stopped (SIGSTOP, Ctrl-Z) in that time."""
    return _all(processes, lambda state: state == "T", within)


def _all(processes: Iterable[int], holds: Callable[[str | None], bool], within: float) -> bool:
    """Whether this comes to hold for the state of each of them, in that time; None stands for no such process."""
    until = time.monotonic() + within
    left = set(processes)
    while left and time.monotonic() < until:
        left = {process for process in left if not holds(fields[0] if (fields := _fields(process)) else None)}
        time.sleep(0.01)
    return not left


def _fields(process: int) -> list[str] | None:
    """State, parent, …; None when there is no such process."""
    try:
        return Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
