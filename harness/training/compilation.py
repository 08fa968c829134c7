"""Optional compilation of operations by torch. Set per invocation; off by default, because it needs a compiler.

Compilation is not part of a trial: results are the same with and without it. A network compiles its operations in a
method `compile_operations`; networks without that method are left unchanged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import torch

from harness.components.supernet import Compiled

_wanted: ContextVar[bool] = ContextVar("compiled operations", default=False)


@contextlib.contextmanager
def operations_compiled(wanted: bool) -> Iterator[None]:
    """Context in which newly built supernets are compiled, if `wanted`."""
    token = _wanted.set(wanted)
    try:
        yield
    finally:
        _wanted.reset(token)


def compile_if_wanted(network: torch.nn.Module) -> torch.nn.Module:
    """Have the network's operations compiled at their first run, if wanted; returns the same network."""
    if _wanted.get() and isinstance(network, Compiled):
        network.compile_operations()
    return network
