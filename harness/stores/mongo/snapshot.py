"""A run directory at one moment: how new it is, what its files contain, and where each belongs in a mirror.

Knows nothing of databases. A directory may change while it is read: then the snapshot is at least as new as
its revision says. If the directory does not change, it is exactly that.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import DataError
from harness.files import read_regular, sha256
from harness.schema import CompletionDocument, RunDocument
from harness.stores.directory.curves import Columns, check_columns, to_columns
from harness.stores.directory.reading import Damaged, is_beside, read_small, summarise
from harness.stores.directory.run_directory import (
    ABSENT,
    COMPLETION,
    INPUTS,
    INVALID,
    METRICS,
    POINTS,
    PREDICTIONS,
    RANKINGS,
    RUN,
    SOURCES,
    TRIAL,
    WEIGHTS,
    read_points,
)
from harness.stores.stored import Problem, Status, stored_run

OPEN, ENDED, COMPLETE = 0, 1, 2
"""The phases of a run directory. To a complete run only rankings and marks are added."""

INLINE = 64 << 10
"""Bytes up to which a text file is kept in the run's document."""
INLINE_TOTAL = 512 << 10
"""The same limit for all of them together."""

WEIGHTS_MAX = 64 << 20
"""Default number of bytes up to which weights are mirrored."""

_PHASE_BITS = 56
"""A time in microseconds takes 51 of the 63 bits of a database integer."""

_CLOCK_TICK = 0.02
"""Seconds within which a file system may give two changes the same time."""

_ENDED = ("FAILED", "INTERRUPTED", "TIMEOUT")


@dataclass(frozen=True)
class State:
    """How new a run directory is."""

    revision: int
    """Grows with every change: the phase, and within it the time of the newest file."""
    added: tuple[str, ...]
    """Sorted names of the files added after completion: rankings, and the invalid mark."""

    @property
    def phase(self) -> int:
        return phase_of(self.revision)

    @property
    def newest(self) -> int:
        """The time of the newest file, in microseconds."""
        return self.revision & ((1 << _PHASE_BITS) - 1)


@dataclass(frozen=True)
class Piece:
    """One file. `text` is its content if it belongs in the document, else None."""

    name: str
    size: int
    sha256: str
    modified: int
    """Modification time in microseconds."""
    text: str | None


@dataclass(frozen=True)
class Snapshot:
    """A run directory as it was when it was read."""

    path: Path
    state: State
    partial: bool
    """Whether large files were left out, because the run continues and they still grow."""
    summary: dict[str, Any]
    problems: list[Problem]
    pieces: dict[str, Piece]
    completion: dict[str, Any] | None
    run: dict[str, Any]
    metrics: Columns

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def revision(self) -> int:
        """The revision to record: a partial snapshot counts as slightly older than the directory."""
        return self.state.revision - self.partial


def revision(path: Path) -> int:
    """How new a run directory is. Raises `Damaged` when it cannot be read."""
    return look(path).revision


def phase_of(number: int) -> int:
    """The phase of a revision, also of that of a partial snapshot."""
    return (number + 1) >> _PHASE_BITS


def explained(entries: Mapping[str, Mapping[str, Any]]) -> int:
    """The revision that these files of a mirrored run explain; that of a complete run is exactly this."""
    newest = max((entry["modified"] for entry in entries.values()), default=0)
    return ((COMPLETE if COMPLETION in entries else OPEN) << _PHASE_BITS) + newest


def look(path: Path) -> State:
    """How new a run directory is, without reading its files. Raises `Damaged`."""
    return _state(path, _scan(path))


