"""Records in a directory, which may be on a network file system.

Each record has a folder, `<folder>/<kind>/<key>/`, with a file named by its version. The highest version is the one
that counts. Every change gives a finished file the name of the next version with `link`, which fails if the name is
taken: of all processes that try, one succeeds. Lower versions are removed afterwards, in ascending order; the highest
always stays, so that versions only grow. A record is touched by touching its file.

Requirements for a network file system (that is, NFS; a local file system meets them all):
- it supports hard links, and `link` is atomic on the server;
- a change made on one machine is visible in listings and attributes on the others in less than a third of a claim's
  lease (with NFS: `actimeo`, or `acregmax` and `acdirmax`, below 20 seconds for a lease of 60);
- file times are set by the server, so that one clock measures all ages.
If the second does not hold, a live owner may be taken over and so lose its work. Still no two processes get the
same version, and the previous owner learns that its claim is lost when it confirms it.

Files and folders follow the umask: with 002 and a common group, several users share a store.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.documents import parsed
from harness.errors import DataError, Unreachable, UserError
from harness.files import open_regular, temporary
from harness.stores.records import Record, Records

RUBBISH = 3600.0
"""Seconds after which an unlinked file counts as left behind by a killed process."""

TRIES = 20
"""Maximum number of tries to read a record that is replaced while it is read."""

_KEY = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]*")
_VERSION = re.compile(r"[1-9][0-9]*")
_REFUSALS = {errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR, errno.ENOTSUP, errno.EMLINK}
"""What the user can correct. All else (EIO, ESTALE, EACCES, …) may be over soon: the place is unreachable."""

_NO_FILE = {errno.EINVAL, errno.ELOOP}
"""Errors of opening what is not a file."""


class DirectoryRecords(Records):
    """Records below a folder, which is made when first needed. The module docstring lists its requirements."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self.name = str(folder)

    def get(self, kind: str, key: str) -> Record | None:
        with self._answering(kind):
            return _latest(self._place(kind, key))

    def put(self, kind: str, key: str, value: Mapping[str, Any], last: Record | None) -> Record | None:
        with self._answering(kind):
            place = self._place(kind, key)
            version = 1 if last is None else last.version + 1
            if last is not None and last.damage is None and last.value == value:
                # No new file: this works on a full disk, and a version that was removed cannot be linked.
                return _link(place, place / str(last.version), version) if self.touch(kind, last) else None
            if last is not None and not _is_latest(place, last):
                return None
            place.mkdir(parents=True, exist_ok=True)
            fresh = temporary(place / "new")
            try:
                _fill(fresh, json.dumps(dict(value)).encode() + b"\n")
                return _link(place, fresh, version)
            finally:
                with contextlib.suppress(OSError):
                    fresh.unlink()

    def touch(self, kind: str, record: Record, *, expire: bool = False) -> bool:
        with self._answering(kind):
            place = self._place(kind, record.key)
            if not _is_latest(place, record):
                return False
            try:
                os.utime(place / str(record.version), (0, 0) if expire else None, follow_symlinks=False)
            except FileNotFoundError:  # replaced just now
                return False
            return True

    def list(self, kind: str, keys: Collection[str] | None = None) -> list[Record]:
        with self._answering(kind):
            folder = self.folder / kind
            try:
                names = os.listdir(folder) if keys is None else keys
            except FileNotFoundError:
                return []
            now = _now(folder)
            if keys is None:
                _sweep(folder, now)
            places = [self._place(kind, key) for key in sorted(filter(_KEY.fullmatch, names))]
            return [record for place in places if (record := _latest(place, now)) is not None]

    def delete(self, kind: str, record: Record) -> bool:
        with self._answering(kind):
            place = self._place(kind, record.key)
            if not _is_latest(place, record):
                return False
            for version in _versions(place):
                if version <= record.version:
                    (place / str(version)).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # one that was put just now stays
                place.rmdir()
            return not _versions(place)

    def _place(self, kind: str, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise ValueError(f"{key!r} is not the key of a record")
        return self.folder / kind / key

    @contextlib.contextmanager
    def _answering(self, kind: str) -> Iterator[None]:
        """Translate errors of the file system into those of the contract."""
        try:
            yield
        except OSError as error:
            refusal = UserError if error.errno in _REFUSALS else Unreachable
            raise refusal(f"cannot use the {kind} in {self.folder}: {error.strerror or error}") from error


def _latest(place: Path, now: float | None = None) -> Record | None:
    """The record that counts; None if there never was one. `now` is the time of the place, if it is known."""
    for _ in range(TRIES):
        versions = _versions(place)
        if not versions:
            return None
        try:
            return _read(place, versions[-1], now)
        except FileNotFoundError:
            time.sleep(0.001)  # replaced in between
    raise Unreachable(f"{place} changes faster than it can be read")


def _is_latest(place: Path, record: Record) -> bool:
    """Whether the record is still as it was read."""
    latest = _latest(place, 0.0)
    return latest is not None and (latest.version, latest.value) == (record.version, record.value)


def _versions(place: Path) -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(place) if _VERSION.fullmatch(name))
    except FileNotFoundError:
        return []


def _read(place: Path, version: int, now: float | None) -> Record:
    """One version of a record. What is no file, or holds no JSON object, is damage: a power failure may cut a file."""
    path = place / str(version)
    value: Mapping[str, Any] = {}
    damage = None
    try:
        with open_regular(path) as file:
            text, changed = file.read(), os.fstat(file.fileno()).st_mtime
        value = parsed(text)
    except DataError as error:
        damage = str(error)
    except OSError as error:
        if error.errno not in _NO_FILE:  # a disk or a server that fails now may not fail later
            raise
        changed, damage = path.lstat().st_mtime, f"cannot be read: {error.strerror}"
    return Record(place.name, version, value, (_now(place) if now is None else now) - changed, damage)


def _fill(fresh: Path, content: bytes) -> None:
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    with open(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _link(place: Path, file: Path, version: int) -> Record | None:
    """Make the file the version that counts; None if another is."""
    try:
        # A network file system may report that the name is taken by a link that it made itself, when it repeats a
        # request; and the name may be free because that version was made and removed since we looked: the highest
        # decides.
        with contextlib.suppress(FileExistsError):
            os.link(file, place / str(version))
        mine = file.stat()
        latest = _latest(place, mine.st_mtime)
        counts = latest is not None and latest.version == version
        counts = counts and os.path.samestat(mine, (place / str(version)).stat())
    except FileNotFoundError:  # replaced just now
        return None
    _remove_older(place)
    _sweep(place, mine.st_mtime)
    return latest if counts else None


def _remove_older(place: Path) -> None:
    """Remove versions that no longer count. Lowest first: a name is free only when all below it are."""
    with contextlib.suppress(OSError):
        for version in _versions(place)[:-1]:
            (place / str(version)).unlink(missing_ok=True)


def _now(folder: Path) -> float:
    """The time by the file system's clock, read from a file touched now; by our clock if the folder is not writable."""
    probe = temporary(folder / "new")
    try:
        descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except OSError:
        return time.time()
    try:
        os.utime(descriptor)
        return os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            probe.unlink()


def _sweep(folder: Path, now: float) -> None:
    """Remove unlinked files left by killed processes."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(".new") and now - (folder / name).stat().st_mtime > RUBBISH:
                (folder / name).unlink()
