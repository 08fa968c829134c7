"""`harness run`: run the trials of studies until all are stored."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli._failures import where_to_look
from harness.cli._references import make_references, missing
from harness.cli._request import WithUpdates, request_options
from harness.cli._resources import resource_options
from harness.cli._signals import REFERENCES, TRIALS, on_signals
from harness.cli._store_places import weights_option
from harness.cli._until import Ending, tell_verdicts, until_options
from harness.cli._values import Duration
from harness.errors import HarnessError, UserError
from harness.stores.places import Places

if TYPE_CHECKING:
    from harness.cli._display import Display
    from harness.execution.executors.slots import Slots
    from harness.execution.plan import Asked, Plan
    from harness.execution.session import Session
    from harness.execution.states import Work
    from harness.stores.store import Store


@click.command("run", cls=WithUpdates, example="harness run mine --preset demo --jobs 2 with train.epochs=10")
@request_options
@until_options
@resource_options
@click.option(
    "--retry",
    type=click.Choice(["failed", "lost", "all"]),
    help="Retry trials that failed, or that were lost too often to be retried by default.",
)
@click.option("--timeout", type=Duration(), help="Time after which a trial fails (seconds, or 90m, 2h).")
@click.option("--compile", "compiled", is_flag=True, help="Have torch compile operations on GPUs; needs a C compiler.")
@click.option("--profile", is_flag=True, help="Profile the first trial: write a time breakdown and a trace.")
@click.option("--no-wait", is_flag=True, help="Do not wait for trials claimed by other processes.")
@click.option("--work", type=click.Path(file_okay=False), help="Folder of the checkpoints.  [default: STORE/work]")
@click.option(
    "--checkpoint-every", type=Duration(), default=60.0, show_default=True, help="Seconds between checkpoints."
)
@click.option(
    "--lease",
    type=Duration(),
    default=60.0,
    show_default=True,
    help="Seconds without renewal after which a claim expires.",
)
@click.option("--offline", is_flag=True, help="Do not use the database; `harness store sync` updates it later.")
@click.option(
    "--outage-wait",
    type=Duration(),
    default=600.0,
    show_default=True,
    help="Seconds to wait for an unreachable database before giving up.",
)
@weights_option
@click.option("--no-references", is_flag=True, help="Do not make the references that reports show beside the rows.")
@click.option("--references-only", is_flag=True, help="Make only these references, in seconds, and run no trial.")
@click.option("--quiet", "-q", is_flag=True, help="Print only errors and the summary.")
def command(
    asked: Asked,
    store: Places,
    ending: Ending | None,
    slots: Slots,
    threads: int,
    retry: str | None,
    timeout: float | None,
    compiled: bool,
    profile: bool,
    no_wait: bool,
    work: str | None,
    checkpoint_every: float,
    lease: float,
    offline: bool,
    outage_wait: float,
    mirror_weights_max: float,
    no_references: bool,
    references_only: bool,
    quiet: bool,
) -> int:
    """Run every trial of the studies that is not stored yet.

    STUDY is a study file or the name of a known study. Overrides after `with` apply to all trials, for instance
    `with train.epochs=10 schedule.gamma_prime=2`. Exits 1 if trials failed, or if the database was unreachable
    for too long. Ctrl-C stops cleanly, a second one at once; the same command continues with the missing trials,
    each from its last checkpoint. Any number of these commands, on any number of machines, may work on the same
    studies. With --until decided it adds seeds, for the rows that still need them, until every comparison is decided,
    shown to be equivalent within --margin, or out of seeds. After the trials it makes the studies' references, in
    seconds: the rows that `report --references` shows.
    """
    if no_references and references_only:
        raise UserError("--no-references and --references-only exclude each other")
    if ending is not None and references_only:
        raise UserError("--until and --references-only exclude each other")
    from rich.console import Console

    from harness.cli._display import Display
    from harness.execution.assignment import Assignment
    from harness.execution.executors.executor import Stopping, make
    from harness.execution.session import assigning, working
    from harness.execution.workplace import Workplace

    places = replace(store, mongo=None) if offline else store
    assignment = partial(
        Assignment,
        store=store.directory.absolute(),
        preset=asked.preset,
        overrides=asked.overrides,
        threads=threads,
        device=slots.device,
        mongo=places.mongo,
        weights_max=int(mirror_weights_max),
        lease=lease,
        work=Path(work).absolute() if work else None,
        checkpoint_every=checkpoint_every,
        timeout=timeout,
        compile=compiled,
    )
    begun, stopping, words = time.time(), Stopping(), REFERENCES if references_only else TRIALS
    console = Console(highlight=False, stderr=quiet)
    display = Display(asked.studies, console, quiet, lambda: stopping.asked)
    signals = on_signals(stopping.ask, lambda: words, lambda: display.is_live)
    with contextlib.closing(make("local", slots)) as executor, signals as received:
        executor.prepare()
        place = Workplace(places, lease, int(mirror_weights_max), click.echo)
        if not place.reach(outage_wait, stopping):
            return _unreached(received, outage_wait)
        until = None if ending is None else ending.until(asked, len(slots), retry, display.say)
        session = working(
            place,
            asked,
            assigning(assignment, profile),
            executor,
            stopping,
            display.show,
            retry=retry,
            waits=not no_wait,
            outage_wait=outage_wait,
            planned=None if until is None else until.plan,
        )
        if not references_only:
            session.plan.require_images(retry)
        for problem in place.reader.problems:
            click.echo(f"not usable: {problem.place}: {problem.reason}", err=True)
        place.check_writable()
        made = None
        with display:
            if not references_only:
                _announce(display, asked, session, None if no_references else place.reader, store.directory)
                session.run()
            if not no_references and not session.gave_up:
                words = REFERENCES
                made = make_references(asked, place.reader, places, slots.device, stopping, executor, display)
        left = None if session.gave_up else place.sync(stopping)
    if references_only:
        if received:
            click.echo("stopped; the same command makes the references that are missing", err=True)
            return 128 + received[0]
        click.echo(made or "all references are stored already")
        return 0
    status = _conclude(session.plan, {key for key, _ in session.attempted}, session.errors, received, store)
    if profile:
        _tell_profiles(store.directory, begun)
    if ending is not None:
        tell_verdicts(asked, ending, quiet)
    if made:
        click.echo(made)
    if left:
        click.echo(left, err=True)
    if session.gave_up:
        click.echo(
            f"the database was unreachable for {outage_wait:g} s; `harness run --offline` continues without it, and "
            "`harness store sync` copies the new runs to it later",
            err=True,
        )
    return status or int(session.gave_up)


def _announce(display: Display, asked: Asked, session: Session, store: Store | None, directory: Path) -> None:
    """Say what is about to run and why, and let the display count it. `store` is None where no references follow."""
    from harness.cli._announcement import announced
    from harness.cli._tally import RANKING, items_of, reference_items
    from harness.execution.states import State

    todo: Sequence[Work] = session.choose(session.plan)
    if not todo or display.quiet:
        return
    items = items_of(todo, asked.studies)
    lacking = None
    with contextlib.suppress(HarnessError):  # what is wrong with references is said when they are made
        lacking = None if store is None else missing(asked, store)
    references = len(lacking.references) if lacking else 0
    for line in announced(session.plan, todo, min(len(session.executor.slots), len(todo)), directory, references):
        click.echo(line)
    display.tally.stored = session.plan.states[State.DONE]
    display.tally.add(items)
    if lacking:
        display.tally.add(reference_items(lacking, RANKING * sum(item.jobs[0] for item in items) / len(items)))


_WORDS = {"again": "to train again", "rank": "to rank again"}
"""States whose names alone say too little."""


def _conclude(plan: Plan, attempted: set[str], errors: dict[str, str], received: list[int], places: Places) -> int:
    """Print the summary; return the exit status."""
    from harness.execution.states import LOSSES, State

    # A ranking that failed now leaves its trial as it was; for the reader the trial has failed.
    failed_now = {work.trial.key for work in plan.work if work.state not in (State.DONE, State.LOST)} & errors.keys()
    states = Counter(State.FAILED if work.trial.key in failed_now else work.state for work in plan.work)
    now = sum(work.trial.key in attempted and work.state is State.DONE for work in plan.work)
    rest = sorted((state, count) for state, count in states.items() if state is not State.DONE)
    others = "".join(f", {count} {_WORDS.get(state, state)}" for state, count in rest)
    click.echo(f"{states[State.DONE]} of {len(plan.work)} trials done, {now} of them now{others}")
    failed = [work for work in plan.work if work.state is State.FAILED or work.trial.key in failed_now]
    lost = [work for work in plan.work if work.state is State.LOST and work.kind() is None]
    for word, works in (("failed", failed), ("lost", lost)):
        for work in works:
            trace = (work.run.fail_trace if work.run else None) or ["no reason is stored"]
            reason = errors.get(work.trial.key) or trace[-1].strip().splitlines()[-1]
            click.echo(f"{word}: {work.label}: {reason}{where_to_look(work.run, places)}", err=True)
    if any(work.trial.key not in attempted for work in failed):
        click.echo("trials that failed before are run again with --retry failed", err=True)
    if lost:
        click.echo(f"trials that died {LOSSES} times in a row are run again with --retry lost", err=True)
    if received:
        click.echo("stopped; finished trials are stored, and the same command continues with the rest", err=True)
        return 128 + received[0]
    # With --no-wait, trials claimed by other processes are left to them.
    return 0 if all(work.state in (State.DONE, State.RUNNING) for work in plan.work) else 1


def _tell_profiles(store: Path, begun: float) -> None:
    """Show the breakdowns written by this command, and where the traces are."""
    written = [path for path in store.glob("profiles/*/breakdown.txt") if path.stat().st_mtime >= begun]
    for path in written:
        breakdown, _, _ = path.read_text().partition("\n\nOperations")
        click.echo(f"{breakdown}\nwritten to {path.parent}")
    if not written:
        click.echo("nothing was trained, so there is nothing to profile", err=True)


def _unreached(received: list[int], patience: float) -> int:
    """Report that the database never answered and nothing was run; return the exit status."""
    if received:
        return 128 + received[0]
    click.echo(
        f"error: the database was unreachable for {patience:g} s; nothing was run. Use --offline to run without it",
        err=True,
    )
    return 1
