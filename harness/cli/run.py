"""`harness run`: run the trials of studies until all are stored."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli._references import make_references
from harness.cli._request import WithUpdates, chosen_studies, plan_of, request_options, with_preset
from harness.cli._signals import on_signals
from harness.cli._store_places import weights_option
from harness.cli._values import Duration
from harness.errors import Unreachable, UserError
from harness.stores.places import Places

if TYPE_CHECKING:
    from harness.execution.agenda import Agenda
    from harness.execution.executors.executor import Event, Stopping
    from harness.execution.plan import Plan
    from harness.execution.states import Work


@click.command("run", cls=WithUpdates)
@request_options
@click.option("--jobs", type=click.IntRange(1), help="Trials in parallel.  [default: all cores]")
@click.option("--threads", default=1, show_default=True, type=click.IntRange(1), help="Threads per trial.")
@click.option("--device", help="Device of the trials, for instance cpu or cuda:1.  [default: a GPU if there is one]")
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
def command(
    names: tuple[str, ...],
    everything: bool,
    preset: str,
    seeds: int | None,
    only: tuple[str, ...],
    store: Places,
    updates: tuple[str, ...],
    jobs: int | None,
    threads: int,
    device: str | None,
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
) -> int:
    """Run every trial of the studies that is not stored yet.

    STUDY is a study file or the name of a known study. Overrides after `with` apply to all trials, for instance
    `with train.epochs=10 schedule.gamma_prime=2`. Exits 1 if trials failed, or if the database was unreachable
    for too long. Ctrl-C stops cleanly, a second one at once; the same command continues with the missing trials,
    each from its last checkpoint. Any number of these commands, on any number of machines, may work on the same
    studies. After the trials it makes the studies' references, in seconds: the rows that `report --references` shows.
    """
    from harness.execution.agenda import Agenda
    from harness.execution.executors.executor import Stopping
    from harness.execution.executors.local import ForkServer, execute
    from harness.execution.workplace import Workplace
    from harness.study.overrides import parse_updates

    if device is not None and not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise UserError(f"--device {device}: allowed are cpu, cuda and cuda:NUMBER")
    overrides = parse_updates(updates)
    studies = with_preset(chosen_studies(names, everything), preset)
    shared: dict[str, Any] = {
        "store": str(store.directory.absolute()),
        "preset": preset,
        "overrides": overrides,
        "threads": threads,
        "device": device,
        "mongo": None if offline else store.mongo,
        "weights_max": int(mirror_weights_max),
        "lease": lease,
        "work": work and str(Path(work).absolute()),
        "checkpoint_every": checkpoint_every,
        "timeout": timeout,
        "compile": compiled,
    }

    to_profile = [profile]  # only the first trial that is trained

    def document(work: Work, kind: str) -> dict[str, Any]:
        profiled = kind == "train" and any(to_profile)
        if profiled:
            to_profile.clear()
        return {"kind": kind, "trial": work.trial.json(), "profile": profiled, **shared}

    begun = time.time()
    attempted: set[tuple[str, str]] = set()
    errors: dict[str, str] = {}
    stopping = Stopping()
    gave_up = False
    # The server imports torch while we plan.
    with contextlib.closing(ForkServer()) as first, on_signals(stopping.ask) as received:
        server: ForkServer | None = first
        place = Workplace(store.directory, shared["mongo"], lease, int(mirror_weights_max), click.echo)

        def plan_now() -> Plan:
            runs = place.reader.runs()
            return plan_of(studies, runs, preset=preset, seeds=seeds, only=only, updates=updates)

        if not place.reach(outage_wait, stopping):
            return _unreached(received, outage_wait)
        plan = plan_now()
        plan.require_images(retry)
        for problem in place.reader.problems:
            click.echo(f"not usable: {problem.place}: {problem.reason}", err=True)
        _check_writable(store.directory)
        while not stopping.asked and not gave_up:
            todo = [w for w in plan.work if w.state == "running" or w.kind(retry)]
            todo = [w for w in todo if _what(w) not in attempted]
            if not todo:
                break
            attempted |= {_what(work) for work in todo}
            workers = jobs or os.cpu_count() or 1
            beside = min(workers, len(todo))
            click.echo(f"{len(todo)} trials to run, {beside} in parallel, stored in {store.directory}")
            agenda = Agenda(
                todo,
                place.reader,
                place.claims,
                document,
                retry=retry,
                threads=threads,
                timeout=timeout,
                waits=not no_wait,
                outage_wait=outage_wait,
                recovered=lambda: place.sync_aside(stopping),
            )
            events = execute(agenda.jobs(), workers, stopping=stopping, server=server)
            server = None  # it ended with its jobs
            errors |= _follow(events, agenda, stopping, store.directory)
            gave_up = agenda.gave_up
            if len(agenda.given_up) < len(todo):  # others made progress: a missing search may be there next time
                attempted -= {_what(work) for work in agenda.given_up}
            if agenda.error is not None:
                raise agenda.error
            # Read again, because only stored runs count. A trial may now need one more ranking.
            try:
                plan = plan_now()
            except Unreachable:
                place.give_up()
                plan = plan_now()
        made = None
        if not no_references and not gave_up:
            asked = (studies, preset, seeds, overrides, place.reader, store.directory, shared["mongo"])
            made = make_references(
                *asked, device, stopping, lambda them: execute(them, jobs or os.cpu_count() or 1, stopping=stopping)
            )
        left = None if gave_up else place.sync(stopping)
    status = _conclude(plan, {key for key, _ in attempted}, errors, received)
    if profile:
        _tell_profiles(store.directory, begun)
    if made:
        click.echo(made)
    if left:
        click.echo(left, err=True)
    if gave_up:
        click.echo(
            f"the database was unreachable for {outage_wait:g} s; `harness run --offline` continues without it, and "
            "`harness store sync` copies the new runs to it later",
            err=True,
        )
        return status or 1
    return status


def _follow(events: Iterator[Event], agenda: Agenda, stopping: Stopping, store: Path) -> dict[str, str]:
    """Show the progress of the work; return the errors by trial."""
    from harness.cli._display import Display
    from harness.stores.directory.crash import record_crash

    run_ids: dict[int, str] = {}
    errors: dict[str, str] = {}
    with Display(len(agenda.todo)) as display:
        agenda.say, agenda.elsewhere = display.say, lambda work: display.elsewhere(work.label)
        for event in events:
            number, work = event.job.number, agenda.todo[event.job.number]
            agenda.heard(event)
            display.stopping = bool(stopping.asked)
            if event.kind == "started":
                display.started(number, work.label)
            elif event.kind == "progress":
                display.progress(number, event.data)
                if "run_id" in event.data:
                    run_ids[number] = event.data["run_id"]
            else:
                display.finished(number, event.data)
                if event.data["status"] == "failed":
                    errors[work.trial.key] = event.data["error"]
                    # A job that answers has stored its own end; a killed job could not.
                    if "key" not in event.data and number in run_ids and event.job.document["kind"] == "train":
                        with contextlib.suppress(OSError):
                            record_crash(store, run_ids[number], event.data["error"])
    return errors


def _conclude(plan: Plan, attempted: set[str], errors: dict[str, str], received: list[int]) -> int:
    """Print the summary; return the exit status."""
    from harness.execution.states import LOSSES

    states = plan.states
    now = sum(work.trial.key in attempted and work.state == "done" for work in plan.work)
    others = "".join(f", {count} {state}" for state, count in sorted(states.items()) if state != "done")
    click.echo(f"{states['done']} of {len(plan.work)} trials done, {now} of them now{others}")
    failed = [w for w in plan.work if w.state == "failed" or (w.trial.key in errors and w.state != "done")]
    for work in failed:
        trace = (work.run.fail_trace if work.run else None) or ["no reason is stored"]
        reason = errors.get(work.trial.key) or trace[-1].strip().splitlines()[-1]
        click.echo(f"failed: {work.label}{f' (run {work.run.id})' if work.run else ''}: {reason}", err=True)
    if any(work.trial.key not in attempted for work in failed):
        click.echo("trials that failed before are run again with --retry failed", err=True)
    if any(work.state == "lost" and work.kind() is None for work in plan.work):
        click.echo(f"trials that died {LOSSES} times in a row are run again with --retry lost", err=True)
    if received:
        click.echo("stopped; finished trials are stored, and the same command continues with the rest", err=True)
        return 128 + received[0]
    # With --no-wait, trials claimed by other processes are left to them.
    return 0 if all(work.state in ("done", "running") for work in plan.work) else 1


def _tell_profiles(store: Path, begun: float) -> None:
    """Show the breakdowns written by this command, and where the traces are."""
    written = [path for path in store.glob("profiles/*/breakdown.txt") if path.stat().st_mtime >= begun]
    for path in written:
        breakdown, _, _ = path.read_text().partition("\n\nOperations")
        click.echo(f"{breakdown}\nwritten to {path.parent}")
    if not written:
        click.echo("nothing was trained, so there is nothing to profile", err=True)


def _what(work: Work) -> tuple[str, str]:
    return work.trial.key, work.trial.ranking_key


def _check_writable(store: Path) -> None:
    import tempfile

    try:
        store.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=store):
            pass
    except OSError as error:
        raise UserError(f"cannot write to the store {store}: {error.strerror or error}") from error


def _unreached(received: list[int], patience: float) -> int:
    """Report that the database never answered and nothing was run; return the exit status."""
    if received:
        return 128 + received[0]
    click.echo(
        f"error: the database was unreachable for {patience:g} s; nothing was run. Use --offline to run without it",
        err=True,
    )
    return 1
