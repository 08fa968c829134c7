"""What a `run` still has to do, given out one job at a time. Imports no torch.

Any number of processes may work on the same trials: before a job is given out, its claim and what is stored
are looked at, and again by the job itself, under its claim. A trial that another process has is waited for:
it may die. While the database does not answer nothing new is given out; what runs goes on.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.errors import HarnessError, Unreachable
from harness.execution.executors.executor import Event, Job, Later
from harness.execution.states import Work, state_of
from harness.stores.claims.lease import Claims
from harness.stores.store import Store, supersede
from harness.study.trial import Trial, claim_key

POLL = 1.0
"""Seconds between two looks at what others have, or whether the database is back."""


@dataclass
class Agenda:
    """The work of one `run`. `jobs` goes to an executor, and `heard` gets the executor's events."""

    todo: Sequence[Work]
    store: Store
    claims: Claims
    document: Callable[[Work, str], Mapping[str, Any]]
    """A job's document, from the work and its kind."""
    retry: str | None = None
    threads: int = 1
    timeout: float | None = None
    waits: bool = True
    """Whether trials that other processes have are waited for."""
    outage_wait: float = 600.0
    say: Callable[[str], None] = lambda line: None
    elsewhere: Callable[[Work], None] = lambda work: None
    """Told of each trial that another process has done."""
    recovered: Callable[[], object] = lambda: None
    """Told when the database answers again."""
    gave_up: bool = field(default=False, init=False)
    """Whether the database was silent for too long."""

    def __post_init__(self) -> None:
        self._pending = deque(range(len(self.todo)))
        self._running: set[int] = set()
        self._silent_since: float | None = None
        self._told_of_others = False
        self._not_before: dict[int, float] = {}
        self.given_up: list[Work] = []
        """What stays waiting, because what it starts from is not there."""
        self.error: HarnessError | None = None
        """Why nothing more is given out, unless because all is done."""

    def jobs(self) -> Iterator[Job | Later]:
        """The next job, as often as it is asked for; `Later` while there is none, but may be."""
        held = 0  # how many in a row others have
        while self._pending or self._running:
            if not self._pending:  # a running one may come back
                yield Later(POLL)
                continue
            if held >= len(self._pending):
                if not self.waits and not self._running:
                    return
                self._tell_of_others()
                held = 0
                yield Later(POLL)
                continue
            number = self._pending.popleft()
            try:
                job = self._next(number)
            except Unreachable as error:
                self._pending.appendleft(number)
                if self._silent_too_long(str(error)):
                    return
                yield Later(POLL)
                continue
            except HarnessError as error:  # what runs goes on: the caller raises it afterwards
                self.error = error
                return
            self._answers()
            if job is None:
                self._pending.append(number)
                held += 1
            elif isinstance(job, Job):
                held = 0
                self._running.add(number)
                yield job

    def heard(self, event: Event) -> None:
        """Learn from what happened: a job that found its trial taken comes again later."""
        if event.kind != "finished":
            return
        number, status = event.job.number, event.data["status"]
        self._running.discard(number)
        if status in ("elsewhere", "unreachable"):
            self._pending.append(number)
            self._not_before[number] = time.monotonic() + POLL
            if status == "unreachable":
                self._silent_too_long(str(event.data.get("error")))

    def _next(self, number: int) -> Job | None | bool:
        """The job of that work; None when another process has it, False when there is nothing left to do."""
        work = self.todo[number]
        if time.monotonic() < self._not_before.get(number, 0.0):
            return None
        found = supersede(self.store.load({work.trial.key[:16]}, []), [])
        state = state_of(work.trial, [run for run in found if run.key == work.trial.key])
        # Its process may be there, but nobody has claimed it: it is suspended, or hangs, and is replaced.
        kind = "train" if state == "running" else replace(work, state=state, losses=0).kind(self.retry)
        if kind is not None:
            if (start := work.trial.start) is not None and not self._has_started(start):
                return None if self._may_come(start) else self._give_up(work)
            if self.claims.holder(claim_key(work.trial, kind)) is not None:
                return None
            return Job(number, self.document(work, kind), self.threads, self.timeout)
        if state == "done":
            self.elsewhere(work)
        return False

    def _has_started(self, start: Trial) -> bool:
        """Whether the search that a trial starts from is there."""
        found = supersede(self.store.load({start.key[:16]}, []), [])
        return any(run.key == start.key and run.counts and start.ranking_key in run.rankings for run in found)

    def _may_come(self, start: Trial) -> bool:
        """Whether this process or another one is at that search, or will be."""
        here = {self.todo[number].trial.key for number in (*self._pending, *self._running)}
        return start.key in here or self.claims.holder(start.key) is not None

    def _give_up(self, work: Work) -> bool:
        self.given_up.append(work)
        self.say(f"{work.label} stays waiting: the search that it starts from is not there")
        return False

    def _tell_of_others(self) -> None:
        if not self._told_of_others and not self._running:
            self._told_of_others = True
            self.say(f"waiting for {len(self._pending)} trials that other processes have (Ctrl-C stops)")

    def _silent_too_long(self, reason: str) -> bool:
        if self._silent_since is None:
            self._silent_since = time.monotonic()
            self.say(f"{reason}; running trials go on, new ones wait up to {self.outage_wait:g} s for it")
        self.gave_up = time.monotonic() - self._silent_since >= self.outage_wait
        return self.gave_up

    def _answers(self) -> None:
        if self._silent_since is not None:
            self._silent_since = None
            self.say("the database answers again")
            self.recovered()
