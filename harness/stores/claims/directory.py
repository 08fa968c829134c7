"""Claims in a directory, which may be on a network file system.

Each trial has a folder, `<folder>/<key>/`, with a file named by its generation. The highest generation is the
record that counts. Every change gives a finished file the name of the next generation with `link`, which fails
if the name is taken: of all processes that try, one succeeds. Lower generations are removed afterwards, in
ascending order; the highest always stays, so that generations only grow. A claim is renewed by touching its
file.

Requirements for a network file system (that is, NFS; a local file system meets them all):
- it supports hard links, and `link` is atomic on the server;
- a change made on one machine is visible in listings and attributes on the others in less than a third of the
  lease (with NFS: `actimeo`, or `acregmax` and `acdirmax`, below 20 seconds for a lease of 60);
- file times are set by the server, so that one clock measures all ages.
If the second does not hold, a live owner may be taken over and so lose its work. Still no two processes get the
same generation, and the previous owner gets `ClaimLost` when it confirms its claim.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.documents import parsed, problem
from harness.errors import DataError, Unreachable, UserError
from harness.files import open_regular
from harness.owner import this_process
from harness.schema import ClaimDocument
from harness.stores.claims.lease import (
    LEASE,
    NEWER,
    SCHEMA,
    Claim,
    ClaimLost,
    ClaimRecord,
    Claims,
    is_held,
    newer,
    seconds_ahead,
)

RUBBISH = 3600.0
"""Seconds after which an unlinked file counts as left behind by a killed process."""

TRIES = 20
"""Maximum number of tries to read a record that is replaced while it is read."""

_KEY = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]*")
_GENERATION = re.compile(r"[1-9][0-9]*")
_REFUSALS = {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.ENOTDIR,
    errno.ENOTSUP,
    errno.EMLINK,
}


@dataclass(frozen=True)
class _Stored:
    """One generation of a trial's claim."""

    generation: int
    """The file's name. The other fields are its content, except `renewed`."""
    attempt: int
    owner: Mapping[str, Any] | None
    held: bool
    lease: float
    token: str
    """Identifies this claim uniquely, whatever was removed or repeated in between."""
    renewed: float = 0.0
    """When the file was last touched, by the file system's clock."""
    damage: str | None = None
    """What is wrong with the content, if anything is."""

    def content(self) -> bytes:
        names = ("attempt", "owner", "held", "lease", "token")
        return json.dumps({"schema": SCHEMA, **{name: getattr(self, name) for name in names}}).encode() + b"\n"


