"""An imported table: published accuracies of every architecture, per data set and split.

One array of float64 percents per data set and split (`DATASET/SPLIT`), in the order of the space's
numbers, exactly as the source gives them, and where they come from. Independent of source formats.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.components.benchmark import Benchmark
from harness.components.selection import equal_width
from harness.components.space import Architecture, Space
from harness.data.places import data_folder
from harness.errors import DataError, UnknownName
from harness.metrics import kendall_tau
from harness.truth.npz import read_arrays, write_arrays

Accuracies = npt.NDArray[np.float64]
Key = tuple[str, str]
"""A data set and a split."""

IMPORT = "import it with `harness benchmark import FILE`"


def benchmark_folder() -> Path:
    """Where imported and built tables are: `HARNESS_BENCHMARKS`, or `benchmarks` in `HARNESS_DATA` (./data)."""
    own = os.environ.get("HARNESS_BENCHMARKS")
    return Path(own).expanduser() if own else data_folder() / "benchmarks"


@dataclass(frozen=True)
class AccuracyTable:
    """The result of an import."""

    columns: Mapping[Key, Accuracies]
    provenance: Mapping[str, Any]
    """`space`, `kind`, `source` (the file's name), `sha256` (of the file), `version` and `reader` if known; `epochs` of
    training where the source shows them."""
    meanings: Mapping[Key, str] = field(default_factory=dict)
    """By column, what the source measured; for the reader of the import."""

    def write(self, path: Path) -> None:
        """Write the file atomically. Equal tables give equal bytes."""
        arrays = {"/".join(key): values.astype("<f8") for key, values in sorted(self.columns.items())}
        write_arrays(path, arrays, self.provenance)

    @classmethod
    def read(cls, path: Path) -> AccuracyTable:
        """The table in that file. Raises `DataError` when it is missing, damaged or another kind of table."""
        arrays, provenance = read_arrays(path, None, IMPORT)
        columns = {}
        for name, values in arrays.items():
            dataset, _, split = name.partition("/")
            if not split or values.dtype != np.float64 or values.ndim != 1:
                raise DataError(f"{path}: not a table of imported accuracies: it holds {name!r}; {IMPORT}")
            columns[dataset, split] = values
        return cls(columns, provenance)


class ImportedBenchmark(Benchmark):
    """An imported table as ground truth. `judged_by` maps a data set to the one whose accuracies it uses."""

    def __init__(
        self,
        name: str,
        space: Space,
        table: AccuracyTable,
        judged_by: Mapping[str, str] | None = None,
        epochs: Mapping[str, float] | None = None,
    ) -> None:
        """`epochs` is by data set what one accuracy costs (`training_epochs`)."""
        self.name = name
        self.space = space
        self.table = table
        self.judged_by = dict(judged_by or {})
        self._epochs = dict(epochs or {})
        measured = dict.fromkeys(dataset for dataset, _ in table.columns)
        self.datasets = tuple(measured)
        for key, values in table.columns.items():
            if len(values) != space.size:
                raise DataError(
                    f"benchmark {name}: {len(values)} accuracies of {'/'.join(key)}; {space.name} has {space.size} "
                    f"architectures; {IMPORT}"
                )

    def training_epochs(self, dataset: str) -> float | None:
        return self._epochs.get(dataset)

    def accuracies(self, dataset: str, split: str = "test") -> Accuracies:
        measured = self.judged_by.get(dataset, dataset)
        if measured not in self.datasets:
            raise UnknownName.among(f"data set of benchmark {self.name}", dataset, (*self.datasets, *self.judged_by))
        if split not in self.splits:
            raise UnknownName.among("split", split, self.splits)
        return self.table.columns[measured, split]


@dataclass(frozen=True)
class Importer:
    """How a published benchmark is imported from its files. Registered under the benchmark's name."""

    read: Callable[[Path, bool], AccuracyTable]
    """The table in a file or folder; `True` allows pickles to run any code. Raises `DataError`."""
    file: Callable[[], Path]
    """Where the imported table is kept."""
    forms: str
    """The forms that can be read, for help texts."""
    epochs: int | None = None
    """The epochs of training whose accuracies the benchmark consists of."""


@dataclass(frozen=True)
class Agreement:
    """How far two sources of one column agree."""

    equal: int
    """Accuracies that differ by at most `ROUNDING`."""
    count: int
    largest: float
    """The largest difference, in points."""
    tau: float
    """Kendall's τ over all architectures."""


ROUNDING = 0.01
"""Points by which sources differ that print two decimals."""


def agreement(one: AccuracyTable, other: AccuracyTable) -> dict[Key, Agreement]:
    """The agreement of two tables of one space, by column that both have."""
    found = {}
    for key in sorted(one.columns.keys() & other.columns.keys()):
        first, second = one.columns[key], other.columns[key]
        difference = np.abs(first - second)
        equal = int((difference <= ROUNDING + 1e-9).sum())
        found[key] = Agreement(equal, len(first), float(difference.max()), kendall_tau(first, second))
    return found


@dataclass(frozen=True)
class Overview:
    """Summary of a benchmark's test accuracies on one data set."""

    lowest: float
    highest: float
    median: float
    best: Architecture
    selected: int
    """How many architectures the equal-width rule selects by these accuracies."""
    parameters_tau: dict[str, float]
    """Kendall's τ of the number of parameters, by the data set whose accuracies select the architectures."""


def overview(benchmark: Benchmark, dataset: str, bins: int = 400) -> Overview:
    """Key figures, to check whether a table is what it claims to be."""
    space = benchmark.space
    truth = benchmark.accuracies(dataset)
    parameters = np.array([space.complexity(architecture) for architecture in space], np.float64)
    chosen = {other: equal_width(benchmark.accuracies(other), bins) for other in benchmark.datasets}
    return Overview(
        lowest=float(truth.min()),
        highest=float(truth.max()),
        median=float(np.median(truth)),
        best=space.architecture(int(truth.argmax())),
        selected=len(chosen[dataset]),
        parameters_tau={other: kendall_tau(parameters[rows], truth[rows]) for other, rows in chosen.items()},
    )
