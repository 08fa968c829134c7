"""Single steps of methods in the toy space with plain gradient descent, to be compared with slow references."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from harness.components.method import Method, Step
from harness.components.registries import DATASETS
from harness.components.space import Architecture
from harness.data.loader import Batch, DeviceLoader
from harness.training.stages.train import build_supernets, make_step, prepare
from harness.training.supernet import SupernetTraining
from tests.toy import toy_config

RATE = 0.1
PLAIN = {"learning_rate": RATE, "momentum": 0.0, "nesterov": False, "weight_decay": 0.0, "clip": None}


def plain_training(
    name: str, sections: dict[str, Any] | None = None, **options: Any
) -> tuple[Method, SupernetTraining]:
    """A method with these options and its training: no momentum, no decay, no clipping, a constant rate."""
    more = {"optimiser": PLAIN, "schedule": "constant", **(sections or {})}
    config, dataset = toy_config(method={"name": name, **options}, **more), DATASETS.get("toy")()
    method, [training] = prepare(config, build_supernets(config, dataset), 3, dataset)
    return method, training


def batch_of(step: int) -> Batch:
    dataset = DATASETS.get("toy")()
    return DeviceLoader(dataset.train, dataset, 16, 0).batch(step)


def one_step(method: Method, training: SupernetTraining, step: int) -> Step:
    return make_step(method, training, batch_of(step), step)


Loss = Callable[[Architecture], torch.Tensor]


def stepped(training: SupernetTraining, loss: Loss) -> Callable[[Architecture], list[torch.Tensor]]:
    """By the path that a step turns out to train, the weights after one plain step along that loss.

    The weights are those of now: they are put back while the loss is computed.
    """
    weights = list(training.network.parameters())
    now = [one.detach().clone() for one in weights]

    def after(path: Architecture) -> list[torch.Tensor]:
        later = [one.detach().clone() for one in weights]
        with torch.no_grad():
            for one, value in zip(weights, now, strict=True):
                one.copy_(value)
        gradients = torch.autograd.grad(loss(path), weights, allow_unused=True)
        with torch.no_grad():
            for one, value in zip(weights, later, strict=True):
                one.copy_(value)
        return [one if own is None else one - RATE * own for one, own in zip(now, gradients, strict=True)]

    return after
