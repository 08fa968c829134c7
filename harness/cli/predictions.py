"""`harness predictions`: predictions of other code, judged by the same measures as runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli._help import Group
from harness.cli._options import store_option
from harness.errors import UnknownName, UserError
from harness.stores.places import Places

if TYPE_CHECKING:
    from harness.study.predictions import Imported

LONGEST = 60
"""Characters of a name: it is a label in tables."""


@click.group(cls=Group, example="harness predictions list")
def command() -> None:
    """Import predictions of other code, and judge them.

    They are stored and exported with the runs, and appear in tables as rows marked as imported.
    """


@command.command("import", example="harness predictions import mine.csv --as Mine --space NAME --dataset NAME")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--as", "name", required=True, metavar="NAME", help="The name of the row in tables.")
@click.option("--space", required=True, help="The space of the architectures.")
@click.option("--dataset", required=True, help="The data set whose accuracies are predicted.")
@click.option("--partial", is_flag=True, help="Accept a file without some architectures of the space.")
@store_option
def import_command(file: Path, name: str, space: str, dataset: str, partial: bool, store: Places) -> None:
    """Store the predictions in FILE, and judge them.

    FILE is CSV or JSON: architectures, as their space prints them or as numbers, with predicted accuracies. Any score
    works if higher means better. Nothing is stored if an architecture is wrong, missing or duplicated.
    """
    from harness.components.registries import DATASETS, SPACES
    from harness.stores.opened import Opened
    from harness.study.predictions import read_predictions

    if not name.strip() or name != name.strip() or len(name) > LONGEST or not name.isprintable():
        raise UserError(f"--as {name!r}: a name has 1 to {LONGEST} printable characters, no space at its ends")
    SPACES.get(space)
    if dataset not in DATASETS:
        raise UnknownName.among("data set", dataset, DATASETS.names())
    imported = read_predictions(file, name, space, dataset, partial)
    opened = Opened(store)
    for place in (opened.here, opened.there):
        before = None if place is None else place.recall(imported.key)
        if before not in (None, imported.document()):
            raise UserError(
                f"{place.name if place else ''} holds other predictions named {name!r} for {space} on {dataset}; give "
                f"another name, or remove them: harness predictions remove {name!r}"
            )
    for place in (opened.here, opened.there):
        if place is not None:
            place.add_references({imported.key: imported.document()})
    click.echo(f"{len(imported.accuracies):,} predictions of {file.name} are stored as {name!r}")
    _show(imported, None)


@command.command("list", example="harness predictions list")
@store_option
def list_command(store: Places) -> None:
    """List the imported predictions."""
    from harness.documents import screen_width, table
    from harness.study.predictions import stored

    found = stored(store.open())
    rows = [(one.name, one.space, one.dataset, len(one.accuracies), one.source) for one in found]
    if rows:
        click.echo(table(rows, ("name", "space", "data set", "predictions", "file"), screen_width(), tablefmt="simple"))
    click.echo(f"{len(rows)} imported predictions")


@command.command("show", example="harness predictions show Mine")
@click.argument("name")
@click.option(
    "--benchmark", help="The table of ground truth to compare with.  [default: the one that has space and data set]"
)
@store_option
def show_command(name: str, benchmark: str | None, store: Places) -> None:
    """Judge imported predictions by every measure."""
    from harness.study.predictions import stored

    for one in _named(name, stored(store.open())):
        click.echo(f"{one.name}: {one.space}, {one.dataset}, {len(one.accuracies):,} predictions of {one.source}")
        _show(one, benchmark)


@command.command("remove", example="harness predictions remove Mine")
@click.argument("name")
@click.option("--dataset", help="Only those for this data set.")
@store_option
def remove_command(name: str, dataset: str | None, store: Places) -> None:
    """Remove imported predictions from the store."""
    from harness.stores.opened import Opened
    from harness.study.predictions import stored

    opened = Opened(store)
    places = [place for place in (opened.here, opened.there) if place is not None]
    every = {one.key: one for place in places for one in stored(place) if dataset in (None, one.dataset)}
    chosen = _named(name, list(every.values()))
    for place in places:
        for one in chosen:
            place.forget(one.key)
    click.echo("\n".join(f"removed {one.name!r} for {one.space} on {one.dataset}" for one in chosen))


def _named(name: str, every: list[Imported]) -> list[Imported]:
    chosen = [one for one in every if one.name == name]
    if not chosen:
        raise UnknownName.among("imported prediction", name, {one.name for one in every})
    return chosen


def _show(imported: Imported, benchmark: str | None) -> None:
    """Print τ and the panel, by the table of truth of that name, or by the one that fits."""
    from harness.cli.show import sections
    from harness.errors import DataError
    from harness.schema import PANEL
    from harness.study.configuration import Ranking
    from harness.study.predictions import judged, judges

    tables = [benchmark] if benchmark else judges(imported.space, imported.dataset)
    if not tables:
        click.echo(f"no table of truth for {imported.space} on {imported.dataset} is here: nothing judges them yet")
        return
    for table in tables:
        try:
            result = judged(imported, table, Ranking())
        except DataError as error:
            click.echo(f"benchmark {table} is not available: {error}")
            continue
        plain: dict[str, Any] = {key: result[key] for key in ("kendall_tau", "top1_accuracy")}
        lines = {key: "null" if value is None else str(value) for key, value in plain.items()}
        lines |= sections(result[PANEL])
        width = max(map(len, lines))
        click.echo("\n".join([f"by benchmark {table}", *(f"  {key:<{width}}  {text}" for key, text in lines.items())]))
