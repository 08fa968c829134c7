"""`harness run`: run the trials of studies until all are stored."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli._cluster import cluster_options
from harness.cli._conclusion import conclude, next_command, tell_given_up, unreached
from harness.cli._notify import notify_option
from harness.cli._references import make_references, missing
from harness.cli._request import WithUpdates, edits_since, request_options, tell_edits
from harness.cli._resources import resource_options
from harness.cli._signals import REFERENCES, TRIALS, on_signals
from harness.cli._until import Ending, tell_verdicts, until_options
from harness.cli._working import working_options
from harness.errors import HarnessError, Unreachable, UserError
from harness.stores.places import Places

if TYPE_CHECKING:
    from harness.cli._display import Display
    from harness.cli._notify import Notifier
    from harness.stores.store import Store
    from harness.work.plan import Asked
    from harness.work.remote.ray_crew import Wanted
    from harness.work.session import Session
    from harness.work.settings import Settings
    from harness.work.slots import Slots
    from harness.work.states import Work


@click.command("run", cls=WithUpdates, example="harness run mine --preset demo --jobs 2 with train.epochs=10")
@request_options
@until_options
@cluster_options
@resource_options
@working_options
@click.option("--profile", is_flag=True, help="Profile the first trial: write a time breakdown and a trace.")
@click.option("--no-references", is_flag=True, help="Do not compute references (the rows of `report --references`).")
@click.option(
    "--references-only", is_flag=True, help="Compute all references, including zero-cost proxies; run no trial."
)
@notify_option
@click.option("--quiet", "-q", is_flag=True, help="Print only errors and the summary.")
def command(
    asked: Asked,
    store: Places,
    ending: Ending | None,
    wanted: Wanted | None,
    slots: Slots,
    settings: Settings,
    profile: bool,
    no_references: bool,
    references_only: bool,
    notifier: Notifier | None,
    quiet: bool,
) -> int:
    """Run every trial of the studies that is not stored yet.

    STUDY is a study file or the name of a known study. Overrides after `with` apply to all trials, for instance
    `with train.epochs=10 schedule.gamma_prime=2`. Exits 1 if trials failed, or if the database was unreachable
    for too long. Ctrl-C stops cleanly, a second one at once; the same command continues with the missing trials,
    each from its last checkpoint. Any number of these commands, on any number of machines, may work on the same
    studies. With --until decided it adds seeds, for the rows that still need them, until every comparison is decided,
    shown to be equivalent within --margin, or out of seeds. After the trials it makes the studies' references, in
    seconds: rows that `report --references` shows. Zero-cost proxies take longer: --references-only makes them, too.
    """
    if no_references and references_only:
        raise UserError("--no-references and --references-only exclude each other")
    if ending is not None and references_only:
        raise UserError("--until and --references-only exclude each other")
    from rich.console import Console

    from harness.cli._display import Display
    from harness.work.jobs import Stopping
    from harness.work.processes import Processes
    from harness.work.remote.following import Following
    from harness.work.remote.ray_crew import crew_of
    from harness.work.session import Session, working
    from harness.work.states import State

    begun, stopping, words = time.time(), Stopping(), REFERENCES if references_only else TRIALS
    console = Console(highlight=False, stderr=quiet)
    display = Display(asked.studies, console, quiet, lambda: stopping.asked)
    signals = on_signals(stopping.ask, lambda: words, lambda: display.is_live)
    with contextlib.closing(Processes(slots)) as executor, signals as received, contextlib.ExitStack() as cluster:
        if wanted is None:
            executor.prepare()
        place = settings.workplace(click.echo)
        if not place.reach(settings.outage_wait, stopping):
            status = unreached(received, settings.outage_wait)
            if notifier is not None:
                notifier.failed(Unreachable("the database was unreachable"))
            return status
        until = None if ending is None else ending.until(asked, len(slots), settings.retry, display.say)
        session = working(
            place,
            asked,
            replace(settings, profile=profile),
            executor,
            stopping,
            display.show,
            planned=None if until is None else until.plan,
            kind=Session if wanted is None else Following,
        )
        tell_edits(edits_since([session.plan], place.reader.runs))
        if not references_only:
            if wanted is None:  # otherwise the nodes of the cluster count
                session.plan.require_ranks(slots, settings.retry)
            session.plan.require_images(settings.retry)
        for problem in place.reader.problems:
            click.echo(f"not usable: {problem.place}: {problem.reason}", err=True)
        place.check_writable()
        if wanted is not None and isinstance(session, Following) and session.choose(session.plan):
            session.crew = cluster.enter_context(crew_of(asked, settings, wanted, place.opened.board))
        made = None
        with display:
            if not references_only:
                _announce(display, asked, session, None if no_references else place.reader, store.directory)
                session.run()
            if not no_references and not session.gave_up:
                words = REFERENCES
                made = make_references(asked, place, stopping, executor, display, references_only)
        left = None if session.gave_up else place.sync(stopping, session.plan.naming)
    if references_only:
        if received:
            click.echo("stopped; the same command makes the references that are missing", err=True)
            return 128 + received[0]
        click.echo(made or "all references are stored already")
        return 0
    status = conclude(session, received, store)
    if profile:
        _tell_profiles(store.directory, begun)
    if ending is not None:
        tell_verdicts(asked, ending, quiet)
    if made:
        click.echo(made)
    if left:
        click.echo(left, err=True)
    if session.gave_up:
        tell_given_up(settings.outage_wait)
    if notifier is not None:
        notifier.ended(session, bool(received))
    some = any(work.state is State.DONE for work in session.plan.work)
    if some and ending is None and not (quiet or received or session.gave_up):
        click.echo(f"next: {next_command(asked, store)}", err=True)
    return status or int(session.gave_up)


def _announce(display: Display, asked: Asked, session: Session, store: Store | None, directory: Path) -> None:
    """Say what is about to run and why, and let the display count it. `store` is None where no references follow."""
    from harness.cli._announcement import announced
    from harness.cli._tally import RANKING, items_of, reference_items
    from harness.work.states import State

    todo: Sequence[Work] = session.choose(session.plan)
    if not todo or display.quiet:
        return
    items = items_of(todo, asked.studies)
    lacking = None
    with contextlib.suppress(HarnessError):  # what is wrong with references is said when they are made
        lacking = None if store is None else missing(asked, store)
    references = len(lacking.references) if lacking else 0
    for line in announced(session.plan, todo, session.slots, directory, references):
        click.echo(line)
    display.tally.stored = session.plan.states[State.DONE]
    display.tally.add(items)
    if lacking:
        display.tally.add(reference_items(lacking, RANKING * sum(item.jobs[0] for item in items) / len(items)))


def _tell_profiles(store: Path, begun: float) -> None:
    """Show the breakdowns written by this command, and where the traces are."""
    written = [path for path in store.glob("profiles/*/breakdown.txt") if path.stat().st_mtime >= begun]
    for path in written:
        breakdown, _, _ = path.read_text().partition("\n\nOperations")
        click.echo(f"{breakdown}\nwritten to {path.parent}")
    if not written:
        click.echo("nothing was trained, so there is nothing to profile", err=True)
