"""Optional abilities of supernets: who offers them, and that they compute what the plain forward does."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from harness.components.discovery import component
from harness.components.registries import SPACES
from harness.components.space import NetworkSettings
from harness.components.supernet import (
    Calibrated,
    Compiled,
    Gated,
    Mixture,
    SharedEvaluation,
    TwiceDifferentiable,
    offered,
)
from harness.errors import InvalidConfiguration

SPACE = SPACES.get("nasbench201")()


def supernet() -> Any:
    torch.manual_seed(0)
    return SPACE.supernet(NetworkSettings(width=4, depth=1, image_size=8))


def test_nasbench201_offers_all_but_calibration() -> None:
    network = supernet()
    for ability in (SharedEvaluation, Mixture, Gated, TwiceDifferentiable, Compiled):
        assert isinstance(network, ability) and offered(network, ability, "a test") is network
    assert not isinstance(network, Calibrated)


def test_a_missing_ability_is_named() -> None:
    with pytest.raises(InvalidConfiguration, match=r"gdas needs a supernet with the method forward_mixed \(Mixture"):
        offered(nn.Linear(1, 1), Mixture, "gdas")


def test_one_hot_weights_give_the_path() -> None:
    network = supernet().double()
    x, rng = torch.randn(16, 3, 8, 8, dtype=torch.double), random.Random(1)
    for architecture in [(0,) * 6, (3, 0, 1, 4, 2, 3), *(SPACE.sample(rng) for _ in range(10))]:
        weights = [functional.one_hot(torch.tensor(choice), 5).double() for choice in architecture]
        assert torch.allclose(network.forward_mixed(x, weights), network(x, architecture), atol=1e-8)


@pytest.mark.parametrize("batch_norm", ["batch-statistics", "tracked"])
def test_the_mixture_is_the_sum_over_edges_and_operations(batch_norm: str) -> None:
    torch.manual_seed(0)
    network: Any = SPACE.supernet(NetworkSettings(width=4, depth=1, image_size=8, batch_norm=batch_norm)).double()
    x, weights = torch.randn(16, 3, 8, 8, dtype=torch.double), torch.rand(6, 5, dtype=torch.double, requires_grad=True)
    looped = component("spaces.nasbench201.mixture").looped
    plain = network._through(x, lambda cell, x: looped(cell, x, weights))
    assert torch.allclose(network.forward_mixed(x, weights.unbind()), plain, atol=1e-8)
    kernel = network.blocks[2].convolutions["4_3"].convolution.weight
    expected = torch.autograd.grad(plain.square().sum(), (weights, kernel))
    found = torch.autograd.grad(network.forward_mixed(x, weights.unbind()).square().sum(), (weights, kernel))
    assert all(map(torch.allclose, found, expected))


def test_gates_weight_one_path_and_get_the_mixtures_gradient_of_its_choices() -> None:
    network, architecture = supernet().double(), (3, 4, 1, 2, 0, 3)
    x, gates = torch.randn(16, 3, 8, 8, dtype=torch.double), torch.ones(6, dtype=torch.double, requires_grad=True)
    assert torch.allclose(network.forward_gated(x, architecture, gates), network(x, architecture))
    one_hot = functional.one_hot(torch.tensor(architecture), 5).double().requires_grad_()
    network.forward_mixed(x, one_hot.unbind()).square().sum().backward()
    network.forward_gated(x, architecture, gates).square().sum().backward()
    assert one_hot.grad is not None and gates.grad is not None
    assert torch.allclose(gates.grad, one_hot.grad[torch.arange(6), architecture])
    assert bool((gates.grad[[0, 1, 2, 3, 5]] != 0).all())


def test_weights_of_the_mixture_are_learnt_through_it() -> None:
    network = supernet()
    weights = torch.full((6, 5), 0.2, requires_grad=True)
    network.forward_mixed(torch.randn(8, 3, 8, 8), weights.unbind()).square().sum().backward()
    assert weights.grad is not None
    assert bool((weights.grad[:, 1:] != 0).all()) and bool((weights.grad[:, 0] == 0).all())  # none adds nothing


def test_second_derivatives_exist_within_the_context_only() -> None:
    network, x, architecture = supernet(), torch.randn(8, 3, 8, 8), (3, 2, 3, 1, 3, 2)
    parameter = network.blocks[0].convolutions["0_3"].convolution.weight

    def curvature() -> Any:
        loss = network(x, architecture).square().mean()
        (gradient,) = torch.autograd.grad(loss, parameter, create_graph=True)
        (second,) = torch.autograd.grad(gradient.square().sum(), parameter)
        return second

    with network.twice_differentiable():
        assert not network.swift and bool(curvature().abs().sum() > 0)
    assert network.swift
    with pytest.raises(RuntimeError):
        curvature()
