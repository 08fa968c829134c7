"""The task of a cluster's engine: one worker, which pulls trials from the store. Imports no torch.

A task takes plain bytes, and gives back lines of JSON while it works: lists of messages, each with an "event". "here"
comes first, once the task runs and has the right files; "refused" says why it cannot; "worked" comes last. Between them
are the events of trials, by the keys of trial and ranking, and what there is to "say". Knows no particular engine.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import platform
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import harness
from harness.errors import HarnessError, UserError
from harness.schema import OBSERVED
from harness.work.jobs import Stopping
from harness.work.plan import Asked
from harness.work.processes import Processes
from harness.work.remote.parcel import Parcel, digest_of, engine_digest
from harness.work.slots import VISIBLE, Slots
from harness.work.states import Work
from harness.work.worker import Settings, Show

EVERY = 0.25
"""Least seconds between two messages."""

GRACE = 20.0
"""Seconds that a task has to stop cleanly."""

PASSED_ON = ("HARNESS_", "OMP_NUM_THREADS")
"""Environment variables that tasks have as the sender has them: names, or how they begin."""

DATA = "HARNESS_DATA"

Message = dict[str, Any]


@dataclass(frozen=True)
class Order:
    """What a task is told. It travels as bytes that are read only where the engine is the same."""

    asked: Asked
    """Without its studies, which the task loads itself."""
    settings: Settings
    studies: tuple[str, ...]
    parcel: str
    """Hash of the files that were sent along."""
    environment: Mapping[str, str]
    device: str | None
    """The device of trials; None for the best that a task finds."""
    ranks: int = 1
    """Processes of a trial."""

    @classmethod
    def of(cls, asked: Asked, settings: Settings, parcel: Parcel, device: str | None, ranks: int = 1) -> Order:
        """The order for tasks on other machines: all paths are absolute."""
        settings = replace(settings, places=replace(settings.places, directory=settings.places.directory.absolute()))
        environment = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
        environment[DATA] = str(Path(environment.get(DATA, "data")).absolute())
        own = replace(asked, studies=())
        return cls(own, settings, parcel.studies, parcel.digest, environment, device, ranks)

    def packed(self) -> tuple[str, bytes]:
        """Version and hash of the engine, and the order for an engine that has these."""
        return identity(), pickle.dumps(self)


def identity() -> str:
    """Version and hash of the engine."""
    return f"{harness.__version__} {engine_digest()[:16]}"


def pull(sender: str, packed: bytes, gpus: Sequence[str]) -> Iterator[str]:
    """Run a worker in this process until nothing is left; yields messages. An interruption stops it cleanly."""
    told: queue.SimpleQueue[Message] = queue.SimpleQueue()
    stopping = Stopping()
    thread = threading.Thread(target=_report, args=(sender, packed, gpus, told.put, stopping), daemon=True)
    thread.start()
    try:
        over = False
        while not over:
            over = not thread.is_alive()
            with contextlib.suppress(queue.Empty):
                first = told.get(timeout=EVERY)
                time.sleep(EVERY / 2)  # more may come: messages cost more than their length
                messages = [first, *_rest(told)]
                yield json.dumps(messages)
    except KeyboardInterrupt:
        stopping.ask()
        thread.join(GRACE)


def _rest(told: queue.SimpleQueue[Message]) -> Iterator[Message]:
    with contextlib.suppress(queue.Empty):
        while True:
            yield told.get_nowait()


def _report(
    sender: str, packed: bytes, gpus: Sequence[str], tell: Callable[[Message], None], stopping: Stopping
) -> None:
    """Work, and tell how that ends."""
    try:
        tell({"event": "worked", **_worked(sender, packed, gpus, tell, stopping)})
    except HarnessError as error:
        tell({"event": "refused", "error": str(error)})
    except Exception as error:
        tell({"event": "refused", "error": f"{type(error).__name__}: {error}"})


def _worked(
    sender: str, packed: bytes, gpus: Sequence[str], tell: Callable[[Message], None], stopping: Stopping
) -> Message:
    from harness.study.catalogue import find_studies
    from harness.work.unattended import work

    here = f"{platform.node()}, process {os.getpid()}"
    if identity() != sender:
        raise UserError(
            f"the harness on {here} is {identity()}, that of `run` is {sender} (version and hash of its files): "
            "install the same on all nodes"
        )
    order: Order = pickle.loads(packed)
    if digest_of(Path.cwd()) != order.parcel:
        raise UserError(f"the studies and components on {here}, in {Path.cwd()}, are not those that `run` sent")
    for name in [name for name in os.environ if name.startswith(PASSED_ON) and name not in order.environment]:
        del os.environ[name]
    os.environ.update(order.environment)
    if not gpus:
        os.environ[VISIBLE] = ""  # an engine may show all GPUs to a task that has asked for none
    slots = Slots(tuple(gpus), 1, "cuda" if gpus else order.device, ranks=order.ranks)
    asked = replace(order.asked, studies=[one for name in order.studies for one in find_studies(name)])
    with contextlib.closing(Processes(slots)) as executor:
        executor.prepare()
        tell({"event": "here", "node": platform.node(), "pid": os.getpid()})
        show: Show = lambda todo, parallel: contextlib.nullcontext(Telling(todo, tell))  # noqa: E731
        return work(asked, order.settings, executor, stopping, show, lambda line: tell(_said(line))).json()


def _said(line: str) -> Message:
    return {"event": "say", "line": line}


@dataclass
class Telling:
    """A screen whose content is told to the sender of the order."""

    todo: Sequence[Work]
    tell: Callable[[Message], None]
    stopping: bool = field(default=False)

    def say(self, line: str) -> None:
        self.tell(_said(line))

    def started(self, number: int, label: str) -> None:
        self._event("started", number)

    def progress(self, number: int, report: Mapping[str, Any]) -> None:
        self._event("progress", number, report)

    def finished(self, number: int, answer: Mapping[str, Any]) -> None:
        result = answer.get("result") or {}
        # Of a curve the end is enough to be shown.
        ends = {name: points[-1:] for name, points in (result.get(OBSERVED) or {}).items()}
        self._event("finished", number, {**answer, "result": {**result, OBSERVED: ends}} if result else answer)

    def elsewhere(self, work: Work) -> None:
        pass  # the worker that has done it tells

    def _event(self, event: str, number: int, data: Mapping[str, Any] | None = None) -> None:
        trial = self.todo[number].trial
        self.tell({"event": event, "key": trial.key, "ranking": trial.ranking_key, "data": dict(data or {})})
