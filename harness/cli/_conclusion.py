"""What commands that run trials say at their end, and the exit status that they give."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.errors import users_place

if TYPE_CHECKING:
    from harness.stores.places import Places
    from harness.stores.stored import StoredRun
    from harness.work.plan import Asked
    from harness.work.states import Work
    from harness.work.worker import Worker

_WORDS = {"again": "to train again", "rank": "to rank again"}
"""States whose names alone say too little."""
NAMED = 4
"""More studies than this are not named in the next command: without names it is about all that were run."""


def conclude(
    worker: Worker, received: list[int], places: Places, mine: Callable[[Work], bool] = lambda work: True
) -> int:
    """Print the summary of the trials that were to be run here; return the exit status."""
    from harness.work.states import LOSSES, State
    from harness.work.worker import FIRST

    errors, attempted = worker.errors, {key for key, _ in worker.attempted}
    everything = [work for work in worker.plan.work if mine(work)]
    # A ranking that failed now leaves its trial as it was; for the reader the trial has failed.
    left = {work.trial.key for work in everything if work.state not in (State.DONE, State.LOST)} & errors.keys()
    failed_now, interrupted = left - worker.interrupted, left & worker.interrupted
    states = Counter(State.FAILED if work.trial.key in failed_now else work.state for work in everything)
    now = sum(work.trial.key in worker.done_here and work.state is State.DONE for work in everything)
    rest = sorted((state, count) for state, count in states.items() if state is not State.DONE)
    others = "".join(f", {count} {_WORDS.get(state, state)}" for state, count in rest)
    diverged = sum(work.state is State.DONE and work.run is not None and _diverged(work.run) for work in everything)
    which = f", {diverged} diverged" if diverged else ""
    click.echo(f"{states[State.DONE]} of {len(everything)} trials done{which}, {now} of them now{others}")
    done = worker.done_here - errors.keys()
    unread = [work for work in everything if work.state is State.WAITING and work.trial.key in done]
    failed = [work for work in everything if work.state is State.FAILED or work.trial.key in failed_now]
    lost = [work for work in everything if work.state is State.LOST and work.kind() is None]
    stopped = [work for work in everything if work.trial.key in interrupted]
    for work in unread:
        click.echo(f"done, but cannot be read now: {work.label}; `harness status` looks again", err=True)
    for word, works in (("failed", failed), ("lost", lost), ("interrupted", stopped)):
        for work in works:
            trace = (work.run.fail_trace if work.run else None) or ["no reason is stored"]
            reason = errors.get(work.trial.key) or trace[-1].strip().splitlines()[-1]
            click.echo(f"{word}: {work.label}: {reason}{_where_to_look(work.run, places)}", err=True)
    for study, error in worker.hopeless.items():
        waiting = sum(work.named.study == study and work.state is State.WAITING for work in everything)
        click.echo(
            f"the first {FIRST} trials of {study} failed with the same error, so the other {waiting} were not started: "
            f"{error}",
            err=True,
        )
    if any(work.trial.key not in attempted for work in failed):
        click.echo("trials that failed before are run again with --retry failed", err=True)
    if lost:
        click.echo(f"trials that died {LOSSES} times in a row are run again with --retry lost", err=True)
    if received:
        click.echo("stopped; finished trials are stored, and the same command continues with the rest", err=True)
        return 128 + received[0]
    # With --no-wait, trials claimed by other processes are left to them.
    return 0 if all(work.state in (State.DONE, State.RUNNING) for work in everything) else 1


def next_command(asked: Asked, places: Places) -> str:
    """The command that shows what was run."""
    from harness.study.overrides import as_typed

    names = [study.name for study in asked.studies]
    words = ["harness", "report", *(names if len(names) <= NAMED else []), "--preset", asked.preset]
    words += ["--seeds", str(asked.seeds)] if asked.seeds else []
    words += ["--store", str(places.directory)] if places.named else []
    words += ["with", *as_typed(asked.overrides)] if asked.overrides else []
    return shlex.join(words)


def unreached(received: list[int], patience: float) -> int:
    """Report that the database never answered and nothing was run; return the exit status."""
    if received:
        return 128 + received[0]
    click.echo(
        f"error: the database was unreachable for {patience:g} s; nothing was run. Use --offline to run without it",
        err=True,
    )
    return 1


def tell_given_up(patience: float) -> None:
    """Print that the database was given up, and how to continue."""
    click.echo(
        f"the database was unreachable for {patience:g} s; `harness run --offline` continues without it, and "
        "`harness store sync` copies the new runs to it later",
        err=True,
    )


def _diverged(run: StoredRun) -> bool:
    return bool((run.result or {}).get("diverged"))


def _where_to_look(run: StoredRun | None, places: Places) -> str:
    """The innermost line of the user's folder that the error passed through, and the command that shows the run."""
    if run is None:
        return ""
    place = users_place(run.fail_trace or (), Path.cwd())
    store = f" --store {shlex.quote(str(places.directory))}" if places.named else ""
    return f"{f' ({place})' if place else ''}; see `harness show {run.id}{store}`"