class DirectoryClaims(Claims):
    """Claims below a folder, which is made when first needed. The module docstring lists its requirements."""

    def __init__(self, folder: Path, lease: float = LEASE) -> None:
        self.folder = Path(folder)
        self.lease = lease

    def acquire(self, key: str, at_least: int = 0) -> Claim | None:
        with _answering(self.folder):
            place = self._place(key)
            place.mkdir(parents=True, exist_ok=True)
            last = _current(place)
            if last is not None and last.held and self._seen(key, last, place).alive:
                return None
            generation, attempt = (last.generation, last.attempt) if last else (0, 0)
            new = _Stored(
                generation=generation + 1,
                attempt=1 + max(attempt, at_least),
                owner=this_process(),
                held=True,
                lease=self.lease,
                token=uuid.uuid4().hex,
            )
            return DirectoryClaim(key, place, new) if _put(place, new) else None

    def redeem(self, ticket: Mapping[str, Any]) -> Claim:
        known = {name: ticket[name] for name in ("generation", "attempt", "lease", "token")}
        return DirectoryClaim(ticket["key"], self._place(ticket["key"]), _Stored(owner=None, held=True, **known))

    def holder(self, key: str) -> ClaimRecord | None:
        with _answering(self.folder):
            place = self._place(key)
            stored = _current(place)
            if stored is None or not stored.held:
                return None
            record = self._seen(key, stored, place)
        return record if record.alive else None

    def records(self) -> list[ClaimRecord]:
        with _answering(self.folder):
            try:
                names = os.listdir(self.folder)
            except FileNotFoundError:
                return []
            now = _now(self.folder)
            _sweep(self.folder, now)
            found = []
            for key in sorted(filter(_KEY.fullmatch, names)):
                stored = _latest(self._place(key))
                if stored is not None:
                    found.append(self._record(key, stored, now))
            return found

    def drop(self, record: ClaimRecord) -> bool:
        with _answering(self.folder):
            place = self._place(record.key)
            stored = _current(place)
            if stored is None or not stored.held or stored.generation != record.generation:
                return False
            if self._record(record.key, stored, _now(place)).alive:
                return False
            return _put(place, _freed(stored))

    def restart(self, record: ClaimRecord) -> bool:
        with _answering(self.folder):
            place = self._place(record.key)
            stored = _current(place)
            if stored is None or stored.generation != record.generation:
                return False
            return bool(self._seen(record.key, stored, place).ahead)

    def _seen(self, key: str, stored: _Stored, place: Path) -> ClaimRecord:
        """The record as it is now. A time ahead of the clock is set to now, so that the lease ends."""
        record = self._record(key, stored, _now(place))
        if record.ahead:
            with contextlib.suppress(FileNotFoundError):  # replaced just now
                os.utime(place / str(stored.generation))
        return record

    def _place(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise ValueError(f"{key!r} is not a trial key")
        return self.folder / key

    def _record(self, key: str, stored: _Stored, now: float) -> ClaimRecord:
        age = now - stored.renewed
        alive = is_held(stored.owner, stored.held, age, stored.lease)
        return ClaimRecord(
            key,
            stored.generation,
            stored.attempt,
            stored.owner,
            stored.held,
            alive,
            max(0.0, age),
            seconds_ahead(age, stored.lease) if stored.held else 0.0,
            stored.damage,
        )


class DirectoryClaim(Claim):
    """A claim that is held in a directory."""

    def __init__(self, key: str, place: Path, stored: _Stored) -> None:
        self.key, self.generation, self.attempt, self.lease = key, stored.generation, stored.attempt, stored.lease
        self._place, self._token = place, stored.token

    def renew(self) -> None:
        with _answering(self._place.parent, refusal=Unreachable):
            self._touch()

    def confirm(self) -> None:
        with _answering(self._place.parent, refusal=Unreachable):
            last = self._touch()
            try:
                # No new file: this works on a full disk, and a generation that was removed cannot be linked.
                os.link(self._place / str(last), self._place / str(last + 1))
                linked = True
            except (FileExistsError, FileNotFoundError):
                linked = False  # or linked by a repeated request of a network file system: the highest decides
            present = self._mine()
            if not linked and present == last:
                raise ClaimLost(f"the claim on trial {self.key[:16]} is lost: another process has changed it")
            self.generation = max(present, last + 1)
            _remove_older(self._place)

    def release(self) -> None:
        with _answering(self._place.parent, refusal=Unreachable):
            stored = _latest(self._place)
            if stored is not None and stored.held and stored.token == self._token:
                _put(self._place, _freed(stored))

    def _touch(self) -> int:
        """Renew; returns the generation that was touched."""
        for _ in range(TRIES):
            generation = self._mine()
            try:
                os.utime(self._place / str(generation))
            except FileNotFoundError:
                continue  # confirmed by another thread, or taken over, just now
            return generation
        raise Unreachable(f"the claim {self._place} changes faster than it can be renewed")

    def _mine(self) -> int:
        """The claim's current generation. Raises `ClaimLost` if this process no longer holds it."""
        stored = _latest(self._place)
        if stored is None:
            raise ClaimLost(f"the claim on trial {self.key[:16]} is lost: {self._place} was removed")
        if stored.token != self._token or not stored.held:
            raise ClaimLost.to(self.key, stored.owner, stored.held)
        self.generation = stored.generation
        return stored.generation


@contextlib.contextmanager
def _answering(folder: Path, refusal: type[UserError] | type[Unreachable] = UserError) -> Iterator[None]:
    """Translate errors of the file system into those of the contract."""
    try:
        yield
    except OSError as error:
        kind = refusal if error.errno in _REFUSALS else Unreachable
        raise kind(f"cannot use the claims in {folder}: {error.strerror or error}") from error


def _current(place: Path) -> _Stored | None:
    """The record that counts; None if there never was one. Raises `UserError` if a newer version wrote it."""
    stored = _latest(place)
    if stored is not None and stored.damage is not None and stored.damage.startswith(NEWER):
        raise UserError(f"the claim {place / str(stored.generation)} {stored.damage}")
    return stored


def _latest(place: Path) -> _Stored | None:
    """The record that counts, whoever wrote it; None if there never was one."""
    for _ in range(TRIES):
        generations = _generations(place)
        if not generations:
            return None
        try:
            return _read(place / str(generations[-1]))
        except FileNotFoundError:
            time.sleep(0.001)  # replaced in between
    raise Unreachable(f"the claim {place} changes faster than it can be read")


def _generations(place: Path) -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(place) if _GENERATION.fullmatch(name))
    except FileNotFoundError:
        return []


