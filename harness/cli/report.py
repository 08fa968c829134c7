"""`harness report`: studies' tables from stored runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli._request import WithUpdates, chosen_studies
from harness.errors import UserError
from harness.store_option import Places, store_option

if TYPE_CHECKING:
    from harness.presets import Preset
    from harness.stores import Store
    from harness.study import Study

FORMATS = {
    "markdown": "reports.markdown",
    "latex": "reports.latex",
    "csv": "reports.tidy",
    "parquet": "reports.parquet",
}


@click.command("report", cls=WithUpdates)
@click.argument("studies", nargs=-1, metavar="[STUDY]...")
@click.option("--preset", default="demo", show_default=True, metavar="P", help="Whose runs the tables show.")
@click.option("--seeds", type=click.IntRange(1), help="How many seeds are asked for.  [default: as the preset says]")
@click.option("--where", metavar="EXPR", help="Only runs for which this holds, e.g. \"method.name == 'spos'\".")
@click.option("--format", "form", type=click.Choice(list(FORMATS)), default="markdown", show_default=True)
@click.option("--references", is_flag=True, help="Add rows for predictors that trained nothing.")
@click.option("--strict", is_flag=True, help="Report nothing, and exit 1, when anything is missing.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Write files into this folder.")
@store_option
def command(
    studies: tuple[str, ...],
    preset: str,
    seeds: int | None,
    where: str | None,
    form: str,
    references: bool,
    strict: bool,
    out: Path | None,
    store: Places,
    updates: tuple[str, ...],
) -> None:
    """Print the tables of the studies, or write them into a folder, one file a study.

    STUDY is a name or a file; without any, all studies that the store has runs of. Everything after
    `with` is what the runs were made with besides the preset: without it, runs with overrides do not count.
    """
    from harness.discovery import component
    from harness.presets import get_preset
    from harness.syntax import parse_updates

    if out is None and form == "parquet":
        raise UserError("a Parquet file is not for the screen: say --out DIR")
    report, renderer = component("reports.report"), component(FORMATS[form])
    scale, opened = get_preset(preset), store.open()
    overrides = parse_updates(updates)
    chosen = _chosen(studies, scale, opened, overrides)
    asked = report.Asked(scale, seeds, overrides, where, references)
    sections = [report.section(study, opened, asked) for study in _told(chosen)]
    if strict:
        report.require_complete(sections, opened.name)
    if out is None:
        click.echo(renderer.render([section.table for section in sections]), nl=False)
        return
    for section in sections:
        place = out / f"{section.table.study}.{renderer.SUFFIX}"
        _write(place, _encoded(renderer, [section.table]))


def _chosen(names: tuple[str, ...], preset: Preset, store: Store, overrides: dict[str, Any]) -> list[Study]:
    """The studies that are named, or all that have runs. Raises `UserError` when there are none."""
    from harness.catalogue import all_studies
    from harness.discovery import component

    if names:
        return chosen_studies(names, everything=False)
    has_runs = component("reports.tables").has_runs
    found = [study for study in all_studies() if has_runs(study, preset, store, overrides)]
    if not found:
        raise UserError(
            f"no study has a run under preset {preset.name} in {store.name}; "
            f"`harness run STUDY --preset {preset.name}` makes some"
        )
    return found


def _told(studies: Sequence[Study]) -> Iterable[Study]:
    """The studies, one after the other; where there are several, each is named when its turn comes."""
    for number, study in enumerate(studies, 1):
        if len(studies) > 1:
            click.echo(f"{number} of {len(studies)}: {study.name}", err=True)
        yield study


def _encoded(renderer: Any, tables: Sequence[Any]) -> bytes:
    content: bytes = renderer.encode(tables) if hasattr(renderer, "encode") else renderer.render(tables).encode()
    return content


def _write(path: Path, content: bytes) -> None:
    from harness.stores.files import write

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, lambda file: file.write(content))
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    click.echo(f"wrote {path}")
