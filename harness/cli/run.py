"""`harness run`: run the trials of studies until all are stored."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import click

from harness.cli._conclusion import conclude, next_command, tell_given_up, unreached
from harness.cli._help import SHOWN
from harness.cli._notify import notifying
from harness.cli._options import HOW, WHAT, option, quiet_option, store_option, takes
from harness.cli._references import make_references, missing
from harness.cli._request import Request, WithUpdates, edits_since, tell_edits
from harness.cli._signals import REFERENCES, TRIALS, on_signals
from harness.cli._until import Deciding, Ending, tell_verdicts
from harness.cli._working import Cluster, Machine, Working
from harness.errors import HarnessError, Unreachable, UserError
from harness.stores.places import Places

if TYPE_CHECKING:
    from harness.cli._display import Display
    from harness.cli._notify import Notifier
    from harness.stores.store import Store
    from harness.work.plan import Asked
    from harness.work.remote.ray_crew import Wanted
    from harness.work.slots import Slots
    from harness.work.states import Work
    from harness.work.worker import Settings, Worker


@dataclass(frozen=True)
class Doing:
    """What else a run does, or leaves out."""

    HEADING: ClassVar[str] = WHAT

    profile: bool = option(
        "--profile",
        "Profile the first trial: write a time breakdown and a trace.",
        heading=HOW,
        is_flag=True,
        more=True,
    )
    no_references: bool = option(
        "--no-references", "Do not compute references (the rows of `report --references`).", is_flag=True, more=True
    )
    references_only: bool = option(
        "--references-only",
        "Compute all references, including zero-cost proxies, which take longer; run no trial.",
        is_flag=True,
        more=True,
    )
    notify: str | None = option(
        "--notify",
        "At the end, send each study's summary as JSON: to a command's standard input, or to a web address.",
        None,
        "COMMAND|URL",
        heading=SHOWN,
        more=True,
    )


@click.command("run", cls=WithUpdates, example="harness run mine --preset demo --jobs 2 with train.epochs=10")
@takes(request=Request, deciding=Deciding, doing=Doing, machine=Machine, working=Working, cluster=Cluster)
@store_option
@quiet_option
def command(
    request: Request,
    deciding: Deciding,
    doing: Doing,
    machine: Machine,
    working: Working,
    cluster: Cluster,
    store: Places,
    quiet: bool,
) -> int:
    """Run every trial of the studies that is not stored yet.

    STUDY is a study file or the name of a known study. Overrides after `with` apply to all trials. Exits 1 if trials
    failed, or if the database was unreachable for too long. Ctrl-C stops cleanly, a second one at once; the same
    command continues with the missing trials, each from its last checkpoint. Any number of these commands, on any
    number of machines, may work on the same studies. After the trials it makes the references that
    `report --references` shows.
    """
    asked, ending = request.asked(store), deciding.ending()
    wanted = cluster.wanted(
        machine, {"--until": ending, "--profile": doing.profile, "--references-only": doing.references_only}
    )
    if wanted is not None and machine.device != "cpu":
        machine = replace(machine, device=None)  # it is for the cluster; this machine only makes references
    if doing.no_references and doing.references_only:
        raise UserError("--no-references and --references-only exclude each other")
    if ending is not None and doing.references_only:
        raise UserError("--until and --references-only exclude each other")
    with notifying(doing.notify, asked, store) as notifier:
        settings = working.settings(store, machine.threads)
        return _run(asked, store, settings, machine.slots(), ending, wanted, doing, notifier, quiet)


def _run(
    asked: Asked,
    store: Places,
    settings: Settings,
    slots: Slots,
    ending: Ending | None,
    wanted: Wanted | None,
    doing: Doing,
    notifier: Notifier | None,
    quiet: bool,
) -> int:
    """Run the trials and make the references; return the exit status."""
    from rich.console import Console

    from harness.cli._display import Display
    from harness.work.database import bring_up_to_date, reach
    from harness.work.jobs import Stopping
    from harness.work.processes import Processes
    from harness.work.remote.following import Following
    from harness.work.remote.ray_crew import crew_of
    from harness.work.states import State
    from harness.work.worker import Worker

    begun, stopping, words = time.time(), Stopping(), REFERENCES if doing.references_only else TRIALS
    console = Console(highlight=False, stderr=quiet)
    display = Display(asked.studies, console, quiet, lambda: stopping.asked)
    signals = on_signals(stopping.ask, lambda: words, lambda: display.is_live)
    with contextlib.closing(Processes(slots)) as executor, signals as received, contextlib.ExitStack() as workers:
        if wanted is None:
            executor.prepare()
        place = settings.open()
        if (silence := reach(place, settings.outage_wait, stopping, click.echo)) is not None:
            if notifier is not None:
                notifier.failed(Unreachable(silence))
            return unreached(received, settings.outage_wait)
        until = None if ending is None else ending.until(asked, len(slots), settings.retry, display.say)
        settings, planned = replace(settings, profile=doing.profile), None if until is None else until.plan
        kind = Worker if wanted is None else Following
        worker = kind(place, settings, asked, executor, stopping, display.show, planned)
        tell_edits(edits_since([worker.plan], place.reader.runs))
        if not doing.references_only:
            if wanted is None:  # otherwise the nodes of the cluster count
                worker.plan.require_ranks(slots, settings.retry)
            worker.plan.require_images(settings.retry)
        for problem in place.reader.problems:
            click.echo(f"not usable: {problem.place}: {problem.reason}", err=True)
        place.directory.check_writable()
        if wanted is not None and isinstance(worker, Following) and worker.choose(worker.plan):
            worker.crew = workers.enter_context(crew_of(asked, settings, wanted, place.board))
        made = None
        with display:
            if not doing.references_only:
                _announce(display, asked, worker, None if doing.no_references else place.reader, store.directory)
                worker.run()
            if not doing.no_references and not worker.gave_up:
                words = REFERENCES
                made = make_references(asked, place, stopping, executor, display, doing.references_only)
        left = None if worker.gave_up else bring_up_to_date(place, stopping, click.echo, worker.plan.naming)
    if doing.references_only:
        if received:
            click.echo("stopped; the same command makes the references that are missing", err=True)
            return 128 + received[0]
        click.echo(made or "all references are stored already")
        return 0
    status = conclude(worker, received, store)
    if doing.profile:
        _tell_profiles(store.directory, begun)
    if ending is not None:
        tell_verdicts(asked, ending, quiet)
    if made:
        click.echo(made)
    if left:
        click.echo(left, err=True)
    if worker.gave_up:
        tell_given_up(settings.outage_wait)
    if notifier is not None:
        notifier.ended(worker, bool(received))
    some = any(work.state is State.DONE for work in worker.plan.work)
    if some and ending is None and not (quiet or received or worker.gave_up):
        click.echo(f"next: {next_command(asked, store)}", err=True)
    return status or int(worker.gave_up)


def _announce(display: Display, asked: Asked, worker: Worker, store: Store | None, directory: Path) -> None:
    """Say what is about to run and why, and let the display count it. `store` is None where no references follow."""
    from harness.cli._announcement import announced
    from harness.cli._tally import RANKING, items_of, reference_items
    from harness.work.states import State

    todo: Sequence[Work] = worker.choose(worker.plan)
    if not todo or display.quiet:
        return
    items = items_of(todo, asked.studies)
    lacking = None
    with contextlib.suppress(HarnessError):  # what is wrong with references is said when they are made
        lacking = None if store is None else missing(asked, store)
    references = len(lacking.references) if lacking else 0
    for line in announced(worker.plan, todo, worker.slots, directory, references):
        click.echo(line)
    display.tally.stored = worker.plan.states[State.DONE]
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
