"""`harness run`: bring studies to completion."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli._request import WithUpdates, chosen_studies, plan_of, request_options
from harness.errors import UserError
from harness.store_option import Places

if TYPE_CHECKING:
    from harness.executors import Event, Stopping
    from harness.plan import Plan, Work


@click.command("run", cls=WithUpdates)
@request_options
@click.option("--jobs", type=click.IntRange(1), help="Cells side by side.  [default: all cores]")
@click.option("--threads", default=1, show_default=True, type=click.IntRange(1), help="Threads a cell.")
@click.option("--device", help="Where cells compute, for instance cpu or cuda:1.  [default: a GPU if there is one]")
@click.option("--retry", type=click.Choice(["failed", "lost", "all"]), help="Run what failed, or died too often.")
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
) -> int:
    """Run every cell of the studies that is not stored yet.

    STUDY is a study file or the name of a known study. Words after `with` change the configuration of all
    cells, for instance `with train.epochs=10 schedule.gamma_prime=2`. Exits 1 if cells failed. Ctrl-C stops
    cleanly, a second one at once; the same command goes on with what is missing.
    """
    from harness.executors import Job, Stopping
    from harness.executors.local import ForkServer, execute
    from harness.stores.directory import DirectoryStore
    from harness.syntax import parse_updates

    if device is not None and not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise UserError(f"--device {device}: allowed are cpu, cuda and cuda:NUMBER")
    overrides = parse_updates(updates)
    studies = chosen_studies(names, everything)
    directory = store.directory
    reader = DirectoryStore(directory)

    def plan_now() -> Plan:
        return plan_of(studies, reader.runs(), preset=preset, seeds=seeds, only=only, updates=updates)

    attempted: set[tuple[str, str]] = set()
    errors: dict[str, str] = {}
    stopping = Stopping()
    # The server imports torch while we plan.
    with contextlib.closing(ForkServer()) as first, _on_signals(stopping.ask) as received:
        server: ForkServer | None = first
        plan = plan_now()
        for problem in reader.problems:
            click.echo(f"not usable: {problem.place}: {problem.reason}", err=True)
        _check_writable(directory)
        while not stopping.asked:
            todo = [w for w in plan.work if w.kind(retry) and _what(w) not in attempted]
            if not todo:
                break
            attempted |= {_what(work) for work in todo}
            documents = [
                {
                    "kind": work.kind(retry),
                    "cell": work.cell.json(),
                    "store": str(directory.absolute()),
                    "preset": preset,
                    "overrides": overrides,
                    "threads": threads,
                    "device": device,
                }
                for work in todo
            ]
            numbered = [Job(number, document, threads) for number, document in enumerate(documents)]
            workers = jobs or os.cpu_count() or 1
            click.echo(f"{len(todo)} cells to run, {min(workers, len(todo))} side by side, stored in {directory}")
            events = execute(numbered, workers, stopping=stopping, server=server)
            server = None  # ended with its jobs
            errors |= _follow(events, todo, stopping, directory)
            # Read again: what counts is what is stored. A cell may now need one more ranking.
            plan = plan_now()
    return _conclude(plan, {key for key, _ in attempted}, errors, received)


def _follow(events: Iterator[Event], todo: list[Work], stopping: Stopping, store: Path) -> dict[str, str]:
    """Show what happens to the work; gives the errors by cell."""
    from harness.display import Display
    from harness.stores.crash import record_crash

    run_ids: dict[int, str] = {}
    errors: dict[str, str] = {}
    with Display(len(todo)) as display:
        for event in events:
            number = event.job.number
            display.stopping = bool(stopping.asked)
            if event.kind == "started":
                display.started(number, todo[number].label)
            elif event.kind == "progress":
                display.progress(number, event.data)
                if "run_id" in event.data:
                    run_ids[number] = event.data["run_id"]
            else:
                display.finished(number, event.data)
                if event.data["status"] == "failed":
                    errors[todo[number].cell.key] = event.data["error"]
                    if number in run_ids and event.job.document["kind"] == "train":
                        record_crash(store, run_ids[number], event.data["error"])
    return errors


def _conclude(plan: Plan, attempted: set[str], errors: dict[str, str], received: list[int]) -> int:
    """The summary, and the exit status."""
    states = plan.states
    now = sum(work.cell.key in attempted and work.state == "done" for work in plan.work)
    others = "".join(f", {count} {state}" for state, count in sorted(states.items()) if state != "done")
    click.echo(f"{states['done']} of {len(plan.work)} cells done, {now} of them now{others}")
    failed = [work for work in plan.work if work.state == "failed" or work.cell.key in errors]
    for work in failed:
        trace = (work.run.fail_trace if work.run else None) or ["no reason is stored"]
        reason = errors.get(work.cell.key) or trace[-1].strip().splitlines()[-1]
        click.echo(f"failed: {work.label}{f' (run {work.run.id})' if work.run else ''}: {reason}", err=True)
    if any(work.cell.key not in attempted for work in failed):
        click.echo("cells that failed before are run again with --retry failed", err=True)
    if received:
        click.echo("stopped; what is done is stored, and the same command goes on with the rest", err=True)
        return 128 + received[0]
    return 1 if failed else 0


def _what(work: Work) -> tuple[str, str]:
    return work.cell.key, work.cell.ranking_key


def _check_writable(store: Path) -> None:
    import tempfile

    try:
        store.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=store):
            pass
    except OSError as error:
        raise UserError(f"cannot write to the store {store}: {error.strerror or error}") from error


@contextlib.contextmanager
def _on_signals(ask: Callable[[], None]) -> Iterator[list[int]]:
    """Within, Ctrl-C and SIGTERM call `ask` instead of ending the process; gives the list of those received."""
    received: list[int] = []

    def handle(number: int, frame: object) -> None:
        received.append(number)
        if len(received) == 1:  # written past all buffers: a handler may come in the midst of a print
            os.write(2, b"stopping: running cells are stored as interrupted; Ctrl-C again ends them at once\n")
        ask()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
