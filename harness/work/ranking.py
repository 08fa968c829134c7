"""What a child does besides trials: further rankings of stored weights, and references.

The weights of a done run, and what is known of them, are inputs of the folder; the ranking is left there for the
worker. So are references, which are deterministic: two processes that make the same one store the same document.
Imported in training processes only.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping
from typing import Any

import torch

from harness.components.benchmark import benchmark_for
from harness.components.proxy import NotApplicable
from harness.errors import DataError
from harness.files import write_json
from harness.interruption import asked_first
from harness.schema import UNRANKED
from harness.stores.directory.log import drop_drawings
from harness.stores.directory.run_directory import LOG, PREDICTIONS, WEIGHTS, RunDirectory
from harness.study.judging import Prediction, completed
from harness.training.precision import fix_arithmetic
from harness.training.trial import Outcome, Watch, rank_again, run_references
from harness.work.assignment import KNOWN
from harness.work.jobs import Answered, failed
from harness.work.task import Task, check_images, computed_with, predicted, searching, throttled


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


def make_references(task: Task) -> dict[str, Any]:
    """Make the references of one trial that its assignment names; return the answer."""
    # One thread: the sums, and so the predictions, do not depend on the number of cores.
    torch.set_num_threads(1)
    fix_arithmetic()

    def report(done: int, total: int) -> None:
        task.progress({"event": "references", "step": done, "steps": total})

    try:
        made_here = run_references(task.trial.config, task.assignment.references, task.device, report)
        for number, (name, outcome) in enumerate(made_here):
            made: dict[str, Any] = {"reference": name, "cell": task.trial.json()}
            if isinstance(outcome, NotApplicable):
                made |= {"result": UNRANKED, "inapplicable": str(outcome)}
            else:
                made |= {"result": outcome.result, "cost": outcome.cost}
            write_json(task.folder / f"{number}.json", made)
            task.progress({"event": name})
    except (Exception, SystemExit) as error:
        return failed(error)
    return {"status": Answered.DONE}
