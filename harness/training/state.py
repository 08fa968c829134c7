"""The state of a running trial as one document, and back: the content of a checkpoint.

The state is collected only between two steps of training or two evaluations of a ranking. It consists of the
course of training, the observations and reported points so far, the costs and the rng states.
`harness.stores.checkpoints` stores the document.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch

from harness.data import devices
from harness.documents import utc_text
from harness.errors import DataError
from harness.stores.checkpoints import Checkpoint
from harness.study.judging import Prediction, Predictions
from harness.training.cost import Meter
from harness.training.profiling import phase
from harness.training.stages.rank import Found
from harness.training.stages.train import Resumable


class Observer(Protocol):
    """Observes training, and has state to store."""

    def state(self) -> dict[str, Any]: ...

    def restore(self, state: dict[str, Any]) -> None: ...


class Stateless:
    """Training and observers of a search with stored weights: there is neither, and nothing to store of them."""

    is_over = True

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any], device: torch.device | str = "cpu") -> None:
        """There is nothing to restore."""


@dataclass
class Points:
    """The points of a trial's curves, in order. Each is recorded and passed on to `tell`."""

    tell: Callable[[str, int, float], None]
    names: list[str] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def __call__(self, name: str, step: int, value: float) -> None:
        self.names.append(name)
        self.steps.append(step)
        self.values.append(float(value))
        self.times.append(time.time())
        self.tell(name, step, value)

    def json(self) -> list[dict[str, Any]]:
        """The points as stored in a run directory: name, step, value, timestamp (UTC)."""
        return [
            {"name": name, "step": step, "value": value, "timestamp": utc_text(when)}
            for name, step, value, when in zip(self.names, self.steps, self.values, self.times, strict=True)
        ]

    def state(self) -> dict[str, Any]:
        """Numbers are stored as tensors, because there may be many."""
        kinds = {name: number for number, name in enumerate(dict.fromkeys(self.names))}
        return {
            "kinds": list(kinds),
            "names": torch.tensor([kinds[name] for name in self.names], dtype=torch.long),
            "steps": torch.tensor(self.steps, dtype=torch.long),
            "values": torch.tensor(self.values, dtype=torch.double),
            "times": torch.tensor(self.times, dtype=torch.double),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.names = [state["kinds"][number] for number in state["names"].tolist()]
        self.steps, self.values, self.times = (state[key].tolist() for key in ("steps", "values", "times"))


class TrialState:
    """The state of one trial, kept in its checkpoint. A `harness.training.stages.train.Keeper`."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        meter: Meter,
        points: Points,
        observer: Observer,
        restored: Callable[[list[dict[str, Any]]], None],
    ) -> None:
        self.checkpoint, self.meter, self.points, self.observer = checkpoint, meter, points, observer
        self.restored = restored
        self.course: Resumable | None = None
        self.predictions: Predictions = {}
        """The ranking's predictions so far."""
        self.scores: dict[int, Predictions] = {}
        """The search's scores so far, by their cost."""

    def start(self, course: Resumable) -> None:
        self.course = course
        with phase("logging"):
            state = self.checkpoint.load()
        if state is None:
            return
        try:
            course.restore(state["course"], self.meter.device)
            self.observer.restore(state["observer"])
            self.predictions.update(unpacked(state["predictions"]))
            self.scores.update({cost: unpacked(found) for cost, found in state.get("scores", {}).items()})
            self.points.restore(state["points"])
            set_random_state(state["random"], self.meter.device)
            counted = state["meter"]
        except (LookupError, RuntimeError, TypeError, ValueError) as error:  # the code changed but not its version
            raise DataError(
                f"the checkpoint {self.checkpoint.path} does not fit the trial as it is built now; remove it to start "
                f"again. {' '.join(str(error).split())}"
            ) from error
        del state  # the loaded state must not count as memory of training
        self.meter.restore(counted)
        self.restored(self.points.json())

    def between_steps(self) -> None:
        if self.checkpoint.due():
            self.meter.stage("train")
            self.save()

    def part_done(self) -> None:
        self.meter.stage("train")
        self.save()

    def evaluated(self, predictions: Predictions, found: Found) -> None:
        """Called after an evaluation. If a checkpoint is due, adds the results to the predictions and saves."""
        if self.checkpoint.due():
            predictions.update(found())
            self.save()

    def save(self) -> None:
        assert self.course is not None, "save() before start()"
        self.checkpoint.trained = self.course.is_over
        with phase("logging"):
            self.checkpoint.save(
                {
                    "course": self.course.state(),
                    "observer": self.observer.state(),
                    "predictions": packed(self.predictions),
                    "scores": {cost: packed(found) for cost, found in self.scores.items()},
                    "points": self.points.state(),
                    "random": random_state(self.meter.device),
                    "meter": self.meter.state(),
                }
            )


def packed(predictions: Mapping[tuple[int, ...], Prediction]) -> list[torch.Tensor]:
    """Architectures, accuracies and losses (NaN for none) as tensors, because thousands of tuples are slow to load."""
    losses = [math.nan if one.loss is None else one.loss for one in predictions.values()]
    return [
        torch.tensor(list(predictions), dtype=torch.long),
        torch.tensor([one.accuracy for one in predictions.values()], dtype=torch.double),
        torch.tensor(losses, dtype=torch.double),
    ]


def unpacked(tensors: Sequence[torch.Tensor]) -> Predictions:
    """The same from the tensors."""
    architectures, accuracies, losses = tensors
    pairs = zip(accuracies.tolist(), losses.tolist(), strict=True)
    found = (Prediction(accuracy, None if math.isnan(loss) else loss) for accuracy, loss in pairs)
    return dict(zip(map(tuple, architectures.tolist()), found, strict=True))


def random_state(device: torch.device) -> dict[str, Any]:
    """The states of the global rngs: the engine does not use these, but a component may."""
    kind, keys, *rest = np.random.get_state(legacy=True)
    state = {
        "random": random.getstate(),
        "numpy": [str(kind), torch.tensor(np.asarray(keys, dtype=np.int64)), *rest],
        "torch": torch.get_rng_state(),
    }
    if devices.accelerated(device):
        state["cuda"] = devices.module(device).get_rng_state(device)
    return state


def set_random_state(state: dict[str, Any], device: torch.device) -> None:
    random.setstate(state["random"])
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, np.array(keys.tolist(), dtype=np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if devices.accelerated(device):
        devices.module(device).set_rng_state(state["cuda"], device)
