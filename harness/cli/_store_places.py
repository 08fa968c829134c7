"""Shared by the `store` commands: open the directory, the database and the claims."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from harness.cli._values import Size
from harness.errors import Unreachable, UserError
from harness.stores.places import MONGO, Places

if TYPE_CHECKING:
    from pathlib import Path

    from harness.stores.claims.lease import Claims
    from harness.stores.directory.store import DirectoryStore
    from harness.stores.mongo.store import MongoStore
    from harness.stores.store import Store

work_option = click.option(
    "--work", type=click.Path(file_okay=False), help="Folder of the checkpoints.  [default: STORE/work]"
)

weights_option = click.option(
    "--mirror-weights-max",
    type=Size(),
    default="64MB",
    show_default=True,
    help="Do not mirror weight files larger than this; they stay in the run directory.",
)


@dataclass(frozen=True)
class Opened:
    """The directory, the database, and the claims of both; None for those not selected or not configured."""

    directory: DirectoryStore | None
    database: Any
    mirror: MongoStore | None
    claims: dict[str, Claims]
    """By the place where they are kept."""
    silent: str | None = None
    """Why the configured database is unreachable, if it is."""

    @property
    def reader(self) -> Store:
        """All runs, of the directory and the database."""
        if self.directory is None or self.mirror is None:
            one = self.directory or self.mirror
            assert one is not None
            return one
        from harness.stores.merged import MergedStore

        return MergedStore(self.directory, self.mirror)

    def work(self, given: str | None) -> Path | None:
        """The folder of the checkpoints."""
        from pathlib import Path

        if given:
            return Path(given)
        return None if self.directory is None else self.directory.work


def open_all(places: Places, patient: bool = False) -> Opened:
    """Open all places. Raises `UserError` for an invalid store, and `Unreachable` for an unreachable database.

    With `patient`, an unreachable database is left out if there is a directory.
    """
    from harness.stores.claims.directory import DirectoryClaims
    from harness.stores.directory.store import DirectoryStore

    directory = None if places.database_only else DirectoryStore(places.directory)
    claims: dict[str, Claims] = {}
    if directory is not None:
        claims[str(directory.claims)] = DirectoryClaims(directory.claims)
    if places.mongo is None:
        return Opened(directory, None, None, claims)
    from harness.stores.claims.mongo import MongoClaims
    from harness.stores.mongo.store import MongoStore

    try:
        database = connected(places)
    except Unreachable as error:
        if not patient or directory is None:
            raise
        return Opened(directory, None, None, claims, str(error))
    mirror = MongoStore(database)
    claims[f"claims in {mirror.name}"] = MongoClaims(database)
    return Opened(directory, database, mirror, claims)


def connected(places: Places) -> Any:
    """The database. Raises `UserError` when none is configured, `Unreachable` when it does not answer."""
    if places.mongo is None:
        raise UserError(f"there is no database: name one with --mongo URI, or with {MONGO} in the environment")
    from harness.stores.mongo.connection import connect

    return connect(places.mongo)


def amount(size: int) -> str:
    """Format a size for readers: "512 bytes", "3.4 kB", "1.2 GB" (units of 1024)."""
    if size < 1024:
        return f"{size} bytes"
    value, units = size / 1024, ["kB", "MB", "GB", "TB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.1f} {units[0]}"