def _read(path: Path) -> _Stored:
    try:
        with open_regular(path) as file:
            text, renewed = file.read(), os.fstat(file.fileno()).st_mtime
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ELOOP):  # a disk or a server that fails now may not fail later
            raise
        return _unknown(path, path.lstat().st_mtime, f"cannot be read: {error.strerror}")
    try:
        document = parsed(text)
        if newer(document.get("schema")):
            raise DataError(f"{NEWER} (schema {document['schema']})")
        if (wrong := problem(ClaimDocument, document)) is not None:
            raise DataError(wrong)
    except DataError as error:
        return _unknown(path, renewed, str(error))
    values = {name: document[name] for name in ("attempt", "owner", "held", "lease", "token")}
    return _Stored(generation=int(path.name), renewed=renewed, **values)


def _unknown(path: Path, renewed: float, damage: str) -> _Stored:
    """Truncated by a power failure, or damaged: counts as held by an unknown owner until it expires."""
    return _Stored(int(path.name), 0, None, True, LEASE, "", renewed, damage)


def _put(place: Path, new: _Stored) -> bool:
    """Make it the record that counts; returns whether that succeeded and still holds."""
    temporary = place / f".new-{uuid.uuid4().hex}"
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with open(descriptor, "wb") as file:
            file.write(new.content())
            file.flush()
            os.fsync(file.fileno())
            now = os.fstat(file.fileno()).st_mtime
        # A network file system may report this for a link that it made itself, when it repeats a request.
        with contextlib.suppress(FileExistsError):
            os.link(temporary, place / str(new.generation))
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    # The name may be free because the generation was made and removed since we looked: the highest decides.
    counts = _current(place)
    _remove_older(place)
    _sweep(place, now)
    return counts is not None and (counts.generation, counts.token) == (new.generation, new.token)


def _freed(stored: _Stored) -> _Stored:
    """The next generation, which is not held."""
    return replace(stored, generation=stored.generation + 1, owner=None, held=False, token=uuid.uuid4().hex)


def _remove_older(place: Path) -> None:
    """Remove generations that no longer count. Lowest first: a name is free only when all below it are."""
    with contextlib.suppress(OSError):
        for generation in _generations(place)[:-1]:
            (place / str(generation)).unlink(missing_ok=True)


def _now(folder: Path) -> float:
    """The time by the file system's clock, read from a file touched now; by our clock if the folder is not writable."""
    probe = folder / f".new-{uuid.uuid4().hex}"
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
            if name.startswith(".new-") and now - (folder / name).stat().st_mtime > RUBBISH:
                (folder / name).unlink()
