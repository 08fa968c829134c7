"""The job that trains: claim a trial, run it, store and mirror the run. Imported in training processes only."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from harness.components.space import Architecture
from harness.documents import one_line, utc_now
from harness.errors import DataError, Unreachable
from harness.files import make_folder
from harness.interruption import LOST, TIMEOUT, asked_first, finish_alone, reason_of
from harness.schema import ASKED
from harness.stores.claims import ClaimLost, Lease
from harness.stores.directory.log import drop_drawings, output_to
from harness.stores.directory.observer import DirectoryObserver
from harness.stores.directory.run_directory import LOG, RunDirectory
from harness.stores.opened import Opened
from harness.study.trial import Trial
from harness.training.stages.retrain import best_found
from harness.work.experiment import compute, sacred_run
from harness.work.jobs import Answered
from harness.work.states import State, state_of
from harness.work.task import Task, failed

if TYPE_CHECKING:
    from harness.stores.mongo.mirror import Mirror

SLOWLY = 600.0
"""Maximum seconds to mirror a done run to a slow database before its claim is released."""

ANSWERS = 3.0
"""Seconds within which a reachable database answers; an error that arrives sooner is a refusal, not a timeout."""

PAUSE, LONGEST_PAUSE = 5.0, 60.0
"""Seconds before the next try to mirror a done run: at first, and at most. Each pause is twice as long as the last."""

REFUSALS = 2
"""After so many refusals a done run is left to `harness store sync`."""


def train(task: Task) -> dict[str, Any]:
    """Make a new run of the trial, under its claim; return the answer."""
    trial, opened, assignment = task.trial, task.opened, task.assignment
    attempts = max((run.attempt for run in task.runs()), default=0)
    make_folder(opened.directory.path)
    claim = opened.claims.acquire(trial.key, at_least=attempts)
    if claim is None:
        return {"status": Answered.ELSEWHERE}
    with task.holding(claim) as lease:
        runs = task.runs()
        state = state_of(trial, runs)
        if state is State.DONE:
            done = next(run for run in runs if run.counts)
            found = {"run_id": done.id, "result": done.result, "cost": done.cost}
            return {"status": Answered.DONE, "already": True} | found
        if state is State.RANK:
            return {"status": Answered.ELSEWHERE}
        ranking = _parents_ranking(task)
        directory = opened.directory.create(trial, assignment.preset, assignment.overrides, claim.attempt)
        mirror = opened.mirror(directory)
        reply: dict[str, Any] = {}
        try:
            with _profiled(task, directory):
                reply = {"run_id": directory.id} | _Training(task, directory, lease, mirror, ranking).run()
        except Exception as error:
            if reply.get("status") != Answered.DONE:
                raise
            task.note(f"done, but {one_line(error)}")
        finally:
            # Before the claim is released: its next owner must find the run in the database.
            if mirror is not None and not mirror.close() and reply.get("status") == Answered.DONE:
                with contextlib.suppress(Exception):  # the run counts; the command reports what is not in the database
                    _mirror_slowly(directory, opened)
        return reply


def follow_training(task: Task) -> dict[str, Any]:
    """Take part in a run that the first process of the group makes, and write nothing."""
    ranking = _parents_ranking(task)
    found = None if ranking is None else _to_retrain(task.trial, ranking)
    with output_to(Path(os.devnull)):  # the first process prints the same
        compute(task, None, task.checkpoint(), found)
    return {"status": Answered.DONE}


@dataclass
class _Training:
    """One run of the trial: trained as a Sacred run, and recorded however it ends."""

    task: Task
    directory: RunDirectory
    lease: Lease
    mirror: Mirror | None
    ranking: dict[str, Any] | None
    """The ranking of the search that the trial starts from; None for a trial without a parent."""

    def __post_init__(self) -> None:
        assignment, trial = self.task.assignment, self.task.trial
        info: dict[str, Any] = {"key": trial.key, "preset": assignment.preset}
        info |= {} if assignment.naming is None else {ASKED: assignment.naming}
        self.observer = DirectoryObserver(self.directory, trial.config.json(), info)
        self.checkpoint = self.task.checkpoint()
        self.checkpoint.tell = self._tell

    def _tell(self, line: str) -> None:
        """Tell what a reader of the log must know, and the user of `run` too."""
        with contextlib.suppress(OSError):
            print(line)
        self.task.note(line)

    def run(self) -> dict[str, Any]:
        """Train, complete the record, and return the answer."""
        self.task.progress({"event": "start", "run_id": self.directory.id})
        self.directory.write_sources(self.task.trial)
        reply: dict[str, Any] = {"status": Answered.INTERRUPTED}
        try:
            try:
                reply = self._recorded()
            finally:
                # Ignored for a moment only: the record is completed, however the run ended.
                with contextlib.suppress(ValueError):
                    signal.signal(signal.SIGTERM, signal.SIG_IGN)
                with contextlib.suppress(OSError):  # the log stays as it is
                    drop_drawings(self.directory.path / LOG)
                self.observer.save_again()
                self.directory.gather_metrics()
            if reply["status"] == Answered.DONE:
                self.lease.confirm()  # if the database is unreachable, the run counts unless another took over
                finish_alone()
                doubt = self.directory.complete()
        except ClaimLost as error:
            with contextlib.suppress(OSError):
                self.observer.interrupted_event(utc_now(), "INTERRUPTED")
            return {"status": Answered.ELSEWHERE, "error": str(error)}
        except OSError as error:
            if reply["status"] == Answered.DONE:
                with contextlib.suppress(OSError):  # else the run is lost, and continued as well
                    self.observer.interrupted_event(utc_now(), "INTERRUPTED")
            # A failing disk also prevents recording it: report the first error.
            return reply if "error" in reply else failed(error)
        if reply["status"] == Answered.DONE:
            if doubt is not None:
                self.task.note(f"done, but a power cut may cost the run: {doubt}; its checkpoint stays")
                return reply
            with contextlib.suppress(OSError):  # `store clean` finds it
                self.checkpoint.remove()
        return reply

    def _recorded(self) -> dict[str, Any]:
        """Run the trial with its output in the log, and record how it ended; return the answer."""
        with output_to(self.directory.path / LOG) as log:
            try:
                observers = [self.observer] if self.mirror is None else [self.observer, self.mirror]
                found = None if self.ranking is None else _to_retrain(self.task.trial, self.ranking)
                with asked_first(self.checkpoint.request_stop):
                    outcome = sacred_run(self.task, self.directory, observers, log, self.checkpoint, found)
                return {"status": Answered.DONE, "result": outcome.result, "cost": outcome.cost}
            except KeyboardInterrupt as interruption:
                return self._interrupted(interruption)
            except (Exception, SystemExit) as error:
                with contextlib.suppress(OSError):  # a failing disk also prevents recording it
                    traceback.print_exc()
                    if self.observer.status == "RUNNING":  # it failed outside of the Sacred run
                        self.observer.failed_event(utc_now(), traceback.format_exception(error))
                return failed(error)

    def _interrupted(self, interruption: KeyboardInterrupt) -> dict[str, Any]:
        """Record an interrupted run, and return its answer, depending on the reason."""
        reason, timeout = reason_of(interruption), self.task.assignment.timeout
        if reason == TIMEOUT:
            text = f"it took longer than {timeout:g} s" if timeout else "it took too long"
            self.observer.failed_event(utc_now(), [f"TimeoutError: {text}\n"])
            return {"status": Answered.FAILED, "error": text}
        if self.observer.status == "RUNNING":
            self.observer.interrupted_event(utc_now(), "INTERRUPTED")
        return {"status": Answered.ELSEWHERE if reason == LOST else Answered.INTERRUPTED}


def _parents_ranking(task: Task) -> dict[str, Any] | None:
    """The ranking of the search that the trial starts from; None for a trial without a parent."""
    start, reader = task.trial.start, task.opened.reader
    if start is None:
        return None
    if task.assignment.found is not None:
        return {"top1": list(task.assignment.found)}
    run = reader.done(start.key)
    ranking = None if run is None else run.rankings.get(start.ranking_key)
    if run is None or ranking is None:
        raise DataError(f"no done search of trial {start.key[:16]} in {reader.name} whose best could be retrained")
    return ranking


def _profiled(task: Task, directory: RunDirectory) -> contextlib.AbstractContextManager[None]:
    """Profile the run, if requested."""
    if not task.assignment.profile:
        return contextlib.nullcontext()
    from harness.training.profiling import PROFILES, profiled

    config = task.trial.config
    title = f"run {directory.id} ({config.method.name}, seed {config.seed}), on {task.device}"
    return profiled(task.opened.directory.path / PROFILES / directory.id, title, torch.device(task.device))


def _mirror_slowly(directory: RunDirectory, opened: Opened) -> None:
    """Copy a done run to a slow database. One that is unreachable, or refuses twice, gets it with the next sync.

    Raises `UserError` and `DataError` when the database does not accept the run.
    """
    import pymongo

    from harness.stores.mongo.projection import project

    until, pause, refusals = time.monotonic() + SLOWLY, PAUSE, 0
    while True:
        try:
            with pymongo.timeout(ANSWERS):
                opened.database.command("ping")
        except Exception:  # unreachable, whatever the reason
            return
        began = time.monotonic()
        try:
            project(directory.path, opened.database, opened.weights_max)
            return
        except Unreachable:
            refusals += time.monotonic() - began < ANSWERS
        if refusals >= REFUSALS or time.monotonic() + pause > until:
            return
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def _to_retrain(trial: Trial, ranking: dict[str, Any]) -> Architecture:
    """The architecture that the trial retrains, of those that the stage before has found."""
    which = trial.config.retrain.which if trial.config.retrain else 0
    if (found := best_found(ranking, which)) is not None:
        return found
    if ranking.get("found"):
        raise DataError(f"the search has found {len(ranking['found'])} architectures; retrain.which is {which}")
    raise DataError("the search has found nothing to retrain: it diverged")
