"""`harness store export` and `import`: a study's runs as one file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli._completion import studies
from harness.cli._help import Command
from harness.cli._options import Size, store_option
from harness.cli._request import WithUpdates, chosen_studies, preset_option, with_preset
from harness.documents import amount
from harness.errors import UserError
from harness.stores.places import Places

if TYPE_CHECKING:
    from harness.stores.store import Store
    from harness.stores.stored import StoredRun
    from harness.study.study import Study
    from harness.work.plan import Plan

LISTED = 20
"""Number of missing trials to list at most."""


@click.command("export", cls=WithUpdates, example="harness store export mine mine.tar.gz --preset demo")
@click.argument("study", shell_complete=studies)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@preset_option
@click.option("--seeds", type=click.IntRange(1), help="Number of seeds, from 0 on.  [default: the preset's]")
@click.option(
    "--no-weights",
    is_flag=True,
    help="Leave out the weights: a smaller file, but new predictions cannot be made from it.",
)
@click.option("--all-attempts", is_flag=True, help="Include runs that failed, were lost, invalidated or superseded.")
@store_option
def export_command(
    study: str,
    file: Path,
    preset: str,
    seeds: int | None,
    no_weights: bool,
    all_attempts: bool,
    store: Places,
    updates: tuple[str, ...],
) -> None:
    """Write the runs that count for STUDY, and its references, to the archive FILE.

    The archive has a checksum for every file. The same runs give the same bytes. A FILE that ends in .gz or .tgz is
    compressed. Trials of the study that the store does not have are listed, on the screen and in the archive.
    """
    from harness.stores.upkeep.archive import export_runs
    from harness.study.overrides import parse_updates
    from harness.work.plan import Asked

    if file.exists():
        raise UserError(f"{file} exists already: remove it, or give another name")
    studies = with_preset(chosen_studies((study,), everything=False), preset)
    opened = store.open()
    stored = opened.runs()
    plan = Asked(studies, preset, seeds, parse_updates(updates)).plan(stored, check=False)
    chosen, missing = _chosen(plan, stored, all_attempts)
    if not chosen:
        raise UserError(f"{opened.name} has no run of {study} under preset {preset}: there is nothing to export")
    name = ", ".join(one.name for one in studies)
    beside = _references(studies, preset, opened, seeds, parse_updates(updates)) | _accepted(opened, chosen)
    export_runs(
        opened, chosen, file, study=name, preset=preset, missing=missing, weights=not no_weights, references=beside
    )
    more = f" and {len(beside)} references" if beside else ""
    click.echo(f"wrote {len(chosen)} runs{more} of {name} to {file}, {amount(file.stat().st_size)}")
    for problem in opened.problems:
        click.echo(f"not usable: {problem.place}: {problem.reason}", err=True)
    for line in missing[:LISTED]:
        click.echo(f"missing: {line}", err=True)
    if len(missing) > LISTED:
        click.echo(f"missing: {len(missing) - LISTED} more", err=True)


@click.command("import", cls=Command, example="harness store import mine.tar.gz")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--mirror-weights-max",
    type=Size(),
    default="64MB",
    show_default=True,
    help="With a database: leave out weight files larger than this.",
)
@click.option(
    "--max-size",
    type=Size(),
    default="100GB",
    show_default=True,
    help="Refuse an archive whose files are larger than this together.",
)
@store_option
def import_command(file: Path, mirror_weights_max: int, max_size: float, store: Places) -> None:
    """Add the runs and references of the archive FILE to the directory of runs.

    With --store mongodb://… they are added to a database. Nothing is added unless the whole archive is intact and
    agrees with the stored runs. Runs that are already stored are skipped, but rankings and weights that only the
    archive has are added to them.
    """
    from harness.stores.opened import Opened
    from harness.stores.upkeep.importing import import_into_database, import_into_directory

    if store.database_only:
        done = import_into_database(file, Opened(store).database, mirror_weights_max, int(max_size))
        place = "the database"
    else:
        done = import_into_directory(file, store.directory, int(max_size))
        place = str(store.directory)
    click.echo(
        f"{len(done.added)} runs added to {place}, {len(done.extended)} extended, {len(done.present)} already there"
    )
    if done.manifest.references:
        there = len(done.manifest.references) - len(done.references)
        click.echo(f"{len(done.references)} references added, {there} already there")
    if done.manifest.missing:
        click.echo(f"{len(done.manifest.missing)} trials of {done.manifest.study} are not in the archive", err=True)
    if store.mongo is not None and not store.database_only:
        click.echo("`harness store sync` copies them to the database", err=True)


def _accepted(store: Store, chosen: Iterable[StoredRun]) -> dict[str, dict[str, Any]]:
    """The records that declare versions of these runs' code equal, by key."""
    versions = {version for run in chosen for one in run.code.values() for version in (one.code, *one.equal)}
    known = store.references()[0] if versions else {}
    return {key: one for key, one in known.items() if "accepted" in one and versions & {*one["versions"]}}


def _references(
    studies: Sequence[Study], preset: str, store: Store, seeds: int | None, overrides: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """The stored references of the studies, and imported predictions of their spaces, by key."""
    from harness.components.preset import get_preset
    from harness.errors import DataError
    from harness.study.predictions import stored
    from harness.study.references import references_of, stored_document

    found = {}
    for study in studies:
        for one in references_of(study, get_preset(preset, study.about), store.runs, seeds, overrides):
            with contextlib.suppress(DataError):  # the table of truth is not here
                if (document := stored_document(store, one)) is not None:
                    found[one.key] = document
        found |= {one.key: one.document() for one in stored(store, [study.about])}
    return found


def _chosen(plan: Plan, stored: list[StoredRun], all_attempts: bool) -> tuple[list[StoredRun], list[str]]:
    """The runs to export, and the missing trials of the plan."""
    from harness.stores.stored import Status
    from harness.work.states import State

    counting = {run.key: run for run in stored if run.counts}
    keys = {work.trial.key for work in plan.work}
    missing = []
    for work in plan.work:
        state = "not ranked as requested" if work.state is State.RANK else work.state
        if work.state is not State.DONE:
            missing.append(f"{work.label}: {state}")
    if all_attempts:
        return [run for run in stored if run.key in keys and run.status is not Status.RUNNING], missing
    return [counting[key] for key in sorted(keys & counting.keys())], missing
