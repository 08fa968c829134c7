"""`harness store check` and `clean`: problems of stored runs, and files that are no longer needed."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

import click

from harness.cli._help import Command
from harness.cli._options import store_option, weights_option, work_option
from harness.documents import amount
from harness.stores.places import Places

if TYPE_CHECKING:
    from pathlib import Path

    from harness.stores.opened import Opened
    from harness.stores.upkeep.checking import Finding, Progress
    from harness.stores.upkeep.cleaning import Leftover


@click.command("check", cls=Command, example="harness store check --fix")
@click.option("--fix", is_flag=True, help="Repair every problem whose repair is unambiguous.")
@weights_option
@work_option
@store_option
def check(fix: bool, mirror_weights_max: int, work: Path | None, store: Places) -> int:
    """Check stored runs for problems. Every file is read and compared with its checksum.

    Problems are damaged files, wrong numbers of points, runs of one trial that contradict each other,
    differences between the directory and the database, claims of dead owners, and leftovers of killed
    processes. With --fix, damaged files are restored from the database, the database is restored from the
    directory, such claims are released and such leftovers removed. No run is ever removed. Exits 1 when
    problems remain.
    """
    from harness.stores.opened import Opened

    if store.mongo is None:
        store.require()
    opened = Opened(store)
    opened.leave_out_silent()
    left = found = 0
    with progress_line() as progress:
        for finding in _findings(opened, work, mirror_weights_max, progress):
            found += 1
            click.echo(f"{finding.kind}: {finding.place}: {finding.reason}")
            done = finding.repair() if fix and finding.repair else None
            left += done is None
            if fix:
                click.echo(f"  {done or 'not repaired'}")
    click.echo(_summary(opened))
    repaired = f", {found - left} repaired" if fix and found else ""
    click.echo(f"{found} problem{'s' if found != 1 else ''}{repaired}" if found else "no problems")
    if left and not fix:
        click.echo("`harness store check --fix` repairs every problem whose repair is unambiguous", err=True)
    return 1 if left else 0


@click.command("clean", cls=Command, example="harness store clean --dry-run")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@work_option
@store_option
def clean(dry_run: bool, work: Path | None, store: Places) -> int:
    """Remove files that are no longer needed.

    These are unused checkpoints, leftovers of killed processes and old claims. Without its checkpoint, a trial that
    is not done starts from the beginning. No run is touched.
    """
    from harness.errors import UserError
    from harness.stores.opened import Opened
    from harness.stores.upkeep.cleaning import checkpoints, old_claims, stale_index, unfinished

    if not store.database_only:
        store.require()
    opened = Opened(store)
    place = _checkpoint_folder(opened, work)
    if opened.here is None or place is None:
        raise UserError("a database needs no cleaning: name a directory with --store")
    busy, done = _trials(opened)
    path = opened.here.path
    leftovers = [*checkpoints(place, busy, done), *unfinished(path), *old_claims(path, done), *stale_index(path)]
    gone = leftovers if dry_run else [one for one in leftovers if one.remove()]
    for what, count in sorted(Counter(one.what for one in gone).items()):
        size = sum(one.size for one in gone if one.what == what)
        click.echo(f"{count:5} × {what}, {amount(size)}")
    for one in leftovers:
        if one not in gone:
            click.echo(f"not removed: {one.path} ({one.what})", err=True)
    total = sum(one.size for one in gone)
    if gone:
        click.echo(f"{amount(total)} {'would be' if dry_run else 'were'} freed")
    else:
        click.echo("nothing to remove")
    return 0 if len(gone) == len(leftovers) else 1


def _findings(opened: Opened, work: Path | None, weights_max: int, progress: Progress) -> Iterator[Finding]:
    from harness.stores.upkeep.checking import Finding, check_database, check_directory, orphaned

    parts: list[Iterator[Finding]] = []
    if opened.silent is not None:
        parts.append(iter([Finding("database", "not compared", opened.silent)]))
    if opened.here is not None:
        parts.append(check_directory(opened.here, opened.there, progress))
    if opened.here is not None and opened.there is not None:
        from harness.stores.upkeep.mirror_checking import check_mirror

        parts.append(check_mirror(opened.here, opened.database, progress, weights_max))
    elif opened.there is not None:
        parts.append(check_database(opened.there, progress))
    parts += [orphaned(claims, where) for where, claims in opened.claims_by_place.items()]
    if opened.here is not None:
        parts.append(_leftovers(opened, opened.here.path, _checkpoint_folder(opened, work)))
    return chain(*parts)


def _leftovers(opened: Opened, path: Path, work: Path | None) -> Iterator[Finding]:
    """Leftovers of killed processes. Checkpoints of trials that are not done are still useful, and left out."""
    from harness.stores.upkeep.checking import Finding
    from harness.stores.upkeep.cleaning import OF_DONE, checkpoints, unfinished

    busy, done = _trials(opened)
    kept = [one for one in checkpoints(work, busy, done) if one.what == OF_DONE] if work else []
    for one in [*kept, *unfinished(path)]:

        def remove(one: Leftover = one) -> str | None:
            return "removed" if one.remove() else None

        yield Finding("leftover", str(one.path), f"{one.what}, {amount(one.size)}", remove)


def _trials(opened: Opened) -> tuple[set[str], dict[str, float]]:
    """The trials in progress, and the done trials with the time when they ended."""
    from harness.stores.upkeep.cleaning import busy_trials, done_trials

    runs = opened.reader.runs()
    return busy_trials(opened.claims_by_place.values(), runs), done_trials(runs)


def _summary(opened: Opened) -> str:
    """The number of runs, in all and by status."""
    runs = opened.reader.runs()
    states: Counter[str] = Counter(run.status for run in runs)
    states["invalid"] = sum(run.invalid is not None for run in runs)
    states["superseded"] = sum(run.superseded for run in runs)
    counts = ", ".join(f"{count} {state}" for state, count in states.items() if count)
    return f"{len(runs)} run{'s' if len(runs) != 1 else ''}" + (f": {counts}" if counts else "")


@contextlib.contextmanager
def progress_line() -> Iterator[Progress]:
    """A progress bar over runs, on a terminal only."""
    from rich.console import Console
    from rich.progress import Progress as Line

    console = Console(stderr=True)
    with Line(console=console, transient=True, disable=not console.is_terminal) as line:
        task = line.add_task("runs", total=None)
        yield lambda done, total: line.update(task, completed=done, total=total)


def _checkpoint_folder(opened: Opened, given: Path | None) -> Path | None:
    """The folder of the checkpoints."""
    return given or (None if opened.here is None else opened.here.work)
