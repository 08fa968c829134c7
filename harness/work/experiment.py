"""The Sacred experiment: one trial in, one stored run out. Imported in training processes only.

The harness resolves and validates the configuration and passes it to Sacred as plain JSON types. Sacred
keeps the record (start, heartbeat, end, result, traceback) and our observer writes it. Sacred's seeding is
not used: every rng is derived from the trial's seed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import IO, Any

import torch

from harness.components.registries import SPACES
from harness.components.space import Architecture
from harness.documents import finite
from harness.interruption import held_back
from harness.schema import NOBODY, title
from harness.stores.checkpoints import Checkpoint
from harness.stores.directory.observer import DirectoryObserver
from harness.stores.directory.run_directory import PREDICTIONS, WEIGHTS, RunDirectory, predictions_document
from harness.stores.sacred import SETTINGS, Experiment, RunObserver
from harness.study.judging import Predictions
from harness.study.trial import Trial
from harness.training.precision import arithmetic
from harness.training.profiling import during
from harness.training.stages.search import SearchProgress
from harness.training.stages.train import Progress
from harness.training.trial import Outcome, Watch, retrain_trial, run_trial
from harness.work.task import Report, Task

REPORT_EVERY = 0.2
"""Minimum seconds between progress reports of a ranking."""

# The harness records output (`output_to`) and the environment (`harness.environment`) itself.
SETTINGS.CAPTURE_MODE = "no"
SETTINGS.DISCOVER_SOURCES = "none"
SETTINGS.DISCOVER_DEPENDENCIES = "none"
SETTINGS.HOST_INFO.INCLUDE_CPU_INFO = False
SETTINGS.HOST_INFO.INCLUDE_GPU_INFO = False


def compute(task: Task, watch: Watch | None, checkpoint: Checkpoint, found: Architecture | None) -> Outcome:
    """Compute the task's trial, with the other processes of its group; all get the same outcome.

    `found` is the architecture to retrain, found by the trial's parent; None for a trial that searches.
    """
    config, device = task.trial.config, task.device
    with task.group.computing(config, device) as ranks:
        if found is None:
            return run_trial(config, device, watch, checkpoint, ranks)
        return retrain_trial(config, found, device, watch, checkpoint, ranks)


def computed_with(task: Task) -> dict[str, Any]:
    """What the cost of a job says about how it was computed."""
    return {"threads": task.assignment.threads, "arithmetic": arithmetic()}


def sacred_run(
    task: Task,
    directory: RunDirectory,
    observers: Sequence[RunObserver],
    log: IO[str],
    checkpoint: Checkpoint,
    found: Architecture | None = None,
) -> Outcome:
    """Run the task's trial as a Sacred run into its directory, from its checkpoint if there is one."""
    trial, config = task.trial, task.trial.config
    progress = noted(task, observers)
    name = title(task.assignment.naming or NOBODY, config.method.name)
    experiment = Experiment(name, save_git_info=False)
    experiment.logger = _logger(log)  # type: ignore[assignment]
    # numpy's global rng, which Sacred seeds, takes seeds below 2³² only.
    experiment.add_config(config.json() | {"seed": config.seed % 2**32})  # type: ignore[no-untyped-call]
    experiment.observers.extend(observers)
    outcomes: list[Outcome] = []

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
        outcome = compute(task, watch, checkpoint, found)
        outcome.cost.update(computed_with(task))
        _store_outcome(trial, directory, outcome)
        for name in (PREDICTIONS, WEIGHTS):
            if (directory.path / name).exists():
                _run.add_artifact(str(directory.path / name), name)
        outcomes.append(outcome)
        return outcome.result

    experiment.run()
    return outcomes[0]


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
