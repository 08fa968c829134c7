"""A job at work in its process: its assignment, its places, and how it answers. Imported in training processes only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from harness.components.dataset import fingerprint
from harness.data import devices
from harness.documents import one_line
from harness.errors import DataError, NotReadable, is_machines_fault
from harness.interruption import LOST, interrupt_main
from harness.owner import this_process
from harness.stores.checkpoints import Checkpoint, FollowedCheckpoint
from harness.stores.claims import Claim, Lease
from harness.stores.opened import Opened
from harness.stores.store import supersede
from harness.stores.stored import Problem, StoredRun
from harness.study.trial import Trial
from harness.work.assignment import Assignment
from harness.work.group import Group
from harness.work.jobs import Answered

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

    def note(self, line: str) -> None:
        """Print a line where the user of `run` reads it."""
        self.progress({"event": "note", "note": line})

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
            device=devices.with_model(self.device),  # another model rounds otherwise
            of=of,
            ranks=self.group.size,
        )

    def runs(self) -> list[StoredRun]:
        """All runs of the trial, in order. Raises `NotReadable` if none counts, but an unreadable one might."""
        problems: list[Problem] = []
        found = supersede(self.opened.reader.load({self.trial.key[:16]}, problems), [])
        runs = [run for run in found if run.key == self.trial.key]
        unreadable = next((one for one in problems if one.unreadable), None)
        if unreadable is not None and not any(run.counts for run in runs):
            raise NotReadable(f"{unreadable.place}: {unreadable.reason}; the trial may be done, and is not run again")
        return runs


def check_images(trial: Trial) -> None:
    """Raise `DataError` when the images are not those that the trial was planned with."""
    if trial.images != (now_there := fingerprint(trial.config.dataset)):
        raise DataError(
            f"{trial.config.dataset} has the fingerprint {now_there} here, but the trial was planned with "
            f"{trial.images}"
        )


def failed(error: BaseException) -> dict[str, Any]:
    """The answer of a job that ended with an error, in one line: interrupted if it is the machine's fault."""
    if not is_machines_fault(error):
        return {"status": Answered.FAILED, "error": one_line(error)}
    text = one_line(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return {"status": Answered.INTERRUPTED, "error": f"{text}; the same command continues"}
