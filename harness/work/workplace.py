"""Where a `run` reads runs and keeps claims: the directory alone, or with the database. Does not import torch.

Runs are written to the directory in either case.
"""

from __future__ import annotations

import select
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from harness.errors import HarnessError, Unreachable, UserError
from harness.files import make_folder
from harness.schema import Naming
from harness.stores.claims import LEASE, Claims
from harness.stores.directory.store import DirectoryStore
from harness.stores.mongo.snapshot import WEIGHTS_MAX
from harness.stores.opened import Opened
from harness.stores.places import Places
from harness.stores.store import Store
from harness.work.jobs import Stopping

ANSWERS_WITHIN = 3.0
"""Timeout of the database in seconds; a longer one would block the display of running trials."""


SOME = 5
"""Up to this many runs are copied to the database without a message."""


class _Stopped(Exception):
    """The sync was stopped; the argument is the number of runs left."""


class Workplace:
    """The places of a session. The constructor does not touch the database; call `reach` before reading."""

    def __init__(
        self, places: Places, lease: float = LEASE, weights_max: int = WEIGHTS_MAX, say: Callable[[str], object] = print
    ) -> None:
        # Runs are made in the directory, also where --store names the database.
        places = replace(places, database_only=False)
        self.opened = Opened(places, lease=lease, weights_max=weights_max, patience=ANSWERS_WITHIN)
        self.silence: str | None = None
        """The last error of an unreachable database."""
        self._say = say
        self._alone = False

    @property
    def directory(self) -> DirectoryStore:
        return self.opened.directory

    @property
    def reader(self) -> Store:
        """All known runs."""
        return self.directory if self._alone else self.opened.reader

    @property
    def claims(self) -> Claims:
        return self.opened.claims

    def reach(self, patience: float, stopping: Stopping) -> bool:
        """Whether the database, if any, answers within `patience` seconds. Raises `UserError` when it refuses."""
        until = time.monotonic() + patience
        told = False
        while self.opened.has_database and not stopping.asked:
            try:
                self.opened.database  # noqa: B018  # connects
                return True
            except Unreachable as error:
                self.silence = str(error)
                if time.monotonic() >= until:
                    return False
                if not told:
                    self._say(f"{error}; waiting up to {patience:g} s for it")
                told = True
                select.select([stopping], [], [], 1.0)
        return not self.opened.has_database

    def check_writable(self) -> None:
        """Raise `UserError` unless runs can be made in the directory."""
        store = self.directory.path
        try:
            make_folder(store)
            with tempfile.TemporaryFile(dir=store):
                pass
        except OSError as error:
            raise UserError(f"cannot write to the store {store}: {error.strerror or error}") from error

    def give_up(self) -> None:
        """Read the directory alone from now on."""
        self._alone = True

    def sync(self, stopping: Stopping, names: Mapping[str, Naming] = MappingProxyType({})) -> str | None:
        """Bring the database up to date, until stopped; return a message for the user if anything is missing.

        `names` is what studies call runs, by run: lists in other tools show it.
        """
        if not self.opened.has_database:
            return None
        from harness.stores.mongo.sync import sync

        advice = "`harness store sync` copies the missing runs"

        def report(done: int, total: int) -> None:
            if done == 1 and total > SOME:
                self._say(f"copying {total} runs to the database (Ctrl-C leaves the rest to `harness store sync`)")
            if stopping.asked and done < total:
                raise _Stopped(total - done)

        try:
            opened = self.opened
            limit = opened.weights_max
            failed = sync(opened.directory, opened.database, weights_max=limit, report=report, names=names).failed
        except _Stopped as left:
            return f"{left} local runs are not in the database yet: {advice}"
        except HarnessError as error:
            return f"the database could not be brought up to date ({error}): {advice}"
        if not failed:
            return None
        reason = next(iter(failed.values()))
        return f"{len(failed)} local runs or references could not be copied to the database ({reason}): {advice}"

    def sync_aside(self, stopping: Stopping) -> None:
        """Sync in a thread, because the caller has running trials to follow."""
        threading.Thread(target=self.sync, args=(stopping,), daemon=True).start()
