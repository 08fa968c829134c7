"""Ranks the weights of a done run as a trial asks now. Imported in training processes only.

The weights, and what is known of them, are inputs of the folder; the ranking is left there for the worker.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping
from typing import Any

import torch

from harness.components.benchmark import benchmark_for
from harness.errors import DataError
from harness.interruption import asked_first
from harness.stores.directory.log import drop_drawings
from harness.stores.directory.run_directory import LOG, PREDICTIONS, WEIGHTS, RunDirectory
from harness.study.judging import Prediction, completed
from harness.training.trial import Outcome, Watch, rank_again
from harness.work.assignment import KNOWN
from harness.work.experiment import computed_with, predicted, searching, throttled
from harness.work.jobs import Answered, failed
from harness.work.task import Task, check_images


def rank(task: Task) -> dict[str, Any]:
    """Make the ranking, from its checkpoint if there is one; return the answer.

    Leaves result and cost in the folder, and predictions, unless the stored ones suffice.
    """
    known = json.loads((task.inputs / KNOWN).read_text())
    if not task.group.first:
        with task.output():
            _computed(task, known, None)
        return {"status": Answered.DONE}
    directory = RunDirectory(task.folder)
    if (result := _with_panel(task, known)) is not None:
        directory.write_result(result, {})
        return {"status": Answered.DONE}
    check_images(task.trial)
    with task.output():
        try:
            if (result := known["diverged"]) is not None:
                cost, outcome = {}, None
            else:
                watch = Watch(ranking=throttled(task.progress), searching=searching(task.progress))
                outcome = _computed(task, known, watch)
                result, cost = outcome.result, outcome.cost | computed_with(task)
            directory.write_result(result, cost)
            directory.write(PREDICTIONS, predicted(task.trial, outcome))
        except (Exception, SystemExit) as error:
            traceback.print_exc()
            return failed(error)
    drop_drawings(directory.path / LOG)
    return {"status": Answered.DONE}


def _with_panel(task: Task, known: Mapping[str, Any]) -> dict[str, Any] | None:
    """A ranking that an older version stored without its panel, with it; None if there is more to do."""
    config, stored = task.trial.config, known["stored"]
    if stored is None or config.benchmark is None or task.assignment.again:
        return None
    return completed(config, stored, _predictions(known), benchmark_for(config.benchmark, config.space))


def _computed(task: Task, known: Mapping[str, Any], watch: Watch | None) -> Outcome:
    """Compute the ranking with the other processes of the group."""
    checkpoint, config = task.checkpoint(), task.trial.config
    with task.group.computing(config, task.device) as ranks, asked_first(checkpoint.request_stop):
        return rank_again(
            config,
            lambda: _weights(task, known),
            _predictions(known),
            task.device,
            watch,
            known["found"],
            checkpoint,
            ranks,
        )


def _weights(task: Task, known: Mapping[str, Any]) -> list[dict[str, Any]]:
    if known["weights"] is not None:
        raise DataError(known["weights"])
    weights: list[dict[str, Any]] = torch.load(task.inputs / WEIGHTS, weights_only=True)
    return weights


def _predictions(known: Mapping[str, Any]) -> dict[int, Prediction]:
    """The stored predictions of the weights on the images that the trial ranks on, by architecture number."""
    losses = known["losses"]
    return {int(number): Prediction(value, losses.get(number)) for number, value in known["accuracies"].items()}
