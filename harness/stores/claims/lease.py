"""The contract of claims: a trial is claimed before it runs, so that no two processes run it at once.

A claim is a lease: whoever holds it renews it, and when it has not been renewed for `lease` seconds, or its
owner is seen to be dead, another may take it over. Every change of hands raises the record's generation by a
compare-and-set, which is the fencing token: an owner that was stopped for a while, and taken over, finds a
higher generation than its own and knows that its result no longer counts.

Nothing here knows where claims are kept, what a trial is, or what is done under a claim.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from harness.errors import HarnessError, Unreachable
from harness.owner import describe, lives_here

LEASE = 60.0
"""Seconds that a claim lives without being renewed, unless set."""

SCHEMA = 1
"""Of a stored claim. A newer one is refused."""

RENEWALS = 6
"""How often a claim is renewed in the time of its lease."""

SHORTEST = 0.05
"""Seconds between two renewals, at least."""

PATIENCE = 5.0
"""Seconds that the end of a `Lease` waits for the release; then the claim is left to run out."""


class ClaimLost(HarnessError):
    """Another owner has taken the trial over, or the record of the claim is gone: a result no longer counts."""

    @classmethod
    def to(cls, key: str, owner: Mapping[str, Any] | None, held: bool) -> ClaimLost:
        """The claim on `key` is lost to that owner, or was freed."""
        how = f"{describe(owner)} has taken it over" if held else "it was freed by another process"
        return cls(f"the claim on trial {key[:16]} is lost: {how}")


@dataclass(frozen=True)
class ClaimRecord:
    """What is stored about a claim, as it was when it was read."""

    key: str
    generation: int
    """Grows with every change: acquired, confirmed, released, dropped. Renewals do not change it."""
    attempt: int
    """How often the trial was claimed, or more, if its claimer knew of more attempts."""
    owner: Mapping[str, Any] | None
    """See `harness.owner`; None when nobody holds it."""
    held: bool
    """Whether it was acquired and not released since. Says nothing about whether its owner lives."""
    alive: bool
    """Whether it is held, by an owner that renews it and is not known to be dead."""
    age: float
    """Seconds since it was last renewed or changed, by the clock of the place where it is kept."""


class Claim(ABC):
    """One held claim. Made by `Claims.acquire` only.

    All methods may be called from several threads at once; each takes a bounded time, unless the file system
    itself blocks. None of them raises anything but what it names.
    """

    key: str
    generation: int
    """The last known: the fencing token. Grows when the claim is confirmed."""
    attempt: int
    lease: float

    @abstractmethod
    def renew(self) -> None:
        """Start the lease anew. A lease that is over can be renewed, as long as nobody has taken it over.

        Raises `ClaimLost` when the claim is another's, or released; `Unreachable` when that cannot be told now.
        """

    @abstractmethod
    def confirm(self) -> None:
        """Move the claim to a new generation, atomically, and start the lease anew.

        To be called right before a result is declared complete: nobody has taken the trial over before, and
        whoever was about to, finds it changed. From here the owner has the time of one lease to write the
        declaration. May be called any number of times.

        Raises `ClaimLost` when the claim is another's, or released; `Unreachable` when that cannot be told now:
        the claim may be confirmed or not, and both `confirm` and `renew` may be called again.
        """

    @abstractmethod
    def release(self) -> None:
        """Let others acquire it. Does nothing when it is released, or lost.

        Raises `Unreachable`; the claim then runs out by itself, or `release` is called again.
        """


class Claims(ABC):
    """A place where claims are kept, for any number of processes on any number of machines.

    Instances hold no state but their settings, so any number of threads may use one, and claims outlive it.
    Times are told by the clock of the place; the clocks of the machines do not matter. An owner on a machine
    or in a container that cannot be seen from here is known by its renewals only; a process of this machine
    is seen to be dead at once. What a lease's length is, its owner says: processes with different settings
    agree about each claim.

    Every method raises `Unreachable` when the place does not answer, in a bounded time, and `UserError` when
    it refuses (no permission, no space) or holds a record of a newer version of the harness.
    """

    lease: float
    """Seconds that claims acquired here live without being renewed."""

    @abstractmethod
    def acquire(self, key: str, at_least: int = 0) -> Claim | None:
        """Claim the trial; None when somebody alive holds it (be it this process), or was faster just now.

        Of all that call this at the same time, at most one gets the claim. The claim's `attempt` is one more
        than the attempt of the last claim on this trial, and than `at_least`: attempts that are known from
        elsewhere.
        """

    @abstractmethod
    def holder(self, key: str) -> ClaimRecord | None:
        """The live holder, if there is one."""

    @abstractmethod
    def records(self) -> list[ClaimRecord]:
        """The record of every trial that was ever claimed, sorted by key."""

    @abstractmethod
    def drop(self, record: ClaimRecord) -> bool:
        """Free an orphaned claim: one that is held, by an owner that is dead or has not renewed it in time.

        Nothing is done, and False given, when the record is not orphaned, or has changed since it was read.
        """


def is_held(owner: Mapping[str, Any] | None, held: bool, age: float, lease: float) -> bool:
    """Whether somebody alive holds a claim: `ClaimRecord.alive`."""
    return held and age <= lease and (owner is None or lives_here(owner) is not False)


class Lease:
    """Holds a claim as long as a `with` block runs, renewed by a thread.

    A place that does not answer is asked again and again, never an error: the owner goes on with what it
    holds. When another has taken the trial over, the thread sets `lost` and calls the function given, once,
    and ends. At the end of the block the claim is released, within `PATIENCE` seconds or not at all: then it
    runs out, or is taken over when this process is seen to be dead.
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

        Raises `ClaimLost`. The function given for that case is not called then.
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
        """What the thread does: renew until told to stop, then release, so that nobody waits for a dead place."""
        pause = max(self.claim.lease / RENEWALS, SHORTEST)
        while not self._stopping.wait(pause):
            try:
                self.claim.renew()
                self.unreachable_since = None
            except ClaimLost:
                if self._lose() and self._tell:
                    self._tell()
                return
            except Unreachable:
                self._unreachable()
        if not self.lost:
            try:
                self.claim.release()
            except Unreachable:
                self._unreachable()

    def _lose(self) -> bool:
        """Whether this is the first to find the claim lost."""
        with self._losing:
            first, self.lost = not self.lost, True
            self._stopping.set()
            return first

    def _unreachable(self) -> None:
        if self.unreachable_since is None:
            self.unreachable_since = time.time()
