"""`harness benchmark`: build, inspect and verify tables of ground truth."""

from __future__ import annotations

from pathlib import Path

import click


@click.group()
def command() -> None:
    """Build, inspect and verify tables of stand-alone accuracy."""


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

    from harness.benchmarks.build import Plan, assemble
    from harness.benchmarks.build import build as build_pieces
    from harness.stages.standalone import StandaloneRecipe

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


@command.command()
@click.argument("name", default="digits")
def info(name: str) -> None:
    """Show how a table was made and how far it can be trusted. NAME is a benchmark or a table's file."""
    from harness.benchmarks.table import reliability

    benchmark = _load(name)
    made = benchmark.table.provenance
    worth = reliability(benchmark)
    recipe = made["recipe"]
    lines = {
        "benchmark": name,
        "space": f"{made['space']} ({benchmark.space.size:,} architectures, {len(benchmark.table.classes):,} classes)",
        "data set": f"{made['dataset']} ({', '.join(f'{count:,} {split}' for split, count in made['images'].items())})",
        "trained": f"{recipe['epochs']} epochs, width {recipe['width']}, {recipe['depth']} cells a stage, "
        f"batch {recipe['batch_size']}, learning rate {recipe['learning_rate']}",
        "seeds": f"{benchmark.table.seeds} a class, from seed {made['seed']}",
        "command": made["command"],
        "machines": "; ".join(f"{e['cpu']}, torch {e['torch']}, {e['threads']} thread" for e in made["environments"]),
        "checksum": made["checksum"],
        "test accuracy": f"{worth.lowest:.2f} to {worth.highest:.2f} %, "
        f"span {worth.highest - worth.lowest:.2f} points, "
        f"median {worth.median:.2f}; deviation between seeds {worth.seed_deviation:.2f}",
        "selected": f"{worth.selected} non-empty bins of 400 (equal width)",
        "split-half τ": f"{worth.split_half_selected:.3f} on the selected, {worth.split_half_all:.3f} on all",
        "seed-to-seed τ": f"{worth.seed_pair_selected:.3f} on the selected",
    }
    for label, text in lines.items():
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

    from harness.benchmarks.verify import verify_rows

    benchmark = _load(name)
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


def _load(name: str):  # type: ignore[no-untyped-def]
    """A registered computed benchmark, or a table's file."""
    from harness.benchmarks.table import Table, TableBenchmark
    from harness.errors import DataError
    from harness.registries import BENCHMARKS, SPACES

    if name.endswith(".npz"):
        table = Table.read(Path(name))
        return TableBenchmark(name, SPACES.get(table.provenance["space"])(), table)
    benchmark = BENCHMARKS.get(name)()
    if not isinstance(benchmark, TableBenchmark):
        raise DataError(f"benchmark {name!r} was not computed by this harness: there is nothing to inspect or retrain")
    return benchmark
