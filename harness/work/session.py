"""A session: plan, hand out, execute, plan again, until nothing is left to try. Does not import torch.

`run`, `store recompute` and `rerun` are sessions. They differ in what they choose of the plan, and in how it is
handed out. A session prints nothing: a `Screen` shows its progress, and the rest is read from it afterwards.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from harness.errors import Unreachable
from harness.stores.directory.crash import record_death, record_failure
from harness.stores.stored import StoredRun
from harness.study.judging import lacks
from harness.study.study import Request
from harness.study.trial import Trial
from harness.work.agenda import Agenda, Batch
from harness.work.assignment import Assignment
from harness.work.jobs import Answered, Event, Stopping
from harness.work.keeper import Keeper
from harness.work.plan import Asked, Plan, require_inputs
from harness.work.processes import Processes
from harness.work.slots import Slots
from harness.work.states import Kind, State, Work, stand
from harness.work.workplace import Workplace

Assign = Callable[[Work, Kind], Assignment]
"""Makes the assignment of a job; the sender's settings are in it."""


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


@dataclass
class Session:
    """The loop of all commands that run jobs. What it did is in its fields afterwards."""

    place: Workplace
    """Reached already."""
    planned: Callable[[list[StoredRun]], Plan]
    """Makes the plan from the stored runs."""
    choose: Callable[[Plan], list[Work]]
    """The work to do next, of a plan."""
    agenda: Callable[[list[Work]], Agenda | Batch]
    executor: Processes
    stopping: Stopping
    show: Show
    attempted: set[tuple[str, str]] = field(default_factory=set)
    """What was tried: trial and ranking."""
    answers: list[tuple[Work, Mapping[str, Any]]] = field(default_factory=list)
    """How every job ended."""
    gave_up: bool = False
    """Whether the database was unreachable for too long."""
    keeper: Keeper = field(default_factory=Keeper)
    """Renews the claims of the jobs, besides their own processes."""

    def __post_init__(self) -> None:
        self.plan = self.planned(self.place.reader.runs())

    @property
    def slots(self) -> Slots:
        """The places for jobs."""
        return self.executor.slots

    @property
    def errors(self) -> dict[str, str]:
        """Errors of jobs that failed, died or were interrupted by a fault of the machine in the end, by trial."""
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
        """Keys of the trials that jobs of this session have done; other processes may have done the rest."""
        done = ((work, answer) for work, answer in self.answers if answer["status"] == Answered.DONE)
        return {work.trial.key for work, answer in done if not answer.get("already")}

    def run(self) -> None:
        """Execute and plan again until nothing is left that was not tried, or a stop was asked for."""
        with contextlib.closing(self.keeper):
            self._run()

    def _run(self) -> None:
        while not self.stopping.asked and not self.gave_up:
            todo = [work for work in self.choose(self.plan) if _what(work) not in self.attempted]
            if not todo:
                break
            self.attempted |= {_what(work) for work in todo}
            agenda = self.agenda(todo)
            self._follow(agenda)
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

    def _follow(self, agenda: Agenda | Batch) -> None:
        """Execute the agenda, and show its progress."""
        run_ids: dict[int, str] = {}
        with self.show(agenda.todo, min(len(self.slots), len(agenda.todo))) as screen:
            agenda.say, agenda.elsewhere = screen.say, screen.elsewhere
            for event in self.executor.execute(agenda.jobs(), self.stopping):
                number, work = event.job.number, agenda.todo[event.job.number]
                again = agenda.heard(event)
                screen.stopping = bool(self.stopping.asked)
                if event.kind == "started":
                    screen.started(number, work.label)
                elif event.kind == "progress" and "claim" in event.data:
                    self.keeper.keep(number, self.place.claims.redeem(event.data["claim"]), event.data["owner"])
                elif event.kind == "progress":
                    screen.progress(number, event.data)
                    if "note" in event.data:
                        screen.say(f"{work.label}: {event.data['note']}")
                    if "run_id" in event.data:
                        run_ids[number] = event.data["run_id"]
                else:
                    self.keeper.leave(number)
                    screen.finished(number, {**event.data, "again": again})
                    self.answers.append((work, event.data))
                    self._record_end(event, run_ids.pop(number, None))

    def _record_end(self, event: Event, run_id: str | None) -> None:
        """Store how the process of a run died, or which other one failed. A job that answers has stored its own end."""
        status, store = event.data["status"], self.place.directory.path
        if run_id is None or event.job.document["kind"] != Kind.TRAIN:
            return
        with contextlib.suppress(OSError):
            if status == Answered.LOST:
                record_death(store, run_id, event.data["error"])
            elif status == Answered.FAILED and "rank" in event.data:
                record_failure(store, run_id, event.data.get("traceback") or event.data["error"])


