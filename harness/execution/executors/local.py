"""Runs jobs in processes of this machine, each forked fresh from a server that has imported torch.

This side imports nothing heavy. See `harness.execution.executors.fork_server` for the other side and for what happens
when any of the processes dies.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.errors import HarnessError
from harness.execution.executors.executor import RUN_JOB, Answered, Event, Job, Later, Stopping
from harness.execution.executors.fork_server import ASKED, BOOT, OUT_OF_TIME
from harness.execution.executors.slots import Slots

GRACE = 15.0
"""Seconds that jobs have to stop cleanly before they are ended."""


class ServerFailed(HarnessError):
    """The fork server did not start: no job can run."""


class LocalExecutor:
    """An executor whose jobs are processes of this machine. Raises `ServerFailed` if the target cannot be imported.

    The fork server of one `execute` ends with it.
    """

    def __init__(self, slots: Slots, *, target: str = RUN_JOB, grace: float = GRACE) -> None:
        self.slots = slots
        self._target = target
        self._grace = grace
        self._server: _ForkServer | None = None

    def prepare(self) -> None:
        """Start the fork server: it imports torch while the caller plans."""
        self._server = self._server or _ForkServer(self._target)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def execute(self, jobs: Iterable[Job | Later], stopping: Stopping) -> Iterator[Event]:
        """As `Executor.execute`."""
        server, self._server = self._server, None
        waiting = iter(jobs)
        exhausted = False
        deadline: float | None = None
        pause = 0.0
        with _Processes(self._target, stopping, self.slots, server, self._grace) as processes:
            while True:
                while not exhausted and not stopping.asked and processes.free and _over(pause):
                    job = next(waiting, None)
                    if job is None:
                        exhausted = True
                    elif isinstance(job, Later):
                        pause = time.monotonic() + job.seconds
                    else:
                        processes.begin(job)
                if stopping.asked and deadline is None:
                    deadline = time.monotonic() + self._grace
                    processes.ask_to_stop()
                if not processes.running and (exhausted or stopping.asked):
                    return
                if deadline is not None and (stopping.asked > 1 or _over(deadline)):
                    yield from processes.end()
                    return
                yield from processes.end_late_ones()
                wakes = [deadline, processes.next_deadline()]
                if not (exhausted or stopping.asked) and processes.free:
                    wakes.append(pause)
                for event in processes.wait(min((wake for wake in wakes if wake is not None), default=None)):
                    if event.kind == "finished":
                        pause = 0.0
                    yield event


@dataclass(eq=False)
class _Running:
    """A running job, and our end of its socket."""

    job: Job
    connection: socket.socket
    slot: int
    buffer: bytes = b""
    started: bool = False
    answer: dict[str, Any] | None = None
    silent: bool = False
    """Whether its socket has closed: no more messages will come."""
    deadline: float | None = None
    """When the job is asked to end; once it was asked, when it is killed."""
    late: bool = False


@dataclass
class _Processes:
    """The fork server and the running jobs."""

    target: str
    stopping: Stopping
    slots: Slots
    server: _ForkServer | None = None
    grace: float = GRACE
    running: dict[int, _Running] = field(default_factory=dict)
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    def __enter__(self) -> _Processes:
        self.selector.register(self.stopping, selectors.EVENT_READ)
        if self.server:
            self.selector.register(self.server.control, selectors.EVENT_READ, self.server)
        return self

    def __exit__(self, *exception: object) -> None:
        for number in list(self.running):
            self._forget(number)
        if self.server:
            self.server.close()
        self.selector.close()

    @property
    def free(self) -> list[int]:
        """The slots without a job."""
        taken = {running.slot for running in self.running.values()}
        return [slot for slot in range(len(self.slots)) if slot not in taken]

    def begin(self, job: Job) -> None:
        """Let the server fork the job's process, in a free slot; start a server if there is none."""
        if job.ranks != 1:
            raise HarnessError(f"this executor runs jobs of one process, not of {job.ranks}")
        if self.server is None:
            self.server = _ForkServer(self.target)
            self.selector.register(self.server.control, selectors.EVENT_READ, self.server)
        slot = self.free[0]
        running = _Running(job, self.server.fork(job, self.slots.environment(slot)), slot)
        self.running[job.number] = running
        self.selector.register(running.connection, selectors.EVENT_READ, running)

    def ask_to_stop(self) -> None:
        """Ask started jobs to stop; drop jobs that have not started."""
        for number, running in list(self.running.items()):
            if running.started:
                with contextlib.suppress(OSError):
                    running.connection.sendall(ASKED)
            else:
                self._forget(number)

    def next_deadline(self) -> float | None:
        """When the next job times out."""
        return min((one.deadline for one in self.running.values() if one.deadline is not None), default=None)

    def end_late_ones(self) -> Iterator[Event]:
        """Ask jobs that timed out to end, and kill those that do not."""
        for number, running in list(self.running.items()):
            if running.deadline is None or not _over(running.deadline):
                continue
            if running.late:
                self._forget(number)
                yield Event("finished", running.job, running.answer or _late(running.job))
            else:
                running.late = True
                running.deadline = time.monotonic() + self.grace
                with contextlib.suppress(OSError):
                    running.connection.sendall(OUT_OF_TIME)

    def end(self) -> Iterator[Event]:
        """End all jobs at once."""
        for number, running in list(self.running.items()):
            self._forget(number)
            yield Event("finished", running.job, running.answer or {"status": Answered.INTERRUPTED})

    def wait(self, until: float | None) -> Iterator[Event]:
        """Wait for messages, at most until `until`; yield the events."""
        seconds = None if until is None else max(0.0, until - time.monotonic())
        ready = [key for key, _ in self.selector.select(seconds)]
        for key in ready:
            if key.fileobj is self.stopping:
                self.stopping.heard()
            elif isinstance(key.data, _Running):
                yield from self._listen(key.data)
        # The server last: the end of a job comes after all messages of the job.
        for key in ready:
            if isinstance(key.data, _ForkServer):
                yield from self._listen_to_server(key.data)
        if self.server is None:
            for running in [r for r in self.running.values() if r.silent]:
                yield self._finish(running, "its process ended without an answer, and so did the fork server")

    def _listen_to_server(self, server: _ForkServer) -> Iterator[Event]:
        messages, over = server.listen()
        for message in messages:
            if message["event"] == "broken":
                raise ServerFailed(f"the processes that run trials cannot start: {message['error']}\n{server.said()}")
            running = self.running.get(message.get("job", -1))
            if running is not None:  # otherwise it was stopped before it started
                yield from self._listen(running)
                if "error" in message:
                    running.answer = {"status": Answered.FAILED, "error": message["error"]}
                yield self._finish(running, _how_it_ended(message.get("code", 0)))
        if over:
            self.selector.unregister(server.control)
            self.server = None
            code = server.close()
            if not server.ready:
                raise ServerFailed(f"trial processes cannot start: {_how_it_ended(code)}\n{server.said()}")

    def _listen(self, running: _Running) -> Iterator[Event]:
        """Process the messages of a job so far."""
        lines, running.buffer, over = _lines(running.connection, running.buffer)
        if over and not running.silent:
            running.silent = True
            self.selector.unregister(running.connection)
        for message in lines:
            if "started" in message:
                running.started = True
                if running.job.timeout is not None:
                    running.deadline = time.monotonic() + running.job.timeout
                yield Event("started", running.job, {"process": message["started"]})
            elif "progress" in message:
                yield Event("progress", running.job, message["progress"])
            else:
                running.answer = message["answer"]

    def _finish(self, running: _Running, otherwise: str) -> Event:
        """A job's answer, or how it ended without one."""
        self._forget(running.job.number)
        answer = running.answer or {"status": Answered.LOST, "error": otherwise}
        if running.late and answer["status"] != Answered.DONE:
            answer = {**answer, **_late(running.job)}
        return Event("finished", running.job, answer)

    def _forget(self, number: int) -> None:
        """Close a job's socket, which ends its process if it still runs."""
        running = self.running.pop(number)
        if not running.silent:
            self.selector.unregister(running.connection)
        running.connection.close()


