"""Where trials run. An executor is one function: an iterator of jobs in, an iterator of events out.

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

from harness.documents import Word

RUN_JOB = "harness.execution.job:run_job"
"""The target of a study's trials."""


class Answered(Word):
    """How a job ended: the `status` of its answer."""

    DONE = "done", "it did what was asked, or found it done"
    FAILED = "failed", "it ended with an error, or without an answer"
    INTERRUPTED = "interrupted", "it was asked to stop, and did"
    ELSEWHERE = "elsewhere", "another process has claimed the trial, or has changed its state"
    UNREACHABLE = "unreachable", "the database does not answer, and nothing was started"


@dataclass(frozen=True)
class Job:
    """One unit of work. `number` is unique among the jobs of one `execute` that run at the same time; `threads`
    is the number of threads that torch may use."""

    number: int
    document: Mapping[str, Any]
    threads: int = 1
    timeout: float | None = None
    """Seconds after which the job is interrupted and fails."""


@dataclass(frozen=True)
class Later:
    """Placeholder while no job is available: ask again after `seconds`, or when a job has finished."""

    seconds: float


@dataclass(frozen=True)
class Event:
    """What happened to a job.

    "started": its process runs. "progress": `data` is what the target reported. "finished": `data` is the
    answer, always with a `status` (`Answered`) and, if failed, an `error` of one line.
    Every job that started finishes, exactly once.
    """

    kind: str
    job: Job
    data: Mapping[str, Any]


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
        with contextlib.suppress(BlockingIOError):  # full: the waiting process is already awake
            self._waker.send(b"!")

    def fileno(self) -> int:
        """For `select`: readable after an `ask`."""
        return self._wake.fileno()

    def heard(self) -> None:
        """Make it unreadable until the next `ask`."""
        self._wake.recv(16)
