"""The tables of this space: those computed by this project, and the published benchmark, once imported."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from harness.components.benchmark import Benchmark
from harness.components.registries import SPACES
from harness.errors import DataError, NotBuilt
from harness.truth.imported import IMPORT, AccuracyTable, ImportedBenchmark, Key, benchmark_folder
from harness.truth.table import Table, TableBenchmark

NAME = "nasbench201"

DATASETS = ("cifar10", "cifar100", "imagenet16-120")
SPLITS = ("valid", "test")
KEYS: tuple[Key, ...] = tuple((dataset, split) for dataset in DATASETS for split in SPLITS)
"""The data sets and splits that every source of NAS-Bench-201 must contain."""

COSTS = {"cifar10": 400.0, "cifar10-16": 400.0, "cifar100": 200.0, "imagenet16-120": 200.0}
"""Epochs of one training: 200, on CIFAR-10 over both halves of the images that a supernet has one of. The mean over the
benchmark's seeds is not counted: a search trains once."""

EMBEDDED = Path(__file__).with_name("digits.npz")
POLAR = Path(__file__).with_name("digits-polar.npz")

BUILD_POLAR = "harness benchmark build --data digits-polar --seeds 4 --epochs 4 --work reports/measured/digits-polar"
"""Continues with the pieces that the repository has."""


def embedded() -> Benchmark:
    """The embedded table: stand-alone accuracies on the embedded digits."""
    return _computed("digits", EMBEDDED)


def polar() -> Benchmark:
    """The table of the embedded digits of either contrast. Raises `NotBuilt` until it is finished."""
    built = benchmark_folder() / POLAR.name
    for path in (POLAR, built):
        if path.is_file():
            return _computed("digits-polar", path, path.stat().st_mtime_ns)
    raise NotBuilt(
        f"benchmark 'digits-polar': its table is not finished; `{BUILD_POLAR} --out {built}` trains the missing "
        "classes and writes it"
    )


@lru_cache(maxsize=2)
def _computed(name: str, path: Path, changed: int = 0) -> Benchmark:
    table = Table.read(path)
    return TableBenchmark(name, SPACES.get(table.provenance["space"])(), table)


def official_file() -> Path:
    """Where the imported NAS-Bench-201 is kept."""
    return benchmark_folder() / f"{NAME}.npz"


def official() -> ImportedBenchmark:
    """The imported NAS-Bench-201. Raises `DataError` if it does not exist."""
    path = official_file()
    try:
        changed = path.stat().st_mtime_ns
    except OSError as error:
        raise DataError(
            f"benchmark {NAME!r}: {path} does not exist; {IMPORT}, or set its folder "
            "(HARNESS_BENCHMARKS, or HARNESS_DATA for the parent folder)"
        ) from error
    return _official(path.resolve(), changed)


@lru_cache(maxsize=4)
def _official(path: Path, changed: int) -> ImportedBenchmark:
    # A smaller version of a data set has no accuracies of its own: it is judged by those of the full data set.
    return ImportedBenchmark(NAME, SPACES.get(NAME)(), AccuracyTable.read(path), {"cifar10-16": "cifar10"}, COSTS)
