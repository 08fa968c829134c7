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
from types import TracebackType
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

SHORTEST = 0.05
"""Minimum number of seconds between two renewals."""

PATIENCE = 5.0
"""Seconds that the end of a `Lease` waits for the release; after that the claim is left to expire."""

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
    """One held claim. Made only by `Claims.acquire`, and by `Claims.redeem` for another process that renews it.

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

    def ticket(self) -> dict[str, Any]:
        """What another process needs to renew the claim (`Claims.redeem`), as plain JSON types."""
        return {"key": self.key, "version": self._record.version, "value": dict(self._record.value)}

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
            self._record = present  # confirmed by another thread, or by another process with the ticket
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

    def redeem(self, ticket: Mapping[str, Any]) -> Claim:
        """The claim of a ticket, which was acquired in the same place. Touches nothing."""
        return Claim(self.place, Record(ticket["key"], ticket["version"], ticket["value"], 0.0))

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


class Lease:
    """Holds a claim while a `with` block runs; a thread renews it.

    An unreachable place is retried, and is never an error: the owner continues with what it holds. So is any other
    error, which `confirm` then raises, too. When another process has taken the trial over, or the thread cannot go on,
    it sets `lost`, calls the `lost` callback once, and ends. At the
    end of the block the claim is released within `PATIENCE` seconds or not at all: then it expires, or is taken
    over when this process is seen to be dead.
    """

    def __init__(self, claim: Claim, lost: Callable[[], object] | None = None) -> None:
        self.claim = claim
        self.lost = False
        self.unreachable_since: float | None = None
        """When the place stopped answering (`time.time()`); None while it answers."""
        self._tell = lost
        self._stopping = threading.Event()
        self._losing = threading.Lock()
        self._thread = threading.Thread(target=self._keep, name=f"lease of {claim.key[:16]}", daemon=True)

    def __enter__(self) -> Lease:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(PATIENCE)

    def confirm(self) -> bool:
        """Whether the claim is confirmed (see `Claim.confirm`); False when its place does not answer.

        Raises `ClaimLost`; the `lost` callback is not called then.
        """
        try:
            self.claim.confirm()
        except ClaimLost:
            self._lose()
            raise
        except Unreachable:
            self._unreachable()
            return False
        self.unreachable_since = None
        return True

    def _keep(self) -> None:
        """The thread: renew until stopped, then release. The block does not wait long for an unreachable place."""
        try:
            self._renew()
        except BaseException:
            # Without renewals another process takes the trial over: this one must not go on in silence.
            if self._lose() and self._tell:
                self._tell()
            raise
        if not self.lost:
            try:
                self.claim.release()
            except Exception:  # the claim expires
                self._unreachable()

    def _renew(self) -> None:
        pause = max(min(self.claim.lease, LONGEST) / RENEWALS, SHORTEST)
        while not self._stopping.wait(pause):
            try:
                self.claim.renew()
                self.unreachable_since = None
            except ClaimLost:
                if self._lose() and self._tell:
                    self._tell()
                return
            except Exception:  # `Unreachable`, or what nobody expected: the next renewal may succeed
                self._unreachable()

    def _lose(self) -> bool:
        """Mark the claim lost; returns whether this call is the first to do so."""
        with self._losing:
            first, self.lost = not self.lost, True
            self._stopping.set()
            return first

    def _unreachable(self) -> None:
        if self.unreachable_since is None:
            self.unreachable_since = time.time()
