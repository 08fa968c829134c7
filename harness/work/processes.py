"""Runs jobs in processes of this machine, each forked fresh from a server that has imported torch.

A job of several ranks has one process per rank. The first answers for the job, and whichever process fails or dies
ends all of them: a process that waits for a dead one would wait for ever.

This side imports nothing heavy. See `harness.work.fork_server` for the other side and for what happens when any of the
processes dies.
"""

from __future__ import annotations

import atexit
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
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from harness.errors import HarnessError
from harness.interruption import PATIENCE
from harness.work.fork_server import ASKED, BOOT, OUT_OF_TIME
from harness.work.jobs import GROUP, RUN_JOB, Answered, Event, Job, Later, Stopping
from harness.work.slots import Placed, Slots

GRACE = 15.0
"""Seconds that jobs have to stop cleanly before they are ended."""


class ServerFailed(HarnessError):
    """The fork server did not start: no job can run."""


class Processes:
    """Runs jobs in processes of this machine, as many in parallel as it has slots.

    Raises `ServerFailed` if the target cannot be imported.

    The fork server outlives an `execute` whose jobs have all ended: the next one of this process goes on with it.
    """

    def __init__(self, slots: Slots, *, target: str = RUN_JOB, grace: float = GRACE) -> None:
        self.slots = slots
        self._target = target
        self._grace = grace
        self._server: ForkServer | None = None
        self._to_end: deque[int] = deque()

    def end(self, number: int, stopping: Stopping) -> None:
        """Kill the processes of a job; safe to call from any thread while its `execute` runs."""
        self._to_end.append(number)
        stopping.wake()

    def prepare(self) -> None:
        """Start the fork server: it imports torch while the caller plans."""
        self._server = self._server or ForkServer.obtain(self._target)

    def close(self) -> None:
        if self._server is not None:
            self._server.give_back()
            self._server = None

    def execute(self, jobs: Iterable[Job | Later], stopping: Stopping) -> Iterator[Event]:
        """Run all jobs in order; yield events as they happen.

        The next job is requested when there is room; if it needs more, it holds back those behind it until it can
        start. `Later` in its place means that none is available yet. A job that fails or crashes does not affect the
        others. Jobs that never started because of a stop have no events. When the iterator is closed, or raises, all
        jobs end at once. May be called again.
        """
        server, self._server = self._server, None
        waiting = iter(jobs)
        exhausted = False
        held: Job | None = None
        deadline: float | None = None
        pause = 0.0
        with _Jobs(self._target, stopping, self.slots, server, self._grace) as processes:
            while True:
                while not stopping.asked and processes.has_room(held) and _over(pause) and not (exhausted and not held):
                    job, held = held or next(waiting, None), None
                    if job is None:
                        exhausted = True
                    elif isinstance(job, Later):
                        pause = time.monotonic() + job.seconds
                    elif not processes.begin(job):
                        held = job  # it needs more room than there is
                if stopping.asked and deadline is None:
                    deadline = time.monotonic() + self._grace
                    processes.ask_to_stop()
                if not processes.running and ((exhausted and not held) or stopping.asked):
                    return
                if deadline is not None and (stopping.asked > 1 or _over(deadline)):
                    yield from processes.end()
                    return
                while self._to_end:
                    processes.kill(self._to_end.popleft())
                yield from processes.end_late_ones()
                wakes = [deadline, processes.next_deadline()]
                if not (exhausted or stopping.asked) and processes.has_room(held):
                    wakes.append(pause)
                for event in processes.wait(min((wake for wake in wakes if wake is not None), default=None)):
                    if event.kind == "finished":
                        pause = 0.0
                    yield event


@dataclass(eq=False)
class _Process:
    """One process of a running job, and our end of its socket."""

    running: _Running
    rank: int
    connection: socket.socket
    buffer: bytes = b""
    answer: dict[str, Any] | None = None
    silent: bool = False
    """Whether its socket has closed: no more messages will come."""
    ended: bool = False


@dataclass(eq=False)
class _Running:
    """A running job: its processes, one per rank. The first answers for all."""

    job: Job
    placed: Placed
    server: ForkServer
    """The server that forked its processes, and tells their end as long as it lives."""
    meeting: Path | None
    """The file by which several processes find each other."""
    processes: list[_Process] = field(default_factory=list)
    started: bool = False
    dead: _Process | None = None
    """The process that died first, without an answer."""
    outcome: dict[str, Any] | None = None
    """The answer of the job, once it is known; it finishes when all its processes have ended."""
    deadline: float | None = None
    """When the job is asked to end; once it was asked, when it is killed."""
    late: bool = False

    @property
    def first(self) -> _Process:
        return self.processes[0]

    def document(self, rank: int) -> dict[str, Any]:
        """What that process is told."""
        if self.meeting is None:
            return dict(self.job.document)
        group = {"index": rank, "size": len(self.placed.gpus), "meeting": str(self.meeting)}
        return {**self.job.document, GROUP: group}


