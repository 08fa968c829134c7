"""A computed table on disk: correct answers per class of equal networks and seed, with its provenance.

One compressed `.npz` file without pickles: `classes` (the representative's number), `valid` and
`test` (classes × seeds, correct answers), and `provenance` as JSON text, which says how the numbers
were made, on what, and their checksum. Whole counts, so that nothing is lost by rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.components.benchmark import Benchmark
from harness.components.space import Space
from harness.errors import DataError, UnknownName
from harness.truth.npz import FORMAT as FORMAT
from harness.truth.npz import checksum, read_arrays, write_arrays

Counts = npt.NDArray[np.uint16]


@dataclass(frozen=True)
class Table:
    """A computed table. Rows are sorted by class number."""

    classes: npt.NDArray[np.int32]
    valid: Counts
    test: Counts
    provenance: dict[str, Any]

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {
            "classes": self.classes.astype("<i4"),
            "valid": self.valid.astype("<u2"),
            "test": self.test.astype("<u2"),
        }

    def checksum(self) -> str:
        return checksum(self.arrays())

    def write(self, path: Path) -> None:
        """Write the file atomically: readers see the old one or the new one."""
        write_arrays(path, self.arrays(), self.provenance)

    @classmethod
    def read(cls, path: Path) -> Table:
        """The table in that file. Raises `DataError` when it is missing, damaged or of a newer format."""
        arrays, provenance = read_arrays(path, ("classes", "valid", "test"), "make it with `harness benchmark build`")
        table = cls(**arrays, provenance=provenance)
        if table.valid.ndim != 2 or table.valid.shape != table.test.shape or len(table.valid) != len(table.classes):
            raise DataError(
                f"{path}: {table.classes.shape} classes, but {table.valid.shape} and {table.test.shape} counts"
            )
        return table

    @property
    def seeds(self) -> int:
        return int(self.valid.shape[1])


def rows_of(space: Space, table: Table) -> npt.NDArray[np.int64]:
    """The row of every architecture's class in the table, in the order of the space's numbers; -1 if it is missing."""
    rows = {int(number): row for row, number in enumerate(table.classes)}
    return np.array([rows.get(space.index(space.network_class(a)), -1) for a in space], np.int64)


class TableBenchmark(Benchmark):
    """A computed table as ground truth: each architecture has the mean accuracy of its class's seeds."""

    def __init__(self, name: str, space: Space, table: Table) -> None:
        self.name = name
        self.space = space
        self.table = table
        self.datasets = (table.provenance["dataset"],)
        self._rows = rows_of(space, table)
        if len(missing := np.flatnonzero(self._rows < 0)):
            raise DataError(
                f"benchmark {name}: architecture {space.architecture(int(missing[0]))} is missing; the table holds "
                f"{len(table.classes)} classes"
            )
        images = table.provenance["images"]
        self._seeds: dict[str, npt.NDArray[np.float64]] = {
            split: getattr(table, split)[self._rows].astype(np.float64) * (100 / images[split]) for split in self.splits
        }
        self._means: dict[str, npt.NDArray[np.float64]] = {
            split: values.mean(1) for split, values in self._seeds.items()
        }

    def accuracies(self, dataset: str, split: str = "test") -> npt.NDArray[np.float64]:
        self._check(dataset, split)
        return self._means[split]

    def training_epochs(self, dataset: str) -> float | None:
        # The mean over seeds is not counted: a search trains once.
        recipe = self.table.provenance.get("recipe") or {}
        return float(recipe["epochs"]) if "epochs" in recipe else None

    def by_seed(self, dataset: str, split: str = "test") -> npt.NDArray[np.float64]:
        """Architectures × seeds."""
        self._check(dataset, split)
        return self._seeds[split]

    def standard_errors(self, dataset: str, split: str = "test") -> npt.NDArray[np.float64] | None:
        seeds = self.by_seed(dataset, split)
        count = seeds.shape[1]
        return seeds.std(1, ddof=1) / math.sqrt(count) if count > 1 else None

    def _check(self, dataset: str, split: str) -> None:
        if dataset not in self.datasets:
            raise UnknownName.among(f"data set of benchmark {self.name}", dataset, self.datasets)
        if split not in self.splits:
            raise UnknownName.among("split", split, self.splits)
