"""Records how the process of a run died, which could not do so itself. Imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.documents import shortened_trace, utc_text
from harness.stores.directory.reading import Damaged, read_small
from harness.stores.directory.run_directory import COMPLETION, RUN, RunDirectory


def record_death(store: Path, run_id: str, reason: str) -> None:
    """Add to a lost run how its process died. The run stays open: it counts as lost, since its owner is dead."""
    _record(store, run_id, {"fail_trace": shortened_trace([reason])})


def record_failure(store: Path, run_id: str, trace: str) -> None:
    """Mark a run as failed whose process was ended because another of its group failed, whose traceback it gets."""
    lines = shortened_trace(trace.splitlines(keepends=True))
    _record(store, run_id, {"status": "FAILED", "stop_time": utc_text(), "fail_trace": lines})


def _record(store: Path, run_id: str, end: dict[str, Any]) -> None:
    """Called by the process that started the run and saw it end. A run that is complete, or recorded its own end, stays
    as it is."""
    directory = RunDirectory(store / run_id)
    try:
        entry = read_small(directory.path / RUN)
    except Damaged:
        entry = {"status": "RUNNING"}  # killed before it wrote anything
    if entry.get("status") != "RUNNING" or (directory.path / COMPLETION).exists():
        return
    directory.write(RUN, entry | end)
