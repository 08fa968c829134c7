"""How the trials of a session are run, whatever they are: shared by all commands that run them. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from harness.stores.claims import LEASE
from harness.stores.mongo.snapshot import WEIGHTS_MAX
from harness.stores.places import Places
from harness.work.assignment import Assignment
from harness.work.plan import Asked
from harness.work.session import Assign, assigning
from harness.work.slots import Slots
from harness.work.workplace import Workplace


@dataclass(frozen=True)
class Settings:
    """The settings of a session. None of them is part of a trial's identity."""

    places: Places
    """Without the database where it is not to be used."""
    threads: int = 1
    lease: float = LEASE
    work: Path | None = None
    """The folder of checkpoints; None for `work` in the store."""
    checkpoint_every: float = 60.0
    timeout: float | None = None
    compile: bool = False
    weights_max: int = WEIGHTS_MAX
    retry: str | None = None
    waits: bool = True
    """Whether to wait for trials claimed by other processes."""
    outage_wait: float = 600.0
    """Seconds to wait for an unreachable database."""

    def assigning(self, asked: Asked, slots: Slots, profile: bool = False) -> Assign:
        """Makes the assignments of what is asked for, for processes in these slots."""
        make = partial(
            Assignment,
            store=self.places.directory.absolute(),
            preset=asked.preset,
            overrides=asked.overrides,
            threads=self.threads,
            device=slots.device,
            ranks=slots.ranks,
            mongo=self.places.mongo,
            weights_max=self.weights_max,
            lease=self.lease,
            work=self.work,
            checkpoint_every=self.checkpoint_every,
            timeout=self.timeout,
            compile=self.compile,
        )
        return assigning(make, profile)

    def workplace(self, say: Callable[[str], object]) -> Workplace:
        """Where the session reads runs and keeps claims; to be reached yet."""
        return Workplace(self.places, self.lease, self.weights_max, say)
