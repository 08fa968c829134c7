"""What `run` says before its first trial: how many trials there are, which of them run, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.work.plan import Plan
    from harness.work.slots import Slots
    from harness.work.states import Work


def announced(plan: Plan, todo: Sequence[Work], slots: Slots, store: Path, references: int) -> Iterator[str]:
    """The lines. `todo` is the work of the plan that runs, `references` how many follow it."""
    from harness.work.states import LOSSES, State

    trials = {work.trial.key: work for work in todo}  # one may have several rankings to make, each a job
    parallel = f"{min(len(slots), len(todo))} in parallel"
    if slots.ranks > 1:
        parallel += f" by {slots.ranks} ranks each"
    yield f"{_trials(len(trials))} to run, {parallel}, stored in {store}"
    if slots.gpus:
        yield from needs(trials.values())
    why = Counter(map(_why, trials.values()))
    yield "  " + ", ".join(f"{count} {reason}" for reason, count in why.items())
    left = Counter(work.state for work in plan.work if work.trial.key not in trials)
    if left[State.DONE]:
        yield f"  {left[State.DONE]} stored already"
    if left[State.FAILED]:
        yield f"  {left[State.FAILED]} failed before: left out without --retry failed"
    if left[State.LOST]:
        yield f"  {left[State.LOST]} lost {LOSSES} times: left out without --retry lost"
    if references:
        yield f"  {references} reference{'s' * (references > 1)} to make afterwards"


def needs(todo: Iterable[Work]) -> Iterator[str]:
    """Lines about the trials whose rows say how many GPUs they need."""
    counts = Counter(work.devices for work in todo if work.devices is not None)
    for devices, count in sorted(counts.items()):
        yield f"  {count} need{'s' * (count == 1)} {devices:g} GPU{'s' * (devices > 1)} each, as the study says"


def _trials(count: int) -> str:
    return f"{count} trial{'s' * (count != 1)}"


def _why(work: Work) -> str:
    """Why a trial runs."""
    from harness.work.states import State

    reasons = {
        State.WAITING: "new",
        State.INTERRUPTED: "interrupted before",
        State.LOST: "lost before",
        State.FAILED: "failed before",
        State.AGAIN: "again (more observations)",
        State.RANK: "ranked again (nothing trained)",
        State.RUNNING: "claimed by other processes",
    }
    if work.state is State.WAITING and any(run.invalid is not None for run in work.attempts):
        return "again (declared invalid)"
    return reasons[work.state]
