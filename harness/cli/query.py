"""`harness query`: search the stored runs."""

from __future__ import annotations

from collections import Counter

import click

from harness.cli._completion import presets, studies
from harness.cli._help import Command
from harness.cli._options import store_option
from harness.documents import not_computed
from harness.errors import UnknownName
from harness.stores.places import Places

_MEASURED = ("preset", "seed", "kendall_tau", "top1_accuracy", "wall_seconds")
_COLUMNS = ",".join(["run_id", "study", "made_for", *_MEASURED])


@click.command("query", cls=Command, example="harness query 'kendall_tau > 0.5 and train.epochs >= 10'")
@click.argument("expression", required=False)
@click.option(
    "--study",
    metavar="STUDY",
    shell_complete=studies,
    help="Only runs of this study, with its labels as further columns.",
)
@click.option("--preset", metavar="P", shell_complete=presets, help="Only runs of this preset.")
@click.option("--columns", default=_COLUMNS, metavar="A,B,…", help="Columns to show; `all` for every column.")
@click.option("--all", "everything", is_flag=True, help="Include runs that are not done, invalid or superseded.")
@click.option("--format", "form", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True)
@store_option
def command(
    expression: str | None,
    study: str | None,
    preset: str | None,
    columns: str,
    everything: bool,
    form: str,
    store: Places,
) -> None:
    """Show the runs that match EXPRESSION, one per line.

    EXPRESSION compares columns with values, e.g. "method.name == 'NAME' and kendall_tau > 0.5".
    """
    from harness import results

    opened = store.open()
    frame = results.runs(study, opened, preset, expression, everything, panel=True)
    if study is not None and columns == _COLUMNS:
        columns = ",".join(["run_id", *(name for name in frame.columns if name.startswith("label_")), *_MEASURED])
    wanted = (
        list(frame.columns) if columns == "all" else [name.strip().replace(".", "_") for name in columns.split(",")]
    )
    for name in wanted:
        if name not in frame.columns:
            raise UnknownName.among("column", name, map(str, frame.columns))
    shown = frame[wanted]
    if form == "csv":
        texts = {name: shown[name].map(_cell) for name in shown.select_dtypes(exclude="number")}
        click.echo(shown.assign(**texts).to_csv(index=False, lineterminator="\n"), nl=False)
    elif form == "json":
        click.echo(shown.to_json(orient="records", indent=1, date_format="iso", double_precision=15))
    else:
        from harness.documents import screen_width, table

        rows = [["" if _missing(value) else value for value in row] for row in shown.itertuples(index=False)]
        click.echo(table(rows, wanted, screen_width(), tablefmt="simple", floatfmt=".4g"))
        click.echo(f"{len(shown)} runs", err=True)
    if shown.empty:
        held = Counter(run.preset for run in opened.runs() if everything or run.counts)
        there = ", ".join(f"{count} under preset {name}" for name, count in held.most_common())
        click.echo(f"no run matches; stored in {opened.name}: {there or 'none'}", err=True)
    for problem in opened.problems:
        click.echo(f"{problem.effect}: {problem.place}: {problem.reason}", err=True)


def _missing(value: object) -> bool:
    import pandas

    return pandas.api.types.is_scalar(value) and bool(pandas.isna(value))


def _cell(value: object) -> object:
    """A value as a CSV file holds it."""
    return not_computed(value) if isinstance(value, str) else value
