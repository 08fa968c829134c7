"""Our side of the fork server: starts it, requests processes, reads its messages. Imports nothing heavy.

See `harness.work.fork_server` for the other side.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any, ClassVar

from harness.interruption import PATIENCE
from harness.work.fork_server import BOOT
from harness.work.jobs import RUN_JOB, Job


class ForkServer:
    """Our side of the fork server, which starts to import the target as soon as this is constructed."""

    _spare: ClassVar[ForkServer | None] = None
    """A server without jobs, kept for the next executor of this process; it ends with the process."""

    @classmethod
    def obtain(cls, target: str) -> ForkServer:
        """The spare server if it fits, else a new one."""
        spare, cls._spare = cls._spare, None
        if spare is None:
            return cls(target)
        if spare._start == _start(target) and not spare.listen()[1]:
            return spare
        spare.close()
        return cls(target)

    def give_back(self) -> None:
        """Keep the server for the next executor, or end it when some process of its jobs may still run."""
        if self._forked or ForkServer._spare is not None:
            self.close()
        else:
            ForkServer._spare = self

    @staticmethod
    @atexit.register
    def end_spare() -> None:
        if ForkServer._spare is not None:
            ForkServer._spare.close()

    def __init__(self, target: str = RUN_JOB) -> None:
        self.control, theirs = socket.socketpair()
        self.ready = False
        self._buffer = b""
        self._forked = 0  # processes whose end the server has not told yet
        self._start = _start(target)
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the server
        # Blocked signals stay blocked in the new process: Ctrl-C cannot end it before it ignores the signal.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", BOOT, str(theirs.fileno()), target, *sys.path],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                env=_environment(),
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()

    def fork(self, job: Job, rank: int, document: Mapping[str, Any], environment: Mapping[str, str]) -> socket.socket:
        """Request a process of the job; return our end of its socket, which just closes if the server is dead."""
        ours, theirs = socket.socketpair()
        self._forked += 1
        request: dict[str, Any] = {"job": job.number, "rank": rank, "threads": job.threads, "document": document}
        request |= {"folder": os.getcwd(), "environment": {**_environment(), **environment}}
        line = json.dumps(request).encode() + b"\n"
        with theirs, contextlib.suppress(OSError):
            sent = socket.send_fds(self.control, [line], [theirs.fileno()])
            self.control.sendall(line[sent:])
        return ours

    def end(self, job: Job) -> None:
        """Request that all processes of the job are killed."""
        with contextlib.suppress(OSError):
            self.control.sendall(json.dumps({"end": job.number}).encode() + b"\n")

    def listen(self) -> tuple[list[dict[str, Any]], bool]:
        """The messages so far, and whether the control socket has closed."""
        messages, self._buffer, over = lines(self.control, self._buffer)
        self.ready = self.ready or any(message["event"] == "ready" for message in messages)
        self._forked -= sum(message["event"] == "ended" for message in messages)
        return [message for message in messages if message["event"] != "ready"], over

    def said(self) -> str:
        """The last lines of the server's output."""
        number = self._output.fileno()
        text = os.pread(number, os.fstat(number).st_size, 0)  # a seek would move the server's write position
        return "\n".join(text.decode(errors="replace").splitlines()[-15:])

    def close(self) -> int:
        """End the server, by force when it has had time to kill its jobs; return its exit code. Idempotent."""
        self.control.close()
        try:
            return self._process.wait(PATIENCE + 5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


def _environment() -> dict[str, str]:
    """The variables of a job."""
    # OpenBLAS would start threads when numpy is imported, and a process with threads should not fork.
    # Its output is read as UTF-8 here, whatever the terminal has.
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8:backslashreplace"}


def _start(target: str) -> tuple[object, ...]:
    """What a server was started with and cannot change: where it imports from, and the variables that imports read."""
    late = ("HARNESS_", "PYTEST_")  # read by jobs only
    return target, tuple(sys.path), {name: one for name, one in os.environ.items() if not name.startswith(late)}


def lines(connection: socket.socket, buffer: bytes) -> tuple[list[dict[str, Any]], bytes, bool]:
    """The whole JSON lines that have arrived, the rest, and whether the other end has closed."""
    over = False
    while True:
        try:
            received = connection.recv(1 << 16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            break
        except OSError:
            received = b""
        if not received:
            over = True
            break
        buffer += received
    *whole, rest = buffer.split(b"\n")
    return [json.loads(line) for line in whole], rest, over
