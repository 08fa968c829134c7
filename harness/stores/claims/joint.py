"""Claims in a directory and in a database at once: held by a process that uses a database.

The database decides between machines. The directory's claim is for processes that use the same directory
without the database (`run --offline`): they must not mistake a running trial for a dead one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from harness.errors import Unreachable
from harness.stores.claims.lease import Claim, ClaimRecord, Claims


class JointClaim(Claim):
    """Both claims on one trial. Lost when either is."""

    def __init__(self, here: Claim, there: Claim) -> None:
        self._here = here
        self._there = there
        self.key = there.key
        self.lease = there.lease
        self.attempt = max(here.attempt, there.attempt)

    @property
    def generation(self) -> int:  # type: ignore[override]  # it grows with the database's
        return self._there.generation

    def ticket(self) -> dict[str, Any]:
        return {"here": self._here.ticket(), "there": self._there.ticket()}

    def renew(self) -> None:
        self._here.renew()
        self._there.renew()

    def confirm(self) -> None:
        self._here.confirm()
        self._there.confirm()

    def release(self) -> None:
        try:
            self._there.release()
        finally:
            self._here.release()


class JointClaims(Claims):
    """A trial is held if it is held in either place, and acquired in both or not at all."""

    def __init__(self, here: Claims, there: Claims) -> None:
        self._here = here
        self._there = there
        self.lease = there.lease

    def acquire(self, key: str, at_least: int = 0) -> Claim | None:
        here = self._here.acquire(key, at_least)
        if here is None:
            return None
        there: Claim | None = None
        try:
            there = self._there.acquire(key, max(at_least, here.attempt - 1))
        finally:
            if there is None:
                here.release()
        return there and JointClaim(here, there)

    def redeem(self, ticket: Mapping[str, Any]) -> Claim:
        return JointClaim(self._here.redeem(ticket["here"]), self._there.redeem(ticket["there"]))

    def holder(self, key: str) -> ClaimRecord | None:
        return self._there.holder(key) or self._here.holder(key)

    def held(self, keys: Collection[str]) -> set[str]:
        there = self._there.held(keys)
        return there | self._here.held({*keys} - there)

    def records(self) -> list[ClaimRecord]:
        return [*self._here.records(), *self._there.records()]

    def drop(self, record: ClaimRecord) -> bool:
        here = self._here.drop(record)
        try:
            return self._there.drop(record) or here
        except Unreachable:
            return here

    def restart(self, record: ClaimRecord) -> bool:
        here = self._here.restart(record)
        return self._there.restart(record) or here
