"""`harness store export` and `import`: a study's runs as one file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli._request import WithUpdates, chosen_studies, plan_of, with_preset
from harness.cli._store_option import store_option
from harness.cli._store_places import amount, connected
from harness.cli._values import Size
from harness.errors import UserError
from harness.stores.places import Places

if TYPE_CHECKING:
    from harness.execution.plan import Plan
    from harness.stores.stored import StoredRun

LISTED = 20
"""How many missing trials are named."""


@click.command("export", cls=WithUpdates)
@click.argument("study")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--preset", default="demo", show_default=True, help="The scale.")
@click.option("--seeds", type=click.IntRange(1), help="How many seeds, from 0 on.  [default: the preset's]")
@click.option("--no-weights", is_flag=True, help="Leave the weights out: smaller, but nothing can start from them.")
@click.option("--all-attempts", is_flag=True, help="Also runs that failed, were lost, invalidated or superseded.")
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
    """Write the runs that count for STUDY into FILE: an archive in which every file has its checksum.

    The same runs give the same bytes. A name that ends in .gz or .tgz is compressed. What the study asks for
    and the store does not have is listed, here and in the archive.
    """
    from harness.stores.upkeep.archive import export_runs

    if file.exists():
        raise UserError(f"{file} exists already: remove it, or give another name")
    studies = with_preset(chosen_studies((study,), everything=False), preset)
    opened = store.open()
    stored = opened.runs()
    plan = plan_of(studies, stored, preset=preset, seeds=seeds, only=(), updates=updates, check=False)
    chosen, missing = _chosen(plan, stored, all_attempts)
    if not chosen:
        raise UserError(f"{opened.name} has no run of {study} under preset {preset}: there is nothing to export")
    name = ", ".join(one.name for one in studies)
    export_runs(opened, chosen, file, study=name, preset=preset, missing=missing, weights=not no_weights)
    click.echo(f"wrote {len(chosen)} runs of {name} to {file}, {amount(file.stat().st_size)}")
    for problem in opened.problems:
        click.echo(f"not usable: {problem.place}: {problem.reason}", err=True)
    for line in missing[:LISTED]:
        click.echo(f"missing: {line}", err=True)
    if len(missing) > LISTED:
        click.echo(f"missing: {len(missing) - LISTED} more", err=True)


@click.command("import")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--mirror-weights-max", type=Size(), default="64MB", show_default=True, help="For a database.")
@store_option
def import_command(file: Path, mirror_weights_max: float, store: Places) -> None:
    """Add the runs of the archive FILE to the directory of runs, or with --store mongodb://… to a database.

    Nothing is added unless all of it is whole and fits what is there. Runs that are there already are
    skipped; of these, rankings and weights that only the archive has are added.
    """
    from harness.stores.upkeep.importing import import_into_database, import_into_directory

    if store.database_only:
        done = import_into_database(file, connected(store), int(mirror_weights_max))
        place = "the database"
    else:
        done = import_into_directory(file, store.directory)
        place = str(store.directory)
    click.echo(
        f"{len(done.added)} runs added to {place}, {len(done.extended)} extended, {len(done.present)} there already"
    )
    if done.manifest.missing:
        click.echo(f"{len(done.manifest.missing)} trials of {done.manifest.study} are not in the archive", err=True)
    if store.mongo is not None and not store.database_only:
        click.echo("`harness store sync` brings them to the database", err=True)


def _chosen(plan: Plan, stored: list[StoredRun], all_attempts: bool) -> tuple[list[StoredRun], list[str]]:
    """The runs to export, and what is missing of the plan."""
    counting = {run.key: run for run in stored if run.counts}
    keys = {work.trial.key for work in plan.work}
    missing = []
    for work in plan.work:
        state = "not ranked as asked" if work.state == "rank" else work.state
        if work.state != "done":
            missing.append(f"{work.label}: {state}")
    if all_attempts:
        return [run for run in stored if run.key in keys and run.status != "running"], missing
    return [counting[key] for key in sorted(keys & counting.keys())], missing
