"""`harness report`: studies' tables and figures from stored runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli import _completion as completion
from harness.cli._options import check_margins, margin_option, store_option
from harness.cli._request import (
    WithUpdates,
    chosen_studies,
    expandable,
    preset_option,
    tell_edits,
    with_named_weights,
    with_preset,
)
from harness.errors import UserError
from harness.stores.places import Places

if TYPE_CHECKING:
    from harness.components.renderer import Renderer
    from harness.stores.store import Store
    from harness.study.study import Study


@click.command("report", cls=WithUpdates, example="harness report mine --format html --references --out page")
@click.argument("studies", nargs=-1, metavar="[STUDY]...", shell_complete=completion.studies)
@preset_option
@click.option("--all", "everything", is_flag=True, help="All studies that have runs, also those of other studies.")
@click.option("--seeds", type=click.IntRange(1), help="Number of seeds required.  [default: the preset's]")
@click.option("--where", metavar="EXPR", help='Only runs that match EXPR, such as "train.epochs > 10".')
@click.option(
    *("--format", "form"),
    default="markdown",
    show_default=True,
    metavar="FORMAT",
    shell_complete=completion.formats,
    help="markdown, latex, csv, parquet, html, or a format of your own.",
)
@click.option("--references", is_flag=True, help="Add rows of predictors that train no supernet; `run` computes them.")
@click.option("--compare", is_flag=True, help="Add verdicts on the rows, and on the paper's numbers and statements.")
@click.option("--verdicts", is_flag=True, help="Print verdicts, premises and power below each table.")
@click.option(
    "--across", is_flag=True, help="Compare equally named rows over all data sets and spaces, by their ranks."
)
@margin_option
@click.option("--strict", is_flag=True, help="Print nothing and exit with 1 if anything is missing.")
@click.option("--figures/--no-figures", default=True, help="Draw figures: in the html page, and as files with --out.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Write files into this folder.")
@store_option
def command(
    studies: tuple[str, ...],
    preset: str,
    everything: bool,
    seeds: int | None,
    where: str | None,
    form: str,
    references: bool,
    compare: bool,
    verdicts: bool,
    across: bool,
    margins: dict[str, float],
    strict: bool,
    figures: bool,
    out: Path | None,
    store: Places,
    updates: tuple[str, ...],
) -> None:
    """Print the tables of the studies, or write them to a folder.

    With --out there is one file per study; latex adds main.tex, which shows them all, and html has one page for all.
    STUDY is a name or a file; by default the studies that were run here, with --all also those whose trials other
    studies ran. After `with`, give the overrides that the runs were made with; without them, only runs without
    overrides count. Figures are written as SVG and PDF.
    """
    from harness.components.discovery import component
    from harness.components.preset import get_preset
    from harness.components.registries import RENDERERS
    from harness.study.overrides import parse_updates

    if margins and not (compare or verdicts):
        raise UserError("--margin is about comparisons: give --compare or --verdicts, too")
    renderer: Renderer = RENDERERS.get(form)()
    if out is None:
        renderer.check_printable(compare or across)
    report = component("reports.report")
    opened = store.open()
    overrides = with_named_weights(parse_updates(updates), lambda: opened)
    chosen = _chosen(studies, preset, everything, opened, overrides)
    check_margins(margins, chosen)
    drawn = figures and (out is not None or renderer.draws)
    shown = references or (None if renderer.finds_references else False)
    sections = [
        report.section(
            study,
            opened,
            report.Asked(
                get_preset(preset, study.about), seeds, overrides, where, shown, drawn, compare, verdicts, margins
            ),
        )
        for study in _told(chosen)
    ]
    sections = report.judged(sections, drawn) if compare or verdicts else sections
    ranked = component("reports.across").across(sections, drawn) if across else None
    tell_edits(edit for section in sections for edit in section.findings.edits)
    for section in sections:
        if section.table.lacking:
            click.echo(section.table.lacking, err=True)
        if out is not None or not renderer.warns:
            said = {f"{edit}." for edit in section.findings.edits}
            for warning in (one for one in section.table.warnings if one not in said):
                click.echo(f"{section.table.study}: {warning}", err=True)
    if strict:
        report.require_complete(sections, opened.name)
    made = report.Report(tuple(sections), opened, drawn, ranked)
    if out is None:
        click.echo(renderer.printed(made), nl=False)
        return
    for name, content in renderer.files(made):
        _write(out / name, content)


def _chosen(
    names: tuple[str, ...], preset: str, everything: bool, store: Store, overrides: dict[str, Any]
) -> list[Study]:
    """The studies that are named, or those that were run, or all that have runs. Raises `UserError` for none."""
    from harness.components.discovery import component
    from harness.components.preset import get_preset, presets_of
    from harness.study.catalogue import all_studies

    if names:
        return with_preset(chosen_studies(names, everything=False), preset)
    has_runs = component("reports.tables").has_runs
    get_preset(preset)  # raises for a preset that no space has
    known = [study for study in all_studies() if preset in presets_of(study.about)]
    known = expandable(known, preset)
    run_here = {name for run in store.runs() if run.preset == preset for name in run.rows}
    if run_here and not everything:  # old runs do not name the studies that asked for them
        known = [study for study in known if study.name in run_here]
    found = [study for study in known if has_runs(study, get_preset(preset, study.about), store, overrides)]
    if not found:
        there = component("reports.unshown").by_scale(run for run in store.runs() if run.counts)
        raise UserError(
            f"no study has a run under preset {preset}{' with these overrides' if overrides else ''} in {store.name}; "
            + ("\n".join(there) or f"`harness run STUDY --preset {preset}` makes some")
        )
    return found


def _told(studies: Sequence[Study]) -> Iterator[Study]:
    """Yield the studies; if there are several, print the name of each first."""
    for number, study in enumerate(studies, 1):
        if len(studies) > 1:
            click.echo(f"{number} of {len(studies)}: {study.name}", err=True)
        yield study


def _write(path: Path, content: bytes) -> None:
    from harness.files import write

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, lambda file: file.write(content))
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    click.echo(f"wrote {path}")
