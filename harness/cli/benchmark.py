"""`harness benchmark`: build, import, inspect and verify tables of ground truth."""

from __future__ import annotations

from pathlib import Path

import click


@click.group()
def command() -> None:
    """Build, import, inspect and verify tables of stand-alone accuracy."""


@command.command()
@click.option("--space", default="nasbench201", show_default=True, help="Whose architectures to train.")
@click.option("--data", default="digits", show_default=True, help="The data set to train them on.")
@click.option("--seeds", default=4, show_default=True, type=click.IntRange(1), help="Networks per class of equal ones.")
@click.option("--seed", default=0, show_default=True, help="What all randomness is derived from.")
@click.option("--width", default=4, show_default=True, help="Channels of the first stage.")
@click.option("--depth", default=1, show_default=True, help="Cells a stage.")
@click.option("--epochs", default=2, show_default=True)
@click.option("--batch-size", default=64, show_default=True)
@click.option("--learning-rate", default=0.1, show_default=True)
@click.option("--momentum", default=0.9, show_default=True)
@click.option("--weight-decay", default=5e-4, show_default=True)
@click.option("--jobs", type=click.IntRange(1), help="Processes, one thread each.  [default: all cores]")
@click.option("--work", type=click.Path(path_type=Path), help="Where finished pieces are kept.  [default: OUT.pieces]")
@click.option("--out", type=click.Path(path_type=Path), help="The table to write.  [default: ./DATA.npz]")
def build(
    space: str,
    data: str,
    seeds: int,
    seed: int,
    jobs: int | None,
    work: Path | None,
    out: Path | None,
    **recipe: float,
) -> None:
    """Train every class of equal networks and write the table.

    Finished pieces survive any interruption: the same command goes on with what is missing.
    """
    import os

    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from harness.training.stages.standalone import StandaloneRecipe
    from harness.truth.build import Plan, assemble
    from harness.truth.build import build as build_pieces

    plan = Plan.make(space, data, StandaloneRecipe(**recipe), seeds, seed)  # type: ignore[arg-type]
    out = out or Path(f"{data}.npz")
    work = work or out.with_suffix(".pieces")
    columns = (TextColumn("classes"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns) as progress:
            task = progress.add_task("build", total=None)
            for finished, total in build_pieces(plan, work, jobs or os.cpu_count() or 1):
                progress.update(task, completed=finished, total=total)
                if not progress.console.is_terminal:
                    click.echo(f"{finished} of {total} classes")
    except KeyboardInterrupt:
        click.echo(f"stopped; finished pieces are in {work}: the same command goes on from there", err=True)
        raise
    assemble(plan, work).write(out)
    click.echo(f"wrote {out}; the pieces in {work} are no longer needed")


@command.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--as", "name", metavar="BENCHMARK", help="The benchmark.  [default: the only one that can be imported]")
@click.option("--trust", is_flag=True, help="Read a pickle with all that it asks for, code that runs included.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The table to write.  [default: BENCHMARK.npz in HARNESS_BENCHMARKS, or in HARNESS_DATA/benchmarks]",
)
def import_(file: Path, name: str | None, trust: bool, out: Path | None) -> None:
    """Import a published benchmark from FILE, once: afterwards it is a benchmark like the embedded one.

    `harness list importers` shows what can be imported, and from which files. Pickles are read without running
    anything in them, unless you say --trust; an official file of many gigabytes takes as much memory, and half an
    hour without --trust.
    """
    from harness.components.registries import IMPORTERS
    from harness.errors import DataError, UserError

    names = IMPORTERS.names()
    if name is None and len(names) != 1:
        raise UserError(f"say which benchmark it is, with --as: {', '.join(names) or 'none can be imported'}")
    name = name or names[0]
    importer = IMPORTERS.get(name)
    table = importer.read(file, trust)
    out = out or importer.file()
    try:
        table.write(out)
    except OSError as error:
        raise DataError(f"{out}: cannot be written ({error.strerror or error})") from error
    click.echo(f"wrote {out}; `harness benchmark info {name if out == importer.file() else out}` describes it")


@command.command()
@click.argument("name", default="digits")
def info(name: str) -> None:
    """Show how a table was made and how far it can be trusted. NAME is a benchmark or a table's file."""
    from harness.truth.description import describe, load

    for label, text in describe(name, load(name)):
        click.echo(f"{label:15} {text}")


@command.command()
@click.argument("name", default="digits")
@click.option("--sample", default=50, show_default=True, type=click.IntRange(1), help="How many rows to retrain.")
@click.option("--seed", default=0, show_default=True, help="Which rows.")
@click.option("--jobs", type=click.IntRange(1), help="Processes, one thread each.  [default: all cores]")
def verify(name: str, sample: int, seed: int, jobs: int | None) -> int:
    """Train random rows of a table again and compare.

    On the kind of CPU and version of torch that made the table the numbers must be equal; elsewhere
    they must lie within the spread of the seeds.
    """
    import os

    from rich.progress import track

    from harness.truth.description import load_computed
    from harness.truth.verify import verify_rows

    benchmark = load_computed(name)
    rows = verify_rows(benchmark.table, sample, seed, jobs or os.cpu_count() or 1)
    found = list(track(rows, total=min(sample, len(benchmark.table.classes)), description="retraining", transient=True))
    exact = sum(row.exact for row in found)
    within = sum(row.within for row in found)
    same = found[0].same_machine
    click.echo(f"retrained {len(found)} rows: {exact} exactly equal, {within} within the seeds' spread")
    click.echo(
        "this machine is of the recorded kind: rows must be exactly equal"
        if same
        else "this machine is not of the recorded kind: rows must lie within the seeds' spread"
    )
    for row in found:
        if not (row.exact if same else row.within):
            click.echo(f"  class {row.number}: stored {row.stored}, now {row.again}")
    passed = all(row.exact if same else row.within for row in found)
    click.echo("verified" if passed else "NOT verified")
    return 0 if passed else 1
