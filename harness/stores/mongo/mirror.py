"""Mirrors one run while it is running, in a thread of its worker.

Training neither waits for the database nor sees its errors. Data that could not be mirrored stays in the run
directory; `harness store sync` mirrors it later.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pymongo

from harness.errors import HarnessError, Unreachable
from harness.stores.mongo.connection import connect, disconnect, hide
from harness.stores.mongo.projection import project
from harness.stores.mongo.snapshot import WEIGHTS_MAX, look

if TYPE_CHECKING:
    from pymongo.database import Database

EVERY = 5.0
"""Minimum number of seconds between two projections."""
SHARE = 0.1
"""Maximum fraction of the time that projections may take."""
LONGEST_PAUSE = 30.0
"""Maximum pause in seconds before the next projection, even if the last one waited long without an answer."""
SELECTION = 3.0
"""Seconds to wait for a server."""
KNOWN_SILENT = 1.0
"""Seconds to wait for a server that was unreachable last time."""

_logger = logging.getLogger(__name__)


class Mirror:
    """Mirrors a run directory into the database at that address, until it is closed."""

    def __init__(self, path: Path, uri: str, weights_max: int = WEIGHTS_MAX, every: float = EVERY) -> None:
        self.path = path
        self.error: str | None = None
        """The last error, in one line and without credentials; None if the last projection succeeded."""
        self._uri = uri
        self._weights_max = weights_max
        self._every = every
        self._database: Database[dict[str, Any]] | None = None
        self._silent = False
        self._told = False
        self._mirrored = -1
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._deadline = float("inf")
        self._wake.set()
        self._thread = threading.Thread(target=self._work, name="mirror", daemon=True)
        self._thread.start()

    def close(self, wait: float = 10.0) -> bool:
        """Mirror the run as it is now, within that time; returns whether the database has it. May be called again."""
        self._deadline = time.monotonic() + wait
        self._closing.set()
        self._wake.set()
        self._thread.join(wait)
        if self._thread.is_alive():
            self.error = self.error or f"the database did not answer within {wait:g} s"
            return False
        try:
            return self._mirrored >= look(self.path).revision
        except HarnessError as error:
            self._failed(error)
            return False

    def wake(self) -> None:
        """The run has changed."""
        self._wake.set()

    def _work(self) -> None:
        while not self._closing.is_set():
            self._wake.wait()
            self._wake.clear()
            if self._closing.is_set():
                break
            began = time.monotonic()
            self._project(None)
            took = time.monotonic() - began
            self._closing.wait(max(self._every, min(took * (1 / SHARE - 1), LONGEST_PAUSE)))
        silent = self._silent
        if not self._project(self._deadline - time.monotonic()) and not silent:
            self._project(self._deadline - time.monotonic())  # a server that answered until now may be back at once
        self._disconnect()

    def _project(self, within: float | None) -> bool:
        """Project once, within that time if given. Errors never stop training. Returns whether it succeeded."""
        try:
            with contextlib.nullcontext() if within is None else pymongo.timeout(max(0.1, within)):
                # Read before, not after: changes made meanwhile do not count as mirrored.
                revision = look(self.path).revision
                if self._database is None:
                    selection = KNOWN_SILENT if self._silent else SELECTION
                    self._database = connect(self._uri, min(selection, within or selection))
                project(self.path, self._database, self._weights_max)
        except HarnessError as error:
            self._failed(error)
        except Exception as error:  # a bug of ours must not end a training of days
            self._failed(HarnessError(hide(f"{type(error).__name__}: {error}", self._uri)))
        else:
            self._mirrored = revision
            self.error, self._silent, self._told = None, False, False
        return self.error is None

    def _disconnect(self) -> None:
        if self._database is not None:
            disconnect(self._database.client)
        self._database = None

    def _failed(self, error: HarnessError) -> None:
        self._silent = isinstance(error, Unreachable)
        if self._silent:  # a new connection can have a shorter timeout
            self._disconnect()
        self.error = " ".join(str(error).split())
        if not self._told:
            self._told = True
            _logger.warning("run %s is not mirrored for now: %s", self.path.name, self.error)
