"""Claims that the parent of their owner renews: as long as the owner runs, whatever its own threads do."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness.owner import start_ticks, this_process
from harness.stores.claims import Claims
from harness.stores.directory.records import DirectoryRecords
from harness.work.keeper import Keeper
from tests.processes import await_that

LONG_AGO = 1_000_000_000
"""When claims were last renewed, in seconds since 1970."""


@pytest.fixture
def owners() -> Iterator[Callable[[], dict[str, Any]]]:
    """Makes processes that own claims."""
    processes: list[subprocess.Popen[bytes]] = []

    def make() -> dict[str, Any]:
        processes.append(process := subprocess.Popen(["sleep", "600"]))
        return this_process() | {"pid": process.pid, "started": start_ticks(process.pid)}

    yield make
    for process in processes:
        process.kill()
        process.wait()


class Held:
    """A claim that was renewed long ago."""

    def __init__(self, claims: Claims, folder: Path, key: str) -> None:
        claim = claims.acquire(key)
        assert claim is not None
        self.claim = claims.redeem(claim.ticket())
        self._file = folder / "claims" / key / "1"
        self.age()

    def age(self) -> None:
        os.utime(self._file, (LONG_AGO, LONG_AGO))

    def is_renewed(self) -> bool:
        return self._file.stat().st_mtime > LONG_AGO


def test_claims_are_renewed_while_their_owners_run(tmp_path: Path, owners: Callable[[], dict[str, Any]]) -> None:
    claims = Claims(DirectoryRecords(tmp_path), lease=0.3)
    running, suspended, dead = (owners() for _ in range(3))
    os.kill(suspended["pid"], signal.SIGSTOP)
    os.kill(dead["pid"], signal.SIGKILL)
    await_that(lambda: start_ticks(dead["pid"]) is None)
    held = {name: Held(claims, tmp_path, name) for name in ("running", "suspended", "dead", "left")}
    with closing(Keeper()) as keeper:
        for name, owner in {"left": running, "dead": dead, "suspended": suspended, "running": running}.items():
            keeper.keep(name, held[name].claim, owner)
            if name == "left":
                keeper.leave(name)
        for _ in range(2):
            await_that(held["running"].is_renewed)
            for one in held.values():
                one.age()
        await_that(held["running"].is_renewed)
        assert [name for name, one in held.items() if one.is_renewed()] == ["running"]
        os.kill(suspended["pid"], signal.SIGCONT)
        await_that(held["suspended"].is_renewed)
    held["running"].age()
    assert not held["running"].is_renewed()
