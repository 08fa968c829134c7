"""Renews claims that other processes of this machine hold.

A process renews its own claim in a thread (`harness.stores.claims.Lease`). Code that holds the interpreter lock
for long, as some C libraries do, stalls that thread, and a healthy owner would lose its trial. Its parent renews the
claim, too: no such code runs there.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from typing import Any

from harness.errors import HarnessError
from harness.owner import is_suspended, lives_here
from harness.stores.claims import SHORTEST, Claim, ClaimLost

RENEWALS = 3
"""Number of renewals per lease: fewer than the owner's own, which usually suffice."""


class Keeper:
    """Renews claims while their owners run. A claim whose owner is suspended, or has ended, is left to expire."""

    def __init__(self) -> None:
        self._kept: dict[object, tuple[Claim, Mapping[str, Any]]] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def keep(self, name: object, claim: Claim, owner: Mapping[str, Any]) -> None:
        """Renew the claim from now on, as long as its owner (see `harness.owner`) runs."""
        with self._changed:
            self._kept[name] = (claim, owner)
            if self._thread is None:
                self._thread = threading.Thread(target=self._renew_all, name="keeper of claims", daemon=True)
                self._thread.start()
            self._changed.notify()

    def leave(self, name: object) -> None:
        """Renew the claim of that name no longer."""
        with self._changed:
            self._kept.pop(name, None)

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
                kept = list(self._kept.items())
            last = time.monotonic()
            for name, (claim, owner) in kept:
                if lives_here(owner) is False:
                    self.leave(name)
                elif not is_suspended(owner):
                    self._renew(name, claim)

    def _pause(self, last: float) -> float | None:
        """Seconds until the next renewals, the last of which were then; None while there is nothing to renew."""
        if not self._kept:
            return None
        every = max(SHORTEST, min(claim.lease for claim, _ in self._kept.values()) / RENEWALS)
        return max(0.0, last + every - time.monotonic())

    def _renew(self, name: object, claim: Claim) -> None:
        with contextlib.suppress(HarnessError):  # the place does not answer: again later
            try:
                claim.renew()
            except ClaimLost:
                self.leave(name)  # its owner finds out by itself
