"""Ground truth: tables of stand-alone accuracy, one interface for all of them.

A benchmark is registered as a function without arguments that gives a `Benchmark`. The tables that the
project computed itself lie in `tables/`, each with how it was made; those that are imported lie in the
user's folder. Imports no torch.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from harness.errors import InvalidConfiguration
from harness.registries import BENCHMARKS, SPACES
from harness.space import Architecture, Space

TABLES = Path(__file__).with_name("tables")


class Benchmark(ABC):
    """The accuracy (percent) of every architecture of a space, per data set and split."""

    name: str
    space: Space
    datasets: tuple[str, ...]
    splits: tuple[str, ...] = ("valid", "test")

    @abstractmethod
    def accuracies(self, dataset: str, split: str = "test") -> npt.NDArray[np.float64]:
        """All of them, in the order of the space's numbers. Raises `UnknownName`."""

    def accuracy(self, architecture: Architecture, dataset: str, split: str = "test") -> float:
        """One of them."""
        return float(self.accuracies(dataset, split)[self.space.index(architecture)])


def benchmark_for(name: str, space: str) -> Benchmark:
    """The benchmark of that name. Raises `InvalidConfiguration` when it is about another space."""
    benchmark: Benchmark = BENCHMARKS.get(name)()
    if benchmark.space.name != space:
        about = benchmark.space.name
        raise InvalidConfiguration(f"benchmark {name!r} is about {about}, the configuration about {space}")
    return benchmark


def fingerprint(load: Callable[[], Benchmark], dataset: str) -> str:
    """The accuracies of a benchmark on a data set as a hash: another table, another truth."""
    return _fingerprint(load(), dataset)


@lru_cache(maxsize=32)
def _fingerprint(benchmark: Benchmark, dataset: str) -> str:
    return hashlib.sha256(benchmark.accuracies(dataset).astype("<f8").tobytes()).hexdigest()[:16]


@BENCHMARKS.register("digits")
@lru_cache(maxsize=1)
def digits() -> Benchmark:
    """NAS-Bench-201 on the embedded digits, computed by `harness benchmark build` (embedded)."""
    from harness.benchmarks.table import Table, TableBenchmark

    table = Table.read(TABLES / "digits.npz")
    return TableBenchmark("digits", SPACES.get(table.provenance["space"])(), table)


@BENCHMARKS.register("nasbench201")
def nasbench201() -> Benchmark:
    """NAS-Bench-201 itself on CIFAR-10, CIFAR-100 and ImageNet16-120, once imported (`harness benchmark import`)."""
    from harness.benchmarks.accuracies import official

    return official()
