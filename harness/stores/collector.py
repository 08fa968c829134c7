"""Pauses Python's cyclic garbage collector while very many long-lived objects are created."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Do not search for cycles within the block: with 10,000 runs that would take as long as reading them."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # otherwise other code keeps objects frozen: leave them so
            # Moves all objects to the oldest generation; otherwise the next collection would scan them as new.
            gc.freeze()
            gc.unfreeze()
        gc.enable()
