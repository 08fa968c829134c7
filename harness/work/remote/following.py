"""The side of `run` that follows the workers of a cluster: shows their trials, replaces workers that are lost.

A `Crew` is what an engine gives: tasks that can be started, and their messages. This module knows no particular engine.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from harness.errors import HarnessError, Unreachable, UserError
from harness.work.jobs import Answered
from harness.work.remote.pulling import GRACE, Message
from harness.work.slots import Slots
from harness.work.states import Work
from harness.work.worker import Screen, Worker

LOSSES = 10
"""Workers that may be lost in a row, without any trial that ends in between."""

PATIENCE = 30.0
"""Seconds without a first sign of a worker after which the reader is told."""


@dataclass(frozen=True)
class Heard:
    """Messages of a worker; or its end, expected or not."""

    worker: int
    messages: tuple[Message, ...] = ()
    over: bool = False
    lost: str | None = None
    """Why it ended before it said so."""


class Crew(Protocol):
    """Tasks of an engine, by number."""

    wanted: int
    ranks: int
    """Processes of a trial."""
    needs: str
    """What one task asks the cluster for, for readers."""

    def start(self, worker: int) -> None: ...

    def listen(self) -> Iterator[Heard]:
        """What there is to hear within a short time."""

    def stop(self) -> None:
        """Ask all tasks to stop cleanly."""

    def drop(self, worker: int) -> None:
        """End a task at once."""


@dataclass
class Following(Worker):
    """In the place of a worker here: those of a cluster run what is not stored yet, and plan for themselves."""

    crew: Crew | None = None
    """To be set where there is something to run."""

    @property
    def slots(self) -> Slots:
        return Slots(jobs=self.crew.wanted, ranks=self.crew.ranks) if self.crew is not None else super().slots

    def run(self) -> None:
        """Start workers, and follow them until all have ended."""
        todo = self.choose(self.plan)
        if not todo or self.stopping.asked:
            return
        assert self.crew is not None
        self.attempted |= {(work.trial.key, work.trial.ranking_key) for work in todo}
        with self.show(todo, min(self.crew.wanted, len(todo))) as screen:
            _Shift(self, self.crew, todo, screen).follow()
        self._plan_again()


@dataclass
class _Shift:
    """Follows the workers of a cluster."""

    following: Following
    crew: Crew
    todo: list[Work]
    screen: Screen
    workers: dict[int, bool] = field(default_factory=dict)
    """By number, whether the worker has begun."""
    owners: dict[int, int] = field(default_factory=dict)
    """By trial that is shown as running, its worker."""
    losses: int = 0
    begun: bool = False
    """Whether any worker has."""
    said: set[str] = field(default_factory=set)
    done: bool = False
    """Whether a worker has found that nothing is left."""

    def __post_init__(self) -> None:
        self.numbers = {(work.trial.key, work.trial.ranking_key): n for n, work in enumerate(self.todo)}
        self.by_key = {work.trial.key: n for n, work in reversed(list(enumerate(self.todo)))}

    def follow(self) -> None:
        """Until all workers have ended, or a stop was asked for and they had their time."""
        for worker in range(min(self.crew.wanted, len(self.todo))):
            self._start(worker)
        began = time.monotonic()
        while self.workers and not self.following.stopping.asked:
            for heard in self.crew.listen():
                self._hear(heard)
            if self.done:
                for worker in [worker for worker, begun in self.workers.items() if not begun]:
                    self._forget(worker)  # nothing is left for it
            if not self.begun and time.monotonic() - began > PATIENCE:
                self._say(f"waiting for the cluster: no worker has begun; each needs {self.crew.needs}")
        if self.following.stopping.asked:
            self._stop()

    def _say(self, line: str) -> None:
        """Print a line once, however many workers say it."""
        if line not in self.said:
            self.said.add(line)
            self.screen.say(line)

    def _start(self, worker: int) -> None:
        self.workers[worker] = False
        self.crew.start(worker)

    def _forget(self, worker: int) -> None:
        del self.workers[worker]
        self.crew.drop(worker)

    def _hear(self, heard: Heard) -> None:
        for message in heard.messages:
            self._take(heard.worker, message)
        if heard.worker not in self.workers:
            return
        if heard.lost is not None:
            self._replace(heard.worker, heard.lost)
        elif heard.over:
            del self.workers[heard.worker]

    def _replace(self, worker: int, why: str) -> None:
        """Start another worker in the place of one that was lost. Its trial is taken over once its claim expires."""
        begun = self.workers.pop(worker)
        lost = [number for number, owner in self.owners.items() if owner == worker]
        for number in lost:
            self._finish(number, {"status": Answered.ELSEWHERE})
        names = f"; {self.todo[lost[0]].label} is taken over" if lost else ""
        self.screen.say(f"a worker was lost ({why}){names}")
        self.losses += begun
        if self.losses > LOSSES:
            for other in list(self.workers):
                self._forget(other)
            raise HarnessError(f"{self.losses} workers were lost in a row, the last one because: {why}")
        if not self.done:
            self._start(worker)

    def _take(self, worker: int, message: Message) -> None:
        event = message["event"]
        if event == "here":
            self.workers[worker] = self.begun = True
        elif event == "say":
            self._say(f"a worker says: {message['line']}")
        elif event == "refused":
            for other in list(self.workers):
                self._forget(other)
            raise UserError(message["error"])
        elif event == "worked":
            self.done = self.done or not message["left"]
        else:
            key = message["key"]
            number = self.numbers.get((key, message["ranking"]), self.by_key.get(key))
            if number is not None:
                self._show(worker, number, event, message["data"])

    def _show(self, worker: int, number: int, event: str, data: Mapping[str, Any]) -> None:
        """Show an event of a trial. Of two workers that both begin it, the one that gets its claim goes on."""
        passed_on = event == "finished" and (data.get("again") or data["status"] == Answered.ELSEWHERE)
        owner = self.owners.get(number)
        if owner is None and not passed_on:
            self.owners[number] = worker
            self.screen.started(number, self.todo[number].label)
        elif owner != worker and (passed_on or event == "started"):
            return
        if event == "progress":
            self.owners[number] = worker
            self.screen.progress(number, data)
        elif event == "finished":
            self._finish(number, data)
            if not passed_on:
                self.losses = 0
                self.following.answers.append((self.todo[number], data))

    def _finish(self, number: int, answer: Mapping[str, Any]) -> None:
        if self.owners.pop(number, None) is not None:
            self.screen.finished(number, answer)

    def _stop(self) -> None:
        """Let the workers save what they do: until no trial that was running is claimed, or their time is over."""
        self.screen.stopping = True
        self.crew.stop()
        until, claims = time.monotonic() + GRACE, self.following.place.claims
        running = {self.todo[number].trial.key for number in self.owners}
        while running and time.monotonic() < until and self.following.stopping.asked < 2:
            with contextlib.suppress(Unreachable):
                running = {key for key in running if claims.holder(key) is not None}
            time.sleep(0.2)
        for number in list(self.owners):
            self._finish(number, {"status": Answered.INTERRUPTED})