class _ForkServer:
    """Our side of the fork server, which starts to import the target as soon as this is constructed."""

    def __init__(self, target: str = RUN_JOB) -> None:
        self.control, theirs = socket.socketpair()
        self.ready = False
        self._buffer = b""
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the server
        # OpenBLAS would start threads when numpy is imported, and a process with threads should not fork.
        # Its output is read as UTF-8 here, whatever the terminal has.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8:backslashreplace"}
        # Blocked signals stay blocked in the new process: Ctrl-C cannot end it before it ignores the signal.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", BOOT, str(theirs.fileno()), target, *sys.path],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                env=environment,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()

    def fork(self, job: Job, environment: Mapping[str, str]) -> socket.socket:
        """Request the job's process; return our end of its socket. If the server is dead, that socket just closes."""
        ours, theirs = socket.socketpair()
        request = {"job": job.number, "threads": job.threads, "document": job.document, "environment": environment}
        line = json.dumps(request).encode() + b"\n"
        with theirs, contextlib.suppress(OSError):
            sent = socket.send_fds(self.control, [line], [theirs.fileno()])
            self.control.sendall(line[sent:])
        return ours

    def listen(self) -> tuple[list[dict[str, Any]], bool]:
        """The messages so far, and whether the control socket has closed."""
        messages, self._buffer, over = _lines(self.control, self._buffer)
        self.ready = self.ready or any(message["event"] == "ready" for message in messages)
        return [message for message in messages if message["event"] != "ready"], over

    def said(self) -> str:
        """The last lines of the server's output."""
        number = self._output.fileno()
        text = os.pread(number, os.fstat(number).st_size, 0)  # a seek would move the server's write position
        return "\n".join(text.decode(errors="replace").splitlines()[-15:])

    def close(self) -> int:
        """End the server, by force after 5 s; return its exit code. Idempotent."""
        self.control.close()
        try:
            return self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


def _lines(connection: socket.socket, buffer: bytes) -> tuple[list[dict[str, Any]], bytes, bool]:
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
    *lines, rest = buffer.split(b"\n")
    return [json.loads(line) for line in lines], rest, over


def _over(moment: float) -> bool:
    return time.monotonic() >= moment


def _late(job: Job) -> dict[str, Any]:
    return {"status": Answered.FAILED, "error": f"it took longer than {job.timeout:g} s"}


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"its process ended with exit code {code} before it answered"
    name = "".join(f" ({one.name})" for one in signal.Signals if one == -code)
    # The kernel kills so when memory runs out; nothing in the process can tell.
    return f"killed by signal {-code}{name}{': out of memory?' if -code == signal.SIGKILL else ''}"
