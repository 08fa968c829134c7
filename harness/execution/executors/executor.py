"""Where trials run. An executor is one function: an iterator of jobs in, an iterator of events out.

A job is plain JSON, never a pickled class; what is done with it is said by a target, "module:function",
which gets the job and a function for progress and gives an answer, all of plain JSON types. This package
knows neither trials nor stores, and its parts that run in the engine's own process import nothing heavy.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

RUN_JOB = "harness.execution.job:run_job"
"""The target of a study's trials."""


@dataclass(frozen=True)
class Job:
    """One thing to do. `number` tells the jobs of one `execute` that run at the same time apart; `threads` is
    what torch may use."""

    number: int
    document: Mapping[str, Any]
    threads: int = 1
    timeout: float | None = None
    """Seconds after which it is interrupted, and its answer is a failure."""


@dataclass(frozen=True)
class Later:
    """Stands for a job when there is none just now: ask again in so many seconds, or when a job has finished."""

    seconds: float


@dataclass(frozen=True)
class Event:
    """What happened to a job.

    "started": its process runs. "progress": `data` is what the target reported. "finished": `data` is the
    answer, always with a `status` ("done", "failed" or "interrupted") and, if failed, an `error` of one line.
    Every job that started finishes, exactly once.
    """

    kind: str
    job: Job
    data: Mapping[str, Any]


class Stopping:
    """Asks an executor to stop; safe to call from a signal handler.

    The first `ask` starts nothing new and lets running jobs stop cleanly, the second ends them at once.
    """

    def __init__(self) -> None:
        self.asked = 0
        self._wake, self._waker = socket.socketpair()
        self._waker.setblocking(False)

    def ask(self) -> None:
        self.asked += 1
        with contextlib.suppress(BlockingIOError):  # full: whoever waits is awake already
            self._waker.send(b"!")

    def fileno(self) -> int:
        """Readable once asked, for `select`."""
        return self._wake.fileno()

    def heard(self) -> None:
        """Makes it unreadable until the next `ask`."""
        self._wake.recv(16)
