"""The parameters that a space says belong to one choice have gradients in paths with that choice, and in no others."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from harness.components.registries import SPACES
from harness.components.space import network_settings


@pytest.mark.parametrize(
    ("name", "settings", "with_parameters"),
    [
        ("nasbench201", {"width": 4, "depth": 2}, 6 * 2),
        ("mobilenet-reduced", {"width_multiplier": 0.25}, 7 * 4 + 2),  # layer 1 has one kernel, the others two
    ],
)
def test_parameters_of_an_operation_are_trained_by_its_paths_alone(
    name: str, settings: dict[str, Any], with_parameters: int
) -> None:
    space = SPACES.get(name)()
    network = space.supernet(network_settings(space.Network(**settings), classes=3, image_channels=3, image_size=16))
    owned = space.operation_parameters(network)
    everything = {id(parameter) for parameter in network.parameters()}
    listed = [id(parameter) for parameters in owned.values() for parameter in parameters]
    assert len(owned) == with_parameters and len(listed) == len(set(listed)) and set(listed) < everything
    rng, trained = random.Random(3), set()
    for _ in range(12):
        path = space.sample(rng)
        network.zero_grad()
        network(torch.randn(2, 3, 16, 16), path).square().sum().backward()
        active = {key for key, own in owned.items() if any(parameter.grad is not None for parameter in own)}
        assert active <= set(enumerate(path))
        trained |= active
    assert len(trained) > with_parameters * 0.6
