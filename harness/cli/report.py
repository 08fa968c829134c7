"""`harness report`: studies' tables from stored runs."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli._request import WithUpdates, chosen_studies
from harness.errors import UserError
from harness.store_option import Places, store_option

FORMATS = {"markdown": "reports.markdown", "latex": "reports.latex", "csv": "reports.tidy"}


@click.command("report", cls=WithUpdates)
@click.argument("studies", nargs=-1, metavar="[STUDY]...")
@click.option("--preset", default="demo", show_default=True, metavar="P", help="Whose runs the tables show.")
@click.option("--seeds", type=click.IntRange(1), help="How many seeds are asked for.  [default: as the preset says]")
@click.option("--where", metavar="EXPR", help="Only runs for which this holds, e.g. \"method.name == 'spos'\".")
@click.option("--format", "form", type=click.Choice(list(FORMATS)), default="markdown", show_default=True)
@click.option("--references", is_flag=True, help="Add rows for predictors that trained nothing.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Write one file a study into this folder."
)
@store_option
def command(
    studies: tuple[str, ...],
    preset: str,
    seeds: int | None,
    where: str | None,
    form: str,
    references: bool,
    out: Path | None,
    store: Places,
    updates: tuple[str, ...],
) -> None:
    """Print the tables of the studies, or write them into a folder.

    STUDY is a name or a file; without any, all studies that the store has runs of. Everything after
    `with` is what the runs were made with besides the preset: without it, runs with overrides do not count.
    """
    from harness.catalogue import all_studies
    from harness.discovery import component
    from harness.presets import get_preset
    from harness.syntax import parse_updates

    tables, renderer = component("reports.tables"), component(FORMATS[form])
    scale, opened = get_preset(preset), store.open()
    overrides = parse_updates(updates)
    if studies:
        chosen = chosen_studies(studies, everything=False)
    else:
        chosen = [study for study in all_studies() if tables.has_runs(study, scale, opened, overrides)]
        if not chosen:
            raise UserError(
                f"no study has a run under preset {preset} in {opened.name}; "
                f"`harness run STUDY --preset {preset}` makes some"
            )
    built = [tables.build(study, scale, opened, seeds, overrides, where, references) for study in chosen]
    if out is None:
        click.echo(renderer.render(built), nl=False)
        return
    for table in built:
        click.echo(f"wrote {_write(out / f'{table.study}.{renderer.SUFFIX}', renderer.render([table]))}")


def _write(path: Path, text: str) -> Path:
    from harness.stores.files import write

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, lambda file: file.write(text.encode()))
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    return path
