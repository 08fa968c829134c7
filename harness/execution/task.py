"""A job at work in its process: its assignment, its places, and how it answers. Imported in training processes only."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from harness.components.dataset import fingerprint
from harness.data import devices
from harness.documents import one_line
from harness.errors import DataError
from harness.execution.assignment import Assignment
from harness.execution.executors.executor import Answered
from harness.execution.group import Group
from harness.interruption import LOST, interrupt_main
from harness.owner import this_process
from harness.stores.checkpoints import Checkpoint, FollowedCheckpoint
from harness.stores.claims import Claim, Lease
from harness.stores.opened import Opened
from harness.stores.store import supersede
from harness.stores.stored import StoredRun
from harness.study.trial import Trial

Report = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Task:
    """One assignment that is being done. `progress` takes its reports."""

    assignment: Assignment
    progress: Report
    group: Group = field(default_factory=Group)
    """The processes that do it together, as this one sees them."""

    @property
    def trial(self) -> Trial:
        return self.assignment.trial

    @cached_property
    def opened(self) -> Opened:
        return self.assignment.opened()

    @property
    def device(self) -> str:
        """The device. Read only in the job's own process: the server must not touch a GPU before it forks."""
        return devices.chosen(self.assignment.device)

    def holding(self, claim: Claim) -> Lease:
        """Hold the claim while the job runs; the process that started the job renews it, too."""
        self.progress({"event": "claimed", "claim": claim.ticket(), "owner": this_process()})
        return Lease(claim, lost=lambda: interrupt_main(LOST))

    def checkpoint(self, of: str = "") -> Checkpoint:
        """The checkpoint of the trial, or of something else that is made of it."""
        assignment = self.assignment
        kind = Checkpoint if self.group.first else FollowedCheckpoint
        return kind(
            assignment.work or self.opened.directory.work,
            self.trial,
            every=assignment.checkpoint_every,
            threads=assignment.threads,
            device=self.device,
            of=of,
            ranks=self.group.size,
        )

    def runs(self) -> list[StoredRun]:
        """All runs of the trial, in order."""
        found = supersede(self.opened.reader.load({self.trial.key[:16]}, []), [])
        return [run for run in found if run.key == self.trial.key]


def check_images(trial: Trial) -> None:
    """Raise `DataError` when the images are not those that the trial was planned with."""
    if trial.images != (now_there := fingerprint(trial.config.dataset)):
        raise DataError(
            f"{trial.config.dataset} has the fingerprint {now_there} here, but the trial was planned with "
            f"{trial.images}"
        )


def failed(error: BaseException, store: object) -> dict[str, Any]:
    """The answer of a failed job, with the error in one line."""
    if is_full(error):
        reason = f"no space left for the store {store}: free some, and use the same command to continue"
        return {"status": Answered.FAILED, "error": reason}
    return {"status": Answered.FAILED, "error": one_line(error)}


def is_full(error: BaseException | None) -> bool:
    """Whether a full disk caused the error."""
    while error is not None:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            return True
        error = error.__cause__ or error.__context__
    return False