def additions(path: Path) -> dict[str, int]:
    """The files added to a run after its completion, with their times in microseconds. Raises `Damaged`."""
    found: dict[str, int] = {}
    with contextlib.suppress(FileNotFoundError):
        found[INVALID] = os.stat(path / INVALID).st_mtime_ns // 1000
    if os.path.isdir(path / RANKINGS):
        inside = _scan(path / RANKINGS)
        found |= {f"{RANKINGS}/{name}": status.st_mtime_ns // 1000 for name, status in inside.items()}
    return found


def take(path: Path) -> Snapshot:
    """Read a run directory, without a damaged log or damaged copies of source files. Raises `Damaged`."""
    found = _scan(path)
    newest = max((status.st_mtime for status in found.values()), default=0.0)
    if time.time() - newest < _CLOCK_TICK:
        # A change in the same clock tick would not show in the time; a later one will.
        time.sleep(_CLOCK_TICK)
        found = _scan(path)
    state = _state(path, found)
    problems: list[Problem] = []
    summary = summarise(path, problems)
    complete = state.phase == COMPLETE
    completion = read_small(path / COMPLETION, CompletionDocument) if complete else None
    run = read_small(path / RUN, RunDocument) if RUN in found else {}
    growing = state.phase == OPEN and stored_run(summary).status is Status.RUNNING
    pieces: dict[str, Piece] = {}
    partial = False
    budget = INLINE_TOTAL
    for name, status in sorted(found.items(), key=lambda item: (item[1].st_size, item[0])):
        if growing and not name.startswith(f"{SOURCES}/") and (status.st_size > INLINE or _is_artifact(name)):
            partial = True
            continue
        try:
            piece = _piece(path, name, status, completion, min(INLINE, budget))
        except FileNotFoundError:
            if complete:
                raise Damaged(path / name, "is missing") from None
            continue  # points that became metrics meanwhile
        except Damaged as error:
            if not is_beside(name):
                raise
            if str(path / name) not in {problem.place for problem in problems}:
                problems.append(error.problem)
            continue
        except OSError as error:
            raise Damaged(path / name, f"cannot be read: {error.strerror or error}") from error
        budget -= piece.size if piece.text is not None else 0
        pieces[name] = piece
    pieces = dict(sorted(pieces.items()))
    return Snapshot(path, state, partial, summary, problems, pieces, completion, run, _metrics(path))


def is_addition(name: str) -> bool:
    """Whether a file of that name may be added to a complete run."""
    return name == INVALID or name.startswith(f"{RANKINGS}/")


def _scan(path: Path) -> dict[str, os.stat_result]:
    try:
        return dict(_files(os.fspath(path), ""))
    except OSError as error:
        raise Damaged(path, f"cannot be read: {error.strerror or error}") from error


def _files(folder: str, inside: str) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") or inside + entry.name in (ABSENT, INPUTS):
                continue  # being written, or about this directory only
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path, f"{inside}{entry.name}/")
            elif entry.is_file():
                with contextlib.suppress(FileNotFoundError):
                    yield inside + entry.name, entry.stat()


def _state(path: Path, found: Mapping[str, os.stat_result]) -> State:
    if TRIAL not in found:
        raise Damaged(path / TRIAL, "is missing")
    if COMPLETION in found:
        phase = COMPLETE
    else:
        phase = ENDED if RUN in found and read_small(path / RUN, RunDocument)["status"] in _ENDED else OPEN
    # A damaged log makes a complete run no newer: nothing of it is copied.
    times = [one.st_mtime_ns for name, one in found.items() if phase != COMPLETE or not is_beside(name)]
    newest = max(times) // 1000
    return State((phase << _PHASE_BITS) + newest, tuple(sorted(filter(is_addition, found))))


def _is_artifact(name: str) -> bool:
    """Whether the file is an artifact for users, whatever its size."""
    return name in (PREDICTIONS, WEIGHTS)


def _piece(path: Path, name: str, status: os.stat_result, completion: Mapping[str, Any] | None, room: int) -> Piece:
    file, size, modified = path / name, status.st_size, status.st_mtime_ns // 1000
    recorded = completion["files"].get(name) if completion else None
    if size > room:
        # Weights with a known checksum are not read here; it is compared when they are uploaded.
        checksum = recorded if recorded and not is_beside(name) else sha256(file)
    else:
        content = read_regular(file)
        checksum = hashlib.sha256(content).hexdigest()
    if recorded not in (None, checksum):
        raise Damaged(file, "has another checksum than the completion record says")
    if size > room:
        return Piece(name, size, checksum, modified, None)
    text = None if _is_artifact(name) or name.startswith(f"{SOURCES}/") else _text(content)
    return Piece(name, len(content), checksum, modified, text)


def _text(content: bytes) -> str | None:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _metrics(path: Path) -> Columns:
    """All points so far, as columns."""
    name = METRICS if (path / METRICS).exists() else POINTS
    try:
        if name == POINTS:
            return to_columns(read_points(path / POINTS))
        columns = read_small(path / METRICS)
        check_columns(columns)
        return columns
    except Damaged:
        raise
    except DataError as error:
        raise Damaged(path / name, str(error)) from error
