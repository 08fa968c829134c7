"""Where a `run` reads runs and keeps claims: the directory alone, or with the database. Does not import torch.

Runs are written to the directory in either case.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, Unreachable
from harness.execution.executors.executor import Stopping
from harness.stores.claims.directory import DirectoryClaims
from harness.stores.claims.lease import Claims
from harness.stores.directory.store import DirectoryStore
from harness.stores.store import Store

ANSWERS_WITHIN = 3.0
"""Timeout of the database in seconds; a longer one would block the display of running trials."""


SOME = 5
"""Up to this many runs are copied to the database without a message."""


class _Stopped(Exception):
    """The sync was stopped; the argument is the number of runs left."""


class Workplace:
    """The constructor does not touch the database; call `reach` before reading."""

    def __init__(
        self, directory: Path, mongo: str | None, lease: float, weights_max: int, say: Callable[[str], object]
    ) -> None:
        self.directory = DirectoryStore(directory)
        self.reader: Store = self.directory
        self._here = DirectoryClaims(self.directory.claims, lease)
        self.claims: Claims = self._here
        self.silence: str | None = None
        """The last error of an unreachable database."""
        self._mongo = mongo
        self._lease = lease
        self._weights_max = weights_max
        self._say = say
        self._database: Any = None

    def reach(self, patience: float, stopping: Stopping) -> bool:
        """Whether the database, if any, answers within `patience` seconds. Raises `UserError` when it refuses."""
        until = time.monotonic() + patience
        told = False
        while self._mongo is not None and not stopping.asked:
            try:
                self._connect(self._mongo)
                return True
            except Unreachable as error:
                self.silence = str(error)
                if time.monotonic() >= until:
                    return False
                if not told:
                    self._say(f"{error}; waiting up to {patience:g} s for it")
                told = True
                select.select([stopping], [], [], 1.0)
        return self._mongo is None

    def give_up(self) -> None:
        """Read the directory alone from now on."""
        self.reader = self.directory

    def sync(self, stopping: Stopping) -> str | None:
        """Bring the database up to date, until stopped; return a message for the user if anything is missing."""
        if self._mongo is None:
            return None
        from harness.stores.mongo.sync import sync

        advice = "`harness store sync` copies the missing runs"

        def report(done: int, total: int) -> None:
            if done == 1 and total > SOME:
                self._say(f"copying {total} runs to the database (Ctrl-C leaves the rest to `harness store sync`)")
            if stopping.asked and done < total:
                raise _Stopped(total - done)

        try:
            failed = sync(self.directory, self._database, weights_max=self._weights_max, report=report).failed
        except _Stopped as left:
            return f"{left} local runs are not in the database yet: {advice}"
        except HarnessError as error:
            return f"the database could not be brought up to date ({error}): {advice}"
        return (
            f"{len(failed)} local runs could not be copied to the database: {next(iter(failed.values()))}"
            if failed
            else None
        )

    def sync_aside(self, stopping: Stopping) -> None:
        """Sync in a thread, because the caller has running trials to follow."""
        threading.Thread(target=self.sync, args=(stopping,), daemon=True).start()

    def _connect(self, mongo: str) -> None:
        from harness.stores.claims.joint import JointClaims
        from harness.stores.claims.mongo import MongoClaims
        from harness.stores.merged import MergedStore
        from harness.stores.mongo.connection import connect
        from harness.stores.mongo.store import MongoStore

        self._database = connect(mongo, timeout=ANSWERS_WITHIN)
        self.reader = MergedStore(self.directory, MongoStore(self._database))
        self.claims = JointClaims(self._here, MongoClaims(self._database, self._lease))
