"""The contract of claims: a trial is claimed before it runs, so that no two processes run it at once.

A claim is a lease: its owner renews it. When it has not been renewed for `lease` seconds, or its owner is seen
to be dead, another process may take it over. Every change of owner raises the record's generation by a
compare-and-set. The generation is the fencing token: an owner that was stopped for a while, and taken over,
finds a higher generation than its own and knows that its result no longer counts.

Nothing here knows where claims are kept, what a trial is, or what is done under a claim.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from harness.errors import HarnessError, Unreachable
from harness.owner import describe, lives_here

LEASE = 60.0
"""Default number of seconds without renewal after which a claim expires."""

LONGEST = 86400.0
"""Maximum number of seconds of a lease: what a record says beyond that is damage, or a wrong clock."""

SCHEMA = 1
"""Version of a stored claim. A newer one is refused."""

RENEWALS = 6
"""Number of renewals per lease."""

SHORTEST = 0.05
"""Minimum number of seconds between two renewals."""

TICKET = ("key", "generation", "attempt", "lease")
"""What the ticket of a claim says besides its token."""

PATIENCE = 5.0
"""Seconds that the end of a `Lease` waits for the release; after that the claim is left to expire."""


class ClaimLost(HarnessError):
    """Another owner has taken the trial over, or the record of the claim is gone: its result no longer counts."""

    @classmethod
    def to(cls, key: str, owner: Mapping[str, Any] | None, held: bool) -> ClaimLost:
        """The claim on `key` is lost to that owner, or was freed."""
        how = f"{describe(owner)} has taken it over" if held else "it was freed by another process"
        return cls(f"the claim on trial {key[:16]} is lost: {how}")


@dataclass(frozen=True)
class ClaimRecord:
    """What was stored about a claim when it was read."""

    key: str
    generation: int
    """Grows with every change: acquired, confirmed, released, dropped. Renewals do not change it."""
    attempt: int
    """How often the trial was claimed, or more, if its claimer knew of more attempts."""
    owner: Mapping[str, Any] | None
    """See `harness.owner`; None if the claim is not held."""
    held: bool
    """Whether it was acquired and not released since. Does not say whether its owner is alive."""
    alive: bool
    """Whether it is held by an owner that renews it and is not known to be dead."""
    age: float
    """Seconds since it was last renewed or changed, by the clock of the place where it is kept."""
    ahead: float = 0.0
    """Seconds by which its time is ahead of that clock, if more than its lease: a clock was wrong. It then counts as
    alive; its lease counts from when a process that wants the trial first sees it (`Claims.restart`)."""
    damage: str | None = None
    """What is wrong with the record. It then counts as held by an unknown owner until it expires."""


class Claim(ABC):
    """One held claim. Made only by `Claims.acquire`, and by `Claims.redeem` for another process that renews it.

    All methods may be called from several threads at once; each takes a bounded time, unless the file system
    itself blocks. Each raises only the exceptions that it documents.
    """

    key: str
    generation: int
    """The last known generation: the fencing token. Grows when the claim is confirmed."""
    attempt: int
    lease: float
    _token: str
    """Identifies this claim uniquely in its place."""

    @abstractmethod
    def renew(self) -> None:
        """Restart the lease. An expired lease can be renewed as long as no other process has taken it over.

        Raises `ClaimLost` if the claim was taken over or released; `Unreachable` if that is unknown for now.
        """

    @abstractmethod
    def confirm(self) -> None:
        """Move the claim to a new generation, atomically, and restart the lease.

        Call it right before declaring a result complete: then no other process has taken the trial over, and
        one that was about to finds the claim changed. From then on the owner has the time of one lease to write
        the declaration. May be called any number of times.

        Raises `ClaimLost` if the claim was taken over or released; `Unreachable` if that is unknown for now:
        the claim may be confirmed or not, and both `confirm` and `renew` may be called again.
        """

    def ticket(self) -> dict[str, Any]:
        """What another process needs to renew the claim (`Claims.redeem`), as plain JSON types."""
        return {name: getattr(self, name) for name in TICKET} | {"token": self._token}

    @abstractmethod
    def release(self) -> None:
        """Let others acquire the trial. Does nothing if the claim is already released or lost.

        Raises `Unreachable`; the claim then expires by itself, or `release` is called again.
        """


class Claims(ABC):
    """A place where claims are kept, for any number of processes on any number of machines.

    Instances have no state but their settings, so any number of threads may use one, and claims outlive it.
    All times are by the clock of the place; the clocks of the machines do not matter. An owner on another
    machine or in another container is judged by its renewals only; a dead process of this machine is detected
    at once. The length of a lease is set by its owner and stored with the claim, so processes with different
    settings agree about each claim.

    Every method raises `Unreachable`, within a bounded time, if the place does not answer, and `UserError` if
    it refuses (no permission, no space) or holds a record of a newer version of the harness.
    """

    lease: float
    """Seconds without renewal after which claims acquired here expire."""

    @abstractmethod
    def acquire(self, key: str, at_least: int = 0) -> Claim | None:
        """Claim the trial; None if a live owner holds it (even this process), or another was faster just now.

        Of all processes that call this at the same time, at most one gets the claim. The claim's `attempt` is
        one more than the larger of the last claim's attempt and `at_least` (attempts known from elsewhere).
        """

    @abstractmethod
    def redeem(self, ticket: Mapping[str, Any]) -> Claim:
        """The claim of a ticket, which was acquired in the same place. Touches nothing."""

    @abstractmethod
    def holder(self, key: str) -> ClaimRecord | None:
        """The live owner, if there is one."""

    def held(self, keys: Collection[str]) -> set[str]:
        """Those of these trials that have a live owner."""
        return {key for key in keys if self.holder(key) is not None}

    @abstractmethod
    def records(self) -> list[ClaimRecord]:
        """The record of every trial that was ever claimed, sorted by key."""

    @abstractmethod
    def drop(self, record: ClaimRecord) -> bool:
        """Free an orphaned claim: one that is held by an owner that is dead or has not renewed it in time.

        Does nothing and returns False if the record is not orphaned, or has changed since it was read.
        """

    @abstractmethod
    def restart(self, record: ClaimRecord) -> bool:
        """Let the lease of a claim whose time is ahead of the clock count from now on; returns whether that was done.

        `acquire` and `holder` do this by themselves.
        """


def is_held(owner: Mapping[str, Any] | None, held: bool, age: float, lease: float) -> bool:
    """Whether a live owner holds a claim: `ClaimRecord.alive`."""
    return held and age <= min(lease, LONGEST) and (owner is None or lives_here(owner) is not False)


def seconds_ahead(age: float, lease: float) -> float:
    """`ClaimRecord.ahead` of a claim of that age, which is negative for a time in the future."""
    return -age if -age > min(lease, LONGEST) else 0.0


NEWER = "was written by a newer version of the harness"


def newer(schema: Any) -> bool:
    """Whether a claim of that schema was written by a newer version."""
    return isinstance(schema, int) and not isinstance(schema, bool) and schema > SCHEMA


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
