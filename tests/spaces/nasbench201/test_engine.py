"""The supernet's engine against its plain modules, and each of its kernels against torch's own."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from harness.components.dataset import DataSet
from harness.components.discovery import component
from harness.components.registries import SPACES
from harness.components.space import Architecture, NetworkSettings
from harness.data.loader import DeviceLoader
from harness.study.configuration import RunConfig
from harness.training.stages.train import build_supernets, make_step, prepare

cell = component("spaces.nasbench201.cell")
evaluation = component("spaces.nasbench201.evaluation")
kernels = component("spaces.nasbench201.kernels")
SPACE = SPACES.get("nasbench201")()

architectures = st.tuples(*[st.integers(0, 4)] * 6)
WHOLE = (3, 2, 3, 4, 2, 3)
ROUNDING = 1e-5
"""What float32 may be off, relative to the largest value: other orders of the same sums."""


def images(batch: int, channels: int, side: int, width: int | None = None) -> Tensor:
    x = torch.randn(batch, channels, side, width or side)
    return x.contiguous(memory_format=torch.channels_last)


def distance(found: Tensor, right: Tensor) -> float:
    found, right = found.detach(), right.detach()
    return float((found.double() - right.double()).abs().max() / right.abs().max().clamp(min=1e-3))


# --- kernels ------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("kind", "channels", "outputs", "side", "kernel", "stride"),
    [
        ("Dense", 1, 4, 8, 3, 1),
        ("Dense", 4, 8, 8, 3, 2),
        ("Dense", 4, 8, 7, 3, 2),
        ("Dense", 16, 16, 2, 3, 1),
        ("Dense", 8, 3, 1, 3, 1),
        ("Pointwise", 8, 16, 4, 1, 1),
        ("Pointwise", 16, 16, 8, 1, 1),
        ("Direct", 4, 4, 16, 3, 1),
        ("Direct", 8, 16, 16, 3, 2),
        ("Direct", 4, 4, 16, 1, 1),
    ],
)
def test_every_way_to_convolve_is_a_convolution(
    kind: str, channels: int, outputs: int, side: int, kernel: int, stride: int, bias: bool
) -> None:
    torch.manual_seed(0)
    x = images(5, channels, side).requires_grad_()
    weight = nn.Parameter(torch.randn(outputs, channels, kernel, kernel).contiguous(memory_format=torch.channels_last))
    offset = nn.Parameter(torch.randn(outputs)) if bias else None
    way = kernels.way(weight.shape, channels, side, side, stride, bias)
    assert type(way).__name__ == kind
    right = functional.conv2d(x, weight, offset, stride, kernel // 2)
    gradient = torch.randn_like(right)
    right.backward(gradient)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        found, saved = way.forward(x, weight, offset)
        outer, own, of_bias = way.backward(gradient, x, weight, saved, True)
        assert way.backward(gradient, x, weight, saved, False)[0] is None
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert x.grad is not None and weight.grad is not None
    assert distance(found, right) < ROUNDING
    assert distance(outer, x.grad) < ROUNDING
    assert distance(own, weight.grad) < ROUNDING
    if offset is not None:
        assert offset.grad is not None
        assert distance(of_bias, offset.grad) < ROUNDING


@pytest.mark.parametrize(("channels", "side"), [(4, 8), (16, 32), (8, 3), (1, 1), (5, 9)])
def test_pooling_gives_the_bits_of_torchs_own(channels: int, side: int) -> None:
    torch.manual_seed(0)
    x = images(6, channels, side, side + 1).requires_grad_()
    right = functional.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
    gradient = torch.randn_like(right)
    right.backward(gradient)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        assert torch.equal(kernels.pool(x), right)
        assert x.grad is not None and torch.equal(kernels.pool_backward(gradient, x), x.grad)


@pytest.mark.parametrize(("channels", "side"), [(4, 8), (8, 16), (16, 32), (8, 4), (3, 9)])
def test_halving_is_torchs(channels: int, side: int) -> None:
    torch.manual_seed(0)
    x = images(5, channels, side).requires_grad_()
    right = functional.avg_pool2d(x, 2, 2, ceil_mode=True)
    gradient = torch.randn_like(right)
    right.backward(gradient)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        found = kernels.halve(x)
        assert found.is_contiguous(memory_format=torch.channels_last)
        assert distance(found, right) < ROUNDING
        assert x.grad is not None and torch.equal(kernels.halve_backward(gradient, x), x.grad)


@pytest.mark.parametrize("shape", [(64, 4, 8, 8), (40, 8, 16, 11), (64, 1, 8, 8), (64, 16, 8, 8), (3, 4, 2, 2)])
def test_normalisation_is_torchs(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = images(*shape).mul_(3).add_(7).requires_grad_()
    right = functional.batch_norm(x, None, None, training=True)
    gradient = torch.randn_like(right)
    right.backward(gradient)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        found, saved = kernels.normalise(x.clone())
        assert x.grad is not None
        assert distance(found, right) < ROUNDING
        assert distance(kernels.normalise_backward(gradient, saved), x.grad) < 10 * ROUNDING


# --- the whole network --------------------------------------------------------------------------


Passes = tuple[Tensor, dict[str, Tensor]]


def passes(network: Any, x: Tensor, labels: Tensor, architecture: Architecture) -> Passes:
    """The logits, and the gradients of all parameters that have one."""
    network.zero_grad(set_to_none=True)
    logits: Tensor = network(x, architecture)
    functional.cross_entropy(logits, labels).backward()  # type: ignore[no-untyped-call]
    return logits.detach(), {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}


sizes = st.sampled_from([(4, 1, 8, 1), (4, 2, 8, 3), (8, 1, 16, 3), (2, 1, 9, 1), (16, 1, 8, 3)])


@settings(deadline=None, max_examples=40, derandomize=True)
@given(architecture=architectures, size=sizes, seed=st.integers(0, 99))
@example(architecture=(2, 0, 4, 4, 2, 1), size=(8, 1, 16, 3), seed=83)
def test_the_engine_computes_what_the_modules_do(
    architecture: Architecture, size: tuple[int, int, int, int], seed: int
) -> None:
    """No further from float64 than the modules in float32, give or take: normalisation amplifies the last bit."""
    width, depth, side, channels = size
    torch.manual_seed(seed)
    network: Any = SPACE.supernet(NetworkSettings(width=width, depth=depth, image_size=side, image_channels=channels))
    exact = copy.deepcopy(network).double()
    x, labels = torch.randn(12, channels, side, side), torch.randint(10, (12,))
    logits, gradients = passes(network, x, labels, architecture)
    network.swift = False
    plain_logits, plain_gradients = passes(network, x, labels, architecture)
    exact_logits, exact_gradients = passes(exact, x.double(), labels, architecture)
    assert gradients.keys() == plain_gradients.keys() == exact_gradients.keys()
    assert distance(logits, exact_logits) < 20 * distance(plain_logits, exact_logits) + 1e-4
    scale = max(float(gradient.abs().max()) for gradient in exact_gradients.values())
    for name, right in exact_gradients.items():
        off = float((gradients[name] - right).abs().max()) / scale
        plain = float((plain_gradients[name] - right).abs().max()) / scale
        # A value that is zero but for rounding may pass a ReLU in one way and not in the other: few thousandths.
        assert off < 20 * plain + 1e-2, name


def test_evaluation_computes_what_training_does() -> None:
    torch.manual_seed(0)
    network = SPACE.supernet(NetworkSettings(width=4, depth=1, image_size=8))
    x = torch.randn(64, 3, 8, 8)
    rng = random.Random(0)
    for architecture in [SPACE.sample(rng) for _ in range(20)]:
        with torch.no_grad():
            found = network(x, architecture)
        assert torch.equal(found, network(x, architecture).detach())


def test_a_short_training_stays_with_the_plain_one(few_digits: DataSet) -> None:
    """Rounding grows from step to step; over ten it stays below a thousandth of the loss."""
    losses = []
    for swift in (True, False):
        config = RunConfig.from_json({"network": {"width": 4, "depth": 1}, "train": {"batch_size": 32}})
        supernets = build_supernets(config, few_digits)
        supernets.networks[0].swift = swift  # type: ignore[assignment]
        loader = DeviceLoader(few_digits.train, few_digits, 32, 0)
        method, (training,) = prepare(config, supernets, loader.steps_per_epoch)
        losses.append([float(make_step(method, training, loader.batch(step), step).losses) for step in range(10)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert losses[0][0] == pytest.approx(losses[1][0], rel=1e-5)


@pytest.fixture
def network() -> Any:
    torch.manual_seed(0)
    return SPACE.supernet(NetworkSettings(width=4, depth=1, image_size=8))


def test_only_supernets_without_memory_are_run_by_the_engine(network: Any) -> None:
    assert network.swift
    for norm in ("benchmark", "tracked"):
        assert not SPACE.supernet(NetworkSettings(width=4, depth=1, image_size=8, batch_norm=norm)).swift
    assert not SPACE.supernet(NetworkSettings(width=4, depth=1, image_size=8, copies=2)).swift


def test_gradients_of_images_take_the_plain_way(network: Any) -> None:
    x = torch.randn(4, 3, 8, 8, requires_grad=True)
    network(x, WHOLE).sum().backward()
    assert x.grad is not None and x.grad.abs().sum() > 0


def test_a_functional_call_uses_the_weights_it_is_given(network: Any) -> None:
    x = torch.randn(4, 3, 8, 8)
    others = {name: torch.zeros_like(parameter) for name, parameter in network.named_parameters()}
    assert not torch.func.functional_call(network, others, (x, WHOLE)).any()
    assert network(x, WHOLE).any()


def test_a_copy_has_an_engine_of_its_own(network: Any) -> None:
    x = torch.randn(4, 3, 8, 8)
    before = network(x, WHOLE)
    twin = copy.deepcopy(network)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert torch.equal(network(x, WHOLE), before)
    assert not twin(x, WHOLE).any()


def test_weights_that_change_before_the_gradient_are_noticed(network: Any) -> None:
    loss = network(torch.randn(4, 3, 8, 8), WHOLE).sum()
    with torch.no_grad():
        network.classifier.bias.add_(1)
    with pytest.raises(RuntimeError, match="changed in place"):
        loss.backward()


def test_a_gradient_is_given_once(network: Any) -> None:
    loss = network(torch.randn(4, 3, 8, 8), WHOLE).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="swift = False"):
        loss.backward()
    network.swift = False
    loss = network(torch.randn(4, 3, 8, 8), WHOLE).sum()
    loss.backward(retain_graph=True)
    loss.backward()


def test_frozen_weights_get_no_gradient(network: Any) -> None:
    network.stem.weight.requires_grad_(False)
    network(torch.randn(4, 3, 8, 8), WHOLE).sum().backward()
    assert network.stem.weight.grad is None
    assert network.classifier.weight.grad is not None


# --- many paths on the same images --------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 2])
def test_what_paths_share_changes_no_bit(depth: int) -> None:
    torch.manual_seed(0)
    shared: Any = SPACE.supernet(NetworkSettings(width=4, depth=depth, image_size=8))
    batches = [torch.randn(40, 3, 8, 8), torch.randn(7, 3, 8, 8)]
    rng = random.Random(0)
    asked = [SPACE.sample(rng) for _ in range(60)] + [(0,) * 6, (1,) * 6, (4,) * 6]
    with torch.no_grad():
        logits = shared.evaluation(batches)
        for architecture in asked:
            for number, x in enumerate(batches):
                assert torch.equal(logits(number, architecture), shared(x, architecture)), architecture


@pytest.mark.parametrize("room", [0, 1, 17, 40])
def test_little_room_changes_nothing(network: Any, room: int) -> None:
    batches = [torch.randn(16, 3, 8, 8) for _ in range(2)]
    value = 4 * 16 * 4 * 8 * 8 * len(batches)
    small = evaluation.Evaluation(network.engine, batches, budget=room * value)
    rng = random.Random(0)
    with torch.no_grad():
        for architecture in [SPACE.sample(rng) for _ in range(30)]:
            if cell.live_edges(architecture):
                for number, x in enumerate(batches):
                    assert torch.equal(small.logits(number, architecture), network(x, architecture))
    assert len(small._kept) <= room * len(batches)


def test_supernets_with_memory_are_evaluated_one_path_at_a_time() -> None:
    torch.manual_seed(0)
    tracked: Any = SPACE.supernet(NetworkSettings(width=4, depth=1, image_size=8, batch_norm="tracked")).eval()
    x = torch.randn(16, 3, 8, 8)
    with torch.no_grad():
        assert torch.equal(tracked.evaluation([x])(0, WHOLE), tracked(x, WHOLE))
