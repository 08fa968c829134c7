"""A worker: plan, claim, compute, commit, plan again, until nothing is left. Does not import torch.

`run`, `worker`, `store recompute` and `rerun` are this worker. They differ in what they choose of the plan. It prints
nothing: a `Screen` shows its progress, and the rest is read from it afterwards.

Any number of workers may share the work. A trial is claimed, and then its stored runs are read again: another worker
may have done it just now. A trial that another worker has claimed is waited for, because that worker may die. Which
worker runs a trial changes no result. While the database is unreachable no trial begins; running ones continue.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from harness.documents import seconds_since
from harness.errors import HarnessError, NotReadable, Unreachable
from harness.stores.claims import LEASE, Renewal
from harness.stores.mongo.snapshot import WEIGHTS_MAX
from harness.stores.opened import Opened
from harness.stores.places import Places
from harness.stores.store import Store, supersede
from harness.stores.stored import Problem, Status, StoredRun
from harness.study.trial import Trial
from harness.work.assignment import Computing
from harness.work.attempts import Attempt, Attempts
from harness.work.database import bring_up_to_date
from harness.work.jobs import Answered, Job, Later, Stopping, failed
from harness.work.plan import Asked, Plan
from harness.work.processes import Processes
from harness.work.slots import Slots
from harness.work.states import Kind, State, Work, claim_key, left, lost_too_often, state_of

ANSWERS_WITHIN = 3.0
"""Timeout of the database in seconds; a longer one would block the display of running trials."""

FIRST = 3
"""If so many trials of a study fail first, all with the same error, its others are not started."""

POLL, LONGEST = 1.0, 30.0
"""Least and most seconds between polls of the claims of others; the least also for an unreachable database."""

PAUSE = 10.0
"""A pause is so many times as long as the look before it: however many workers wait, they load a store little."""

SOME = 8
"""Trials that are read together, drawn at random, once other workers are met; twice as many while none is free. All at
once would keep a large store busy."""

ALL = 2000
"""Of so many trials the runs are read by reading all runs."""


@dataclass(frozen=True)
class Settings:
    """The settings of a worker. None of them is part of a trial's identity."""

    places: Places
    """Without the database where it is not to be used."""
    computing: Computing = Computing()
    lease: float = LEASE
    work: Path | None = None
    """The folder of checkpoints; None for `work` in the store."""
    weights_max: int = WEIGHTS_MAX
    retry: str | None = None
    waits: bool = True
    """Whether to wait for trials claimed by other processes."""
    outage_wait: float = 600.0
    """Seconds to wait for an unreachable database."""
    profile: bool = False
    """Whether to profile the first trial."""

    def open(self) -> Opened:
        """The directory and the database where the worker reads runs and keeps claims; not reached yet.

        Runs are made in the directory, also where --store names the database.
        """
        places = replace(self.places, database_only=False)
        return Opened(places, lease=self.lease, weights_max=self.weights_max, patience=ANSWERS_WITHIN)


class Screen(Protocol):
    """Shows the progress of the jobs of one round, by their numbers."""

    stopping: bool

    def say(self, line: str) -> None: ...
    def started(self, number: int, label: str) -> None: ...
    def progress(self, number: int, report: Mapping[str, Any]) -> None: ...
    def finished(self, number: int, answer: Mapping[str, Any]) -> None: ...
    def elsewhere(self, work: Work) -> None: ...


Show = Callable[[Sequence[Work], int], contextlib.AbstractContextManager[Screen]]
"""Opens the screen of a round: of this work, with that many jobs in parallel."""


class Queue(Protocol):
    """Jobs of attempts, one after the other: a `Round`, or the references that are missing."""

    running: dict[int, Attempt]
    """The attempts under way, by the number of their job."""

    def label(self, number: int) -> str: ...


