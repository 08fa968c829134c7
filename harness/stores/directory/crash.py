"""Records the end of a run whose process was killed and could not do so itself. Imports no torch."""

from __future__ import annotations

from pathlib import Path

from harness.documents import utc_text
from harness.stores.directory.reading import Damaged, read_small
from harness.stores.directory.run_directory import COMPLETION, RUN, RunDirectory


def record_crash(store: Path, run_id: str, error: str) -> None:
    """Mark a run as failed whose process is known to be dead; otherwise it would count as lost.

    Called by the process that started it and saw it end. A run that is complete, or recorded its own end, stays
    as it is.
    """
    directory = RunDirectory(store / run_id)
    try:
        entry = read_small(directory.path / RUN)
    except Damaged:
        entry = {}  # killed before it wrote anything
    if entry.get("status", "RUNNING") != "RUNNING" or (directory.path / COMPLETION).exists():
        return
    directory.write(RUN, entry | {"status": "FAILED", "stop_time": utc_text(), "fail_trace": [error]})
