"""`harness benchmark`: build, import, inspect and verify tables of ground truth."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli._help import Group
from harness.cli._network import input_options, settings_of
from harness.cli._request import WithUpdates


@click.group(cls=Group, example="harness benchmark info")
def command() -> None:
    """Build, import, inspect and verify tables of stand-alone accuracy, and measure latency."""


@command.command(example="harness benchmark build --data digits --epochs 2 --out mine.npz")
@click.option("--space", help="Space whose architectures are trained.  [default: the default preset's]")
@click.option("--data", help="Data set to train on.  [default: the default preset's]")
@click.option("--seeds", default=4, show_default=True, type=click.IntRange(1), help="Networks to train per class.")
@click.option("--seed", default=0, show_default=True, help="Seed of all random numbers.")
@click.option("--width", default=4, show_default=True, help="Width of the networks, as the space defines it.")
@click.option("--depth", default=1, show_default=True, help="Depth of the networks, as the space defines it.")
@click.option("--network", multiple=True, metavar="KEY=VALUE", help="Another setting of the space's networks.")
@click.option("--epochs", default=2, show_default=True)
@click.option("--batch-size", default=64, show_default=True)
@click.option("--learning-rate", default=0.1, show_default=True)
@click.option("--momentum", default=0.9, show_default=True)
@click.option("--weight-decay", default=5e-4, show_default=True)
@click.option("--jobs", type=click.IntRange(1), help="Processes, one thread each.  [default: all cores]")
@click.option("--work", type=click.Path(path_type=Path), help="Folder of finished pieces.  [default: OUT.pieces]")
@click.option("--out", type=click.Path(path_type=Path), help="The table to write.  [default: ./DATA.npz]")
def build(
    space: str | None,
    data: str | None,
    seeds: int,
    seed: int,
    jobs: int | None,
    work: Path | None,
    out: Path | None,
    network: tuple[str, ...],
    **recipe: float,
) -> None:
    """Train every class of equal networks and write the table.

    Finished pieces survive any interruption: the same command continues with the missing ones. Any space will do
    that is small enough to be listed. A space that can stack networks trains the seeds of a class at once.
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

    from harness.components.preset import default_preset
    from harness.study.overrides import parse_updates
    from harness.training.stages.standalone import StandaloneRecipe
    from harness.truth.build import BuildPlan, assemble
    from harness.truth.build import build as build_pieces

    space = space or default_preset().space
    data = data or str(default_preset().settings["dataset"])
    settings = parse_updates(network)
    plan = BuildPlan.make(space, data, StandaloneRecipe(**recipe), seeds, seed, settings)  # type: ignore[arg-type]
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
        click.echo(f"stopped; finished pieces are in {work}: the same command continues from there", err=True)
        raise
    assemble(plan, work).write(out)
    click.echo(f"wrote {out}; the pieces in {work} are no longer needed")


@command.command("import", example="harness benchmark import table.pth")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--as", "name", metavar="BENCHMARK", help="Name of the benchmark.  [default: the only importable one]")
@click.option("--trust", is_flag=True, help="Read a pickle without restrictions; code in it is executed.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The table to write.  [default: BENCHMARK.npz in HARNESS_BENCHMARKS, or in HARNESS_DATA/benchmarks]",
)
@click.option("--compare", type=click.Path(path_type=Path), metavar="OTHER", help="A second source to compare with.")
def import_(file: Path, name: str | None, trust: bool, out: Path | None, compare: Path | None) -> None:
    """Import a published benchmark from FILE. Once imported, it is used like the embedded one.

    `harness list importers` shows what can be imported, and from which files. Code in pickles is not executed,
    unless --trust is given. An official file of many gigabytes takes as much memory, and half an hour without
    --trust. A source whose accuracies are after another number of epochs than the benchmark's needs --out: its file is
    then a benchmark of its own.
    """
    from harness.components.registries import IMPORTERS
    from harness.errors import DataError, UserError
    from harness.truth.imported import agreement

    names = IMPORTERS.names()
    if name is None and len(names) != 1:
        raise UserError(f"name the benchmark with --as: {', '.join(names) or 'none can be imported'}")
    name = name or names[0]
    importer = IMPORTERS.get(name)
    table = importer.read(file, trust)
    told = [f"{'/'.join(key):22} {meaning}" for key, meaning in sorted(table.meanings.items())]
    if compare is not None:
        told += [
            f"{'/'.join(key):22} {one.equal:,} of {one.count:,} are equal in {compare.name}, largest difference "
            f"{one.largest:.2f} points, τ {one.tau:.3f}"
            for key, one in agreement(table, importer.read(compare, trust)).items()
        ]
    epochs = table.provenance.get("epochs")
    if out is None and None not in (epochs, importer.epochs) and epochs != importer.epochs:
        click.echo("\n".join(told))
        raise DataError(
            f"{file}: its accuracies are after {epochs} epochs, those of {name} after {importer.epochs}; give --out "
            "TABLE.npz to keep it as a benchmark of its own: `with benchmark=TABLE.npz` uses it"
        )
    out = out or importer.file()
    try:
        table.write(out)
    except OSError as error:
        raise DataError(f"{out}: cannot be written ({error.strerror or error})") from error
    click.echo("\n".join(told))
    click.echo(f"wrote {out}; `harness benchmark info {name if out == importer.file() else out}` describes it")


