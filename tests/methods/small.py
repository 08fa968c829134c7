"""A space so small that a slow reference of a method's step is a few lines, and its training without a data set."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import nn

from harness.components.dataset import DataSet, Split
from harness.components.discovery import component
from harness.components.method import Part
from harness.components.space import Architecture, NetworkSettings, Space
from harness.data.loader import Batch
from harness.data.loading import EvaluationBatches
from harness.training.separation import SeparatedMomentum
from harness.training.supernet import SupernetTraining

SGD: Any = component("methods.optimisers").SGD
clusters = component("methods.clusters")
samplers = component("methods.samplers")
schedules = component("methods.schedules")

EPOCHS, STEPS = 4, 3
IMAGES = 48


class Small(Space):
    """Three decisions; a choice is a matrix, and choice 0 has no parameters."""

    name = "small"
    choices = (3, 2, 3)

    def complexity(self, architecture: Architecture, count: str = "parameters") -> int:
        return 1 + sum(2 * choice**2 for choice in self.check(architecture))

    def parse(self, text: str) -> Architecture:
        return self.check(tuple(int(choice) for choice in text.split()))

    def format(self, architecture: Architecture) -> str:
        return " ".join(map(str, architecture))

    def operation_parameters(self, network: Any) -> dict[tuple[int, int], list[torch.Tensor]]:
        return {
            (d, c): list(network.matrix(d, c).parameters())
            for d, count in enumerate((3, 2, 3))
            for c in range(1, count)
        }

    def supernet(self, settings: NetworkSettings) -> nn.Module:
        return Matrices()

    def standalone(self, architecture: Architecture, settings: NetworkSettings) -> nn.Module:
        raise NotImplementedError


class Matrices(nn.Module):
    """A chain of matrices, tanh between them, and batch normalisation in front if it is tracked."""

    def __init__(self, tracked: bool = False) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4, track_running_stats=True) if tracked else nn.Identity()
        self.matrices = nn.ModuleDict(
            {f"{d}-{c}": nn.Linear(4, 4) for d, n in enumerate((3, 2, 3)) for c in range(1, n)}
        )
        self.classifier = nn.Linear(4, 3)

    def matrix(self, decision: int, choice: int) -> nn.Module:
        return self.matrices[f"{decision}-{choice}"]

    def forward(self, images: torch.Tensor, path: Architecture) -> torch.Tensor:
        x = self.norm(images.flatten(1))
        for decision, choice in enumerate(path):
            x = torch.tanh(self.matrix(decision, choice)(x)) if choice else x
        logits: torch.Tensor = self.classifier(x)
        return logits


def images() -> DataSet:
    """Random images of two by two pixels."""
    rng = np.random.default_rng(1)

    def split(count: int) -> Split:
        return Split(rng.integers(0, 256, (count, 1, 2, 2), np.uint8), rng.integers(0, 3, count))

    return DataSet("random", 3, split(IMAGES), split(8), split(8), mean=(128.0,), std=(64.0,))


def training_of(method: Any, schedule: Any = None, rule: Any = None, network: Any = None, **optimiser: Any) -> Any:
    """A training of the small space by that method, as `make_training` makes it."""
    torch.manual_seed(3)
    space, data = Small(), images()
    network = network or Matrices()
    sampler = method.own_sampler() or samplers.Uniform()
    schedule = schedule or schedules.Cosine()
    training = SupernetTraining(
        space=space,
        part=Part({}),
        network=network,
        momentum=SeparatedMomentum(network.parameters(), SGD(**optimiser)),
        clustering=(rule or clusters.NoClusters()).bind(space, {}, random.Random(1)),
        source=sampler.bind(space, {}),
        factor=schedule.bind(space),
        factor_depends_on_path=schedule.depends_on_path,
        rng=random.Random(5),
        total_steps=EPOCHS * STEPS,
        steps_per_epoch=STEPS,
        samples=IMAGES,
        make_held_out=lambda: EvaluationBatches(data, data.train.head(20), 12),
    )
    method.begin(training)
    return training


def batch_of(step: int) -> Batch:
    """The batch of a step, in the order in which the images are stored."""
    size = IMAGES // STEPS
    indices = torch.arange(size) + size * (step % STEPS)
    held = EvaluationBatches(images(), images().train, IMAGES)
    return Batch(held.images[0][indices], held.labels[0][indices], indices)
