"""What `run` does after its trials: makes the references that its studies' reports show, and shows their progress."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.errors import HarnessError

if TYPE_CHECKING:
    from harness.cli._display import Display
    from harness.stores.opened import Opened
    from harness.stores.store import Store
    from harness.work.jobs import Stopping
    from harness.work.plan import Asked
    from harness.work.processes import Processes
    from harness.work.references import Missing


def missing(asked: Asked, store: Store, on_request: bool = False) -> Missing:
    """The references of the request that are not stored yet."""
    from harness.work.references import missing_references

    return missing_references(asked.studies, asked.preset, store, asked.seeds, dict(asked.overrides), on_request)


def make_references(
    asked: Asked,
    place: Opened,
    stopping: Stopping,
    executor: Processes,
    display: Display,
    on_request: bool,
) -> str | None:
    """Make the references that are not stored yet, unless a stop was asked for; return one line for the reader.

    References that cannot be made leave their rows out of the report; the trials count all the same.
    """
    from harness.cli._tally import reference_items
    from harness.files import remove_abandoned
    from harness.stores.directory.store import REFERENCES
    from harness.work.assignment import Computing
    from harness.work.attempts import Attempts
    from harness.work.jobs import Answered
    from harness.work.worker import follow

    if stopping.asked:
        return None
    errors: list[str] = []

    def over(number: int, answer: Mapping[str, Any]) -> None:
        display.finished(number, answer)
        errors.extend([answer["error"]] if answer["status"] in (Answered.FAILED, Answered.LOST) else [])

    try:
        lacking = missing(asked, place.reader, on_request)
        if not lacking:
            return None
        attempts = Attempts(place, Computing(device=executor.slots.device), asked.preset, asked.overrides)
        with display.round(reference_items(lacking)):
            follow(executor, lacking, lacking.jobs(attempts), stopping, display, over)
        left = lacking.left()
    except HarnessError as error:
        return f"references could not be made: {error}"
    finally:
        remove_abandoned(place.directory.path / REFERENCES)
    made = len(lacking.references) - left
    return f"{made} references made" + (f", {left} missing{f': {errors[0]}' if errors else ''}" if left else "")