@command.command(example="harness benchmark info digits")
@click.argument("name", required=False)
def info(name: str | None) -> None:
    """Show how a table was made and how far it can be trusted.

    NAME is a benchmark, a table's file, or the folder of finished pieces of a build (--work); by default the benchmark
    of the default preset. τ of the seeds and of the number of parameters are over all architectures of the table, and
    over the best one of each non-empty bin of accuracy.
    """
    from harness.truth.description import describe

    for label, text in describe(name or _default_benchmark()):
        click.echo(f"{label:15} {text}")


@command.command(example="harness benchmark verify digits --sample 10")
@click.argument("name", required=False)
@click.option("--sample", default=50, show_default=True, type=click.IntRange(1), help="Number of rows to retrain.")
@click.option("--seed", default=0, show_default=True, help="Seed that selects the rows.")
@click.option("--jobs", type=click.IntRange(1), help="Processes, one thread each.  [default: all cores]")
def verify(name: str | None, sample: int, seed: int, jobs: int | None) -> int:
    """Train random rows of a table again and compare.

    NAME is as for `benchmark info`. On the kind of CPU and version of torch that made the table the numbers must be
    equal; elsewhere they must be within the spread of the seeds.
    """
    import os

    from rich.progress import track

    from harness.truth.description import computed_table
    from harness.truth.verify import verify_rows

    table = computed_table(name or _default_benchmark())
    rows = verify_rows(table, sample, seed, jobs or os.cpu_count() or 1)
    found = list(track(rows, total=min(sample, len(table.classes)), description="retraining", transient=True))
    exact = sum(row.exact for row in found)
    within = sum(row.within for row in found)
    same = found[0].same_machine
    click.echo(f"retrained {len(found)} rows: {exact} exactly equal, {within} within the seeds' spread")
    click.echo(
        "this machine is of the recorded kind: rows must be exactly equal"
        if same
        else "this machine is not of the recorded kind: rows must be within the seeds' spread"
    )
    for row in found:
        if not (row.exact if same else row.within):
            click.echo(f"  class {row.number}: stored {row.stored}, now {row.again}")
    passed = all(row.exact if same else row.within for row in found)
    click.echo("verified" if passed else "NOT verified")
    return 0 if passed else 1


@command.command(cls=WithUpdates, example="harness benchmark latency mobilenet-reduced --image-size 16")
@click.argument("space")
@input_options
@click.option("--device", default="cpu", show_default=True, help="Device to measure: cpu, cuda, cuda:1, …")
@click.option("--threads", default=1, show_default=True, type=click.IntRange(1), help="Threads of a CPU.")
@click.option("--batch", default=1, show_default=True, type=click.IntRange(1), help="Images at once.")
@click.option("--repeats", default=20, show_default=True, type=click.IntRange(1), help="Measurements per piece.")
def latency(
    space: str, device: str, threads: int, batch: int, repeats: int, updates: tuple[str, ...], **inputs: int
) -> None:
    """Measure every layer and choice of SPACE on this machine and store the medians.

    The table gives the space a further count, in microseconds. Its name is made of the table's content. After `with`:
    settings of the network, such as network.squeeze=0.25. Tables are kept in HARNESS_LATENCY (latency/ in
    HARNESS_DATA if not set).
    """
    import torch
    from rich.progress import Progress

    from harness.components.registries import SPACES
    from harness.training.latency import measure

    settings = settings_of(space, updates, inputs)
    torch.set_num_threads(threads)
    with Progress(transient=True) as progress:
        task = progress.add_task("measuring", total=None)
        table = measure(
            SPACES.get(space)(),
            settings,
            torch.device(device),
            batch,
            repeats,
            lambda done, total: progress.update(task, completed=done, total=total),
        )
    path = table.write()
    click.echo(f"wrote {path}, measured on {table.measured['device']} with {threads} thread(s)")
    click.echo(f"use it as a count of {space}, in microseconds: with 'search.limits.{table.count}=[None, 20000]'")


def _default_benchmark() -> str:
    from harness.components.preset import default_preset

    return str(default_preset().settings["benchmark"])