def follow(
    executor: Processes,
    queue: Queue,
    jobs: Iterable[Job | Later],
    stopping: Stopping,
    screen: Screen,
    over: Callable[[int, dict[str, Any]], object],
) -> None:
    """Have children do the jobs of a queue, and commit what they have done; `over` takes each final answer."""
    try:
        for event in executor.execute(jobs, stopping):
            number = event.job.number
            attempt, label = queue.running[number], queue.label(number)
            screen.stopping = bool(stopping.asked)
            if event.kind == "started":
                attempt.started(event.data.get("process"))
                screen.started(number, label)
            elif event.kind == "progress":
                attempt.progressed()
                screen.progress(number, event.data)
                if "note" in event.data:
                    screen.say(f"{label}: {event.data['note']}")
            else:
                answer = attempt.end(event.data, lambda line, label=label: screen.say(f"{label}: {line}"))  # type: ignore[misc]
                del queue.running[number]
                over(number, answer)
    finally:
        for attempt in queue.running.values():  # they have not started, or everything ends
            attempt.discard()
        queue.running.clear()


@dataclass
class Worker:
    """One worker. What it did is in its fields afterwards."""

    place: Opened
    """Reached already."""
    settings: Settings
    asked: Asked
    executor: Processes
    stopping: Stopping
    show: Show
    planned: Callable[[list[StoredRun]], Plan] | None = None
    """Makes the plan from the stored runs; None for the plan of what is asked for."""
    mine: Callable[[Work], bool] = lambda work: True
    """Which trials this worker may run: it waits for others only where one of its own starts from them."""
    admits: Callable[[Work], bool] = lambda work: True
    """Whether a trial may begin now; one that may not is left to others. A `HarnessError` ends the worker."""
    starts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Rankings that trials start from, by the key of the search, where they are not stored in this place."""
    attempted: set[tuple[str, str]] = field(default_factory=set)
    """What was tried: trial and ranking."""
    answers: list[tuple[Work, Mapping[str, Any]]] = field(default_factory=list)
    """How every attempt ended."""
    gave_up: bool = False
    """Whether the database was unreachable for too long."""

    def __post_init__(self) -> None:
        self.alone = False
        """Whether the directory alone is read: the database did not answer after a round."""
        self.plan = self._planned()
        self.first: dict[str, dict[str, str]] = {}
        """By study, its first trials here with the error of each, "" for one that has not failed."""
        computing = replace(self.settings.computing, device=self.slots.device, ranks=self.slots.ranks)
        self.attempts = Attempts(
            self.place,
            computing,
            self.asked.preset,
            self.asked.overrides,
            self.settings.work,
            profile=self.settings.profile,
            starts=self.starts,
            renewal=Renewal(self._lost),
        )

    @property
    def reader(self) -> Store:
        """All known runs."""
        return self.place.directory if self.alone else self.place.reader

    @property
    def slots(self) -> Slots:
        """The places for jobs."""
        return self.executor.slots

    @property
    def errors(self) -> dict[str, str]:
        """Errors of attempts that failed, died or were interrupted by a fault of the machine in the end, by trial."""
        wrong = (Answered.FAILED, Answered.LOST, Answered.INTERRUPTED)
        return {key: answer["error"] for key, answer in self._last if answer["status"] in wrong and "error" in answer}

    @property
    def interrupted(self) -> set[str]:
        """Keys of the trials that were interrupted in the end."""
        return {key for key, answer in self._last if answer["status"] == Answered.INTERRUPTED}

    @property
    def _last(self) -> list[tuple[str, Mapping[str, Any]]]:
        """The last answer about each trial and ranking, with the key of the trial."""
        last = {_what(work): answer for work, answer in self.answers}
        return [(key, answer) for (key, _), answer in last.items()]

    @property
    def done_here(self) -> set[str]:
        """Keys of the trials that this worker has done; others may have done the rest."""
        done = ((work, answer) for work, answer in self.answers if answer["status"] == Answered.DONE)
        return {work.trial.key for work, answer in done if not answer.get("already")}

    @property
    def hopeless(self) -> dict[str, str]:
        """The studies whose first trials have all failed with the same error, and that error."""
        return {study: next(iter(first.values())) for study, first in self.first.items() if _fail_alike(first)}

    def left(self, todo: Sequence[Work]) -> list[Work]:
        """The part of some work that other processes are doing."""
        answered, missing = {_what(work) for work, _ in self.answers}, {_what(work) for work in self.choose(self.plan)}
        return [work for work in todo if _what(work) in missing - answered] if not self.stopping.asked else []

    def choose(self, plan: Plan) -> list[Work]:
        """The work to do next, of a plan."""
        retry = self.settings.retry
        chosen = [work for work in plan.work if self.mine(work) and (work.state is State.RUNNING or work.kind(retry))]
        return [one for work in chosen for one in (work.unranked if work.state is State.RANK else [work])]

    def kind(self, work: Work, runs: Sequence[StoredRun]) -> Kind | None:
        """What there is to do for some work, given the runs of its trial; None for nothing."""
        return left(work, runs, self.settings.retry)

    def run(self) -> None:
        """Execute and plan again until nothing is left that was not tried, or a stop was asked for."""
        try:
            while not self.stopping.asked and not self.gave_up:
                todo = [work for work in self.choose(self.plan) if _what(work) not in self.attempted]
                if not todo:
                    break
                self.attempted |= {_what(work) for work in todo}
                self.place.directory.check_writable()  # makes the store durable, before the first claim is made in it
                with self.show(todo, min(len(self.slots), len(todo))) as screen:
                    self._round = one = Round(self, todo, screen)
                    follow(self.executor, one, one.jobs(), self.stopping, screen, one.over)
                self.gave_up = one.gave_up
                if len(one.given_up) < len(todo):  # others made progress: a missing search may be there next time
                    self.attempted -= {_what(work) for work in one.given_up}
                if one.error is not None:
                    raise one.error
                self._plan_again()
        finally:
            self.attempts.close(self.stopping)

    def _plan_again(self) -> None:
        """Read again, because only stored runs count. A trial may now need one more ranking."""
        try:
            self.plan = self._planned()
        except Unreachable:
            self.alone = True
            self.plan = self._planned()

    def _planned(self) -> Plan:
        return (self.planned or self.asked.plan)(self.reader.runs())

    def _lost(self, key: str) -> None:
        """Another worker has the trial of that claim: end the child. Called by the thread that renews claims."""
        for number, attempt in list(self._round.running.items()):
            if attempt.claim is not None and attempt.claim.key == key:
                self.executor.end(number, self.stopping)


class Round:
    """What a worker does between two plans: `jobs` chooses and claims, `over` takes what became of the jobs."""

    def __init__(self, worker: Worker, todo: Sequence[Work], screen: Screen) -> None:
        self.worker, self.todo, self.screen = worker, todo, screen
        self.running: dict[int, Attempt] = {}
        """The attempts under way, by the number of their work."""
        self.given_up: list[Work] = []
        """Work that stays waiting, because the search that it starts from is not there."""
        self.error: HarnessError | None = None
        """The error that ended the choosing, if any."""
        self.gave_up = False
        """Whether the database was unreachable for too long."""
        self._pending = list(range(len(todo)))
        self._others = False  # whether others have what comes first here
        self._some = SOME
        self._rng = random.Random()
        tries_all = worker.settings.retry in ("lost", "all")
        self._losses = Counter({} if tries_all else {number: work.losses for number, work in enumerate(todo)})
        self._not_before: dict[int, float] = {}
        self._silent_since: float | None = None
        self._said_waiting = False

    def jobs(self) -> Iterator[Job | Later]:
        """Yield the next job, or `Later` while none is available but one may become so."""
        looked: set[int] = set()  # without success, since the last job or pause
        began = time.monotonic()
        while self._pending or self.running:
            if not self._pending:  # a running job may be queued again
                yield Later(POLL)
                continue
            try:
                number = self._next(looked)
            except Unreachable as error:
                if self._silent_too_long(str(error)):
                    return
                yield Later(POLL)
                continue
            except HarnessError as error:  # running jobs continue; the worker raises it afterwards
                self.error = error
                return
            self._answers()
            if number is not None:
                looked.clear()
                yield self.running[number].job(number)
                began = time.monotonic()
            elif self._pending and looked.issuperset(self._pending):
                if not self.worker.settings.waits and not self.running:
                    return
                self._say_waiting()
                looked.clear()
                yield Later(min(LONGEST, max(POLL, PAUSE * (time.monotonic() - began))))
                began = time.monotonic()

    def label(self, number: int) -> str:
        """The name of that work, for readers."""
        return self.todo[number].label

    def over(self, number: int, answer: Mapping[str, Any]) -> bool:
        """Take the end of an attempt; return whether its work is queued again: another worker has it, or its child
        died."""
        work, status = self.todo[number], answer["status"]
        again = status == Answered.ELSEWHERE or (status == Answered.LOST and self._may_try_again(number))
        if again:
            self._pending.append(number)
        if status == Answered.ELSEWHERE:
            self._not_before[number] = time.monotonic() + POLL
        self._others, self._some = status == Answered.ELSEWHERE, SOME
        self.screen.finished(number, {**answer, "again": again})
        self.worker.answers.append((work, answer))
        first = self.worker.first.get(work.named.study, {})
        if work.trial.key in first:
            first[work.trial.key] = answer["error"] if status == Answered.FAILED else ""
        return again

    def _may_try_again(self, number: int) -> bool:
        self._losses[number] += 1
        return not lost_too_often(self._losses[number], None)

    def _next(self, looked: set[int]) -> int | None:
        """Begin an attempt at the first trial, or, where others work, at one of a few; None if none of these is free.
        Adds those to `looked`."""
        if not (fresh := [number for number in self._pending if number not in looked]):
            return None
        few = self._rng.sample(fresh, min(self._some, len(fresh))) if self._others else fresh[:1]
        runs = self._runs([self.todo[number].trial for number in few])
        kinds = {number: self.worker.kind(self.todo[number], runs[self.todo[number].trial.key]) for number in few}
        keys = [claim_key(self.todo[number].trial, kind) for number, kind in kinds.items() if kind is not None]
        held = self.worker.place.claims.held(keys) if keys else set()
        for number, kind in kinds.items():
            if self._begins(number, kind, runs[self.todo[number].trial.key], held):
                self._some = SOME
                return number
            looked.add(number)
        if len(few) == self._some:
            self._some *= 2
        return None

    def _begins(self, number: int, kind: Kind | None, runs: Sequence[StoredRun], held: Collection[str]) -> bool:
        """Begin an attempt at that work, if it is free, given its runs and the claims of others."""
        work = self.todo[number]
        if time.monotonic() < self._not_before.get(number, 0.0):
            return False
        if kind is None:
            if state_of(work.trial, runs) is State.DONE:
                self._others = True
                self.screen.elsewhere(work)
            self._pending.remove(number)
            return False
        start = work.trial.start
        if kind is Kind.TRAIN and start is not None and not self._has_started(start):
            # It may have been stored between the two looks.
            if not self._may_come(start) and not self._has_started(start):
                self._give_up(number)
            return False
        if claim_key(work.trial, kind) in held or self._is_at_work(runs):
            self._others = True
            return False
        if _fail_alike(self.worker.first.get(work.named.study, {})) or not self.worker.admits(work):
            self._pending.remove(number)
            return False
        try:
            attempt = self._claimed(work, kind, max((run.attempt for run in runs), default=0))
        except Unreachable:
            raise
        except (HarnessError, OSError) as error:
            self._pending.remove(number)
            self.screen.started(number, work.label)
            self.over(number, failed(error))
            return False
        if attempt is None:
            self._others = True
            return False
        self._pending.remove(number)
        self.running[number] = attempt
        return True

    def _claimed(self, work: Work, kind: Kind, attempts: int) -> Attempt | None:
        """Claim the trial and begin an attempt; None if another worker was faster.

        Raises `NotReadable` if none of its runs counts, but an unreadable one might.
        """
        claim = self.worker.place.claims.acquire(claim_key(work.trial, kind), at_least=attempts)
        if claim is None:
            return None
        try:
            problems: list[Problem] = []
            runs = self._runs([work.trial], problems)[work.trial.key]
            wrong = next((one for one in problems if one.unreadable), None)
            if wrong is not None and not any(run.counts for run in runs):
                raise NotReadable(f"{wrong.place}: {wrong.reason}; the trial may be done, and is not run again")
            if self.worker.kind(work, runs) is kind:
                first = self.worker.first.setdefault(work.named.study, {})
                if len(first) < FIRST:
                    first.setdefault(work.trial.key, "")
                return self.worker.attempts.begin(work, kind, claim, runs)
        except BaseException:
            with contextlib.suppress(HarnessError):
                claim.release()
            raise
        claim.release()
        return None

    def _runs(self, trials: Collection[Trial], problems: list[Problem] | None = None) -> Mapping[str, list[StoredRun]]:
        """The runs of these trials, in order, by key."""
        names = None if len(trials) > ALL else {trial.key[:16] for trial in trials}
        found = self.worker.reader.load(names, [] if problems is None else problems)
        runs: dict[str, list[StoredRun]] = defaultdict(list)
        for run in supersede(found, []):
            runs[run.key].append(run)
        return runs

    def _is_at_work(self, runs: Sequence[StoredRun]) -> bool:
        """Whether a process runs the trial whose claim is elsewhere: of two that share a directory, one may use a
        database. It has written to its run within a lease, which a suspended process, or one that hangs, has not."""
        beats = [run.heartbeat or run.start_time for run in runs if run.status is Status.RUNNING]
        return any(seconds_since(beat) < self.worker.place.claims.lease for beat in beats)

    def _has_started(self, start: Trial) -> bool:
        """Whether the search that a trial starts from is stored, with its ranking, or given."""
        if start.key in self.worker.starts:
            return True
        return any(run.counts and start.ranking_key in run.rankings for run in self._runs([start])[start.key])

    def _may_come(self, start: Trial) -> bool:
        """Whether that search is running or pending here, or claimed or to be claimed by another process."""
        if any(self.todo[number].trial.key == start.key for number in (*self._pending, *self.running)):
            return True
        if self.worker.place.claims.held([claim_key(start, kind) for kind in Kind]):
            return True
        runs = self._runs([start])[start.key]
        others = any(work.trial.key == start.key and not self.worker.mine(work) for work in self.worker.plan.work)
        return self._is_at_work(runs) or (others and state_of(start, runs) is not State.FAILED)

    def _give_up(self, number: int) -> None:
        self._pending.remove(number)
        work = self.todo[number]
        self.given_up.append(work)
        start = work.trial.start
        # Another search of a trial that was trained here comes in the next round.
        if start is None or all(one.trial.key != start.key for one in self.todo):
            self.screen.say(f"{work.label} stays waiting: the search that it starts from is not there")

    def _say_waiting(self) -> None:
        if not self._said_waiting and not self.running:
            self._said_waiting = True
            self.screen.say(f"waiting for {len(self._pending)} trials claimed by other processes (Ctrl-C stops)")

    def _silent_too_long(self, reason: str) -> bool:
        wait = self.worker.settings.outage_wait
        if self._silent_since is None:
            self._silent_since = time.monotonic()
            self.screen.say(f"{reason}; running trials continue, new ones wait up to {wait:g} s for it")
        self.gave_up = time.monotonic() - self._silent_since >= wait
        return self.gave_up

    def _answers(self) -> None:
        if self._silent_since is not None:
            self._silent_since = None
            self.screen.say("the database answers again")
            arguments = (self.worker.place, self.worker.stopping, self.screen.say)
            threading.Thread(target=bring_up_to_date, args=arguments, daemon=True).start()  # trials are running


def _fail_alike(first: Mapping[str, str]) -> bool:
    """Whether these first trials are enough, and have all failed with the same error."""
    return len(first) == FIRST and len({*first.values()}) == 1 and "" not in first.values()


def _what(work: Work) -> tuple[str, str]:
    return work.trial.key, work.trial.ranking_key
