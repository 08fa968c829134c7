"""`harness status --watch`: the live view of `run`, filled from the store, on whichever machine the trials run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from harness.cli._display import Display
from harness.cli._tally import items_of
from harness.documents import seconds_since
from harness.errors import HarnessError
from harness.stores.directory.run_directory import RUN
from harness.stores.store import Store
from harness.stores.stored import StoredRun
from harness.study.study import Study
from harness.work.jobs import Answered
from harness.work.states import State, Work

EVENTS = {"train": "epoch", "retrain": "epoch"}
"""By stage of a stored run, the event that a process reports for it; others have the name of their stage."""


def watch(look: Callable[[], Sequence[Work]], store: Store, studies: Sequence[Study], pause: float) -> None:
    """Show the trials that `look` finds until none of them runs or waits, or until Ctrl-C."""
    now = {work.trial.key: work for work in look()}
    display = Display(studies)
    display.tally.stored = sum(work.state is State.DONE for work in now.values())
    left = [work for work in now.values() if work.state is not State.DONE]
    # What a trial lacks is several jobs to its worker, and one on the display.
    items = [replace(item, jobs=(sum(item.jobs),)) for item in items_of(left, studies)]
    numbers = {item.key: number for number, item in enumerate(items)}
    with suppress(KeyboardInterrupt), display, display.round(items):
        for work in left:
            if work.state in (State.FAILED, State.LOST):
                display.tally.ended[work.trial.key] = str(work.state)
        while True:
            for key, number in numbers.items():
                _take(display, number, now[key], store)
            if len(display.tally.ended) == len(items):
                return
            time.sleep(pause)
            now |= {work.trial.key: work for work in look()}


def _take(display: Display, number: int, work: Work, store: Store) -> None:
    """Show what has become of a trial."""
    tally, run = display.tally, work.run
    if work.state is State.RUNNING and run is not None:
        if number not in tally.running:
            display.started(number, work.label)
            tally.running[number].began -= seconds_since(run.start_time) if run.start_time else 0.0
        if report := _report(run, store):
            display.progress(number, report)
    elif number in tally.running and work.state in (State.DONE, State.FAILED, State.LOST, State.INTERRUPTED):
        display.finished(number, _answer(work))
    elif work.state is State.DONE and work.trial.key not in tally.ended:
        display.elsewhere(work)


def _report(run: StoredRun, store: Store) -> Mapping[str, Any]:
    """The progress of a running trial as its process reports it; empty if none is stored yet."""
    with suppress(HarnessError, ValueError):
        progress = json.loads(store.read(run, RUN)).get("progress")
        if progress:
            return {**progress, "event": EVENTS.get(progress["stage"], progress["stage"])}
    return {}


def _answer(work: Work) -> dict[str, Any]:
    """How a trial ended, as its process answers."""
    run = work.run
    assert run is not None, "a trial that ended"
    answer: dict[str, Any] = {"status": Answered(str(work.state)), "result": run.result, "cost": run.cost}
    if work.state in (State.FAILED, State.LOST):
        answer["error"] = (run.fail_trace or ["no reason is stored"])[-1].strip().splitlines()[-1]
    return answer
