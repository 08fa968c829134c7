"""Claims: a trial is claimed before it runs, so that no two processes run it at once.

A claim is a lease: its owner renews it. When it has not been renewed for `lease` seconds, or its owner is seen to be
dead, another process may take it over. Claims are records (`harness.stores.records`), wherever these are kept: every
change of owner replaces the record by compare-and-set and so raises its version. The version is the fencing token: an
owner that was stopped for a while, and taken over, finds another record than its own and knows that its result no
longer counts.

All times are by the clock of the place. An owner on another machine or in another container is judged by its renewals
only; a dead process of this machine is detected at once. The length of a lease is set by its owner and stored with the
claim, so processes with different settings agree about each claim. Nothing here knows what a trial is, or what is done
under a claim.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from harness.documents import NEWER, problem
from harness.errors import HarnessError, Unreachable, UserError
from harness.owner import describe, lives_here, this_process
from harness.schema import CLAIMS as SCHEMA
from harness.schema import ClaimDocument
from harness.stores.records import Record, Records

KIND = "claims"
"""The kind of these records."""

LEASE = 60.0
"""Default number of seconds without renewal after which a claim expires."""

LONGEST = 86400.0
"""Maximum number of seconds of a lease: what a record says beyond that is damage, or a wrong clock."""

RENEWALS = 6
"""Number of renewals per lease."""

PATIENCE = 1.0
"""Seconds after which a place that has not renewed one claim is not asked for the next, until the next round."""

SHORTEST = 0.05
"""Minimum number of seconds between two renewals."""

TRIES = 20
"""Maximum number of tries to change a claim that another thread of its owner changes, too."""


class ClaimLost(HarnessError):
    """Another owner has taken the trial over, or the record of the claim is gone: its result no longer counts."""


@dataclass(frozen=True)
class ClaimRecord:
    """What was stored about a claim when it was read. A damaged one counts as held by an unknown owner."""

    record: Record
    attempt: int
    """How often the trial was claimed, or more, if its claimer knew of more attempts."""
    owner: Mapping[str, Any] | None
    """See `harness.owner`; None if the claim is not held."""
    held: bool
    """Whether it was acquired and not released since. Does not say whether its owner is alive."""
    lease: float
    damage: str | None = None
    """What is wrong with the record."""

    @classmethod
    def of(cls, record: Record) -> ClaimRecord:
        """The claim of a record."""
        value = record.value
        damage = record.damage or problem(ClaimDocument, value)
        if damage is not None:
            attempt = value.get("attempt")
            return cls(record, attempt if type(attempt) is int else 0, None, True, LEASE, damage)
        return cls(record, value["attempt"], value["owner"], value["held"], min(value["lease"], LONGEST))

    @property
    def key(self) -> str:
        return self.record.key

    @property
    def generation(self) -> int:
        """Grows with every change: acquired, confirmed, released, dropped. Renewals do not change it."""
        return int(self.record.version) if isinstance(self.record.version, int) else 0

    @property
    def alive(self) -> bool:
        """Whether it is held by an owner that renews it and is not known to be dead."""
        if not self.held or self.record.age > self.lease:
            return False
        return self.owner is None or lives_here(self.owner) is not False

    @property
    def age(self) -> float:
        """Seconds since it was last renewed or changed, by the clock of the place where it is kept."""
        return max(0.0, self.record.age)

    @property
    def ahead(self) -> float:
        """Seconds by which its time is ahead of that clock, if more than its lease: a clock was wrong.

        The claim then counts as alive; its lease counts from when `Claims.holder` first sees it.
        """
        return -self.record.age if self.held and -self.record.age > self.lease else 0.0


class Claim:
    """One held claim. Made only by `Claims.acquire`.

    All methods may be called from several threads at once; each takes a bounded time, unless the file system
    itself blocks. Each raises only the exceptions that it documents.
    """

    def __init__(self, place: Records, record: Record) -> None:
        self.key = record.key
        self.attempt: int = record.value["attempt"]
        self.lease: float = record.value["lease"]
        self._place, self._record = place, record

    @property
    def generation(self) -> int:
        """The last known generation: the fencing token. Grows when the claim is confirmed."""
        return int(self._record.version)

    def renew(self) -> None:
        """Restart the lease. An expired lease can be renewed as long as no other process has taken it over.

        Raises `ClaimLost` if the claim was taken over or released; `Unreachable` if that is unknown for now.
        """
        with self._changing():
            for record in self._known():
                if self._place.touch(KIND, record):
                    return

    def confirm(self) -> None:
        """Move the claim to a new generation, atomically, and restart the lease. Works on a full disk.

        Call it right before declaring a result complete: then no other process has taken the trial over, and
        one that was about to finds the claim changed. From then on the owner has the time of one lease to write
        the declaration. May be called any number of times.

        Raises `ClaimLost` if the claim was taken over or released; `Unreachable` if that is unknown for now:
        the claim may be confirmed or not, and both `confirm` and `renew` may be called again.
        """
        with self._changing():
            for record in self._known():
                if (new := self._place.put(KIND, self.key, record.value, record)) is not None:
                    self._record = new
                    return

    def release(self) -> None:
        """Let others acquire the trial. Does nothing if the claim is already released or lost. Works on a full disk.

        Raises `Unreachable`; the claim then expires by itself, or `release` is called again.
        """
        with self._changing(), contextlib.suppress(ClaimLost):
            for record in self._known():
                try:
                    new = self._place.put(KIND, self.key, _freed(record.value), record)
                except UserError:
                    # No space for another record: this one expires now.
                    if self._place.touch(KIND, record, expire=True):
                        return
                else:
                    if new is not None:
                        return

    def _known(self) -> Iterator[Record]:
        """The record as it was last known, and then as it is now. Raises `ClaimLost` when it is no longer ours."""
        yield self._record
        for _ in range(TRIES):
            present = self._place.get(KIND, self.key)
            if present is None:
                raise ClaimLost(f"the claim on trial {self.key[:16]} is lost: its record was removed")
            if present.value.get("token") != self._record.value["token"]:
                claim = ClaimRecord.of(present)
                how = f"{describe(claim.owner)} has taken it over" if claim.held else "it was freed"
                raise ClaimLost(f"the claim on trial {self.key[:16]} is lost: {how}")
            self._record = present  # confirmed by another thread
            yield present
        raise Unreachable(f"the claim on trial {self.key[:16]} changes faster than it can be renewed")

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """To its owner, a place that refuses is unreachable: it continues with what it holds."""
        try:
            yield
        except UserError as error:
            raise Unreachable(str(error)) from error


class Claims:
    """The claims in a place, for any number of processes on any number of machines.

    Instances have no state but their settings, so any number of threads may use one, and claims outlive it.

    Every method raises `Unreachable`, within a bounded time, if the place does not answer, and `UserError` if
    it refuses (no space, no such place) or holds a record of a newer version of the harness.
    """

    def __init__(self, place: Records, lease: float = LEASE) -> None:
        self.place = place
        self.lease = lease
        """Seconds without renewal after which claims acquired here expire."""

    def acquire(self, key: str, at_least: int = 0) -> Claim | None:
        """Claim the trial; None if a live owner holds it (even this process), or another was faster just now.

        Of all processes that call this at the same time, at most one gets the claim. The claim's `attempt` is
        one more than the larger of the last claim's attempt and `at_least` (attempts known from elsewhere).
        """
        last = self._seen(self.place.get(KIND, key))
        if last is not None and last.alive:
            return None
        value = {
            "schema": SCHEMA,
            "attempt": 1 + max(last.attempt if last else 0, at_least),
            "owner": this_process(),
            "held": True,
            "lease": self.lease,
            "token": uuid.uuid4().hex,
        }
        new = self.place.put(KIND, key, value, last.record if last else None)
        return None if new is None else Claim(self.place, new)

    def holder(self, key: str) -> ClaimRecord | None:
        """The live owner, if there is one."""
        found = self._seen(self.place.get(KIND, key))
        return found if found is not None and found.alive else None

    def held(self, keys: Collection[str]) -> set[str]:
        """Those of these trials that have a live owner."""
        found = [self._seen(record) for record in self.place.list(KIND, keys)]
        return {one.key for one in found if one is not None and one.alive}

    def records(self) -> list[ClaimRecord]:
        """The record of every trial that was ever claimed, sorted by key."""
        return [ClaimRecord.of(record) for record in self.place.list(KIND)]

    def drop(self, claim: ClaimRecord) -> bool:
        """Free an orphaned claim: one that is held by an owner that is dead or has not renewed it in time.

        Does nothing and returns False if the claim is not orphaned, or has changed since it was read.
        """
        now = self._seen(self.place.get(KIND, claim.key))
        if now is None or not now.held or now.alive or now.record.version != claim.record.version:
            return False
        value = now.record.value
        if now.damage is not None:
            value = {"schema": SCHEMA, "attempt": now.attempt, "lease": self.lease}
        return self.place.put(KIND, claim.key, _freed(value), now.record) is not None

    def _seen(self, record: Record | None) -> ClaimRecord | None:
        """The claim as it is now. A time ahead of the clock, or none, is set to now, so that the lease ends."""
        if record is None:
            return None
        claim = ClaimRecord.of(record)
        if claim.damage is not None and NEWER in claim.damage:
            raise UserError(f"the claim on trial {claim.key[:16]} {claim.damage}")
        if claim.ahead:
            self.place.touch(KIND, record)
        return claim


def _freed(value: Mapping[str, Any]) -> dict[str, Any]:
    return {**value, "owner": None, "held": False, "token": uuid.uuid4().hex}


class Renewal:
    """Renews all claims of a worker in one thread, which does nothing else.

    A place that does not answer is tried again, and is never an error: the owner goes on with what it holds. So is any
    other error, which `Claim.confirm` then raises, too. When another worker has taken a trial over, the thread calls
    `lost` with the key of the claim, once, and renews it no longer. All methods may be called from several threads.
    """

    def __init__(self, lost: Callable[[str], object] = lambda key: None) -> None:
        self._tell = lost
        self._kept: dict[str, tuple[Claim, Callable[[], bool]]] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def keep(self, claim: Claim, works: Callable[[], bool] = lambda: True) -> None:
        """Renew the claim from now on, whenever `works` says that there is progress to protect."""
        with self._changed:
            self._kept[claim.key] = (claim, works)
            if self._thread is None:
                self._thread = threading.Thread(target=self._renew_all, name="renewal of claims", daemon=True)
                self._thread.start()
            self._changed.notify()

    def leave(self, claim: Claim) -> None:
        """Renew the claim no longer."""
        with self._changed:
            self._kept.pop(claim.key, None)

    def release(self, claim: Claim) -> None:
        """Let others have the trial, unless the claim is lost. If the place does not answer, it expires."""
        self.leave(claim)
        with contextlib.suppress(HarnessError):
            claim.release()

    def close(self) -> None:
        """Renew nothing any more. Does not wait for a place that does not answer."""
        with self._changed:
            self._closed = True
            self._kept.clear()
            self._changed.notify()

    def _renew_all(self) -> None:
        """The thread."""
        last = time.monotonic()
        while True:
            with self._changed:
                while not self._closed and (left := self._pause(last)) != 0.0:
                    self._changed.wait(left)
                if self._closed:
                    return
                kept = list(self._kept.values())
            last = time.monotonic()
            for claim, works in kept:
                began = time.monotonic()
                if works() and not self._renew(claim) and time.monotonic() - began > PATIENCE:
                    break  # its place does not answer, nor would it for the others

    def _pause(self, last: float) -> float | None:
        """Seconds until the next renewals, the last of which were then; None while there is nothing to renew."""
        if not self._kept:
            return None
        shortest = min(min(claim.lease, LONGEST) for claim, _ in self._kept.values())
        return max(0.0, last + max(SHORTEST, shortest / RENEWALS) - time.monotonic())

    def _renew(self, claim: Claim) -> bool:
        """Renew one claim; returns whether its place answered."""
        try:
            claim.renew()
        except ClaimLost:
            self.leave(claim)
            self._tell(claim.key)
        except BaseException:  # `Unreachable`, or what nobody expected: the next renewal may succeed
            return False
        return True
