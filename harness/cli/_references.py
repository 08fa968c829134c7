"""What `run` does after its trials: makes the references that its studies' reports show, and shows their progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.errors import HarnessError

if TYPE_CHECKING:
    from harness.cli._display import Display
    from harness.stores.places import Places
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
    store: Store,
    places: Places,
    device: str | None,
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
    from harness.work.jobs import Answered

    if stopping.asked:
        return None
    errors: list[str] = []
    try:
        lacking = missing(asked, store, on_request)
        if not lacking:
            return None
        items = reference_items(lacking)
        with display.round(items):
            for event in executor.execute(lacking.jobs(places.directory, places.mongo, device), stopping):
                number = event.job.number
                display.stopping = bool(stopping.asked)
                if event.kind == "started":
                    display.started(number, items[number].label)
                elif event.kind == "progress":
                    display.progress(number, event.data)
                else:
                    display.finished(number, event.data)
                    errors += [event.data["error"]] if event.data["status"] in (Answered.FAILED, Answered.LOST) else []
        left = lacking.left()
    except HarnessError as error:
        return f"references could not be made: {error}"
    finally:
        remove_abandoned(places.directory / REFERENCES)
    made = len(lacking.references) - left
    return f"{made} references made" + (f", {left} missing{f': {errors[0]}' if errors else ''}" if left else "")
