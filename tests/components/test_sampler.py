"""What the engine asks of samplers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch

from harness.components.decisions import Architecture
from harness.components.sampler import PathSource, learner


class Told(PathSource):
    """Remembers what it is told, by the shorter of the two signatures."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def draw(self, rng: random.Random) -> Architecture:
        return (0, 0)

    def learn(self, paths: Sequence[Architecture], losses: torch.Tensor) -> None:  # type: ignore[override]
        self.told.append((paths, losses.tolist()))


def test_a_source_may_learn_without_the_training() -> None:
    training: Any = None
    source = Told()
    learn = learner(source)
    assert learn is not None
    learn(training, [(0, 0)], torch.tensor([0.5]))
    assert source.told == [([(0, 0)], [0.5])]
