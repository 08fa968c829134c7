"""`harness store`: maintenance of stored runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli._completion import runs
from harness.cli._help import Group
from harness.cli._options import Duration, store_option, weights_option
from harness.cli._store_archive import export_command, import_command
from harness.cli._store_check import check, clean
from harness.cli._store_recompute import recompute
from harness.errors import Unreachable, UserError
from harness.stores.places import Places

if TYPE_CHECKING:
    from harness.schema import Naming
    from harness.stores.opened import Opened


@click.group("store", cls=Group, example="harness store check --fix")
def command() -> None:
    """Maintain stored runs: check, clean, mirror, recompute, accept an edit, export, import."""


for _one in (check, clean, recompute, export_command, import_command):
    command.add_command(_one)


@command.command(example="harness store sync --watch 60")
@click.option(
    "--watch",
    type=Duration(),
    is_flag=False,
    flag_value=30.0,
    metavar="[SECONDS]",
    help="Repeat every SECONDS (30 if not given) until Ctrl-C.",
)
@weights_option
@store_option
def sync(watch: float | None, mirror_weights_max: int, store: Places) -> int:
    """Bring the database up to date with the local runs and references.

    Idempotent; several machines may do it at once. Runs that are already in the database are kept, but their names in
    other tools are updated to those of the known studies. With --watch, the sync continues after outages of the server.
    Exits 1 if a run could not be copied.
    """
    from harness.stores.opened import Opened

    Opened(store).database  # noqa: B018  # connects: a wrong address fails at once, also with --watch
    store.require()
    if watch is None:
        return _sync(store, mirror_weights_max)
    return _watch(store, mirror_weights_max, watch)


@command.command(example="harness store invalidate 3f2a --reason 'wrong images'")
@click.argument("run", shell_complete=runs)
@click.option("--reason", required=True, help="Why the run must not count; shown under every table that needs it.")
@store_option
def invalidate(run: str, reason: str, store: Places) -> None:
    """Declare a run invalid.

    It is kept, but never counted, and tables list it with the reason. RUN is the run's id or a unique prefix of it.
    """
    from harness.stores.directory.run_directory import declare_invalid
    from harness.stores.opened import Opened
    from harness.stores.stored import Status

    if not reason.strip():
        raise UserError("--reason must not be empty")
    opened = Opened(store)
    opened.leave_out_silent()
    found = opened.reader.find(run)
    if found.status is Status.RUNNING:
        raise UserError(f"run {found.id} is still running: stop it first")
    if found.invalid is not None:
        raise UserError(f"run {found.id} is invalid already: {found.invalid}")
    here = opened.here is not None and found.id in opened.here.ids()
    there = opened.there is not None and found.id in opened.there.ids()
    if here:
        declare_invalid(opened.directory.path_of(found), reason)
    if there:
        opened.mirrored.invalidate(found.id, reason)
    places = " and ".join([store.directory.name] * here + ["the database"] * there)
    click.echo(f"run {found.id} is invalid from now on, in {places}")
    if opened.silent is not None:
        click.echo(f"{opened.silent}; use `harness store sync` when it is back", err=True)


@command.command(example='harness store accept methods/mine.py --reason "only renamed a variable"')
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--reason", required=True, help="Why the versions are equal; shown under every table that relies on it.")
@click.option("--run", "named", metavar="RUN", shell_complete=runs, help="Only the version that this run has.")
@click.option("--all", "every", is_flag=True, help="All versions that stored runs were made with.")
@store_option
def accept(file: Path, reason: str, named: str | None, every: bool, store: Places) -> None:
    """Declare that an edit of your own component changes no result.

    Runs that were made before the edit of FILE count again. The record is stored and copied with the runs.
    """
    from harness.stores.opened import Opened
    from harness.study.edits import accepted, accepting

    if not reason.strip():
        raise UserError("--reason must not be empty")
    if named is not None and every:
        raise UserError("--run and --all exclude each other")
    opened = Opened(store)
    opened.leave_out_silent()
    run = None if named is None else opened.reader.find(named)
    for one in accepting(file, opened.reader.runs(), run, every):
        key, document = accepted(one.file, one.versions, reason.strip())
        for place in (opened.here, opened.there):
            if place is not None:
                place.add_references({key: document})
        count = len(one.runs)
        click.echo(f"{one.file}: {count} run{'s' * (count != 1)} made before the edit count{'s' * (count == 1)} again")
    if opened.silent is not None:
        click.echo(f"{opened.silent}; use `harness store sync` when it is back", err=True)


def _sync(store: Places, weights_max: int, quiet: bool = False, names: bool = True) -> int:
    """Sync once; return the exit status. With `quiet`, print nothing when there was nothing to do.

    With `names`, all known studies tell the database what they call its runs.
    """
    from harness.cli._store_check import progress_line
    from harness.stores.mongo.connection import disconnect
    from harness.stores.mongo.sync import sync
    from harness.stores.opened import Opened

    opened = Opened(store)
    database = opened.database
    try:
        with progress_line() as progress:
            known = _names(opened) if names else {}
            done = sync(opened.directory, database, weights_max=weights_max, report=progress, names=known)
    finally:
        disconnect(database.client)
    if done.projected or not quiet:
        click.echo(f"{done.projected} of {done.runs} local runs copied to the database; the others were there")
    if done.listed:
        click.echo(f"{done.listed} runs have new names or tags in the database")
    if done.references:
        click.echo(f"{done.references} references copied to the database")
    for run, reason in done.failed.items():
        click.echo(f"not copied: {run}: {reason}", err=True)
    return 1 if done.failed else 0


def _names(opened: Opened) -> dict[str, Naming]:
    """What all known studies call the stored runs."""
    from harness.schema import NOBODY
    from harness.study.catalogue import all_studies
    from harness.study.naming import namings

    runs = opened.reader.runs()
    names = {run.id: NOBODY for run in runs}
    try:
        return names | namings(all_studies(), runs)
    except UserError as error:
        click.echo(f"runs get no names of studies in the database: {error}", err=True)
        return names


def _watch(store: Places, weights_max: int, pause: float) -> int:
    """Sync repeatedly, through outages of the server, until Ctrl-C."""
    import time

    status, gone, names = 0, False, True
    try:
        while True:
            try:
                status = _sync(store, weights_max, quiet=True, names=names)
                was_gone, gone, names = gone, False, False
                if was_gone:
                    click.echo("the database answers again")
            except Unreachable as error:
                if not gone:
                    click.echo(f"{error}; continuing when it is back", err=True)
                gone = True
            time.sleep(pause)
    except KeyboardInterrupt:
        click.echo("stopped")
    return 1 if gone else status
