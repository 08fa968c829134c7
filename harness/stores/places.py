"""Where the runs are: one rule for every command and for the results API.

Runs are always made in a directory. `--mongo` or `HARNESS_MONGO` names an optional database that mirrors it;
commands then read the database. `--store` names what to read, a directory or a database, and takes precedence.
"""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UserError
from harness.settings import settings

if TYPE_CHECKING:
    from harness.stores.store import Store

VARIABLE, MONGO = "HARNESS_STORE", "HARNESS_MONGO"
DEFAULT = "runs"
LONGEST_ADDRESS = 1 << 16


@dataclass(frozen=True)
class Places:
    """The directory where runs are made, the database that mirrors it, and which of the two is read."""

    directory: Path
    mongo: str | None = None
    """An address. It may contain a password, so it is never shown."""
    reads_mongo: bool = False
    database_only: bool = False
    """Whether `--store` names the database: then maintenance leaves the directory alone."""
    named: bool = False
    """Whether `--store` names the directory: then it must be there to be read."""

    def require(self, planned: bool = False) -> None:
        """Raise `UserError` if the directory is named and is not there. For the usual one, and one that is planned for,
        print a note."""
        if self.directory.exists():
            return
        near = f"; did you mean {_near(self.directory)}?" if _near(self.directory) else ""
        if self.named and not planned:
            there = "" if self.directory.parent.is_dir() else f": {self.directory.parent} is not a directory"
            raise UserError(f"there is no store {self.directory}{there or near or '; `harness run` makes one'}")
        print(f"there is no store {self.directory} yet: `harness run STUDY` makes it{near}", file=sys.stderr)

    def open(self, planned: bool = False) -> Store:
        """Open the store to read; one that is only planned for need not exist yet. If it is a database that lacks runs
        of the directory, print a note.

        Raises `UserError` for what cannot be a store, `Unreachable` if the server does not answer.
        """
        from harness.stores.opened import Opened

        opened = Opened(self)
        if not (self.reads_mongo and self.mongo):
            self.require(planned)
            return opened.directory
        from harness.stores.mongo.sync import unsynced

        if missing := unsynced(opened.directory, opened.database):
            place = f"{len(missing)} runs in {self.directory}"
            print(f"{place} are not in the database yet: `harness store sync` brings them there", file=sys.stderr)
        return opened.mirrored


def places(store: str | os.PathLike[str] | None = None, mongo: str | None = None) -> Places:
    """The places as given, else from the environment, else from the folder's settings, else `runs` in the folder."""
    own = settings()
    directory = Path(os.environ.get(VARIABLE) or own.get("store") or DEFAULT)
    given = None if store is None else os.fspath(store)
    if given and given.startswith("mongodb") and not is_address(given) and not os.path.exists(given):
        raise UserError(
            f"{given.partition('@')[0].partition(':')[0]}:… is not a database address: use mongodb://HOST/NAME"
        )
    if given and is_address(given):
        return Places(directory, given, reads_mongo=True, database_only=True)
    address = mongo or os.environ.get(MONGO) or own.get("mongo")
    reads_mongo = bool(mongo or (address and not given))
    return Places(Path(given) if given else directory, address, reads_mongo, named=bool(given))


def address_in(file: Path) -> str:
    """The database address that a file holds, for `--mongo-file`. Raises `UserError`.

    A file that everybody on the machine may read is refused if its address has a password.
    """
    try:
        with file.open(encoding="utf-8") as opened:
            text, mode = opened.read(LONGEST_ADDRESS).strip(), os.fstat(opened.fileno()).st_mode
    except (OSError, ValueError) as error:
        raise UserError(f"--mongo-file {file} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not is_address(text) or len(text.split()) != 1:
        raise UserError(f"--mongo-file {file} holds no database address: one line, mongodb://USER:PASSWORD@HOST/NAME")
    if "@" in text and mode & stat.S_IROTH:
        raise UserError(f"--mongo-file {file} may be read by everybody on this machine: `chmod 600 {file}`")
    return text


def _near(missing: Path) -> str:
    """Where else the runs may be, for a message about a directory that is not there; empty if nowhere."""
    import difflib

    folder = missing.parent
    entries = folder.iterdir() if folder.is_dir() else ()
    there = sorted(one.name for one in entries if one.is_dir() and not one.name.startswith("."))
    near = difflib.get_close_matches(missing.name, there, n=3)
    if DEFAULT in there and DEFAULT not in near:
        near.append(DEFAULT)
    return " or ".join(str(folder / name) for name in near)


def is_address(text: str) -> bool:
    """Whether the text names a database rather than a directory."""
    return text.startswith(("mongodb://", "mongodb+srv://"))
