"""A child at work: its assignment, its folder, and how it reports. Imported in training processes only."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from harness.components.dataset import fingerprint
from harness.data import devices
from harness.errors import DataError
from harness.stores.checkpoints import Checkpoint, FollowedCheckpoint
from harness.stores.directory.log import output_to
from harness.stores.directory.run_directory import INPUTS, LOG
from harness.study.trial import Trial
from harness.work.assignment import Assignment
from harness.work.group import Group

Report = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Task:
    """One assignment that is being done, in the folder of its attempt. `progress` takes its reports."""

    assignment: Assignment
    folder: Path
    progress: Report
    group: Group = field(default_factory=Group)
    """The processes that do it together, as this one sees them."""
    by_hand: bool = False
    """Whether output stays where it is, for a debugger, and checkpoints of others are left alone."""

    @property
    def trial(self) -> Trial:
        return self.assignment.trial

    @property
    def device(self) -> str:
        """The device. Read only in the child itself: the server must not touch a GPU before it forks."""
        return devices.chosen(self.assignment.computing.device)

    @property
    def inputs(self) -> Path:
        return self.folder / INPUTS

    def note(self, line: str) -> None:
        """Print a line where the user of `run` reads it."""
        self.progress({"event": "note", "note": line})

    @contextlib.contextmanager
    def output(self) -> Iterator[IO[str]]:
        """Within, what is printed goes to the log of the folder. Yields the log."""
        if self.by_hand:
            with (self.folder / LOG).open("a", encoding="utf-8") as log:
                yield log
            return
        with output_to(self.folder / LOG if self.group.first else Path(os.devnull)) as log:  # all ranks print the same
            yield log

    def checkpoint(self) -> Checkpoint:
        """The checkpoint of the trial; that of a ranking holds scores with the weights of its run."""
        assignment = self.assignment
        folder = None if self.by_hand else assignment.checkpoints
        kind = Checkpoint if self.group.first else FollowedCheckpoint
        checkpoint = kind(
            folder or self.folder / "work",
            self.trial,
            every=assignment.computing.checkpoint_every,
            threads=assignment.computing.threads,
            device=devices.with_model(self.device),  # another model rounds otherwise
            run=assignment.run,
            ranks=self.group.size,
        )
        checkpoint.tell = self._tell
        return checkpoint

    def _tell(self, line: str) -> None:
        """Tell what a reader of the log must know, and the user of `run` too."""
        with contextlib.suppress(OSError):
            print(line)
        self.note(line)


def check_images(trial: Trial) -> None:
    """Raise `DataError` when the images are not those that the trial was planned with."""
    if trial.images != (now_there := fingerprint(trial.config.dataset)):
        raise DataError(
            f"{trial.config.dataset} has the fingerprint {now_there} here, but the trial was planned with "
            f"{trial.images}"
        )
