"""What a job is told: which trial, what to do with it, and where. Does not import torch.

The sender builds it; it crosses to the training process as plain JSON, and `harness.work.job` interprets it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from harness.schema import Naming
from harness.stores.claims import LEASE
from harness.stores.mongo.snapshot import WEIGHTS_MAX
from harness.stores.opened import Opened
from harness.stores.places import Places
from harness.study.trial import Trial
from harness.work.states import Kind


@dataclass(frozen=True)
class Assignment:
    """The input of a job. The fields without a default determine what is done, the others where and how."""

    kind: Kind
    trial: Trial
    store: Path
    preset: str
    overrides: Mapping[str, Any]
    threads: int
    device: str | None = None
    """As the job's process names it; None for the best available one."""
    mongo: str | None = field(default=None, repr=False)
    """The address of the database that holds the claims and mirrors the run; None for no database."""
    weights_max: int = WEIGHTS_MAX
    lease: float = LEASE
    work: Path | None = None
    """The folder of checkpoints; None for `work` in the store."""
    checkpoint_every: float = 60.0
    again: bool = False
    """Whether to compute a stored ranking again, because the code of its metrics has changed."""
    found: tuple[int, ...] | None = None
    """The architecture found by the search that the trial starts from; None to read it from the store."""
    compile: bool = False
    """Whether torch compiles the operations of networks."""
    profile: bool = False
    """Whether to record where the time goes; see `harness.training.profiling`."""
    timeout: float | None = None
    """Only for the error message; the executor enforces it."""
    ranks: int = 1
    """Processes that train the trial together; a process learns its own place from the executor."""
    devices: float | None = None
    """The GPUs that the trial needs; see `Row.devices`."""
    naming: Naming | None = None
    """What the studies that ask for the trial call it; None without a study."""

    def json(self) -> dict[str, Any]:
        """As plain JSON types."""
        document = {one.name: getattr(self, one.name) for one in fields(self)}
        return document | {
            "kind": self.kind.value,
            "trial": self.trial.json(),
            "store": str(self.store),
            "overrides": dict(self.overrides),
            "work": None if self.work is None else str(self.work),
            "found": None if self.found is None else list(self.found),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Assignment:
        """The assignment of such a document. Raises what `Trial.from_json` raises."""
        work, found = document.get("work"), document.get("found")
        typed = {
            "kind": Kind(document["kind"]),
            "trial": Trial.from_json(document["trial"]),
            "store": Path(document["store"]),
            "work": None if work is None else Path(work),
            "found": None if found is None else tuple(found),
        }
        return cls(**{**document, **typed})

    def opened(self) -> Opened:
        """The places where the job reads, claims and writes."""
        return Opened(Places(self.store, self.mongo), lease=self.lease, weights_max=self.weights_max)
