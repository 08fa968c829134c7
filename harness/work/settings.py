"""How a worker runs trials, whatever they are: shared by all commands that run them. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.stores.claims import LEASE
from harness.stores.mongo.snapshot import WEIGHTS_MAX
from harness.stores.places import Places
from harness.work.assignment import Computing
from harness.work.workplace import Workplace


@dataclass(frozen=True)
class Settings:
    """The settings of a worker. None of them is part of a trial's identity."""

    places: Places
    """Without the database where it is not to be used."""
    computing: Computing = Computing()
    lease: float = LEASE
    work: Path | None = None
    """The folder of checkpoints; None for `work` in the store."""
    weights_max: int = WEIGHTS_MAX
    retry: str | None = None
    waits: bool = True
    """Whether to wait for trials claimed by other processes."""
    outage_wait: float = 600.0
    """Seconds to wait for an unreachable database."""
    profile: bool = False
    """Whether to profile the first trial."""

    def workplace(self, say: Callable[[str], object]) -> Workplace:
        """Where the worker reads runs and keeps claims; to be reached yet."""
        return Workplace(self.places, self.lease, self.weights_max, say)
