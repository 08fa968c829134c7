"""What a benchmark is: a table of stand-alone accuracies, one interface for all of them. Imports no torch.

A benchmark is registered as a function without arguments that gives a `Benchmark`.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from harness.components.registries import BENCHMARKS
from harness.components.space import Architecture, Space
from harness.errors import InvalidConfiguration


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
