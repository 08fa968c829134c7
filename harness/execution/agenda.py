"""The work of a session, handed out one job at a time. Does not import torch.

Any number of processes may work on the same trials. Before a job is handed out, its claim and the stored runs
are checked; the job itself checks again under its claim. A trial claimed by another process is waited for,
because that process may die. While the database is unreachable no new job is handed out; running jobs continue.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from harness.errors import HarnessError, Unreachable
from harness.execution.assignment import Assignment
from harness.execution.executors.executor import Answered, Event, Job, Later
from harness.execution.states import Kind, State, Work, claim_key, lost_too_often, state_of
from harness.stores.claims.lease import Claims
from harness.stores.store import Store, supersede
from harness.study.trial import Trial

POLL = 1.0
"""Seconds between polls of the claims of others, or of an unreachable database."""


@dataclass
class Agenda:
    """The work of one `run`. `jobs` is the input of an executor, and `heard` takes the executor's events."""

    todo: Sequence[Work]
    store: Store
    claims: Claims
    assign: Callable[[Work, Kind], Assignment]
    """Makes the assignment of a job of that kind."""
    retry: str | None = None
    waits: bool = True
    """Whether to wait for trials claimed by other processes."""
    outage_wait: float = 600.0
    say: Callable[[str], None] = lambda line: None
    elsewhere: Callable[[Work], None] = lambda work: None
    """Callback for each trial that another process has done."""
    recovered: Callable[[], object] = lambda: None
    """Callback for when the database answers again."""
    gave_up: bool = field(default=False, init=False)
    """Whether the database was unreachable for too long."""

    def __post_init__(self) -> None:
        self._pending = deque(range(len(self.todo)))
        counted = {} if self.retry in ("lost", "all") else {n: work.losses for n, work in enumerate(self.todo)}
        self._losses = Counter(counted)
        self._running: set[int] = set()
        self._silent_since: float | None = None
        self._told_of_others = False
        self._not_before: dict[int, float] = {}
        self.given_up: list[Work] = []
        """Work that stays waiting, because the search that it starts from is not there."""
        self.error: HarnessError | None = None
        """The error that stopped the handing out of jobs, if any."""

    def jobs(self) -> Iterator[Job | Later]:
        """Yield the next job, or `Later` while none is available but one may become so."""
        held = 0  # consecutive trials that others have
        while self._pending or self._running:
            if not self._pending:  # a running job may be queued again
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
            except HarnessError as error:  # running jobs continue; the caller raises it afterwards
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

    def heard(self, event: Event) -> bool:
        """Process an event; return whether the job is queued again: its trial was claimed, or its process died."""
        if event.kind != "finished":
            return False
        number, status = event.job.number, event.data["status"]
        self._running.discard(number)
        if status in (Answered.ELSEWHERE, Answered.UNREACHABLE):
            self._pending.append(number)
            self._not_before[number] = time.monotonic() + POLL
            if status == Answered.UNREACHABLE:
                self._silent_too_long(str(event.data.get("error")))
            return True
        if again := status == Answered.LOST and _may_try_again(self._losses, number):
            self._pending.append(number)
        return again

    def _next(self, number: int) -> Job | None | bool:
        """The job of that work; None when it must wait, False when there is nothing left to do."""
        work = self.todo[number]
        if time.monotonic() < self._not_before.get(number, 0.0):
            return None
        found = supersede(self.store.load({work.trial.key[:16]}, []), [])
        state = state_of(work.trial, [run for run in found if run.key == work.trial.key])
        # Its process may exist, but without a claim it is suspended or hangs, and is replaced.
        kind = Kind.TRAIN if state is State.RUNNING else replace(work, state=state, losses=0).kind(self.retry)
        if kind is not None:
            if (start := work.trial.start) is not None and not self._has_started(start):
                return None if self._may_come(start) else self._give_up(work)
            if self.claims.holder(claim_key(work.trial, kind)) is not None:
                return None
            return job_of(number, self.assign(work, kind))
        if state is State.DONE:
            self.elsewhere(work)
        return False

    def _has_started(self, start: Trial) -> bool:
        """Whether the search that a trial starts from is stored, with its ranking."""
        found = supersede(self.store.load({start.key[:16]}, []), [])
        return any(run.key == start.key and run.counts and start.ranking_key in run.rankings for run in found)

    def _may_come(self, start: Trial) -> bool:
        """Whether that search is running or pending here, or claimed by another process."""
        here = {self.todo[number].trial.key for number in (*self._pending, *self._running)}
        return start.key in here or self.claims.holder(start.key) is not None

    def _give_up(self, work: Work) -> bool:
        self.given_up.append(work)
        start = work.trial.start
        # Another search of a trial that was trained here comes in the next round.
        if start is None or all(one.trial.key != start.key for one in self.todo):
            self.say(f"{work.label} stays waiting: the search that it starts from is not there")
        return False

    def _tell_of_others(self) -> None:
        if not self._told_of_others and not self._running:
            self._told_of_others = True
            self.say(f"waiting for {len(self._pending)} trials claimed by other processes (Ctrl-C stops)")

    def _silent_too_long(self, reason: str) -> bool:
        if self._silent_since is None:
            self._silent_since = time.monotonic()
            self.say(f"{reason}; running trials continue, new ones wait up to {self.outage_wait:g} s for it")
        self.gave_up = time.monotonic() - self._silent_since >= self.outage_wait
        return self.gave_up

    def _answers(self) -> None:
        if self._silent_since is not None:
            self._silent_since = None
            self.say("the database answers again")
            self.recovered()


@dataclass
class Batch:
    """Work whose every job is done once, in order, whatever others do. An agenda like `Agenda`."""

    todo: Sequence[Work]
    assign: Callable[[Work, Kind], Assignment]
    kind: Kind
    say: Callable[[str], None] = lambda line: None
    elsewhere: Callable[[Work], None] = lambda work: None
    gave_up: bool = field(default=False, init=False)
    given_up: list[Work] = field(default_factory=list, init=False)
    error: HarnessError | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._pending = deque(range(len(self.todo)))
        self._running: set[int] = set()
        self._losses: Counter[int] = Counter()

    def jobs(self) -> Iterator[Job | Later]:
        while self._pending or self._running:
            if not self._pending:  # a running job may be queued again
                yield Later(POLL)
                continue
            number = self._pending.popleft()
            self._running.add(number)
            yield job_of(number, self.assign(self.todo[number], self.kind))

    def heard(self, event: Event) -> bool:
        """As `Agenda.heard`: a job whose process died is queued again."""
        if event.kind != "finished":
            return False
        self._running.discard(event.job.number)
        again = event.data["status"] == Answered.LOST and _may_try_again(self._losses, event.job.number)
        if again:
            self._pending.append(event.job.number)
        return again


def _may_try_again(losses: Counter[int], number: int) -> bool:
    """Count one more loss of a job; return whether another try is allowed."""
    losses[number] += 1
    return not lost_too_often(losses[number], None)


def job_of(number: int, assignment: Assignment) -> Job:
    """The job of an assignment, with the resources that it names."""
    return Job(number, assignment.json(), assignment.threads, assignment.timeout, assignment.device)
