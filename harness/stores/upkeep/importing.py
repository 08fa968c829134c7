"""Brings the runs of an archive into a store. Imports no torch.

All of it is verified, and compared with what is there, before the first run is added; a run is then there
whole or not at all. A run that is there already is never changed, but may get what it did not have:
rankings, weights that had been left out, and the word that it is invalid.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from harness.errors import DataError, UserError
from harness.files import make_durable, write
from harness.stores.directory.run_directory import ABSENT, INVALID, PREDICTIONS, RANKINGS, WEIGHTS
from harness.stores.upkeep.archive import Manifest, unpack
from harness.stores.upkeep.checking import examine

STAGING = ".import-"
"""How folders begin that hold an archive while it is verified."""


@dataclass(frozen=True)
class Imported:
    """What became of an archive's runs, by id."""

    manifest: Manifest
    added: list[str] = field(default_factory=list)
    extended: list[str] = field(default_factory=list)
    """There already, but without something that the archive has."""
    present: list[str] = field(default_factory=list)
    """There already, and equal."""


def import_into_directory(archive: Path, store: Path) -> Imported:
    """Add the archive's runs to a directory of runs, which is made if there is none.

    Raises `DataError`, and adds nothing, when the archive is damaged or a run of it contradicts one that is
    there; `UserError` when the store cannot be written to.
    """
    with _staging(store) as folder:
        done = Imported(unpack(archive, folder))
        _verify(archive, folder, done.manifest)
        runs = sorted(done.manifest.files)
        more = {run: additions(store / run, folder / run) for run in runs if (store / run).exists()}
        for run in runs:
            if run not in more:
                (folder / run).rename(store / run)
                done.added.append(run)
            elif more[run]:
                extend(store / run, folder / run, more[run])
                done.extended.append(run)
            else:
                done.present.append(run)
        make_durable(store)
    return done


def import_into_database(archive: Path, database: Any, weights_max: int) -> Imported:
    """Add the archive's runs to a database, as `import_into_directory` does to a directory.

    Also raises `Unreachable`; what was added until then is there, and the same archive brings the rest.
    """
    from harness.stores.mongo.projection import project
    from harness.stores.mongo.store import MongoStore

    store = MongoStore(database)
    with tempfile.TemporaryDirectory() as temporary:
        folder, mirrored = Path(temporary) / "archive", Path(temporary) / "mirrored"
        folder.mkdir()
        done = Imported(unpack(archive, folder))
        _verify(archive, folder, done.manifest)
        runs, there = sorted(done.manifest.files), set(store.ids())
        more = {run: additions(store.fetch(run, mirrored), folder / run) for run in runs if run in there}
        for run in runs:
            if more.get(run) == []:
                done.present.append(run)
                continue
            project(folder / run, database, weights_max)
            (done.extended if run in more else done.added).append(run)
    return done


def additions(ours: Path, theirs: Path) -> list[str]:
    """What the second directory of a run has to add to the first, in the order in which it must be added.

    Raises `DataError` when the two contradict each other.
    """
    mine, its = _files(ours), _files(theirs)
    for name in sorted(mine | its):
        if name in (INVALID, ABSENT) or name.startswith(f"{RANKINGS}/"):
            continue
        if name == WEIGHTS and not (name in mine and name in its):
            continue
        if not (name in mine and name in its and _equal(ours / name, theirs / name)):
            raise DataError(f"run {ours.name} is there already, but with another {name}; nothing was imported")
    new = {_ranking(name) for name in its - mine if _is_record(name)}
    for name in filter(_is_record, mine & its):
        if _result(ours / name) != _result(theirs / name):
            raise DataError(f"run {ours.name} is there already, but {name} gave another result; nothing was imported")
    added = {name for name in its if name.startswith(f"{RANKINGS}/") and _ranking(name) in new}
    added |= {name for name in (WEIGHTS, INVALID) if name in its - mine}
    # A ranking's own record comes after its predictions, which are what it vouches for.
    return sorted(added, key=lambda name: (_is_record(name), name))


def extend(ours: Path, theirs: Path, names: list[str]) -> None:
    """Add these files to a run's directory."""
    for name in names:
        target = ours / name
        target.parent.mkdir(exist_ok=True)
        with (theirs / name).open("rb") as source:
            write(target, lambda file, source=source: shutil.copyfileobj(source, file))  # type: ignore[misc]
        make_durable(target.parent)
        if name == WEIGHTS:
            (ours / ABSENT).unlink(missing_ok=True)


@contextlib.contextmanager
def _staging(store: Path) -> Iterator[Path]:
    """A folder within the store, so that what is verified there can be moved to its place at once."""
    try:
        store.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=STAGING, dir=store) as folder:
            yield Path(folder)
    except OSError as error:
        raise UserError(f"cannot write to the store {store}: {error.strerror or error}") from error


def _verify(archive: Path, folder: Path, manifest: Manifest) -> None:
    """Also what an archive that was made by hand may say of itself: its runs must be whole."""
    for run in sorted(manifest.files):
        for problem in examine(folder / run):
            place = Path(problem.place).relative_to(folder)
            raise DataError(f"{archive}: {place}: {problem.reason}; nothing was imported")


def _files(folder: Path) -> set[str]:
    there = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(folder).as_posix() for path in there}


def _equal(one: Path, other: Path) -> bool:
    with one.open("rb") as first, other.open("rb") as second:
        return one.stat().st_size == other.stat().st_size and _same(first, second)


def _same(first: IO[bytes], second: IO[bytes]) -> bool:
    while block := first.read(1 << 20):
        if block != second.read(1 << 20):
            return False
    return True


def _is_record(name: str) -> bool:
    """Whether it is a ranking itself, not what lies beside it."""
    return name.startswith(f"{RANKINGS}/") and name.endswith(".json") and not name.endswith(f".{PREDICTIONS}")


def _ranking(name: str) -> str:
    return Path(name).name.partition(".")[0]


def _result(path: Path) -> object:
    try:
        return json.loads(path.read_bytes())["result"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is no ranking: {error}; `harness store check` says more") from error
