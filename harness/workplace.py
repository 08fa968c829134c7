"""Where a `run` reads runs and keeps claims: the directory alone, or the database with it. Imports no torch.

Runs are written to the directory in either case; here is only who else is listened to.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.errors import Unreachable
from harness.executors import Stopping
from harness.stores import Store
from harness.stores.claims import Claims
from harness.stores.directory import DirectoryStore
from harness.stores.directory_claims import DirectoryClaims

ANSWERS_WITHIN = 3.0
"""Seconds that the database has to answer; longer ones would hold up the display of what runs."""


class Workplace:
    """Made without touching the database; `reach` it before anything is read."""

    def __init__(
        self, directory: Path, mongo: str | None, lease: float, weights_max: int, say: Callable[[str], object]
    ) -> None:
        self.directory = DirectoryStore(directory)
        self.reader: Store = self.directory
        self.claims: Claims = DirectoryClaims(directory / "claims", lease)
        self._mongo = mongo
        self._lease = lease
        self._weights_max = weights_max
        self._say = say
        self._database: Any = None

    def reach(self, patience: float, stopping: Stopping) -> bool:
        """Whether the database, if there is one, answers in time. Raises `UserError` when it refuses."""
        until = time.monotonic() + patience
        told = False
        while self._mongo is not None and not stopping.asked:
            try:
                self._connect(self._mongo)
                return True
            except Unreachable as error:
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

    def sync(self) -> int:
        """Bring the database up to date; gives how many local runs it still lacks."""
        if self._mongo is None:
            return 0
        from harness.stores.sync import sync

        try:
            return len(sync(self.directory, self._database, weights_max=self._weights_max).failed)
        except Unreachable:
            return len(self.directory.ids())

    def _connect(self, mongo: str) -> None:
        from harness.stores.merged import MergedStore
        from harness.stores.mongo import connect
        from harness.stores.mongo_claims import MongoClaims
        from harness.stores.mongo_store import MongoStore

        self._database = connect(mongo, timeout=ANSWERS_WITHIN)
        self.reader = MergedStore(self.directory, MongoStore(self._database))
        self.claims = MongoClaims(self._database, self._lease)
