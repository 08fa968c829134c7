"""Stored classes of equal architectures: computing them symbolically takes three seconds per process.

`classes.npz` holds, for every architecture's number, the number of the first architecture of its class; a test
recomputes them. To write it again:

    python -c "from harness.components.discovery import component; component('spaces.nasbench201.class_table').write()"
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt

from harness.components.space import Architecture

from . import classes
from .cell import EDGES, OPERATIONS

FILE = Path(__file__).with_name("classes.npz")
ALL: tuple[Architecture, ...] = tuple(product(range(len(OPERATIONS)), repeat=len(EDGES)))
"""All architectures by number."""

Numbers = npt.NDArray[np.uint16]


@cache
def stored(kind: str) -> dict[Architecture, Architecture]:
    """The first architecture of the class, by architecture; `kind` is "function" or "network"."""
    with np.load(FILE, allow_pickle=False) as file:
        return {architecture: ALL[number] for architecture, number in zip(ALL, file[kind].tolist(), strict=True)}


def computed() -> dict[str, Numbers]:
    """The classes from their symbolic keys."""
    function = _first_of_each(classes.supernet_key(architecture) for architecture in ALL)
    # Equal functions of the supernet are equal networks: the slow key is needed once per function.
    keys = {number: classes.network_key(ALL[number]) for number in set(function.tolist())}
    return {"function": function, "network": _first_of_each(keys[number] for number in function.tolist())}


def write() -> None:
    found = computed()
    np.savez_compressed(FILE, function=found["function"], network=found["network"])


def _first_of_each(keys: Iterable[object]) -> Numbers:
    """For each key, the index of its first occurrence."""
    first: dict[object, int] = {}
    return np.array([first.setdefault(key, number) for number, key in enumerate(keys)], dtype=np.uint16)
