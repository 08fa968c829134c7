"""The directory of the runs and the database that mirrors it, opened together: runs, claims, mirrors. Imports no torch.

Every command and every job opens its places here. Nothing is touched before it is used: the connection to the
database is made when it is first needed, and is kept.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from harness.errors import Unreachable, UserError
from harness.stores.board import Board
from harness.stores.claims import LEASE, RENEWALS, Claims
from harness.stores.directory.records import DirectoryRecords
from harness.stores.directory.run_directory import RunDirectory
from harness.stores.directory.store import DirectoryStore
from harness.stores.mongo.snapshot import WEIGHTS_MAX
from harness.stores.places import MONGO, Places
from harness.stores.store import Store

if TYPE_CHECKING:
    from harness.stores.mongo.mirror import Mirror
    from harness.stores.mongo.store import MongoStore

SHORTEST_WAIT, LONGEST_WAIT = 2.0, 10.0
"""Minimum and maximum seconds that an operation on a claim waits for the database: less than a lease."""

PATIENCE = 5.0
"""Default number of seconds within which the database must answer."""


class Opened:
    """The places of the runs. What needs the database raises `Unreachable`, or `UserError` when it refuses."""

    def __init__(
        self, places: Places, *, lease: float = LEASE, weights_max: int = WEIGHTS_MAX, patience: float = PATIENCE
    ) -> None:
        self.places = places
        self.lease = lease
        self.weights_max = weights_max
        self.silent: str | None = None
        """Why the database was left out, if it was."""
        self._patience = patience

    @cached_property
    def directory(self) -> DirectoryStore:
        """The directory where runs are made. Raises `UserError` if it cannot be one."""
        return DirectoryStore(self.places.directory)

    @property
    def here(self) -> DirectoryStore | None:
        """The directory; None where only the database was named."""
        return None if self.places.database_only else self.directory

    @property
    def has_database(self) -> bool:
        """Whether a database is configured, and was not left out."""
        return self.places.mongo is not None and self.silent is None

    @cached_property
    def database(self) -> Any:
        """The database. Raises `UserError` also when none is configured."""
        if self.places.mongo is None:
            raise UserError(f"there is no database: name one with --mongo URI, or with {MONGO} in the environment")
        from harness.stores.mongo.connection import connect

        return connect(self.places.mongo, timeout=self._patience)

    @cached_property
    def mirrored(self) -> MongoStore:
        """The runs of the database."""
        from harness.stores.mongo.store import MongoStore

        return MongoStore(self.database)

    @property
    def there(self) -> MongoStore | None:
        """The runs of the database; None without one."""
        return self.mirrored if self.has_database else None

    @property
    def reader(self) -> Store:
        """All known runs, of the directory and the database."""
        if not self.has_database:
            return self.directory
        return self.mirrored if self.here is None else self._merged

    @property
    def claims(self) -> Claims:
        """The claims that decide who runs a trial: those of the database if there is one."""
        return self._claims_there if self.has_database else self._claims_here

    @property
    def board(self) -> Board:
        """Small documents about how studies are run: of the database if there is one."""
        return Board(self.claims.place)

    @property
    def claims_by_place(self) -> dict[str, Claims]:
        """The claims of each place alone, by the name of the place."""
        found: dict[str, Claims] = {}
        if self.here is not None:
            found[str(self.here.claims)] = self._claims_here
        if self.there is not None:
            found[f"claims in {self.there.name}"] = self._claims_there
        return found

    def mirror(self, run: RunDirectory) -> Mirror | None:
        """Mirrors a run while it is made; None without a database."""
        if not self.has_database or self.places.mongo is None:
            return None
        from harness.stores.mongo.mirror import Mirror

        return Mirror(run.path, self.places.mongo, self.weights_max)

    def leave_out_silent(self) -> None:
        """Continue with the directory alone if the database does not answer. Raises `Unreachable` without one."""
        try:
            if self.has_database:
                self.database  # noqa: B018  # connects
        except Unreachable as error:
            if self.here is None:
                raise
            self.leave_out(str(error))

    def leave_out(self, reason: str) -> None:
        """Use the directory alone from now on."""
        self.silent = reason

    @cached_property
    def _merged(self) -> Store:
        from harness.stores.merged import MergedStore

        return MergedStore(self.directory, self.mirrored)

    @cached_property
    def _claims_here(self) -> Claims:
        return Claims(DirectoryRecords(self.directory.path), self.lease)

    @cached_property
    def _claims_there(self) -> Claims:
        from harness.stores.mongo.records import MongoRecords

        wait = min(LONGEST_WAIT, max(SHORTEST_WAIT, self.lease / RENEWALS))
        return Claims(MongoRecords(self.database, wait), self.lease)
