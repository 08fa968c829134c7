"""Description of a table of ground truth: where it comes from and how reliable it is."""

from __future__ import annotations

from pathlib import Path

from harness.components.benchmark import Benchmark
from harness.components.registries import BENCHMARKS, SPACES
from harness.components.space import Network
from harness.errors import DataError
from harness.truth.imported import AccuracyTable, ImportedBenchmark, overview
from harness.truth.npz import read_arrays
from harness.truth.table import Table, TableBenchmark, reliability


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


def load_computed(name: str) -> TableBenchmark:
    """The same for a benchmark that this harness computed. Raises `DataError` for others."""
    benchmark = load(name)
    if not isinstance(benchmark, TableBenchmark):
        raise DataError(f"benchmark {name!r} was not computed by this harness: there is nothing to retrain")
    return benchmark


def describe(name: str, benchmark: Benchmark) -> list[tuple[str, str]]:
    """Labels and texts, in order."""
    if isinstance(benchmark, TableBenchmark):
        return _computed(name, benchmark)
    if isinstance(benchmark, ImportedBenchmark):
        return _imported(name, benchmark)
    raise DataError(f"benchmark {name!r} was neither computed nor imported by this harness: it has no description")


def _computed(name: str, benchmark: TableBenchmark) -> list[tuple[str, str]]:
    made = benchmark.table.provenance
    worth = reliability(benchmark)
    recipe = made["recipe"]
    several = benchmark.table.seeds > 1
    images = ", ".join(f"{count:,} {split}" for split, count in made["images"].items())
    return [
        ("benchmark", name),
        (
            "space",
            f"{made['space']} ({benchmark.space.size:,} architectures, {len(benchmark.table.classes):,} classes)",
        ),
        ("data set", f"{made['dataset']} ({images})"),
        (
            "trained",
            f"{recipe['epochs']} epochs, {_network(benchmark)}batch {recipe['batch_size']}, "
            f"learning rate {recipe['learning_rate']}",
        ),
        ("seeds", f"{benchmark.table.seeds} per class, from seed {made['seed']}"),
        ("command", made["command"]),
        (
            "machines",
            "; ".join(f"{e['cpu']}, torch {e['torch']}, {e['threads']} thread" for e in made["environments"]),
        ),
        ("checksum", made["checksum"]),
        (
            "test accuracy",
            f"{worth.lowest:.2f} to {worth.highest:.2f} %, span {worth.highest - worth.lowest:.2f} points, "
            f"median {worth.median:.2f}" + (f"; deviation between seeds {worth.seed_deviation:.2f}" if several else ""),
        ),
        ("selected", f"{worth.selected} non-empty bins of 400 (equal width)"),
        *(
            [
                ("split-half τ", f"{worth.split_half_selected:.3f} on the selected, {worth.split_half_all:.3f} on all"),
                ("seed-to-seed τ", f"{worth.seed_pair_selected:.3f} on the selected"),
            ]
            if several
            else [("reliability", "unknown: the table has one seed per class")]
        ),
    ]


def _network(benchmark: TableBenchmark) -> str:
    """The settings of the networks that were trained, as far as they are recorded."""
    made = benchmark.table.provenance
    sized = issubclass(benchmark.space.Network, Network)
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
