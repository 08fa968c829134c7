"""Records how the process of a run died, which could not do so itself. Imports no torch."""

from __future__ import annotations

from pathlib import Path

from harness.stores.directory.reading import Damaged, read_small
from harness.stores.directory.run_directory import COMPLETION, RUN, RunDirectory


def record_death(store: Path, run_id: str, reason: str) -> None:
    """Add to a lost run how its process died. The run stays open: it counts as lost, since its owner is dead.

    Called by the process that started it and saw it end. A run that is complete, or recorded its own end, stays
    as it is.
    """
    directory = RunDirectory(store / run_id)
    try:
        entry = read_small(directory.path / RUN)
    except Damaged:
        entry = {"status": "RUNNING"}  # killed before it wrote anything
    if entry.get("status") != "RUNNING" or (directory.path / COMPLETION).exists():
        return
    directory.write(RUN, entry | {"fail_trace": [reason]})
