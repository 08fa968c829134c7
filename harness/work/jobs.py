"""Jobs, and what happens to them: an executor takes an iterator of jobs and gives an iterator of events.

A job is plain JSON, never a pickled class. A target, "module:function", does the job: it takes the job and a
progress callback and returns an answer, all of plain JSON types. This package knows neither trials nor
stores, and its parts that run in the engine's own process import nothing heavy.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.documents import Word, one_line
from harness.errors import is_machines_fault

RUN_JOB = "harness.work.compute:run_job"
"""The target of a study's trials."""


GROUP = "group"
"""The key of a job's document that tells a process of several its `index`, the group's `size`, and the file of their
`meeting` on this machine. The first answers for the job; the others end with it, and one that fails ends all."""


class Answered(Word):
    """How a job ended: the `status` of its answer."""

    DONE = "done", "it did what was asked, or found it done"
    FAILED = "failed", "it ended with an error"
    LOST = "lost", "its process died without an answer"
    INTERRUPTED = "interrupted", "it was asked to stop, and did; or the machine failed, with an `error`"
    ELSEWHERE = "elsewhere", "another process has claimed the trial, or has changed its state"


@dataclass(frozen=True)
class Job:
    """One unit of work, and the resources that it needs. `number` is unique among the jobs of one `execute` that
    run at the same time."""

    number: int
    document: Mapping[str, Any]
    threads: int = 1
    """Threads that torch may use."""
    timeout: float | None = None
    """Seconds after which the job is interrupted and fails."""
    device: str | None = None
    """The kind of device that it computes on, "cpu" or "cuda"; None for the CPU."""
    ranks: int = 1
    """Processes that do the job together. Each is told its place in the document's `GROUP`."""
    devices: float | None = None
    """The GPUs that it needs: 0.5 for half of one, 2 for two ranks with one each; None for one slot per rank."""


@dataclass(frozen=True)
class Later:
    """Placeholder while no job is available: ask again after `seconds`, or when a job has finished."""

    seconds: float


@dataclass(frozen=True)
class Event:
    """What happened to a job.

    "started": its process runs. "progress": `data` is what the target reported. "finished": `data` is the
    answer, always with a `status` (`Answered`) and, if failed or lost, an `error` of one line.
    A job that ended because of another process than its first has the `rank` of that, and, if failed, its `traceback`.
    Every job that started finishes, exactly once.
    """

    kind: str
    job: Job
    data: Mapping[str, Any]


def failed(error: BaseException) -> dict[str, Any]:
    """The answer about work that ended with an error, in one line: interrupted if it is the machine's fault."""
    if not is_machines_fault(error):
        return {"status": Answered.FAILED, "error": one_line(error)}
    text = one_line(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return {"status": Answered.INTERRUPTED, "error": f"{text}; the same command continues"}


class Stopping:
    """Asks an executor to stop; safe to call from a signal handler.

    After the first `ask` no new job starts and running jobs stop cleanly; the second ends them at once.
    """

    def __init__(self) -> None:
        self.asked = 0
        self._wake, self._waker = socket.socketpair()
        self._waker.setblocking(False)

    def ask(self) -> None:
        self.asked += 1
        self.wake()

    def warn(self) -> None:
        """Ask to stop, unless that was done: for warnings, of which several may come and none means "at once"."""
        if not self.asked:
            self.ask()

    def wake(self) -> None:
        """Have the executor look again, without a stop."""
        with contextlib.suppress(BlockingIOError):  # full: the waiting process is already awake
            self._waker.send(b"!")

    def fileno(self) -> int:
        """For `select`: readable after an `ask`, or a `wake`."""
        return self._wake.fileno()

    def heard(self) -> None:
        """Make it unreadable until the next `ask`."""
        self._wake.recv(16)
