"""`harness report`: studies' tables and figures from stored runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli import _completion as completion
from harness.cli._margins import check_margins, margin_option
from harness.cli._request import WithUpdates, chosen_studies, expandable, preset_option, with_preset
from harness.cli._store_option import store_option
from harness.errors import UserError
from harness.stores.places import Places

if TYPE_CHECKING:
    from harness.stores.store import Store
    from harness.study.study import Study

FORMATS = {
    "markdown": "reports.render.markdown",
    "latex": "reports.render.latex",
    "csv": "reports.render.csv",
    "parquet": "reports.render.parquet",
    "html": "reports.render.html",
}


@click.command("report", cls=WithUpdates, example="harness report mine --format html --references --out page")
@click.argument("studies", nargs=-1, metavar="[STUDY]...", shell_complete=completion.studies)
@preset_option
@click.option("--seeds", type=click.IntRange(1), help="Number of seeds required.  [default: the preset's]")
@click.option("--where", metavar="EXPR", help='Only runs that match EXPR, such as "train.epochs > 10".')
@click.option("--format", "form", type=click.Choice(list(FORMATS)), default="markdown", show_default=True)
@click.option("--references", is_flag=True, help="Add rows of predictors that train no supernet; `run` makes them.")
@click.option("--compare", is_flag=True, help="Add verdicts on the rows, and on the paper's numbers and statements.")
@click.option("--verdicts", is_flag=True, help="Say below each table what was found: verdicts, premises, power.")
@click.option(
    "--across", is_flag=True, help="Compare equally named rows over all data sets and spaces, by their ranks."
)
@margin_option
@click.option("--strict", is_flag=True, help="Report nothing, and exit 1, when anything is missing.")
@click.option("--figures/--no-figures", default=True, help="Draw figures: in the html page, and as files with --out.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Write files into this folder.")
@store_option
def command(
    studies: tuple[str, ...],
    preset: str,
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
    STUDY is a name or a file; by default all studies that the store has runs of. After `with`, give the overrides that
    the runs were made with; without them, only runs without overrides count. Figures are written as SVG and PDF.
    """
    from harness.components.discovery import component
    from harness.components.preset import get_preset
    from harness.study.overrides import parse_updates

    if margins and not (compare or verdicts):
        raise UserError("--margin is about comparisons: give --compare or --verdicts, too")
    if out is None and form == "parquet":
        raise UserError("a Parquet file cannot be printed: give --out DIR")
    if out is None and form == "csv" and (compare or across):
        raise UserError("tables and their comparison have different columns and need two files: give --out DIR")
    report, renderer = component("reports.report"), component(FORMATS[form])
    opened = store.open()
    overrides = parse_updates(updates)
    chosen = _chosen(studies, preset, opened, overrides)
    check_margins(margins, chosen)
    drawn = figures and (out is not None or form == "html")
    shown = references or (None if form == "html" else False)
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
    for section in sections:
        if section.table.lacking:
            click.echo(section.table.lacking, err=True)
        if out is not None or form not in ("markdown", "latex"):  # these show them under the tables, on the screen
            for warning in section.table.warnings:
                click.echo(f"{section.table.study}: {warning}", err=True)
    if strict:
        report.require_complete(sections, opened.name)
    if out is None:
        click.echo(_printed(renderer, sections, opened, form, drawn, ranked), nl=False)
        return
    for name, content in _files(renderer, sections, opened, form, drawn, ranked):
        _write(out / name, content)


def _chosen(names: tuple[str, ...], preset: str, store: Store, overrides: dict[str, Any]) -> list[Study]:
    """The studies that are named, or all that have runs. Raises `UserError` when there are none."""
    from harness.components.discovery import component
    from harness.components.preset import get_preset, presets_of
    from harness.study.catalogue import all_studies

    if names:
        return with_preset(chosen_studies(names, everything=False), preset)
    has_runs = component("reports.tables").has_runs
    get_preset(preset)  # raises for a preset that no space has
    known = [study for study in all_studies() if preset in presets_of(study.about)]
    known = expandable(known, preset)
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


def _printed(renderer: Any, sections: Sequence[Any], store: Store, form: str, drawn: bool, ranked: Any) -> str:
    if form == "html":
        return str(renderer.page(sections, store, figures=drawn, across=ranked))
    listed = [grid for section in sections for grid in section.references if form != "csv"]
    grids = [*listed, *(grid for section in sections for grid in section.grids), *(ranked.grids if ranked else ())]
    text = renderer.render([section.table for section in sections])
    return f"{text}\n{renderer.render_grids(grids)}" if grids else str(text)


def _files(
    renderer: Any, sections: Sequence[Any], store: Store, form: str, drawn: bool, ranked: Any
) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the files to write; each content is made when its turn comes."""
    from harness.components.discovery import component

    if form == "latex":
        document = component("reports.render.latex_document")
        sections = document.fitting(sections)
    if form == "html":
        yield "index.html", renderer.page(sections, store, files=True, figures=drawn, across=ranked).encode()
    else:
        texts = component(FORMATS["csv"]) if form == "parquet" else renderer
        for section in sections:
            content = renderer.encode([section.table]) if form == "parquet" else renderer.render([section.table])
            yield f"{section.table.study}.{renderer.SUFFIX}", content if form == "parquet" else content.encode()
            tidy = form in ("csv", "parquet")  # their comparisons are numbers; other formats have grids of text
            compared = () if tidy else section.grids
            grids = {"references": section.references, "target": section.anytime, "compared": compared}
            for name, own in grids.items():
                if own:
                    yield f"{section.table.study}-{name}.{texts.SUFFIX}", texts.render_grids(own).encode()
            if tidy:
                yield from _compared(section)
        for grid in ranked.grids if ranked else ():
            yield f"{grid.name}.{texts.SUFFIX}", texts.render_grids([grid]).encode()
    if form == "latex":
        yield from ((name, text.encode()) for name, text in document.files(sections, ranked))
    drawing = component("reports.render.drawing")
    figures = [figure for section in sections for figure in section.figures]
    for figure in (*figures, *([ranked.figure] if ranked and ranked.figure else ())):
        for kind in drawing.FORMATS:
            yield f"{figure.file}.{kind}", drawing.draw(figure, kind)
        yield f"{figure.file}.csv", component(FORMATS["csv"]).render_figure(figure).encode()


def _compared(section: Any) -> Iterator[tuple[str, bytes]]:
    """The comparisons of a study as tidy files: verdicts, and values next to the paper's."""
    from harness.components.discovery import component

    csv, name = component(FORMATS["csv"]), section.table.study
    if section.judgements:
        yield f"{name}-compared.csv", csv.render_judgements(section.judgements).encode()
    if section.beside:
        yield f"{name}-paper.csv", csv.render_beside(section.findings.study, section.table).encode()


def _write(path: Path, content: bytes) -> None:
    from harness.files import write

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, lambda file: file.write(content))
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    click.echo(f"wrote {path}")
