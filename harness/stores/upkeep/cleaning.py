"""Finds and removes what is not needed: checkpoints, unfinished files, old claims, parts of the index.

No run is ever changed; only what killed processes left between runs and in them is removed. The caller must
say which trials are still being worked on. Imports no torch.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from harness.files import DAY, is_abandoned, is_unfinished
from harness.stores.checkpoints import stored_checkpoints
from harness.stores.claims import Claims
from harness.stores.directory.index import INDEX
from harness.stores.directory.records import DirectoryRecords
from harness.stores.directory.store import CLAIMS, RUN_ID, WORK
from harness.stores.stored import Status, StoredRun
from harness.stores.upkeep.importing import STAGING

OF_DONE = "checkpoint of a done trial"


@dataclass(frozen=True)
class Leftover:
    """A file or folder that can be removed."""

    path: Path
    what: str
    size: int
    """Bytes."""

    def remove(self) -> bool:
        """Remove it; returns whether it is gone. A file that a process still writes may reappear, and is left alone."""
        with contextlib.suppress(OSError):
            if not self.path.is_dir():
                self.path.unlink(missing_ok=True)
            elif self.path.parent.name == CLAIMS:
                # Lowest generation first, and the folder only if it is empty: a claim made just now stays.
                for file in sorted(self.path.iterdir(), key=lambda file: (len(file.name), file.name)):
                    file.unlink(missing_ok=True)
                self.path.rmdir()
            else:
                shutil.rmtree(self.path, ignore_errors=True)
        return not self.path.exists()


def busy_trials(claims: Iterable[Claims], runs: Iterable[StoredRun]) -> set[str]:
    """The trials, by the first 16 digits of their keys, that a live process works on. Raises `Unreachable`."""
    claimed = {record.key[:16] for one in claims for record in one.records() if record.alive}
    return claimed | {run.key[:16] for run in runs if run.status is Status.RUNNING}


def done_trials(runs: Iterable[StoredRun]) -> dict[str, float]:
    """The done trials, by the first 16 digits of their keys, and when they were done."""
    done: dict[str, float] = {}
    for run in runs:
        if run.counts and run.stop_time is not None:
            stopped = datetime.fromisoformat(run.stop_time).replace(tzinfo=UTC)
            done[run.key[:16]] = stopped.timestamp()
    return done


def checkpoints(work: Path, busy: Collection[str], done: Mapping[str, float]) -> list[Leftover]:
    """The checkpoints of a work folder that are not in use.

    `busy` are the trials (the first 16 digits of their keys) that are being worked on. `done` are the done trials,
    with the time when they were done: a later checkpoint belongs to a run that is to observe more.
    """
    found = []
    for one in stored_checkpoints(work):
        if one.key16 in busy:
            continue
        what = OF_DONE if one.mtime <= done.get(one.key16, 0.0) else "unused checkpoint"
        found.append(Leftover(one.path, what, one.size))
    return found


def unfinished(store: Path) -> list[Leftover]:
    """Runs, archives and files that a killed process left unfinished."""
    found = []
    for path in sorted(_hidden(store)):
        with contextlib.suppress(FileNotFoundError):  # finished just now
            if is_abandoned(path):
                found.append(Leftover(path, "unfinished run" if path.is_dir() else "unfinished file", _size(path)))
    return found


def old_claims(store: Path, done: Collection[str]) -> list[Leftover]:
    """The records of claims on done trials that have not been held for a day."""
    found = []
    for record in Claims(DirectoryRecords(store)).records():
        if record.key[:16] in done and not record.alive and record.age > DAY:
            path = store / CLAIMS / record.key
            found.append(Leftover(path, "claim of a done trial", _size(path)))
    return found


def stale_index(store: Path) -> list[Leftover]:
    """The parts of the index whose runs no longer exist."""
    prefixes = {path.name[:2] for path in _children(store) if RUN_ID.fullmatch(path.name)}
    shards = [path for path in _children(store / INDEX) if path.suffix == ".json" and path.stem not in prefixes]
    return [Leftover(path, "index without runs", path.stat().st_size) for path in shards]


def _hidden(store: Path) -> Iterator[Path]:
    """Everything in the store and in all its folders that has the name of an unfinished file or run."""
    for folder, folders, files in os.walk(store):
        top = Path(folder) == store
        yield from (Path(folder, name) for name in folders if name.startswith((".new-", STAGING)))
        # `checkpoints` finds those of the work folder.
        folders[:] = [name for name in folders if not name.startswith(".") and not (top and name == WORK)]
        places = (Path(folder, name) for name in files if name.startswith("."))
        yield from (path for path in places if path.name.startswith(".new-") or is_unfinished(path))


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _size(path: Path) -> int:
    """Bytes of a file, or of everything in a folder."""
    return sum(one.lstat().st_size for one in ([path, *path.rglob("*")] if path.is_dir() else [path]))
