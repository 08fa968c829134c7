"""What `run` does after its trials: makes the references that its studies' reports show, and shows their progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import HarnessError

if TYPE_CHECKING:
    from harness.execution.executors.executor import Stopping
    from harness.execution.references import Execute
    from harness.stores.store import Store
    from harness.study.study import Study


def make_references(
    studies: Sequence[Study],
    preset: str,
    seeds: int | None,
    overrides: Mapping[str, Any],
    store: Store,
    directory: Path,
    mongo: str | None,
    device: str | None,
    stopping: Stopping,
    execute: Execute,
) -> str | None:
    """Make the references that are not stored yet, unless a stop was asked for; return one line for the reader.

    References that cannot be made leave their rows out of the report; the trials count all the same.
    """
    from harness.cli._display import Display
    from harness.execution.references import missing_references

    if stopping.asked:
        return None
    errors: list[str] = []
    try:
        missing = missing_references(studies, preset, store, seeds, dict(overrides))
        if not missing:
            return None
        with Display(len(missing)) as display:
            for event in execute(missing.jobs(directory, mongo, device)):
                number = event.job.number
                display.stopping = bool(stopping.asked)
                if event.kind == "started":
                    display.started(number, missing.label(number))
                elif event.kind == "progress":
                    display.progress(number, event.data)
                else:
                    display.finished(number, event.data)
                    errors += [event.data["error"]] if event.data["status"] == "failed" else []
        left = missing.left()
    except HarnessError as error:
        return f"references could not be made: {error}"
    made = len(missing.references) - left
    return f"{made} references made" + (f", {left} missing{f': {errors[0]}' if errors else ''}" if left else "")
