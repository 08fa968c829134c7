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

from harness.components.benchmark import Benchmark
from harness.components.registries import BENCHMARKS, SPACES
from harness.components.space import Architecture, Space
from harness.errors import InvalidConfiguration

TABLES = Path(__file__).with_name("tables")


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