@dataclass
class _Jobs:
    """The fork server and the running jobs."""

    target: str
    stopping: Stopping
    slots: Slots
    server: ForkServer | None = None
    grace: float = GRACE
    running: dict[int, _Running] = field(default_factory=dict)
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    def __enter__(self) -> _Jobs:
        self.selector.register(self.stopping, selectors.EVENT_READ)
        if self.server:
            self.selector.register(self.server.control, selectors.EVENT_READ, self.server)
        return self

    def __exit__(self, *exception: object) -> None:
        for number in list(self.running):
            self._forget(number)
        if self.server:
            self.server.give_back()
        self.selector.close()

    def has_room(self, job: Job | None) -> bool:
        """Whether the job could start now; for None, whether any could that needs little."""
        return not self.slots.is_full(self._taken) if job is None else self._place(job) is not None

    @property
    def _taken(self) -> list[Placed]:
        return [running.placed for running in self.running.values()]

    def _place(self, job: Job) -> Placed | None:
        return self.slots.place(job.ranks, job.devices, self._taken)

    def begin(self, job: Job) -> bool:
        """Let the server fork the job's processes; start a server if there is none. False if there is no room."""
        if (placed := self._place(job)) is None:
            self.slots.check(job.ranks, job.devices, f"job {job.number}")
            return False
        if self.server is None:
            self.server = ForkServer.obtain(self.target)
            self.selector.register(self.server.control, selectors.EVENT_READ, self.server)
        running = self.running[job.number] = _Running(
            job, placed, self.server, _meeting() if len(placed.gpus) > 1 else None
        )
        for rank in range(len(placed.gpus)):
            connection = self.server.fork(job, rank, running.document(rank), placed.environment(rank))
            running.processes.append(_Process(running, rank, connection))
            self.selector.register(connection, selectors.EVENT_READ, running.processes[-1])
        return True

    def ask_to_stop(self) -> None:
        """Ask started jobs to stop; drop jobs that have not started."""
        for number, running in list(self.running.items()):
            if running.started:
                self._tell(running, ASKED)
            else:
                self._forget(number)

    def _tell(self, running: _Running, message: bytes) -> None:
        """Tell a job, by its first process: the others do as that one does."""
        with contextlib.suppress(OSError):
            running.first.connection.sendall(message)

    def kill(self, number: int) -> None:
        """Kill the processes of a job, which then finishes as one whose process has died."""
        if (running := self.running.get(number)) is None:
            return
        if not self._is_orphaned(running):
            running.server.end(running.job)  # also those that are suspended
        for process in running.processes:
            if not process.silent:
                with contextlib.suppress(OSError):
                    process.connection.shutdown(socket.SHUT_WR)

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
                yield Event("finished", running.job, running.first.answer or _late(running.job))
            else:
                running.late = True
                running.deadline = time.monotonic() + self.grace
                self._tell(running, OUT_OF_TIME)

    def end(self) -> Iterator[Event]:
        """End all jobs at once."""
        for number, running in list(self.running.items()):
            self._forget(number)
            yield Event("finished", running.job, running.first.answer or {"status": Answered.INTERRUPTED})

    def wait(self, until: float | None) -> Iterator[Event]:
        """Wait for messages, at most until `until`; yield the events."""
        seconds = None if until is None else max(0.0, until - time.monotonic())
        ready = [key for key, _ in self.selector.select(seconds)]
        for key in ready:
            if key.fileobj is self.stopping:
                self.stopping.heard()
            elif isinstance(key.data, _Process):
                yield from self._listen(key.data)
        # The server last: the end of a process comes after all its messages.
        for key in ready:
            if isinstance(key.data, ForkServer):
                yield from self._listen_to_server(key.data)
        orphaned = [one for one in self.running.values() if self._is_orphaned(one)]
        for process in [process for running in orphaned for process in running.processes if process.silent]:
            yield from self._ended(process, "its process ended without an answer, and so did the fork server")

    def _is_orphaned(self, running: _Running) -> bool:
        """Whether the job's server is dead, also if there is a new one: nobody tells the end of its processes."""
        return running.server is not self.server

    def _listen_to_server(self, server: ForkServer) -> Iterator[Event]:
        messages, over = server.listen()
        for message in messages:
            if message["event"] == "broken":
                raise ServerFailed(f"the processes that run trials cannot start: {message['error']}\n{server.said()}")
            running = self.running.get(message.get("job", -1))
            if running is not None:  # otherwise it was stopped before it started
                process = running.processes[message["rank"]]
                yield from self._listen(process)
                if "error" in message:
                    process.answer = {"status": Answered.INTERRUPTED, "error": message["error"]}
                yield from self._ended(process, _how_it_ended(message.get("code", 0)))
        if over:
            self.selector.unregister(server.control)
            self.server = None
            code = server.close()
            if not server.ready:
                raise ServerFailed(f"trial processes cannot start: {_how_it_ended(code)}\n{server.said()}")

    def _listen(self, process: _Process) -> Iterator[Event]:
        """Process the messages of a process so far. Of several, only the first reports."""
        running = process.running
        messages, process.buffer, over = lines(process.connection, process.buffer)
        if over and not process.silent:
            process.silent = True
            self.selector.unregister(process.connection)
            if not running.first.answer and not any("answer" in message for message in messages):
                self._leave(running, process)
        for message in messages:
            if "answer" in message:
                process.answer = message["answer"]
            elif process.rank == 0 and "started" in message:
                running.started = True
                if running.job.timeout is not None:
                    running.deadline = time.monotonic() + running.job.timeout
                yield Event("started", running.job, {"process": message["started"]})
            elif process.rank == 0:
                yield Event("progress", running.job, message["progress"])

    def _leave(self, running: _Running, dead: _Process) -> None:
        """End the other processes of a job of which one has died. The server, which is told later, may be busy."""
        if running.dead is None and dead.answer is None:
            running.dead = dead
            for process in running.processes:
                if not process.silent:
                    with contextlib.suppress(OSError):
                        process.connection.shutdown(socket.SHUT_WR)  # what it still says is heard

    def _ended(self, process: _Process, otherwise: str) -> Iterator[Event]:
        """A process has ended: with the first, or with one that did not do its part, all do. Finish the job then."""
        running = process.running
        if self.running.get(running.job.number) is not running:
            return  # finished meanwhile
        answer = process.answer or {"status": Answered.LOST, "error": otherwise}
        process.ended = True
        decides = process.rank == 0 or answer["status"] != Answered.DONE
        if process.answer is None and running.dead not in (None, process):
            decides = False  # it ended because of the other
        if running.outcome is None and decides:
            running.outcome = answer if process.rank == 0 else _of_rank(process.rank, answer)
            if not self._is_orphaned(running) and not all(one.ended for one in running.processes):
                running.server.end(running.job)
        if running.outcome is not None and (self._is_orphaned(running) or all(one.ended for one in running.processes)):
            yield self._finish(running, running.outcome)

    def _finish(self, running: _Running, answer: dict[str, Any]) -> Event:
        self._forget(running.job.number)
        if running.late and answer["status"] != Answered.DONE:
            answer = {**answer, **_late(running.job)}
        return Event("finished", running.job, answer)

    def _forget(self, number: int) -> None:
        """Close a job's sockets, which ends the processes that still run."""
        running = self.running.pop(number)
        for process in running.processes:
            if not process.silent:
                self.selector.unregister(process.connection)
            process.connection.close()
        if running.meeting is not None:
            running.meeting.unlink(missing_ok=True)


def _meeting() -> Path:
    """A file of this machine by which the processes of a job find each other."""
    number, name = tempfile.mkstemp(prefix="harness-ranks-")
    os.close(number)
    return Path(name)


def _of_rank(rank: int, answer: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of a job that ended because of another process than the first."""
    kept = {name: answer[name] for name in ("status", "error", "traceback") if name in answer}
    return kept | {"rank": rank, "error": f"rank {rank}: {answer.get('error') or answer['status']}"}


def _over(moment: float) -> bool:
    return time.monotonic() >= moment


def _late(job: Job) -> dict[str, Any]:
    return {"status": Answered.FAILED, "error": f"it took longer than {job.timeout:g} s"}


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"its process ended with exit code {code} before it answered"
    name = "".join(f" ({one.name})" for one in signal.Signals if one == -code)
    return f"killed by signal {-code}{name}{_WHY.get(-code, '')}"


_WHY: dict[int, str] = {
    signal.SIGKILL: ": out of memory?",
    signal.SIGBUS: ": too little shared memory (/dev/shm)?",
    signal.SIGABRT: "; nccl ends a process so when another rank does not answer: its log says more",
}
"""What may have killed a process that could not report it."""


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