def assigning(make: Callable[..., Assignment], profile: bool = False) -> Assign:
    """Assignments of work, by a constructor that knows all the rest. `profile` is for the first trained trial only."""
    to_profile = [profile]

    def assign(work: Work, kind: Kind) -> Assignment:
        profiled = kind is Kind.TRAIN and any(to_profile)
        if profiled:
            to_profile.clear()
        return make(kind=kind, trial=work.trial, profile=profiled, devices=work.devices, naming=work.naming)

    return assign


def working(
    place: Workplace,
    asked: Asked,
    assign: Assign,
    executor: Processes,
    stopping: Stopping,
    show: Show,
    *,
    retry: str | None = None,
    waits: bool = True,
    outage_wait: float = 600.0,
    planned: Callable[[list[StoredRun]], Plan] | None = None,
    mine: Callable[[Work], bool] = lambda work: True,
    admits: Callable[[Work], bool] = lambda work: True,
    kind: Callable[..., Session] = Session,
) -> Session:
    """The session of `run` and `worker`: everything that is not stored yet. Any number of processes may share the work.

    `planned` makes the plans, where what is asked for depends on what is stored. `mine` chooses the work that is run
    here; the rest is expected from others. `admits` is asked before each trial begins: see `Agenda`. `kind` is the
    class of the session.
    """

    def choose(plan: Plan) -> list[Work]:
        chosen = [work for work in plan.work if mine(work) and (work.state is State.RUNNING or work.kind(retry))]
        return [one for work in chosen for one in (work.unranked if work.state is State.RANK else [work])]

    def agenda(todo: list[Work]) -> Agenda:
        return Agenda(
            todo,
            place.reader,
            place.claims,
            assign,
            retry=retry,
            waits=waits,
            outage_wait=outage_wait,
            admits=admits,
            others={work.trial.key for work in session.plan.work if not mine(work)},
            recovered=partial(place.sync_aside, stopping),
        )

    session = kind(place, planned or asked.plan, choose, agenda, executor, stopping, show)
    return session


def recomputing(
    place: Workplace, asked: Asked, assign: Assign, executor: Processes, stopping: Stopping, show: Show, *, again: bool
) -> Session:
    """The session of `store recompute`: the rankings that need no training, the missing ones or all."""
    choose, agenda = partial(rankings, again=again), partial(Batch, assign=assign, kind=Kind.RANK)
    return Session(place, asked.plan, choose, agenda, executor, stopping, show)


def repeating(
    place: Workplace, trial: Trial, label: str, assign: Assign, executor: Processes, stopping: Stopping, show: Show
) -> Session:
    """The session of `rerun`: one trial, without a study, until it is done once in this place."""

    def planned(runs: list[StoredRun]) -> Plan:
        request = Request("", 0, trial.config.dataset, trial.config.seed, trial, False)
        return Plan((stand(label, [request], [run for run in runs if run.key == trial.key]),), ())

    def choose(plan: Plan) -> list[Work]:
        return [work for work in plan.work if work.state is not State.DONE]

    return Session(place, planned, choose, partial(Batch, assign=assign, kind=Kind.TRAIN), executor, stopping, show)


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


def _what(work: Work) -> tuple[str, str]:
    return work.trial.key, work.trial.ranking_key
