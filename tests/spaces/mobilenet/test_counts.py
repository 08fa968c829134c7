"""Parameters and multiply-adds: published figures, the real modules, torch's own counter, and any size."""

from __future__ import annotations

import random
import statistics
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from harness.components.registries import SPACES
from harness.components.space import Architecture, network_settings
from harness.errors import InvalidConfiguration

SPACE: Any = SPACES.get("mobilenet")()
REDUCED: Any = SPACES.get("mobilenet-reduced")()
MAY_SKIP = [count == 7 for count in SPACE.choices]


def sized(space: Any, size: int = 32, classes: int = 10, channels: int = 3, **network: Any) -> Any:
    return network_settings(space.Network(**network), classes=classes, image_channels=channels, image_size=size)


def millions(architecture: Architecture, width: int) -> tuple[str, str]:
    space = SPACE.at(SPACE.Network(stage1_width=width))
    parameters, flops = (space.complexity(architecture, count) / 1e6 for count in ("parameters", "flops"))
    return f"{parameters:.3f}", f"{flops:.1f}"


@pytest.mark.parametrize(
    ("architecture", "narrow", "wide"),
    [
        (tuple(6 if skips else 0 for skips in MAY_SKIP), ("2.155", "102.5"), ("2.158", "108.9")),
        ((0,) * 21, ("3.192", "257.4"), ("3.204", "291.1")),
        ((1,) * 21, ("4.685", "472.6"), ("4.709", "539.9")),
        ((5,) * 21, ("5.103", "606.6"), ("5.135", "693.5")),
    ],
    ids=["all skips", "all 3x3e3", "all 3x3e6", "all 7x7e6"],
)
def test_known_networks_at_224_pixels(architecture: Architecture, narrow: Any, wide: Any) -> None:
    assert millions(architecture, 24) == narrow and millions(architecture, 32) == wide


def test_the_released_network_of_proxylessnas() -> None:
    """Proxyless-Mobile is published with 4.08 M parameters and 320.4 M multiply-adds."""
    text = (
        "5x5_MBConv3 3x3_MBConv3 Zero Zero 7x7_MBConv3 3x3_MBConv3 5x5_MBConv3 5x5_MBConv3 7x7_MBConv6 5x5_MBConv3 "
        "5x5_MBConv3 5x5_MBConv3 5x5_MBConv6 5x5_MBConv3 5x5_MBConv3 5x5_MBConv3 7x7_MBConv6 7x7_MBConv6 7x7_MBConv3 "
        "7x7_MBConv3 7x7_MBConv6"
    )
    assert millions(SPACE.parse(text), 32) == ("4.081", "320.4")


@pytest.mark.parametrize(("width", "parameters", "flops"), [(24, 3.86e6, 373e6), (32, 3.88e6, 425e6)])
def test_the_median_of_random_architectures(width: int, parameters: float, flops: float) -> None:
    space, rng = SPACE.at(SPACE.Network(stage1_width=width)), random.Random(0)
    drawn = [space.sample(rng) for _ in range(3000)]
    for count, expected in (("parameters", parameters), ("flops", flops)):
        assert statistics.median(space.complexity(one, count) for one in drawn) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(("width", "millions"), [(24, "16.03"), (32, "16.16")])
def test_the_supernets_parameters(width: int, millions: str) -> None:
    network = SPACE.supernet(sized(SPACE, 224, 1000, stage1_width=width))
    assert f"{sum(one.numel() for one in network.parameters()) / 1e6:.2f}" == millions


class Counting:
    """Counts parameters and multiply-adds of the modules of a supernet as they run."""

    def __init__(self, network: nn.Module) -> None:
        self.network, self.parameters, self.flops = network, 0, 0
        for module in network.modules():
            if not list(module.children()):
                module.register_forward_hook(self.run)

    def run(self, module: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        self.parameters += sum(one.numel() for one in module.parameters())
        if isinstance(module, nn.Conv2d):
            self.flops += module.weight.numel() * output.shape[2] * output.shape[3]

    def count(self, architecture: Architecture, settings: Any) -> tuple[int, int]:
        self.parameters = self.flops = 0
        with torch.no_grad():
            self.network(
                torch.zeros(1, settings.image_channels, settings.image_size, settings.image_size), architecture
            )
        return self.parameters, self.flops


@pytest.mark.parametrize(
    ("space", "settings", "architectures"),
    [
        (SPACE, sized(SPACE, 224, 1000), 5),
        (SPACE, sized(SPACE, 32, 10), 95),
        (SPACE, sized(SPACE, 35, 37, stage1_width=32, width_multiplier=0.5, squeeze=0.25), 50),
        (REDUCED, sized(REDUCED, 16), 50),
        (REDUCED, sized(REDUCED, 9, 3, 1, width_multiplier=1.5), 50),
    ],
    ids=["published", "small images", "other size", "reduced", "reduced, other size"],
)
def test_lookups_equal_the_modules_that_run(space: Any, settings: Any, architectures: int) -> None:
    network, rng = Counting(space.supernet(settings).eval()), random.Random(1)
    for architecture in [space.sample(rng) for _ in range(architectures)]:
        looked_up = tuple(space.complexity(architecture, count, settings) for count in ("parameters", "flops"))
        assert looked_up == network.count(architecture, settings)


@given(st.integers(0, 2**32), st.integers(1, 70), st.integers(1, 40), st.sampled_from([0.0, 0.25]), st.booleans())
@settings(deadline=None, max_examples=8)
def test_lookups_equal_torchs_counter_halved(seed: int, size: int, classes: int, squeeze: float, small: bool) -> None:
    space = REDUCED if small else SPACE
    wanted, architecture = sized(space, size, classes, squeeze=squeeze), space.sample(random.Random(seed))
    network = space.standalone(architecture, wanted).eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network(torch.zeros(1, 3, size, size))
    sized_space = space.at(wanted)
    assert sized_space.complexity(architecture, "flops") == counter.get_total_flops() // 2
    assert sized_space.complexity(architecture) == sum(one.numel() for one in network.parameters())


@pytest.mark.parametrize("count", ["parameters", "flops"])
def test_extremes_are_found_without_listing(count: str) -> None:
    least, smallest, greatest, largest = SPACE.extremes(count)
    assert smallest == tuple(6 if skips else 0 for skips in MAY_SKIP) and largest == (5,) * 21
    assert (least, greatest) == (SPACE.complexity(smallest, count), SPACE.complexity(largest, count))
    listed = [REDUCED.complexity(one, count) for one in REDUCED]
    assert REDUCED.complexity_range(count) == (min(listed), max(listed))


def test_counts_are_those_of_the_settings_that_the_space_is_at() -> None:
    small = sized(SPACE, 32, 10)
    assert SPACE.at(small).complexity((0,) * 21, "flops") == SPACE.complexity((0,) * 21, "flops", small)
    assert SPACE.at(small).complexity_range("flops")[1] < SPACE.complexity_range("flops")[1]
    copies = replace(small, copies=3)  # counts are of one network
    assert SPACE.at(copies).complexity((0,) * 21) == SPACE.at(small).complexity((0,) * 21)
    with pytest.raises(InvalidConfiguration, match="complexity 'weight' is unknown; allowed: parameters, flops"):
        SPACE.complexity((0,) * 21, "weight")
