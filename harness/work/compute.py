"""The child: computes what the assignment in a folder says, and writes log, curves, result and weights there.

It opens no store and holds no claim: its worker does both. So it can be run by hand, also under a debugger, on a copy
of the folder of an attempt: `python -m harness.work.compute FOLDER`. Imported in training processes only.

A trial is a Sacred run. The harness resolves and validates the configuration and passes it to Sacred as plain JSON
types. Sacred keeps the record (start, heartbeat, end, result, traceback) and our observer writes it. Sacred's seeding
is not used: every rng is derived from the trial's seed. The run counts once the worker has written its completion
record.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import torch

from harness import environment
from harness.components.space import Architecture
from harness.data import devices
from harness.documents import finite, utc_now
from harness.errors import ComponentWarning, DataError
from harness.interruption import TIMEOUT, asked_first, held_back, raise_interruption, reason_of
from harness.schema import ASKED, NOBODY, title
from harness.stores.checkpoints import Checkpoint
from harness.stores.directory.log import drop_drawings
from harness.stores.directory.observer import DirectoryObserver
from harness.stores.directory.run_directory import LOG, PREDICTIONS, TRIAL, WEIGHTS, RunDirectory
from harness.stores.sacred import SETTINGS, Experiment, RunObserver
from harness.study.trial import Trial
from harness.training.allocator import keep_freed_memory
from harness.training.compilation import operations_compiled
from harness.training.profiling import during
from harness.training.stages.retrain import best_found
from harness.training.stages.train import Progress
from harness.training.trial import Outcome, Watch, retrain_trial, run_trial
from harness.work.assignment import Assignment
from harness.work.jobs import Answered, failed
from harness.work.ranking import make_references, rank
from harness.work.states import Kind
from harness.work.task import Group, Report, Task, check_images, computed_with, noted, predicted, searching, throttled

# The harness records output (`output_to`) and the environment (`harness.environment`) itself.
SETTINGS.CAPTURE_MODE = "no"
SETTINGS.DISCOVER_SOURCES = "none"
SETTINGS.DISCOVER_DEPENDENCIES = "none"
SETTINGS.HOST_INFO.INCLUDE_CPU_INFO = False
SETTINGS.HOST_INFO.INCLUDE_GPU_INFO = False


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


def train(task: Task) -> dict[str, Any]:
    """Make the run of the task's folder, from its checkpoint if there is one; return the answer."""
    checkpoint = task.checkpoint()
    if not task.group.first:
        with task.output():
            _computed(task, None, checkpoint)
        return {"status": Answered.DONE}
    assignment, directory = task.assignment, RunDirectory(task.folder)
    info: dict[str, Any] = {"key": task.trial.key, "preset": assignment.preset}
    info |= {} if assignment.naming is None else {ASKED: assignment.naming}
    observer = DirectoryObserver(directory, task.trial.config.json(), info)
    directory.write_sources(task.trial)
    reply: dict[str, Any] = {"status": Answered.INTERRUPTED}
    try:
        try:
            with _profiled(task):
                reply = _recorded(task, directory, observer, checkpoint)
        finally:
            # Ignored for a moment only: the record is completed, however the run ended.
            with contextlib.suppress(ValueError):
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            with contextlib.suppress(OSError):  # the log stays as it is
                drop_drawings(directory.path / LOG)
            observer.save_again()
            directory.gather_metrics()
    except OSError as error:
        # A failing disk also prevents recording it: report the first error.
        return reply if "error" in reply else failed(error)
    return reply


def _recorded(
    task: Task, directory: RunDirectory, observer: DirectoryObserver, checkpoint: Checkpoint
) -> dict[str, Any]:
    """Run the trial with its output in the log, and record how it ended; return the answer."""
    with task.output() as log:
        try:
            with asked_first(checkpoint.request_stop):
                sacred_run(task, directory, [observer], log, checkpoint)
            return {"status": Answered.DONE}
        except KeyboardInterrupt as interruption:
            if reason_of(interruption) == TIMEOUT:
                timeout = task.assignment.computing.timeout
                text = f"it took longer than {timeout:g} s" if timeout else "it took too long"
                observer.failed_event(utc_now(), [f"TimeoutError: {text}\n"])
                return {"status": Answered.FAILED, "error": text}
            if observer.status == "RUNNING":
                observer.interrupted_event(utc_now(), "INTERRUPTED")
            return {"status": Answered.INTERRUPTED}
        except (Exception, SystemExit) as error:
            with contextlib.suppress(OSError):  # a failing disk also prevents recording it
                traceback.print_exc()
                if observer.status == "RUNNING":  # it failed outside of the Sacred run
                    observer.failed_event(utc_now(), traceback.format_exception(error))
            return failed(error)


