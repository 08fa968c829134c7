"""The loop of a worker: plan, claim, compute, commit, plan again, until nothing is left. Does not import torch.

`run`, `worker`, `store recompute` and `rerun` are this loop. They differ in what they choose of the plan. It prints
nothing: a `Screen` shows its progress, and the rest is read from it afterwards.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from harness.errors import Unreachable
from harness.stores.claims import Claim, Renewal
from harness.stores.stored import StoredRun
from harness.study.judging import lacks
from harness.study.study import Request
from harness.study.trial import Trial
from harness.work.agenda import Agenda
from harness.work.attempts import Attempt, Attempts
from harness.work.jobs import Answered, Job, Later, Stopping, failed
from harness.work.plan import Asked, Plan, require_inputs
from harness.work.processes import Processes
from harness.work.settings import Settings
from harness.work.slots import Slots
from harness.work.states import Kind, State, Work, left, stand
from harness.work.workplace import Workplace


class Screen(Protocol):
    """Shows the progress of the jobs of one round, by their numbers."""

    stopping: bool

    def say(self, line: str) -> None: ...
    def started(self, number: int, label: str) -> None: ...
    def progress(self, number: int, report: Mapping[str, Any]) -> None: ...
    def finished(self, number: int, answer: Mapping[str, Any]) -> None: ...
    def elsewhere(self, work: Work) -> None: ...


FIRST = 3
"""If so many trials of a study fail first, all with the same error, its others are not started."""

Show = Callable[[Sequence[Work], int], contextlib.AbstractContextManager[Screen]]
"""Opens the screen of a round: of this work, with that many jobs in parallel."""


class Queue(Protocol):
    """Jobs of attempts, one after the other: an `Agenda`, or the references that are missing."""

    running: dict[int, Attempt]
    """The attempts under way, by the number of their job."""

    def label(self, number: int) -> str: ...


def follow(
    executor: Processes,
    queue: Queue,
    jobs: Iterable[Job | Later],
    stopping: Stopping,
    screen: Screen,
    over: Callable[[int, Mapping[str, Any]], object],
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
class Session:
    """One worker at work. What it did is in its fields afterwards."""

    place: Workplace
    """Reached already."""
    settings: Settings
    preset: str
    overrides: Mapping[str, Any]
    planned: Callable[[list[StoredRun]], Plan]
    """Makes the plan from the stored runs."""
    executor: Processes
    stopping: Stopping
    show: Show
    mine: Callable[[Work], bool] = lambda work: True
    """Which trials this worker may run: it waits for others only where one of its own starts from them."""
    admits: Callable[[Work], bool] = lambda work: True
    """Asked before each trial begins: see `Agenda`."""
    starts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Rankings that trials start from, by the key of the search, where they are not stored in this place."""
    attempted: set[tuple[str, str]] = field(default_factory=set)
    """What was tried: trial and ranking."""
    answers: list[tuple[Work, Mapping[str, Any]]] = field(default_factory=list)
    """How every attempt ended."""
    gave_up: bool = False
    """Whether the database was unreachable for too long."""

    def __post_init__(self) -> None:
        self.plan = self.planned(self.place.reader.runs())
        self._first: dict[str, dict[str, str]] = {}
        """By study, its first trials here with the error of each, "" for one that has not failed."""
        computing = replace(self.settings.computing, device=self.slots.device, ranks=self.slots.ranks)
        self.attempts = Attempts(
            self.place,
            computing,
            self.preset,
            self.overrides,
            self.settings.work,
            profile=self.settings.profile,
            starts=self.starts,
            renewal=Renewal(self._lost),
        )

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
        return {study: next(iter(first.values())) for study, first in self._first.items() if _fail_alike(first)}

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
            self._run()
        finally:
            self.attempts.close(self.stopping)

    def _run(self) -> None:
        while not self.stopping.asked and not self.gave_up:
            todo = [work for work in self.choose(self.plan) if _what(work) not in self.attempted]
            if not todo:
                break
            self.attempted |= {_what(work) for work in todo}
            agenda = self._round(todo)
            self.gave_up = agenda.gave_up
            if len(agenda.given_up) < len(todo):  # others made progress: a missing search may be there next time
                self.attempted -= {_what(work) for work in agenda.given_up}
            if agenda.error is not None:
                raise agenda.error
            self._plan_again()

    def _plan_again(self) -> None:
        """Read again, because only stored runs count. A trial may now need one more ranking."""
        try:
            self.plan = self.planned(self.place.reader.runs())
        except Unreachable:
            self.place.give_up()
            self.plan = self.planned(self.place.reader.runs())

    def _round(self, todo: Sequence[Work]) -> Agenda:
        """Do this work, and show its progress."""
        self.place.check_writable()  # makes the store durable, before the first claim is made in it
        agenda = self._agenda = Agenda(
            todo,
            self.place.reader,
            self.place.claims,
            self._begin,
            self.kind,
            given=self.starts.keys(),
            retry=self.settings.retry,
            waits=self.settings.waits,
            outage_wait=self.settings.outage_wait,
            admits=lambda work: not _fail_alike(self._first.get(work.named.study, {})) and self.admits(work),
            others={work.trial.key for work in self.plan.work if not self.mine(work)},
            recovered=partial(self.place.sync_aside, self.stopping),
        )
        with self.show(todo, min(len(self.slots), len(todo))) as screen:
            over = partial(self._over, screen)
            agenda.say, agenda.elsewhere, agenda.refuse = screen.say, screen.elsewhere, partial(self._refused, screen)
            follow(self.executor, agenda, agenda.jobs(), self.stopping, screen, over)
        return agenda

    def _begin(self, work: Work, kind: Kind, claim: Claim, runs: Sequence[StoredRun]) -> Attempt:
        first = self._first.setdefault(work.named.study, {})
        if len(first) < FIRST:
            first.setdefault(work.trial.key, "")
        return self.attempts.begin(work, kind, claim, runs)

    def _refused(self, screen: Screen, number: int, error: BaseException) -> None:
        """An attempt could not begin."""
        screen.started(number, self._agenda.label(number))
        self._over(screen, number, failed(error))

    def _over(self, screen: Screen, number: int, answer: Mapping[str, Any]) -> None:
        """An attempt is over."""
        again = self._agenda.heard(number, answer["status"])
        screen.finished(number, {**answer, "again": again})
        work = self._agenda.todo[number]
        self.answers.append((work, answer))
        first = self._first.get(work.named.study, {})
        if work.trial.key in first:
            first[work.trial.key] = answer["error"] if answer["status"] == Answered.FAILED else ""

    def _lost(self, key: str) -> None:
        """Another worker has the trial of that claim: end the child. Called by the thread that renews claims."""
        for number, attempt in list(self._agenda.running.items()):
            if attempt.claim is not None and attempt.claim.key == key:
                self.executor.end(number, self.stopping)


