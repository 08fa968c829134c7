"""A worker and its database, if there is one: waits for it, and brings it up to date. Does not import torch.

Runs are written to the directory in either case.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

from harness.errors import HarnessError, Unreachable
from harness.schema import Naming
from harness.stores.opened import Opened
from harness.work.jobs import Stopping

SOME = 5
"""Up to this many runs are copied to the database without a message."""


class _Stopped(Exception):
    """The sync was stopped; the argument is the number of runs left."""


def reach(place: Opened, patience: float, stopping: Stopping, say: Callable[[str], object]) -> str | None:
    """Wait for the database, if any, up to `patience` seconds; return why it does not answer, None if it does.

    Raises `UserError` when it refuses.
    """
    until = time.monotonic() + patience
    waiting = False
    while place.has_database:
        try:
            place.database  # noqa: B018  # connects
            return None
        except Unreachable as error:
            if time.monotonic() >= until or stopping.asked:
                return str(error)
            if not waiting:
                say(f"{error}; waiting up to {patience:g} s for it")
            waiting = True
            select.select([stopping], [], [], 1.0)
    return None


def bring_up_to_date(
    place: Opened,
    stopping: Stopping,
    say: Callable[[str], object],
    names: Mapping[str, Naming] = MappingProxyType({}),
) -> str | None:
    """Copy to the database what it lacks, until stopped; return a message for the user if anything is missing.

    `names` is what studies call runs, by run: lists in other tools show it.
    """
    if not place.has_database:
        return None
    from harness.stores.mongo.sync import sync

    advice = "`harness store sync` copies the missing runs"

    def report(done: int, total: int) -> None:
        if done == 1 and total > SOME:
            say(f"copying {total} runs to the database (Ctrl-C leaves the rest to `harness store sync`)")
        if stopping.asked and done < total:
            raise _Stopped(total - done)

    try:
        limit = place.weights_max
        failed = sync(place.directory, place.database, weights_max=limit, report=report, names=names).failed
    except _Stopped as left:
        return f"{left} local runs are not in the database yet: {advice}"
    except HarnessError as error:
        return f"the database could not be brought up to date ({error}): {advice}"
    if not failed:
        return None
    reason = next(iter(failed.values()))
    return f"{len(failed)} local runs or references could not be copied to the database ({reason}): {advice}"