def _profiled(task: Task) -> contextlib.AbstractContextManager[None]:
    """Profile the run, if requested."""
    if task.assignment.profile is None:
        return contextlib.nullcontext()
    from harness.training.profiling import profiled

    config = task.trial.config
    title = f"run {task.folder.name} ({config.method.name}, seed {config.seed}), on {task.device}"
    return profiled(task.assignment.profile, title, torch.device(task.device))


def _computed(task: Task, watch: Watch | None, checkpoint: Checkpoint) -> Outcome:
    """Compute the task's trial, with the other processes of its group; all get the same outcome."""
    config, device, start = task.trial.config, task.device, task.assignment.start
    found = None if start is None else _to_retrain(task.trial, start)
    with task.group.computing(config, device) as ranks:
        if found is None:
            return run_trial(config, device, watch, checkpoint, ranks)
        return retrain_trial(config, found, device, watch, checkpoint, ranks)


def _to_retrain(trial: Trial, ranking: Mapping[str, Any]) -> Architecture:
    """The architecture that the trial retrains, of those that the stage before has found."""
    which = trial.config.retrain.which if trial.config.retrain else 0
    if (found := best_found(ranking, which)) is not None:
        return found
    if ranking.get("found"):
        raise DataError(f"the search has found {len(ranking['found'])} architectures; retrain.which is {which}")
    raise DataError("the search has found nothing to retrain: it diverged")


def sacred_run(
    task: Task, directory: RunDirectory, observers: Sequence[RunObserver], log: IO[str], checkpoint: Checkpoint
) -> None:
    """Run the task's trial as a Sacred run into its directory."""
    trial, config = task.trial, task.trial.config
    progress = noted(task, observers)
    name = title(task.assignment.naming or NOBODY, config.method.name)
    experiment = Experiment(name, save_git_info=False)
    experiment.logger = _logger(log)  # type: ignore[assignment]
    # numpy's global rng, which Sacred seeds, takes seeds below 2³² only.
    experiment.add_config(config.json() | {"seed": config.seed % 2**32})  # type: ignore[no-untyped-call]
    experiment.observers.extend(observers)

    @experiment.main  # type: ignore[untyped-decorator]
    def train_rank_judge(_run: Any) -> dict[str, Any]:
        tau: list[float | None] = []

        @during("logging")
        def metric(name: str, step: int, value: float) -> None:
            directory.log_metric(name, step, value)
            _run.log_scalar(name, value, step)
            if name == "kendall_tau":
                tau.append(finite(value))

        def epoch(at: Progress) -> None:
            step, steps = at.part * at.epochs + at.epoch, at.parts * at.epochs
            latest = tau[-1] if tau else None
            print(f"epoch {step}/{steps}: loss {at.loss:.4f}" + (f", τ {latest:.4f}" if latest is not None else ""))
            progress({"event": "epoch", "step": step, "steps": steps, "loss": at.loss, "tau": latest})

        @during("logging")
        def restored(points: list[dict[str, Any]]) -> None:
            directory.log_points(points)
            for point in points:
                _run.log_scalar(point["name"], point["value"], point["step"])
            tau.extend(point["value"] for point in points if point["name"] == "kendall_tau")
            print(f"continuing from a checkpoint, with {len(points)} points measured before")

        watch = Watch(epoch, metric, throttled(progress), searching(progress), restored)
        outcome = _computed(task, watch, checkpoint)
        outcome.cost.update(computed_with(task))
        _store_outcome(trial, directory, outcome)
        for name in (PREDICTIONS, WEIGHTS):
            if (directory.path / name).exists():
                _run.add_artifact(str(directory.path / name), name)
        return outcome.result

    experiment.run()


@during("logging")
def _store_outcome(trial: Trial, directory: RunDirectory, outcome: Outcome) -> None:
    directory.write_result(outcome.result, outcome.cost)
    directory.write(PREDICTIONS, predicted(trial, outcome))
    if outcome.supernets is not None:
        states = [
            {name: tensor.cpu() for name, tensor in network.state_dict().items()}
            for network in outcome.supernets.networks
        ]
        with held_back():
            directory.write_weights(lambda file: torch.save(states, file))


def _logger(log: IO[str]) -> logging.Logger:
    """Write Sacred's messages to the log; by default Sacred replaces the handlers of all loggers."""
    logger = logging.getLogger("harness.sacred")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    handler = logging.StreamHandler(log)
    handler.setFormatter(logging.Formatter("%(levelname)s - %(message)s"))
    logger.handlers = [handler]
    return logger


DOING = {Kind.TRAIN: train, Kind.RANK: rank, Kind.REFERENCE: make_references}
"""What does the work of each kind."""


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
