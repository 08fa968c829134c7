"""Half precision: an option that changes a trial only where it is used, and a scale that follows the gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from harness.components.dataset import DataSet
from harness.components.discovery import component
from harness.data.loader import DeviceLoader
from harness.errors import InvalidConfiguration
from harness.study.configuration import RunConfig
from harness.study.trial import Trial
from harness.training.precision import arithmetic, evaluating, fix_arithmetic, make_scaler
from harness.training.separation import SeparatedMomentum
from harness.training.stages.train import build_supernets, prepare

SGD: Any = component("methods.optimisers").SGD
AdamW: Any = component("methods.optimisers").AdamW
FIRST_SCALE, PATIENCE = 2.0**16, 2000
"""As torch has them."""


def configuration(**training: Any) -> RunConfig:
    return RunConfig.from_json({"network": {"width": 4, "depth": 1}, "train": {"batch_size": 32, **training}})


def test_full_precision_leaves_configurations_and_keys_as_they_were() -> None:
    plain, named = configuration(), configuration(precision="float32")
    assert "precision" not in plain.json()["train"]
    assert Trial(plain).key == Trial(named).key


def test_half_precision_is_another_trial_that_can_be_read_back() -> None:
    half = configuration(precision="bfloat16")
    assert half.json()["train"]["precision"] == "bfloat16"
    assert Trial(half).key != Trial(configuration()).key
    assert RunConfig.from_json(half.json()) == half


def test_other_precisions_are_refused() -> None:
    with pytest.raises(InvalidConfiguration, match="float32, tf32, bfloat16, float16"):
        configuration(precision="float8")
    with pytest.raises(InvalidConfiguration, match=r"rank\.precision is 'float8'"):
        RunConfig.from_json({"rank": {"precision": "float8"}})


def test_evaluations_in_tf32_leave_the_products_of_training_as_they_were() -> None:
    fix_arithmetic()
    with evaluating("tf32", torch.device("cpu")):
        assert arithmetic().startswith("products tf32, convolutions tf32")
    assert arithmetic().startswith("products ieee, convolutions ieee")
    with evaluating("bfloat16", torch.device("cpu")):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_trains_close_to_full(precision: str, few_digits: DataSet) -> None:
    losses = {}
    for kind in ("float32", precision):
        config = configuration(precision=kind)
        supernets = build_supernets(config, few_digits)
        loader = DeviceLoader(few_digits.train, few_digits, 32, 0)
        _, (training,) = prepare(config, supernets, loader.steps_per_epoch)
        assert training.momentum.scaler.is_enabled() == (kind == "float16")
        losses[kind] = [float(training.descend(loader.batch(0), [(3, 2, 1, 3, 4, 2)], step)) for step in range(4)]
        assert all(parameter.dtype == torch.float32 for parameter in supernets.networks[0].parameters())
    # Eight bits of mantissa.
    assert losses[precision] == pytest.approx(losses["float32"], rel=0.03)
    assert losses[precision] != losses["float32"]


def two(settings: Any) -> tuple[SeparatedMomentum, SeparatedMomentum]:
    """The same parameters twice, once with scaled gradients."""
    made = []
    for _ in range(2):
        torch.manual_seed(0)
        made.append(SeparatedMomentum([torch.nn.Parameter(torch.randn(3, 4)) for _ in range(3)], settings))
    made[1].scaler = make_scaler("float16")
    return made[0], made[1]


def give(momentum: SeparatedMomentum, gradients: list[Tensor | None]) -> None:
    for parameter, gradient in zip(momentum.parameters, gradients, strict=True):
        parameter.grad = None if gradient is None else momentum.scaler.scale(gradient)


@pytest.mark.parametrize(
    "settings",
    [
        SGD(momentum=0.9, nesterov=True, clip=1.0),
        SGD(momentum=0.9, nesterov=False, clip_value=0.5),
        SGD(momentum=0.0, clip=1.0),
        AdamW(clip=1.0),
    ],
)
def test_scaled_gradients_make_the_same_steps(settings: Any) -> None:
    plain, scaled = two(settings)
    for step in range(5):
        torch.manual_seed(step)
        gradients: list[Tensor | None] = [torch.randn(3, 4), None if step % 2 else torch.randn(3, 4), torch.randn(3, 4)]
        for one in (plain, scaled):
            give(one, gradients)
            one.step(step % 2, 0.1)
    for left, right in zip(plain.parameters, scaled.parameters, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-5, atol=1e-6)


def test_a_step_that_overflows_is_left_out_and_halves_the_scale() -> None:
    _, scaled = two(SGD())
    give(scaled, [torch.ones(3, 4)] * 3)
    scaled.step(0, 0.1)
    before = [parameter.detach().clone() for parameter in scaled.parameters]
    buffers = [scaled.of(0).state[parameter]["momentum_buffer"].clone() for parameter in scaled.parameters]
    give(scaled, [torch.full((3, 4), float("inf")), torch.ones(3, 4), None])
    scaled.step(0, 0.1)
    for parameter, weight, buffer in zip(scaled.parameters, before, buffers, strict=True):
        assert torch.equal(parameter, weight)
        assert torch.equal(scaled.of(0).state[parameter]["momentum_buffer"], buffer)
    assert scaled.scaler.get_scale() == FIRST_SCALE / 2


def test_good_steps_double_the_scale_and_it_is_part_of_the_state() -> None:
    _, scaled = two(SGD())
    scaled.scaler.load_state_dict(scaled.scaler.state_dict() | {"_growth_tracker": PATIENCE - 1})
    give(scaled, [torch.ones(3, 4)] * 3)
    scaled.step(0, 0.1)
    assert scaled.scaler.get_scale() == 2 * FIRST_SCALE
    _, again = two(SGD())
    again.restore(scaled.state())
    assert again.scaler.get_scale() == 2 * FIRST_SCALE


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_other_code_may_read_the_settings_of_products(precision: str) -> None:
    """Torch has two interfaces for them, and raises where both were used."""
    try:
        fix_arithmetic(precision)
        coarse = precision == "tf32"
        assert torch.backends.cudnn.allow_tf32 is coarse and torch.backends.cuda.matmul.allow_tf32 is coarse
        assert torch.get_float32_matmul_precision() == ("high" if coarse else "highest")
        with torch.backends.cudnn.flags(enabled=True):
            assert (torch.backends.cuda.matmul.fp32_precision == "tf32") is coarse
    finally:
        fix_arithmetic()


def test_arithmetic_is_fixed_and_only_tf32_makes_products_coarser() -> None:
    try:
        fix_arithmetic()
        assert arithmetic() == "products ieee, convolutions ieee, cuDNN deterministic"
        fix_arithmetic("tf32")
        assert arithmetic() == "products tf32, convolutions tf32, cuDNN deterministic"
        fix_arithmetic("bfloat16")
        assert arithmetic() == "products ieee, convolutions ieee, cuDNN deterministic"
    finally:
        fix_arithmetic()
    plain, coarse = configuration(), configuration(precision="tf32")
    assert Trial(coarse).key != Trial(plain).key
