"""The child: computes what the assignment in a folder says, and writes log, curves, result and weights there.

It opens no store and holds no claim: its worker does both. So it can be run by hand, also under a debugger, on a copy
of the folder of an attempt: `python -m harness.work.compute FOLDER`. Imported in training processes only.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from harness import environment
from harness.data import devices
from harness.errors import ComponentWarning
from harness.interruption import raise_interruption
from harness.stores.directory.run_directory import TRIAL, RunDirectory
from harness.training.allocator import keep_freed_memory
from harness.training.compilation import operations_compiled
from harness.work.assignment import Assignment
from harness.work.experiment import train
from harness.work.group import Group
from harness.work.jobs import Answered, failed
from harness.work.proxies import make_references
from harness.work.ranking import rank
from harness.work.states import Kind
from harness.work.task import Report, Task, check_images

DOING = {Kind.TRAIN: train, Kind.RANK: rank, Kind.REFERENCE: make_references}
"""What does the work of each kind."""


def warm_up() -> Iterator[None]:
    """Imports that every child needs, but not at its start; the fork server runs one part at a time when idle.

    Components are not loaded here: a user's file may run a tensor operation, and the server must not.
    """
    environment.describe()
    yield
    import scipy.stats  # noqa: F401  # for τ; most of a second

    yield
    import torch._dynamo  # noqa: F401  # for the first step of torch's own optimisers, in retraining; two seconds

    yield


def run_job(document: Mapping[str, Any], progress: Report) -> dict[str, Any]:
    """Do the work of the document's "folder", in a process of its own: the target of `harness.work.processes`."""
    return compute(Path(document["folder"]), progress, Group.of(document))


def compute(
    folder: Path, progress: Report = lambda report: None, group: Group | None = None, by_hand: bool = False
) -> dict[str, Any]:
    """Do what the assignment in the folder says.

    Returns {"status"}, one of `Answered`, with one line of "error" if it went wrong. Raises only what `progress`
    raises.
    """
    warnings.simplefilter("ignore", ComponentWarning)  # the command that started the child has told it
    group = group or Group()
    try:
        with terminable():
            if group.first and (folder / TRIAL).exists():
                RunDirectory(folder).own()
            assignment = Assignment.read(folder)
            torch.set_num_threads(assignment.computing.threads)
            keep_freed_memory()
            if assignment.kind is Kind.TRAIN:  # a ranking may need none
                check_images(assignment.trial)
            devices.chosen(assignment.computing.device)
            with operations_compiled(assignment.computing.compile):
                return DOING[assignment.kind](Task(assignment, folder, progress, group, by_hand))
    except KeyboardInterrupt:
        return {"status": Answered.INTERRUPTED}
    except (Exception, SystemExit) as error:
        return failed(error) | {"traceback": traceback.format_exc()}


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


def main(arguments: list[str]) -> int:
    """Compute in the folder that is named, with output on the terminal, and without the checkpoints of others."""
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        print("usage: python -m harness.work.compute FOLDER (the copy of a run's folder)", file=sys.stderr)
        return 2
    answer = compute(Path(arguments[0]).absolute(), by_hand=True)
    print(answer.get("error") or answer["status"], file=sys.stderr)
    return 0 if answer["status"] == Answered.DONE else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
