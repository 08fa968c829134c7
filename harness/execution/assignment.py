"""The input of a training process: which trial, what to do with it, and where. Plain JSON outside, typed here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from harness.stores.claims.directory import DirectoryClaims
from harness.stores.claims.lease import LEASE, Claims
from harness.stores.directory.run_directory import RunDirectory
from harness.stores.directory.store import DirectoryStore
from harness.stores.mongo.snapshot import WEIGHTS_MAX
from harness.stores.store import Store

if TYPE_CHECKING:
    from harness.stores.mongo.mirror import Mirror


@dataclass
class Assignment:
    """The input of a job. The fields without a default determine what is done, the others where and how."""

    kind: str
    """"train" makes a new run of the trial, "rank" adds the ranking that it asks for to its done run."""
    trial: dict[str, Any]
    store: str
    preset: str
    overrides: dict[str, Any]
    threads: int
    device: str | None = None
    """None for the best available one."""
    mongo: str | None = None
    """The address of the database that holds the claims and mirrors the run; None for no database."""
    weights_max: int = WEIGHTS_MAX
    lease: float = LEASE
    work: str | None = None
    """The folder of checkpoints; None for `work` in the store."""
    checkpoint_every: float = 60.0
    again: bool = False
    """Whether to compute a stored ranking again, because the code of its metrics has changed."""
    found: list[int] | None = None
    """The architecture found by the search that the trial starts from; None to read it from the store."""
    compile: bool = False
    """Whether torch compiles the operations of networks."""
    profile: bool = False
    """Whether to record where the time goes; see `harness.training.profiling`."""
    timeout: float | None = None
    """Only for the error message; the executor enforces it."""

    @cached_property
    def directory(self) -> DirectoryStore:
        return DirectoryStore(Path(self.store))

    @cached_property
    def database(self) -> Any:
        """The database. Raises `Unreachable`, or `UserError` when it refuses."""
        from harness.stores.mongo.connection import connect

        assert self.mongo is not None
        return connect(self.mongo)

    @cached_property
    def reader(self) -> Store:
        """All known runs, of the directory and the database."""
        if self.mongo is None:
            return self.directory
        from harness.stores.merged import MergedStore
        from harness.stores.mongo.store import MongoStore

        return MergedStore(self.directory, MongoStore(self.database))

    def claims(self) -> Claims:
        here = DirectoryClaims(self.directory.claims, self.lease)
        if self.mongo is None:
            return here
        from harness.stores.claims.joint import JointClaims
        from harness.stores.claims.mongo import MongoClaims

        return JointClaims(here, MongoClaims(self.database, self.lease))

    def mirror(self, directory: RunDirectory) -> Mirror | None:
        if self.mongo is None:
            return None
        from harness.stores.mongo.mirror import Mirror

        return Mirror(directory.path, self.mongo, self.weights_max)

    @property
    def computes_on(self) -> str:
        """The device. Read only in the job's own process: the server must not touch a GPU before it forks."""
        return self.device or ("cuda" if torch.cuda.is_available() else "cpu")
