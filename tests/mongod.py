"""A real MongoDB server of the tests' own, which can be killed and started again."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymongo
from pymongo.errors import ConnectionFailure

from harness.stores.server.mongod import find_mongod

BOUND = 60.0
"""Seconds that a server has to come up."""

FAIL_POINTS = ("--setParameter", "enableTestCommands=1")
"""Options of a server whose commands can be made to fail."""


class Mongod:
    """A server on a folder of its own, bound to loopback, on a port that stays the same over restarts."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.options = options
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        return f"mongodb://127.0.0.1:{self.port}/?directConnection=true"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it answers."""
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        log = self.folder / "mongod.log"
        command = [str(find_mongod()), "--dbpath", str(data), "--port", str(self.port), "--bind_ip", "127.0.0.1"]
        command += ["--nounixsocket", "--wiredTigerCacheSizeGB", "0.25", *self.options]
        with log.open("ab") as output:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        until = time.monotonic() + BOUND
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise AssertionError(f"mongod did not come up; the end of its log:\n{log.read_text()[-3000:]}")

    def kill(self) -> None:
        """End it as a power failure would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        client: pymongo.MongoClient[dict[str, object]] = pymongo.MongoClient(self.uri, serverSelectionTimeoutMS=100)
        try:
            client.admin.command("ping")
        except ConnectionFailure:
            return False
        finally:
            client.close()
        return True


@contextlib.contextmanager
def refusing(uri: str, code: int, commands: tuple[str, ...] = ("insert", "update")) -> Iterator[list[int]]:
    """Within, a server with `FAIL_POINTS` answers these commands with that error; lists how often, in the end."""
    counts: list[int] = []
    point = {"configureFailPoint": "failCommand"}
    data = {"errorCode": code, "failCommands": list(commands)}
    with pymongo.MongoClient[dict[str, Any]](uri) as client:
        before = client.admin.command({**point, "mode": "alwaysOn", "data": data})["count"]
        try:
            yield counts
        finally:
            counts.append(client.admin.command({**point, "mode": "off"})["count"] - before)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
