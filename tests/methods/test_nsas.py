"""NSAS: the archive and the constrained loss against slow references."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.components.discovery import component
from harness.components.space import Architecture
from harness.errors import InvalidConfiguration
from tests.methods.plain_steps import batch_of, one_step, plain_training, stepped

nsas = component("methods.nsas")


def slow_archive(paths: list[Architecture], count: int, neighbours: int) -> list[Architecture]:
    """By the definition, path by path."""
    scores = []
    for place, path in enumerate(paths):
        distances = []
        for other_place, other in enumerate(paths):
            if place != other_place:
                distances.append(sum(1 for mine, its in zip(path, other, strict=True) if mine != its))
        nearest = sorted(distances)[:neighbours]
        scores.append((-sum(nearest) / len(nearest), place))
    return [paths[place] for _, place in sorted(scores)[:count]]


@pytest.mark.parametrize("seed", range(20))
def test_the_archive_holds_the_paths_that_are_farthest_from_their_nearest(seed: int) -> None:
    rng = random.Random(seed)
    choices = [rng.randint(1, 5) for _ in range(rng.randint(2, 8))]
    paths = [tuple(rng.randrange(count) for count in choices) for _ in range(rng.randint(12, 50))]
    assert nsas.most_novel(paths, 8, 10) == slow_archive(paths, 8, 10)


def test_a_step_follows_half_the_paths_loss_and_half_the_archives_mean(toy_project: Path) -> None:
    method, training = plain_training("nsas", candidates=12, neighbours=3, size=4)
    one_step(method, training, 0)
    before = list(training.memory["earlier"])
    archive = slow_archive(before, 4, 3)
    batch = batch_of(1)

    def loss(path: Architecture) -> Any:
        return training.loss(batch, path)

    expected = stepped(training, lambda path: 0.5 * loss(path) + 0.5 * sum(map(loss, archive)) / 4)
    done = one_step(method, training, 1)
    path, *rest = training.trained
    assert rest == archive and len(done.losses) == done.passes == 5
    for now, then in zip(training.network.parameters(), expected(path), strict=True):
        assert torch.allclose(now, then, atol=1e-6)
    assert training.memory["earlier"] == [*before[1:], path]  # the last ones trained


def test_losses_without_gradient_leave_half_the_paths_own(toy_project: Path) -> None:
    method, training = plain_training("nsas", archive_gradient=False)
    batch = batch_of(0)
    expected = stepped(training, lambda path: 0.5 * training.loss(batch, path))
    done = one_step(method, training, 0)
    [path] = training.trained
    assert done.passes == 1
    for now, then in zip(training.network.parameters(), expected(path), strict=True):
        assert torch.allclose(now, then, atol=1e-6)


def test_on_nasbench201_a_random_and_an_opposite_path_constrain(toy_project: Path) -> None:
    method, training = plain_training("nsas", constraints="random-and-opposite")

    def expected_loss(_: Architecture) -> torch.Tensor:
        losses = torch.stack([training.loss(batch, path) for path in training.trained])
        return (torch.tensor([0.2, 0.4, 0.4]) * losses).sum()

    for step in range(4):
        batch = batch_of(step)
        expected = stepped(training, expected_loss)
        one_step(method, training, step)
        path, _, opposite = training.trained
        assert all(mine != its for mine, its in zip(path, opposite, strict=True))
        for now, then in zip(training.network.parameters(), expected(path), strict=True):
            assert torch.allclose(now, then, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"constraints": "all"}, "allowed: archive, random-and-opposite"),
        ({"size": 60}, "method.size must be 1 to method.candidates"),
        ({"weight": 1.0}, "method.weight must be from 0 to below 1"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfiguration, match=message):
        nsas.NSAS(**options)