@dataclass
class Recomputing(Session):
    """The loop of `store recompute`: the rankings that need no training, the missing ones or all."""

    again: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.attempts.again = self.again

    def choose(self, plan: Plan) -> list[Work]:
        return rankings(plan, self.again)

    def kind(self, work: Work, runs: Sequence[StoredRun]) -> Kind | None:
        done = next((run for run in runs if run.counts), None)
        stored = None if done is None else done.rankings.get(work.trial.ranking_key)
        return Kind.RANK if self.again or lacks(work.trial.config, stored) else None


def working(
    place: Workplace,
    asked: Asked,
    settings: Settings,
    executor: Processes,
    stopping: Stopping,
    show: Show,
    *,
    planned: Callable[[list[StoredRun]], Plan] | None = None,
    kind: Callable[..., Session] = Session,
    **more: Any,
) -> Session:
    """The loop of `run`, `worker` and `store recompute`. Any number of processes may share the work.

    `planned` makes the plans, where what is asked for depends on what is stored. `kind` is the class of the loop, and
    `more` are other fields of it.
    """
    return kind(place, settings, asked.preset, asked.overrides, planned or asked.plan, executor, stopping, show, **more)


def repeating(
    place: Workplace,
    run: StoredRun,
    trial: Trial,
    label: str,
    settings: Settings,
    executor: Processes,
    stopping: Stopping,
    show: Show,
) -> Session:
    """The loop of `rerun`: the trial of a run, without a study, until it is done once in this place.

    Only this run is repeated, not the search that it started from.
    """

    def planned(runs: list[StoredRun]) -> Plan:
        request = Request("", 0, trial.config.dataset, trial.config.seed, trial, False)
        return Plan((stand(label, [request], [run for run in runs if run.key == trial.key]),), ())

    starts = {} if trial.start is None else {trial.start.key: {"top1": (run.result or {}).get("top1")}}
    return Session(place, settings, run.preset, run.overrides, planned, executor, stopping, show, starts=starts)


def rankings(plan: Plan, again: bool) -> list[Work]:
    """One piece of work per ranking of a plan that can be computed without training: missing, or without its panel.

    Raises `DataError` when images or ground truth are missing.
    """
    found, ranked = [], []
    for work in plan.work:
        if work.run is None or work.state not in (State.RANK, State.DONE, State.AGAIN) or work.trial.start is not None:
            continue  # a retrained trial has no ranking
        stored = work.run.rankings
        for key, trial in work.rankings.items():
            if again or lacks(trial.config, stored.get(key)):
                found.append(replace(work, trial=trial))
                # A panel alone needs no images.
                ranked += [trial] if again or key not in stored else []
    require_inputs(ranked)
    return found


def _fail_alike(first: Mapping[str, str]) -> bool:
    """Whether these first trials are enough, and have all failed with the same error."""
    return len(first) == FIRST and len({*first.values()}) == 1 and "" not in first.values()


def _what(work: Work) -> tuple[str, str]:
    return work.trial.key, work.trial.ranking_key
