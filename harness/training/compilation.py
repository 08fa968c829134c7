"""Whether operations are compiled by torch: an option of an invocation, off by default, for it needs a compiler.

It is no part of a trial: compiled or not, the same is computed. Networks say what of them is compiled by a
method `compile_operations`; those without are left as they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import torch

_wanted: ContextVar[bool] = ContextVar("compiled operations", default=False)


@contextlib.contextmanager
def operations_compiled(wanted: bool) -> Iterator[None]:
    """Within, supernets that are built are compiled, if that is wanted."""
    token = _wanted.set(wanted)
    try:
        yield
    finally:
        _wanted.reset(token)


def compile_if_wanted(network: torch.nn.Module) -> torch.nn.Module:
    """The same network; what it has compiled is compiled when it first runs."""
    compile_operations = getattr(network, "compile_operations", None)
    if _wanted.get() and compile_operations is not None:
        compile_operations()
    return network
