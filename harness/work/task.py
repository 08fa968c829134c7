"""A child at work: its assignment, its folder, the processes that do it together, and how it reports.

The first of several processes has the run directory and the checkpoint, and speaks for all. The others take part in its
computation and write nothing. The worker watches all of them: when one fails or dies, it ends the rest. Imported in
training processes only.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from harness.components.dataset import fingerprint
from harness.components.registries import SPACES
from harness.data import devices
from harness.data.randomness import seed_globals
from harness.documents import finite
from harness.errors import DataError, RanksLost
from harness.stores.checkpoints import Checkpoint, FollowedCheckpoint
from harness.stores.directory.log import output_to
from harness.stores.directory.observer import DirectoryObserver
from harness.stores.directory.run_directory import INPUTS, LOG, predictions_document
from harness.stores.sacred import RunObserver
from harness.study.configuration import RunConfig
from harness.study.judging import Predictions
from harness.study.trial import Trial
from harness.training.memory import memory_explained
from harness.training.precision import arithmetic, fix_arithmetic
from harness.training.ranks import Ranks, join
from harness.training.stages.search import SearchProgress
from harness.training.trial import Outcome
from harness.work.assignment import Assignment
from harness.work.jobs import GROUP

Report = Callable[[dict[str, Any]], None]

REPORT_EVERY = 0.2
"""Minimum seconds between progress reports of a ranking."""

EXPLAINED_WITHIN = 120.0
"""Seconds in which `run` ends a process that has lost another one of its group."""


@dataclass(frozen=True)
class Group:
    """The place of this process in its group; by default the only one."""

    index: int = 0
    size: int = 1
    meeting: Path | None = None
    """The file by which the processes find each other."""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Group:
        """As the executor tells it in the document of a job."""
        told = document.get(GROUP)
        return cls() if told is None else cls(told["index"], told["size"], Path(told["meeting"]))

    @property
    def first(self) -> bool:
        return self.index == 0

    @contextlib.contextmanager
    def computing(self, config: RunConfig, device: str) -> Iterator[Ranks]:
        """Context of the computation of a trial, with all processes of the group: entered when all have come.

        Global rngs are seeded, and settings of torch that change results are fixed.
        """
        seed_globals(config.seed)
        fix_arithmetic((config.retrain or config.train).precision)
        with memory_explained(config, self.size), self._explained():
            ranks = join(self.index, self.size, f"file://{self.meeting}", device)
            yield ranks
            ranks.barrier()  # none leaves while another may still wait for it
            ranks.leave()

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """A process that has lost another is not the cause: it waits for its end by `run`, which knows the cause."""
        try:
            yield
        except RanksLost:
            time.sleep(EXPLAINED_WITHIN)
            raise


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


def computed_with(task: Task) -> dict[str, Any]:
    """What the cost of a trial says about how it was computed."""
    return {"threads": task.assignment.computing.threads, "arithmetic": arithmetic(task.device)}


def predicted(trial: Trial, outcome: Outcome | None) -> dict[str, Any]:
    """The predictions of an outcome as stored, by architecture number; empty for None."""
    space = SPACES.get(trial.config.space)()

    def numbered(predictions: Predictions) -> dict[int, float]:
        return {space.index(architecture): one.accuracy for architecture, one in predictions.items()}

    if outcome is None:
        return predictions_document(trial.config.json(), {})
    rough = {images: numbered(scores) for images, scores in outcome.rough.items()}
    found = outcome.predictions
    losses = {space.index(architecture): one.loss for architecture, one in found.items() if one.loss is not None}
    return predictions_document(trial.config.json(), numbered(found), rough, outcome.searched, losses)


def noted(task: Task, observers: Sequence[RunObserver]) -> Report:
    """Reports of progress to the process that started the job, and to the run's record for other processes."""
    records = [one for one in observers if isinstance(one, DirectoryObserver)]
    known: dict[str, Any] = {"device": task.device}
    stages = {"epoch": "train" if task.trial.config.retrain is None else "retrain", "rank": "rank", "search": "search"}

    def report(event: dict[str, Any]) -> None:
        task.progress(event)
        if event["event"] in stages:
            measured = {key: finite(event[key]) for key in ("loss", "tau") if event.get(key) is not None}
            known.update(stage=stages[event["event"]], step=event["step"], steps=event["steps"], **measured)
            for one in records:
                one.progress = dict(known)

    return report


def throttled(progress: Report) -> Callable[[int, int], None]:
    """A callback that reports a ranking's progress a few times per second."""
    last = 0.0

    def report(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if done == total or now - last >= REPORT_EVERY:
            last = now
            progress({"event": "rank", "step": done, "steps": total})

    return report


def searching(progress: Report) -> Callable[[SearchProgress], None]:
    """A callback that reports a search's progress a few times per second, and prints a line per generation.

    The report: `step` of `steps` scores that are asked for now, `generation` of `generations` counted from 1 (both None
    for a search without), `scored` architectures in all, and the `best` predicted accuracy among them.
    """
    last = 0.0

    def report(at: SearchProgress) -> None:
        nonlocal last
        now, ended = time.monotonic(), at.done == at.total
        generation = None if at.generation is None else at.generation + 1
        if ended and generation is not None and at.best is not None:
            print(f"generation {generation}/{at.generations}: {at.scored} scored, best {at.best:.2f} %")
        if ended or now - last >= REPORT_EVERY:
            last = now
            progress(
                {
                    "event": "search",
                    "step": at.done,
                    "steps": at.total,
                    "generation": generation,
                    "generations": at.generations,
                    "scored": at.scored,
                    "best": at.best,
                }
            )

    return report
