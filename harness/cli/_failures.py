"""Where the user finds out why a trial failed: her own line, and the run with its traceback."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import users_place

if TYPE_CHECKING:
    from harness.stores.places import Places
    from harness.stores.stored import StoredRun


def where_to_look(run: StoredRun | None, places: Places) -> str:
    """The innermost line of the user's folder that the error passed through, and the command that shows the run."""
    if run is None:
        return ""
    place = users_place(run.fail_trace or (), Path.cwd())
    store = f" --store {shlex.quote(str(places.directory))}" if places.named else ""
    return f"{f' ({place})' if place else ''}; see `harness show {run.id}{store}`"
