"""Parameters and multiply-adds by formula: published numbers, and the networks themselves."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from harness.components.discovery import component
from harness.components.registries import SPACES
from harness.components.space import network_settings
from harness.errors import InvalidConfiguration

layout: Any = component("spaces.autoformer.layout")
SPACE: Any = SPACES.get("autoformer")()
REDUCED: Any = SPACES.get("autoformer-reduced")()

AUTOFORMER_T = layout.Transformer(
    embedding=192,
    heads=(3,) * 10 + (4, 3, 3),
    ratios=(3.5, 3.5, 3.0, 3.5, 3.0, 3.0, 4.0, 4.0, 3.5, 4.0, 3.5, 4.0, 3.5),
)
"""The published network. Its MLP ratio of 3 is not a choice of the space."""


def test_published_numbers() -> None:
    least, smallest, greatest, largest = SPACE.extremes()
    assert (least, greatest) == (5_366_056, 10_517_272)
    assert SPACE.counted_sizes(AUTOFORMER_T) == 5_867_944
    assert SPACE.counted_sizes(AUTOFORMER_T, "flops") / 1e9 == pytest.approx(1.3, abs=0.05)  # 1.3 G published
    assert smallest == (0,) * 30 and largest == (2, 2, *(1,) * 28)


@pytest.mark.parametrize(
    "network", [{}, {"patch_size": 2, "relative_distance": 2, "pooling": "class-token"}, {"relative_distance": 0}]
)
def test_formulas_are_those_of_the_networks(network: dict[str, Any]) -> None:
    settings = network_settings(REDUCED.Network(**network), classes=7, image_channels=1, image_size=8)
    space, rng = REDUCED.at(settings), random.Random(1)
    for _ in range(70):
        one = space.sample(rng)
        assert space.complexity(one) == sum(p.numel() for p in space.standalone(one, settings).parameters())
    least, smallest, greatest, largest = space.extremes("flops")
    rest = {space.complexity(space.sample(rng), "flops") for _ in range(50)}
    assert least <= min(rest) and max(rest) <= greatest
    for one in (smallest, largest):
        assert space.complexity(one, "flops") == multiply_adds(space.standalone(one, settings), settings)


def test_whole_networks_have_the_counted_parameters() -> None:
    settings = SPACE.settings
    # On this device networks have shapes and no numbers.
    with torch.device("meta"):
        for one in SPACE.distinct(200, random.Random(0)):
            network = SPACE.standalone(one, settings)
            assert SPACE.complexity(one) == sum(p.numel() for p in network.parameters())
        released = SPACE.supernet(settings)
    assert sum(p.numel() for p in released.parameters()) == 11_669_224


def multiply_adds(network: torch.nn.Module, settings: Any) -> int:
    """Half of what torch counts, and what it does not know: products that are added in place."""
    in_place = {torch.ops.aten.baddbmm_: lambda whole, a, b, **other: 2 * a[0] * a[1] * a[2] * b[2]}
    images = torch.zeros(1, settings.image_channels, settings.image_size, settings.image_size)
    with FlopCounterMode(display=False, custom_mapping=in_place) as counter:
        network.eval()(images)
    return int(counter.get_total_flops()) // 2


def test_unknown_counts_and_patches_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidConfiguration, match="complexity 'latency' is unknown; allowed: parameters, flops"):
        SPACE.complexity(SPACE.extremes()[1], "latency")
    settings = network_settings(SPACE.Network(patch_size=16), classes=10, image_channels=3, image_size=40)
    with pytest.raises(InvalidConfiguration, match="network.patch_size is 16, which does not divide the images' side"):
        SPACE.at(settings).extremes()
