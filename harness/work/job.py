"""One job: the entry point of a training process. Imported in training processes only.

The training process itself holds the claim of its trial and renews it. Under the claim it reads the stored runs
again: between the plan and the claim another process may have done the work.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from harness import environment
from harness.data import devices
from harness.documents import one_line
from harness.errors import ComponentWarning, Unreachable
from harness.interruption import LOST, raise_interruption, reason_of
from harness.training.allocator import keep_freed_memory
from harness.training.compilation import operations_compiled
from harness.work import reference_job
from harness.work.assignment import Assignment
from harness.work.group import Group
from harness.work.jobs import GROUP, Answered
from harness.work.ranking_job import follow_ranking, rank
from harness.work.references import KIND
from harness.work.states import Kind
from harness.work.task import Report, Task, check_images, failed
from harness.work.training_job import follow_training, train

DOING = {Kind.TRAIN: train, Kind.RANK: rank}
"""What does a job of each kind."""

FOLLOWING = {Kind.TRAIN: follow_training, Kind.RANK: follow_ranking}
"""The same in the processes of a group that are not the first."""


def warm_up() -> Iterator[None]:
    """Imports that every job needs, but not at its start; the fork server runs one part at a time when idle.

    Components are not loaded here: a user's file may run a tensor operation, and the server must not.
    """
    environment.describe()
    yield
    import scipy.stats  # noqa: F401  # for τ; most of a second

    yield
    import torch._dynamo  # noqa: F401  # for the first step of torch's own optimisers, in retraining; two seconds

    yield
    import pymongo  # noqa: F401

    yield


def run_job(document: Mapping[str, Any], progress: Report) -> dict[str, Any]:
    """Run one job, in a process of its own; the document is an `Assignment`, or that of a reference
    (`harness.work.references`).

    Returns {"status", "run_id", "key"}; the status is one of `Answered`. "done" comes with "result" and "cost"
    ("already": done by another process before), "failed" with one line of "error". Raises only what `progress`
    raises.
    """
    warnings.simplefilter("ignore", ComponentWarning)  # the command that started the job has told it
    if document["kind"] == KIND:
        return reference_job.make(document, progress)
    group = Group.of(document)
    reply: dict[str, Any] = {"run_id": None, "key": None}
    try:
        with terminable():
            torch.set_num_threads(document["threads"])
            keep_freed_memory()
            assignment = Assignment.from_json({key: value for key, value in document.items() if key != GROUP})
            reply["key"] = assignment.trial.key
            if assignment.kind is not Kind.RANK:  # a ranking may need none
                check_images(assignment.trial)
            devices.chosen(assignment.device)  # before a run is made that could not be trained
            try:
                with operations_compiled(assignment.compile):
                    doing = (DOING if group.first else FOLLOWING)[assignment.kind]
                    return reply | doing(Task(assignment, progress, group))
            except Unreachable as error:
                return reply | {"status": Answered.UNREACHABLE, "error": one_line(error)}
    except KeyboardInterrupt as interruption:
        return reply | {"status": Answered.ELSEWHERE if reason_of(interruption) == LOST else Answered.INTERRUPTED}
    except (Exception, SystemExit) as error:
        trace = {} if group.first else {"traceback": traceback.format_exc()}  # the first has stored its own
        return reply | failed(error) | trace


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Make SIGTERM interrupt like Ctrl-C, so that the run is stored as interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, raise_interruption)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
