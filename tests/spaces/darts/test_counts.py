"""Parameters and multiply-adds: published figures, the real modules, torch's own counter, and any size."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from harness.components.registries import SPACES
from harness.components.space import network_settings
from harness.errors import InvalidConfiguration
from tests.spaces.darts.test_space import PUBLISHED

SPACE: Any = SPACES.get("darts")()
WITH_NONE: Any = SPACES.get("darts-none")()


def sized(space: Any = SPACE, size: int = 8, classes: int = 10, channels: int = 3, **network: Any) -> Any:
    own = space.Network(**{"width": 2, "depth": 3, **network})
    return network_settings(space.alone(own), classes=classes, image_channels=channels, image_size=size)


def counted(space: Any, architecture: Any, settings: Any) -> tuple[int, int]:
    """The parameters of the modules, and half of what torch counts when they run."""
    network = space.standalone(architecture, settings).eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network(torch.zeros(1, settings.image_channels, settings.image_size, settings.image_size))
    return sum(one.numel() for one in network.parameters()), counter.get_total_flops() // 2


def test_the_published_network() -> None:
    """DARTS_V2 at 36 channels and 20 cells; its auxiliary head is not counted."""
    one, settings = SPACE.parse(PUBLISHED), sized(size=32, width=36, depth=20)
    assert SPACE.complexity(one) == 3_349_342 and SPACE.complexity(one, "flops") == 528_359_040
    assert sum(each.numel() for each in SPACE.standalone(one, settings).parameters()) == 3_349_342


def test_the_published_supernet() -> None:
    """DARTS logs 1.930618 M parameters at 16 channels and 8 cells; its stem has scales and shifts, 96 in all."""
    network = WITH_NONE.supernet(network_settings(WITH_NONE.Network()))
    assert sum(one.numel() for one in network.parameters()) == 1_930_618 - 96


@pytest.mark.parametrize(
    ("space", "settings", "architectures"),
    [
        (SPACE, sized(), 4),
        (WITH_NONE, sized(WITH_NONE), 3),
        (SPACE, sized(size=9, classes=3, channels=1, width=3, depth=5), 3),
        pytest.param(SPACE, sized(size=32, width=16, depth=8), 100, marks=pytest.mark.long),
    ],
    ids=["seven", "eight", "other size", "many"],
)
def test_lookups_equal_the_modules_and_torchs_counter_halved(space: Any, settings: Any, architectures: int) -> None:
    rng = random.Random(1)
    for one in [space.sample(rng) for _ in range(architectures)]:
        looked_up = tuple(space.complexity(one, count, settings) for count in ("parameters", "flops"))
        assert looked_up == counted(space, one, settings)


def test_the_auxiliary_head_is_not_counted() -> None:
    plain, headed = sized(), sized(auxiliary=True)
    one = SPACE.sample(random.Random(0))
    assert SPACE.complexity(one, "parameters", plain) == SPACE.complexity(one, "parameters", headed)


@pytest.mark.parametrize("count", ["parameters", "flops"])
@pytest.mark.parametrize("inputs", ["two", "all"])
def test_extremes_are_found_without_listing(count: str, inputs: str) -> None:
    space = SPACE.at(replace(sized(), inputs=inputs))
    least, smallest, greatest, largest = space.extremes(count)
    assert (least, greatest) == (space.complexity(smallest, count), space.complexity(largest, count))
    assert space.count_range(count, replace(sized(), inputs=inputs)) == (least, greatest)
    # No change of a node leads further, whichever inputs it takes.
    for layer, end in itertools.product(space.layers, (smallest, largest)):
        for pair, one, other in itertools.product(range(space.choices[layer[0]]), range(7), range(7)):
            changed = list(end)
            changed[layer[0] : layer[-1] + 1] = [pair, *([one, other] * 3)[: len(layer) - 1]]
            assert least <= space.complexity(tuple(changed), count) <= greatest


def test_all_edges_count_in_training_and_two_per_node_in_searches() -> None:
    """CaLR sees what is trained; limits see the network that would be retrained."""
    settings = network_settings(SPACE.Network(width=2, depth=3, inputs="all"), image_size=8)
    every = SPACE.at(settings)
    path = every.sample(random.Random(0))
    network = every.supernet(settings).train()
    network(torch.randn(4, 3, 8, 8), path).sum().backward()
    ran = {
        name.split(".")[3]
        for name, one in network.named_parameters()
        if one.grad is not None and name.startswith("cells.0.op")
    }
    convolutions = [decision for decision in range(18) if decision in every.operation_decisions and path[decision] > 2]
    assert len(ran) == len(convolutions) > 4
    alone = network_settings(every.alone(SPACE.Network(width=2, depth=3, inputs="all")), image_size=8)
    assert every.counted(path, "parameters", alone) == SPACE.complexity(path, "parameters", sized())
    assert every.complexity(path) > SPACE.complexity(path, "parameters", sized())


def test_an_unknown_count_is_refused() -> None:
    with pytest.raises(InvalidConfiguration, match="complexity 'weight' is unknown; allowed: parameters, flops"):
        SPACE.complexity((0,) * 36, "weight")
