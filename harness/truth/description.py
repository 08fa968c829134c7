"""Description of a table of ground truth, finished or not: where it comes from and how reliable it is."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.components.benchmark import Benchmark
from harness.components.registries import BENCHMARKS, SPACES
from harness.components.space import Network, Space
from harness.errors import DataError
from harness.truth.imported import AccuracyTable, ImportedBenchmark, overview
from harness.truth.npz import read_arrays
from harness.truth.reliability import reliability
from harness.truth.table import Table, TableBenchmark

if TYPE_CHECKING:
    from harness.truth.build import Progress


def load(name: str) -> Benchmark:
    """A registered benchmark, or one from a table's file (`.npz`), computed or imported."""
    if not name.endswith(".npz"):
        found: Benchmark = BENCHMARKS.get(name)()
        return found
    path = Path(name)
    arrays, provenance = read_arrays(path, None, "make it with `harness benchmark build` or `harness benchmark import`")
    if "classes" in arrays:
        table = Table.read(path)
        return TableBenchmark(name, SPACES.get(provenance["space"])(), table)
    imported = AccuracyTable.read(path)
    return ImportedBenchmark(name, SPACES.get(provenance["space"])(), imported)


def computed_table(name: str) -> Table:
    """The table of a benchmark that this harness computed, or of a folder of finished pieces. Raises `DataError`."""
    if is_folder(name):
        return _progress(name).table
    benchmark = load(name)
    if not isinstance(benchmark, TableBenchmark):
        raise DataError(f"benchmark {name!r} was not computed by this harness: there is nothing to retrain")
    return benchmark.table


def is_folder(name: str) -> bool:
    """Whether the name is that of a folder of finished pieces, and not of a benchmark."""
    return name not in BENCHMARKS and Path(name).is_dir()


def describe(name: str) -> list[tuple[str, str]]:
    """Labels and texts, in order. The name is that of a benchmark, a table's file or a folder of finished pieces."""
    if is_folder(name):
        return _unfinished(name, _progress(name))
    benchmark = load(name)
    if isinstance(benchmark, TableBenchmark):
        table = benchmark.table
        origin, worth = _origin(benchmark.space, table), _worth(benchmark.space, table)
        return [("benchmark", name), *origin, ("checksum", table.provenance["checksum"]), *worth]
    if isinstance(benchmark, ImportedBenchmark):
        return _imported(name, benchmark)
    raise DataError(f"benchmark {name!r} was neither computed nor imported by this harness: it has no description")


def _progress(folder: str) -> Progress:
    from harness.truth.build import progress  # imports torch, which readers of tables do not need

    return progress(Path(folder))


def _unfinished(name: str, made: Progress) -> list[tuple[str, str]]:
    space, done = SPACES.get(made.plan.space)(), len(made.table.classes)
    per_class = "" if made.seconds is None else f", {made.seconds:.1f} s of one core per class"
    left = "" if made.seconds is None else f", about {(made.total - done) * made.seconds / 3600:.1f} hours of one core"
    return [
        ("pieces", name),
        ("done", f"{done:,} of {made.total:,} classes{per_class}"),
        ("left", f"{made.total - done:,} classes{left}"),
        *_origin(space, made.table),
        *_worth(space, made.table),
    ]


def _origin(space: Space, table: Table) -> list[tuple[str, str]]:
    made = table.provenance
    recipe = made["recipe"]
    images = ", ".join(f"{count:,} {split}" for split, count in made["images"].items())
    return [
        ("space", f"{made['space']} ({space.size:,} architectures, {len(table.classes):,} classes)"),
        ("data set", f"{made['dataset']} ({images})"),
        (
            "trained",
            f"{recipe['epochs']} epochs, {_network(space, made)}batch {recipe['batch_size']}, "
            f"learning rate {recipe['learning_rate']}",
        ),
        ("seeds", f"{table.seeds} per class, from seed {made['seed']}"),
        ("command", made["command"]),
        (
            "machines",
            "; ".join(f"{e['cpu']}, torch {e['torch']}, {e['threads']} thread" for e in made["environments"]),
        ),
    ]


def _worth(space: Space, table: Table) -> list[tuple[str, str]]:
    worth = reliability(space, table)
    several = table.seeds > 1
    chosen, everyone = worth.on_selected, worth.on_all

    def both(measure: str) -> str:
        values = (getattr(found, measure) for found in (chosen, everyone))
        return "{} on the selected, {} on all".format(*("unknown" if isnan(v) else f"{v:.3f}" for v in values))

    lines = [
        (
            "test accuracy",
            f"{worth.lowest:.2f} to {worth.highest:.2f} %, span {worth.highest - worth.lowest:.2f} points, "
            f"median {worth.median:.2f}" + (f"; deviation between seeds {worth.seed_deviation:.2f}" if several else ""),
        ),
        ("selected", f"{worth.selected} non-empty bins of 400 (equal width), of {worth.architectures:,} architectures"),
        ("parameters' τ", both("parameters")),
    ]
    if not several:
        return [*lines, ("reliability", "unknown: the table has one seed per class")]
    return [
        *lines,
        ("seed-to-seed τ", both("seed_pair")),
        ("split-half τ", both("split_half")),
        ("all seeds τ", f"{both('whole')} (with as many other seeds; by Spearman-Brown from the halves)"),
        ("ceiling τ", f"{both('ceiling')} (of a predictor that knows the accuracies without noise)"),
        (
            "signal",
            "unknown: too few connected architectures"
            if isnan(worth.signal)
            else f"accuracies of connected architectures deviate by {worth.signal:.1f} standard errors of one mean",
        ),
    ]


def _network(space: Space, made: dict[str, Any]) -> str:
    """The settings of the networks that were trained, as far as they are recorded."""
    sized = issubclass(space.Network, Network)
    known = {key: made["recipe"][key] for key in ("width", "depth") if sized} | made.get("network", {})
    return "".join(f"{key} {value}, " for key, value in known.items())


def _imported(name: str, benchmark: ImportedBenchmark) -> list[tuple[str, str]]:
    made = benchmark.table.provenance
    lines = [
        ("benchmark", name),
        ("space", f"{made['space']} ({benchmark.space.size:,} architectures)"),
        ("imported from", " ".join(filter(None, [made["source"], f"({made['kind']})", made["version"]]))),
        ("SHA-256", made["sha256"]),
        ("read by", made["reader"] or "harness"),
        *([("trained", f"{made['epochs']} epochs")] if "epochs" in made else []),
        ("checksum", made["checksum"]),
    ]
    for dataset in benchmark.datasets:
        seen = overview(benchmark, dataset)
        taus = ", ".join(f"{tau:.3f} on {other}'s" for other, tau in seen.parameters_tau.items())
        lines += [
            ("data set", dataset),
            ("  test accuracy", f"{seen.lowest:.2f} to {seen.highest:.2f} %, median {seen.median:.2f}"),
            ("  best", benchmark.space.format(seen.best)),
            ("  selected", f"{seen.selected} non-empty bins of 400 (equal width)"),
            ("  parameters' τ", f"{taus} selection"),
        ]
    return lines
