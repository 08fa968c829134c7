"""A trial as a Sacred run: trained in its folder, and recorded however it ends. Imported in training processes only.

The harness resolves and validates the configuration and passes it to Sacred as plain JSON types. Sacred
keeps the record (start, heartbeat, end, result, traceback) and our observer writes it. Sacred's seeding is
not used: every rng is derived from the trial's seed. The run counts once the worker has written its completion record.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

import torch

from harness.components.registries import SPACES
from harness.components.space import Architecture
from harness.documents import finite, utc_now
from harness.errors import DataError
from harness.interruption import TIMEOUT, asked_first, held_back, reason_of
from harness.schema import ASKED, NOBODY, title
from harness.stores.checkpoints import Checkpoint
from harness.stores.directory.log import drop_drawings
from harness.stores.directory.observer import DirectoryObserver
from harness.stores.directory.run_directory import LOG, PREDICTIONS, WEIGHTS, RunDirectory, predictions_document
from harness.stores.sacred import SETTINGS, Experiment, RunObserver
from harness.study.judging import Predictions
from harness.study.trial import Trial
from harness.training.precision import arithmetic
from harness.training.profiling import during
from harness.training.stages.retrain import best_found
from harness.training.stages.search import SearchProgress
from harness.training.stages.train import Progress
from harness.training.trial import Outcome, Watch, retrain_trial, run_trial
from harness.work.jobs import Answered, failed
from harness.work.task import Report, Task

REPORT_EVERY = 0.2
"""Minimum seconds between progress reports of a ranking."""

# The harness records output (`output_to`) and the environment (`harness.environment`) itself.
SETTINGS.CAPTURE_MODE = "no"
SETTINGS.DISCOVER_SOURCES = "none"
SETTINGS.DISCOVER_DEPENDENCIES = "none"
SETTINGS.HOST_INFO.INCLUDE_CPU_INFO = False
SETTINGS.HOST_INFO.INCLUDE_GPU_INFO = False


def train(task: Task) -> dict[str, Any]:
    """Make the run of the task's folder, from its checkpoint if there is one; return the answer."""
    checkpoint = task.checkpoint()
    if not task.group.first:
        with task.output():
            compute(task, None, checkpoint)
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


def compute(task: Task, watch: Watch | None, checkpoint: Checkpoint) -> Outcome:
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


def computed_with(task: Task) -> dict[str, Any]:
    """What the cost of a trial says about how it was computed."""
    return {"threads": task.assignment.computing.threads, "arithmetic": arithmetic(task.device)}


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
        outcome = compute(task, watch, checkpoint)
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
    """Reports of progress to the process that started the job, and to the run's record, for whoever reads the store."""
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


def _logger(log: IO[str]) -> logging.Logger:
    """Write Sacred's messages to the log; by default Sacred replaces the handlers of all loggers."""
    logger = logging.getLogger("harness.sacred")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    handler = logging.StreamHandler(log)
    handler.setFormatter(logging.Formatter("%(levelname)s - %(message)s"))
    logger.handlers = [handler]
    return logger
