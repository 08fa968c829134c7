"""Interface of a benchmark: a table of stand-alone accuracies. Imports no torch.

A benchmark is registered as a function without arguments that returns a `Benchmark`.
"""

from __future__ import annotations

import hashlib
import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from harness.components.registries import BENCHMARKS
from harness.components.space import Architecture, Space
from harness.errors import InvalidConfiguration

SUFFIX = ".npz"
"""How the name of a benchmark that is a file ends."""

READER = "harness.truth.description"


class Benchmark(ABC):
    """The accuracy (percent) of every architecture of a space, per data set and split."""

    name: str
    space: Space
    datasets: tuple[str, ...]
    splits: tuple[str, ...] = ("valid", "test")

    @abstractmethod
    def accuracies(self, dataset: str, split: str = "test") -> npt.NDArray[np.float64]:
        """The accuracies of all architectures, in the order of their numbers. Raises `UnknownName`."""

    def standard_errors(self, dataset: str, split: str = "test") -> npt.NDArray[np.float64] | None:
        """The standard errors of these accuracies over repeated trainings; None where they are unknown."""
        return None

    def training_epochs(self, dataset: str) -> float | None:
        """The cost of one accuracy of the table: epochs over the data set's training images; None if it is unknown."""
        return None

    def accuracy(self, architecture: Architecture, dataset: str, split: str = "test") -> float:
        """The accuracy of one architecture."""
        return float(self.accuracies(dataset, split)[self.space.index(architecture)])


def is_benchmark(name: str) -> bool:
    """Whether the name is that of a registered benchmark, or of a file of a table."""
    return name.endswith(SUFFIX) or name in BENCHMARKS


def open_benchmark(name: str) -> Benchmark:
    """The registered benchmark of that name, or the table in a file (`.npz`). Raises `UnknownName`, `DataError`."""
    if name in BENCHMARKS or not name.endswith(SUFFIX):
        registered: Benchmark = BENCHMARKS.get(name)()
        return registered
    path = Path(name).expanduser()
    return _opened(str(path), path.stat().st_mtime_ns if path.is_file() else 0)


@lru_cache(maxsize=8)
def _opened(path: str, changed: int) -> Benchmark:
    # By name, because readers of tables are a level above: they know all that a component is.
    opened: Benchmark = importlib.import_module(READER).load(path)
    return opened


def benchmark_for(name: str, space: str) -> Benchmark:
    """The benchmark with that name. Raises `InvalidConfiguration` if it is for another space."""
    benchmark = open_benchmark(name)
    if benchmark.space.name != space:
        about = benchmark.space.name
        raise InvalidConfiguration(f"benchmark {name!r} is for {about}, the configuration is for {space}")
    return benchmark


def fingerprint(load: Callable[[], Benchmark], dataset: str) -> str:
    """Hash of a benchmark's accuracies on a data set: it changes when the table of truth changes."""
    return _fingerprint(load(), dataset)


@lru_cache(maxsize=32)
def _fingerprint(benchmark: Benchmark, dataset: str) -> str:
    return hashlib.sha256(benchmark.accuracies(dataset).astype("<f8").tobytes()).hexdigest()[:16]
