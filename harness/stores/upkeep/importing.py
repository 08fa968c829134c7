"""Adds the runs of an archive to a store. Imports no torch.

The whole archive is verified, and compared with the store, before the first run is added. A run is added
completely or not at all. A run that already exists is never changed, but may get what it lacks: rankings,
weights that had been left out, and the invalid mark.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from harness.documents import problem
from harness.errors import DataError, UserError
from harness.files import make_durable, make_folder, write
from harness.schema import RankingDocument
from harness.stores.directory.reading import Damaged, is_beside, is_damaged_beside, read_small
from harness.stores.directory.run_directory import (
    ABSENT,
    COMPLETION,
    INVALID,
    RANKINGS,
    WEIGHTS,
    is_ranking,
    ranking_version,
)
from harness.stores.directory.store import DirectoryStore
from harness.stores.store import kind_of
from harness.stores.stored import agree
from harness.stores.upkeep.archive import MAX_SIZE, Manifest, reference_file, unpack
from harness.stores.upkeep.checking import examine

STAGING = ".import-"
"""Prefix of folders that hold an archive while it is verified."""


@dataclass(frozen=True)
class Imported:
    """What was done with an archive's runs, by id."""

    manifest: Manifest
    added: list[str] = field(default_factory=list)
    extended: list[str] = field(default_factory=list)
    """Already in the store, but without something that the archive has."""
    present: list[str] = field(default_factory=list)
    """Already in the store, and equal."""
    references: list[str] = field(default_factory=list)
    """References that were added, by key."""


def import_into_directory(archive: Path, store: Path, max_size: int = MAX_SIZE) -> Imported:
    """Add the archive's runs to a directory of runs, which is made if there is none.

    Raises `DataError`, and adds nothing, if the archive is damaged or a run of it contradicts an existing one;
    `UserError` if the store is not writable.
    """
    with _staging(store) as folder:
        done = Imported(unpack(archive, folder, max_size))
        references = _verify(archive, folder, done.manifest)
        place = DirectoryStore(store)
        place.check_references(references)
        runs = sorted(done.manifest.files)
        more = {run: additions(store / run, folder / run) for run in runs if (store / run).exists()}
        for run in runs:
            if run not in more:
                for inner in (path for path in (folder / run).rglob("*") if path.is_dir()):
                    make_durable(inner)
                make_durable(folder / run)
                (folder / run).rename(store / run)
                done.added.append(run)
            elif more[run]:
                extend(store / run, folder / run, more[run])
                done.extended.append(run)
            else:
                done.present.append(run)
        done.references.extend(place.add_references(references))
        make_durable(store)
    return done


def import_into_database(archive: Path, database: Any, weights_max: int, max_size: int = MAX_SIZE) -> Imported:
    """Add the archive's runs to a database, as `import_into_directory` does to a directory.

    Also raises `Unreachable`; runs added before stay, and importing the same archive again adds the rest.
    """
    from harness.stores.mongo.projection import project
    from harness.stores.mongo.store import MongoStore

    store = MongoStore(database)
    with tempfile.TemporaryDirectory() as temporary:
        folder, mirrored = Path(temporary) / "archive", Path(temporary) / "mirrored"
        folder.mkdir()
        done = Imported(unpack(archive, folder, max_size))
        references = _verify(archive, folder, done.manifest)
        store.check_references(references)
        runs, there = sorted(done.manifest.files), set(store.ids())
        more = {run: additions(store.fetch(run, mirrored), folder / run) for run in runs if run in there}
        for run in runs:
            if more.get(run) == []:
                done.present.append(run)
                continue
            project(folder / run, database, weights_max)
            (done.extended if run in more else done.added).append(run)
        done.references.extend(store.add_references(references))
    return done


def additions(ours: Path, theirs: Path) -> list[str]:
    """The files that the second directory of a run can add to the first, in the order in which to add them.

    Raises `DataError` if the two contradict each other.
    """
    mine, its = _files(ours), _files(theirs)
    record = read_small(ours / COMPLETION)["files"] if COMPLETION in mine else {}
    broken = {name for name in record if is_damaged_beside(ours, name, record)}
    for name in sorted(mine | its):
        if name in (INVALID, ABSENT) or name.startswith(f"{RANKINGS}/"):
            continue
        if name in broken or ((name == WEIGHTS or is_beside(name)) and not (name in mine and name in its)):
            continue
        if not (name in mine and name in its and _equal(ours / name, theirs / name)):
            raise DataError(f"run {ours.name} already exists, but with a different {name}; nothing was imported")
    new = {ranking_version(name) for name in its - mine if is_ranking(name)}
    for name in filter(is_ranking, mine & its):
        if not agree(_result(ours / name), _result(theirs / name)):
            raise DataError(f"run {ours.name} already exists, but {name} gave a different result; nothing was imported")
    added = {name for name in its if name.startswith(f"{RANKINGS}/") and ranking_version(name) in new}
    added |= {name for name in (WEIGHTS, INVALID) if name in its - mine} | (broken & its)
    # A ranking's own record comes after its predictions, whose checksum it holds.
    return sorted(added, key=lambda name: (is_ranking(name), name))


def extend(ours: Path, theirs: Path, names: list[str]) -> None:
    """Add these files to a run's directory."""
    for name in names:
        target = ours / name
        make_folder(target.parent)
        with (theirs / name).open("rb") as source:
            write(target, lambda file, source=source: shutil.copyfileobj(source, file))  # type: ignore[misc]
        make_durable(target.parent)
        if name == WEIGHTS:
            (ours / ABSENT).unlink(missing_ok=True)


@contextlib.contextmanager
def _staging(store: Path) -> Iterator[Path]:
    """A folder within the store, so that verified runs can be renamed into place."""
    try:
        make_folder(store)
        with tempfile.TemporaryDirectory(prefix=STAGING, dir=store) as folder:
            yield Path(folder)
    except OSError as error:
        raise UserError(f"cannot write to the store {store}: {error.strerror or error}") from error


def _verify(archive: Path, folder: Path, manifest: Manifest) -> dict[str, dict[str, Any]]:
    """Verify the runs and references, too: the manifest of an archive made by hand may agree with damaged ones.

    Returns the references.
    """
    for run in sorted(manifest.files):
        for damage in examine(folder / run):
            place = Path(damage.place).relative_to(folder)
            if is_beside(place.relative_to(run).as_posix()) and not Path(damage.place).exists():
                continue  # damaged where it comes from: no result depends on it
            raise DataError(f"{archive}: {place}: {damage.reason}; nothing was imported")
    try:
        documents = {key: read_small(folder / reference_file(key)) for key in manifest.references}
        for key, document in documents.items():
            if (wrong := problem(kind_of(document), document)) is not None:
                raise Damaged(folder / reference_file(key), wrong)
        return documents
    except Damaged as error:
        raise DataError(f"{archive}: {error.path.relative_to(folder)}: {error.reason}; nothing was imported") from error


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


def _result(path: Path) -> object:
    try:
        return read_small(path, RankingDocument)["result"]
    except DataError as error:
        raise DataError(f"{path} is not a ranking: {error}; see `harness store check`") from error
