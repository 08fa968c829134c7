"""Records how a run ended whose process could not record it itself. Imports no torch."""

from __future__ import annotations

from typing import Any

from harness.documents import shortened_trace, utc_text
from harness.owner import this_process
from harness.stores.directory.reading import Damaged, read_small
from harness.stores.directory.run_directory import COMPLETION, RUN, TRIAL, RunDirectory


def record_death(run: RunDirectory, reason: str) -> None:
    """Add to a lost run how its process died. The run stays open: it counts as lost, since its owner is dead."""
    trial = read_small(run.path / TRIAL)
    if trial["owner"] == this_process():  # it died before it could write its own name
        run.write(TRIAL, trial | {"owner": trial["owner"] | {"started": None}})
    _record(run, {"fail_trace": shortened_trace([reason])})


def record_failure(run: RunDirectory, trace: str) -> None:
    """Mark a run as failed whose process was ended: because another rank failed, or because it took too long."""
    lines = shortened_trace(trace.splitlines(keepends=True))
    _record(run, {"status": "FAILED", "stop_time": utc_text(), "fail_trace": lines})


def record_interruption(run: RunDirectory) -> None:
    """Mark a run as interrupted, which may have ended well, but must not count."""
    _record(run, {"status": "INTERRUPTED", "stop_time": utc_text()}, ("RUNNING", "COMPLETED"))


def _record(run: RunDirectory, end: dict[str, Any], over: tuple[str, ...] = ("RUNNING",)) -> None:
    """Called by the worker that saw the process end. A run that is complete, or recorded its own end, stays as it
    is."""
    try:
        entry = read_small(run.path / RUN)
    except Damaged:
        entry = {"status": "RUNNING"}  # killed before it wrote anything
    if entry.get("status") not in over or (run.path / COMPLETION).exists():
        return
    run.write(RUN, entry | end)
