"""The record of a run whose process was killed: it could not write its own end. Imports no torch."""

from __future__ import annotations

from pathlib import Path

from harness.documents import utc_text
from harness.stores.directory.reading import Damaged, read_small
from harness.stores.directory.run_directory import COMPLETION, RUN, RunDirectory


def record_crash(store: Path, run_id: str, error: str) -> None:
    """Mark a run failed whose process is known to be dead; without that, it would count as lost.

    For whoever started the process and saw its end. A run that is complete, or ended in words, stays as it is.
    """
    directory = RunDirectory(store / run_id)
    try:
        entry = read_small(directory.path / RUN)
    except Damaged:
        entry = {}  # killed before it wrote a word
    if entry.get("status", "RUNNING") != "RUNNING" or (directory.path / COMPLETION).exists():
        return
    directory.write(RUN, entry | {"status": "FAILED", "stop_time": utc_text(), "fail_trace": [error]})
