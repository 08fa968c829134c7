"""Claims in a directory, which may be on a network file system.

Each trial has a folder, `<folder>/<key>/`, and in it a file named by its generation. The highest generation is
the record that counts. Every change is made by giving a finished file the name of the next generation with
`link`, which fails when the name is taken: of all that try, one succeeds. Lower generations are removed
afterwards, in ascending order; the highest always stays, so that generations only grow. A claim is renewed by
touching its file.

What is assumed of a network file system (NFS is meant; a local one has it all):
- `link` is atomic on the server, and there are hard links at all;
- a change made on one machine is seen in listings and attributes on the others in less than a third of the
  lease (with NFS: `actimeo`, or `acregmax` and `acdirmax`, below 20 seconds for the 60 of a claim);
- times of files are set by the server, so that one clock measures all ages.
If the second does not hold, a living owner may be taken over and so lose its work; still no two processes get
the same generation, and the one that was taken over is told so when it confirms its claim.
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

from harness.errors import Unreachable, UserError
from harness.owner import this_process
from harness.stores.claims.lease import LEASE, SCHEMA, Claim, ClaimLost, ClaimRecord, Claims, is_held

RUBBISH = 3600.0
"""Seconds after which a file that was never linked is what a killed process left behind."""

TRIES = 20
"""How often a record that is replaced while it is read is looked up again."""

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
    """The file's name. The rest is its content, but for the time."""
    attempt: int
    owner: Mapping[str, Any] | None
    held: bool
    lease: float
    token: str
    """What tells this claim from all others, whatever was removed or repeated in between."""
    renewed: float = 0.0
    """When the file was last touched, by the file system's clock."""

    def content(self) -> bytes:
        names = ("attempt", "owner", "held", "lease", "token")
        return json.dumps({"schema": SCHEMA, **{name: getattr(self, name) for name in names}}).encode() + b"\n"


class DirectoryClaims(Claims):
    """Claims below a folder, which is made when it is first needed. See the module for what it must offer."""

    def __init__(self, folder: Path, lease: float = LEASE) -> None:
        self.folder = Path(folder)
        self.lease = lease

    def acquire(self, key: str, at_least: int = 0) -> Claim | None:
        with _answering(self.folder):
            place = self._place(key)
            place.mkdir(parents=True, exist_ok=True)
            last = _current(place)
            if last is not None and last.held and self._record(key, last, _now(place)).alive:
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

    def holder(self, key: str) -> ClaimRecord | None:
        with _answering(self.folder):
            place = self._place(key)
            stored = _current(place)
            if stored is None or not stored.held:
                return None
            record = self._record(key, stored, _now(place))
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
                stored = _current(self._place(key))
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

    def _place(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise ValueError(f"{key!r} is no key of a trial")
        return self.folder / key

    def _record(self, key: str, stored: _Stored, now: float) -> ClaimRecord:
        age = max(0.0, now - stored.renewed)
        alive = is_held(stored.owner, stored.held, age, stored.lease)
        return ClaimRecord(key, stored.generation, stored.attempt, stored.owner, stored.held, alive, age)


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
                # No new file: this works on a full disk, and a generation that is gone cannot be linked.
                os.link(self._place / str(last), self._place / str(last + 1))
                linked = True
            except (FileExistsError, FileNotFoundError):
                linked = False  # or made by a request that a network file system repeated: the highest tells
            present = self._mine()
            if not linked and present == last:
                raise ClaimLost(f"the claim on trial {self.key[:16]} is lost: another process has changed it")
            self.generation = max(present, last + 1)
            _remove_older(self._place)

    def release(self) -> None:
        with _answering(self._place.parent, refusal=Unreachable):
            stored = _current(self._place)
            if stored is not None and stored.held and stored.token == self._token:
                _put(self._place, _freed(stored))

    def _touch(self) -> int:
        """Renew; gives the generation that was touched."""
        for _ in range(TRIES):
            generation = self._mine()
            try:
                os.utime(self._place / str(generation))
            except FileNotFoundError:
                continue  # confirmed by another thread, or taken over, just now
            return generation
        raise Unreachable(f"the claim {self._place} changes faster than it can be renewed")

    def _mine(self) -> int:
        """The claim's present generation. Raises `ClaimLost` when it is another's."""
        stored = _current(self._place)
        if stored is None:
            raise ClaimLost(f"the claim on trial {self.key[:16]} is lost: somebody removed {self._place}")
        if stored.token != self._token or not stored.held:
            raise ClaimLost.to(self.key, stored.owner, stored.held)
        self.generation = stored.generation
        return stored.generation


@contextlib.contextmanager
def _answering(folder: Path, refusal: type[UserError] | type[Unreachable] = UserError) -> Iterator[None]:
    """Say errors of the file system in the contract's words."""
    try:
        yield
    except OSError as error:
        kind = refusal if error.errno in _REFUSALS else Unreachable
        raise kind(f"cannot use the claims in {folder}: {error.strerror or error}") from error


def _current(place: Path) -> _Stored | None:
    """The record that counts; None when there never was one."""
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
    with path.open("rb") as file:
        text, renewed = file.read(), os.fstat(file.fileno()).st_mtime
    try:
        document = json.loads(text)
        newer = document["schema"] > SCHEMA
        values = {name: document[name] for name in ("attempt", "owner", "held", "lease", "token")}
    except (ValueError, KeyError, TypeError):
        # Half of it was lost in a power failure: held by nobody knows whom, until it runs out.
        return _Stored(int(path.name), 0, None, True, LEASE, "", renewed)
    if newer:
        raise UserError(f"the claim {path} was written by a newer version of the harness (schema {document['schema']})")
    return _Stored(generation=int(path.name), renewed=renewed, **values)


def _put(place: Path, new: _Stored) -> bool:
    """Make it the record that counts; whether that succeeded, and still is so."""
    temporary = place / f".new-{uuid.uuid4().hex}"
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with open(descriptor, "wb") as file:
            file.write(new.content())
            file.flush()
            os.fsync(file.fileno())
            now = os.fstat(file.fileno()).st_mtime
        # A network file system may say so of a link that it made itself, when it repeats a request.
        with contextlib.suppress(FileExistsError):
            os.link(temporary, place / str(new.generation))
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    # The name may have been free because the generation has come and gone since we looked: the highest tells.
    counts = _current(place)
    _remove_older(place)
    _sweep(place, now)
    return counts is not None and (counts.generation, counts.token) == (new.generation, new.token)


def _freed(stored: _Stored) -> _Stored:
    """The generation after it, which nobody holds."""
    return replace(stored, generation=stored.generation + 1, owner=None, held=False, token=uuid.uuid4().hex)


def _remove_older(place: Path) -> None:
    """Remove what no longer counts. Lowest first: a name is free only when all below it are."""
    with contextlib.suppress(OSError):
        for generation in _generations(place)[:-1]:
            (place / str(generation)).unlink(missing_ok=True)


def _now(folder: Path) -> float:
    """The time by the file system's clock, told by a file touched now; by ours if nothing can be written there."""
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
    """Remove unlinked files that killed processes left."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(".new-") and now - (folder / name).stat().st_mtime > RUBBISH:
                (folder / name).unlink()
