"""Python's cyclic garbage collector, out of the way while very many objects are made that all stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Nothing is searched for cycles meanwhile: with 10,000 runs that would take as long as reading them does."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # else somebody keeps objects frozen, and goes on
            # Makes all that is there old at once, or the next collection would look at it as new.
            gc.freeze()
            gc.unfreeze()
        gc.enable()
