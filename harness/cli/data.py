"""`harness data`: which data sets are there, where they are looked for, and whether they are correct."""

from __future__ import annotations

import click

from harness.cli._help import Group


@click.group(cls=Group, example="harness data list")
def command() -> None:
    """Show and verify the data sets.

    Files are looked for in HARNESS_DATA (./data if not set), those of the data set `folder` in
    HARNESS_DATA_FOLDER. Decoded images are kept in HARNESS_CACHE (the user's cache if not set).
    """


@command.command("list", example="harness data list")
def list_command() -> None:
    """List all data sets: state, location, and how to get missing ones."""
    from harness.data.inspection import presences
    from harness.data.places import CACHE, DATA, cache_folder, data_folder
    from harness.documents import screen_width, table

    found = presences()
    rows = [(one.name, one.state, one.images or "-", one.where or "-") for one in found]
    click.echo(table(rows, ("data set", "state", "images", "where"), screen_width(), tablefmt="simple"))
    click.echo()
    for one in found:
        if one.advice:
            click.echo(f"{one.name}: {one.advice}")
    click.echo(f"data sets are looked for in {data_folder()} ({DATA}), decoded ones in {cache_folder()} ({CACHE})")


@command.command(example="harness data check folder")
@click.argument("name")
@click.option("--download", is_flag=True, help="Download the data set first if missing, from torchvision's source.")
def check(name: str, download: bool) -> int:
    """Read all of a data set and verify it: files, counts, checksums. Exits 1 if anything is wrong."""
    from harness.components.registries import DATASETS
    from harness.data.inspection import inspect
    from harness.data.source import FileDataSet, Missing

    thing = DATASETS.get(name)
    if download and isinstance(thing, FileDataSet):
        try:
            thing.find()
            click.echo(f"{name} is there, nothing is downloaded")
        except Missing:
            from harness.data.download import download as get

            get(name)
    result = inspect(name)
    for label, text in result.facts.items():
        click.echo(f"{label:12} {text}")
    for warning in result.warnings:
        click.echo(f"warning: {warning}")
    for problem in result.problems:
        click.echo(f"wrong: {problem}")
    click.echo(f"{name}: NOT verified" if result.problems else f"{name}: verified")
    return 1 if result.problems else 0
