"""Interface of a benchmark: a table of stand-alone accuracies. Imports no torch.

A benchmark is registered as a function without arguments that returns a `Benchmark`.
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
        """The accuracies of all architectures, in the order of their numbers. Raises `UnknownName`."""

    def accuracy(self, architecture: Architecture, dataset: str, split: str = "test") -> float:
        """The accuracy of one architecture."""
        return float(self.accuracies(dataset, split)[self.space.index(architecture)])


def benchmark_for(name: str, space: str) -> Benchmark:
    """The benchmark with that name. Raises `InvalidConfiguration` if it is for another space."""
    benchmark: Benchmark = BENCHMARKS.get(name)()
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
