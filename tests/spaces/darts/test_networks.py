"""Supernet and stand-alone networks: one function, its gradients, and what is shared between paths."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from harness.components.discovery import component
from harness.components.registries import SPACES
from harness.components.space import network_settings
from harness.components.supernet import Mixture, SharedEvaluation, TwiceDifferentiable
from harness.training.calibration import calibrated

SPACE: Any = SPACES.get("darts")()
WITH_NONE: Any = SPACES.get("darts-none")()
both = pytest.mark.parametrize("space", [SPACE, WITH_NONE], ids=["seven", "eight"])


def sized(space: Any = SPACE, **network: Any) -> Any:
    own = space.Network(**{"width": 2, "depth": 3, **network})
    return network_settings(own, classes=10, image_channels=3, image_size=8)


def supernet(space: Any = SPACE, **network: Any) -> Any:
    torch.manual_seed(0)
    return space.supernet(sized(space, **network))


def images(count: int = 6) -> torch.Tensor:
    return torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def paths(space: Any, count: int) -> list[tuple[int, ...]]:
    rng = random.Random(2)
    return [space.sample(rng) for _ in range(count)]


@both
@pytest.mark.parametrize("batch_norm", ["batch-statistics", "running"])
def test_a_path_is_the_stand_alone_network_in_the_form_for_search(space: Any, batch_norm: str) -> None:
    network = supernet(space, batch_norm=batch_norm).eval()
    weights = network.state_dict()
    for path in paths(space, 4):
        alone = space.standalone(path, sized(space, batch_norm=batch_norm)).eval()
        alone.load_state_dict({name: weights[name] for name in alone.state_dict()})
        assert torch.equal(alone(images()), network(images(), path))


def test_stand_alone_networks_have_no_normalised_pools_but_scales_and_statistics() -> None:
    path = (0,) * 36  # nothing but pools
    alone = SPACE.standalone(path, sized(batch_norm="tracked"))
    assert all(norm.affine and norm.track_running_stats for norm in alone.modules() if isinstance(norm, nn.BatchNorm2d))
    assert not any("operations" in name for name in alone.state_dict())
    assert SPACE.alone(SPACE.Network(inputs="all")) == SPACE.Network(batch_norm="tracked")
    network = supernet(batch_norm="tracked").train()
    before = network.cells[0].operations["0_max_pool_3x3"].norm.running_mean.clone()
    network(images(), path)
    assert not torch.equal(before, network.cells[0].operations["0_max_pool_3x3"].norm.running_mean)


def test_its_abilities() -> None:
    for ability in (Mixture, SharedEvaluation, TwiceDifferentiable):
        assert isinstance(supernet(), ability)


@both
def test_one_hot_weights_give_the_path(space: Any) -> None:
    network = supernet(space).double()
    for path in paths(space, 2):
        hot = [functional.one_hot(torch.tensor(one), n).double() for one, n in zip(path, space.choices, strict=True)]
        assert torch.allclose(network.forward_mixed(images().double(), hot), network(images().double(), path))


def test_weights_of_the_mixture_are_learnt_through_it() -> None:
    network = supernet(WITH_NONE)
    weights = [torch.full((count,), 1 / count, requires_grad=True) for count in WITH_NONE.choices]
    network.forward_mixed(images(), weights).square().sum().backward()
    for decision, own in enumerate(weights):
        assert own.grad is not None
        operation = decision in WITH_NONE.operation_decisions
        assert bool((own.grad[int(operation) :] != 0).all()) and bool(own.grad[0] == 0) == operation  # none: nothing


def test_pairs_that_weigh_alike_give_all_edges_the_weight_one() -> None:
    """The mixture of DARTS, where nodes sum all their edges, is the path of a step that runs all of them."""
    every = supernet(inputs="all", depth=3).train()
    path = tuple(random.Random(0).randrange(count) for count in SPACE.choices)
    hot = [functional.one_hot(torch.tensor(one), n).float() for one, n in zip(path, SPACE.choices, strict=True)]
    for layer in SPACE.layers:
        hot[layer[0]] = torch.full((SPACE.choices[layer[0]],), 1 / (len(layer) - 2))
    torch.testing.assert_close(every.forward_mixed(images(), hot), every(images(), path), atol=1e-4, rtol=1e-4)
    network = supernet(depth=3).train()
    assert not torch.allclose(network(images(), path), every(images(), path))
    assert torch.equal(network.eval()(images(), path), every.eval()(images(), path))  # evaluation takes two


def test_what_is_shared_in_evaluation_has_the_same_bits() -> None:
    network = supernet(depth=6).eval()  # two normal cells, then a reduction
    module = component("spaces.darts.evaluation")
    batches = [images(5), images(7)]
    drawn = paths(SPACE, 4)
    drawn += [(*drawn[0][:18], *one[18:]) for one in drawn[1:3]]  # the same normal cell
    for budget in (1 << 24, 4000, 0):
        evaluation = module.Evaluation(network, batches, budget)
        for path in (*drawn, *drawn):
            for number, batch in enumerate(batches):
                with torch.no_grad():
                    assert torch.equal(evaluation.logits(number, path), network(batch, path))
        assert evaluation._edges.room >= 0
    shared, calls = network.evaluation(batches), []
    network.cells[1].register_forward_hook(lambda *_: calls.append(1))
    network.cells[0].operations["0_sep_conv_3x3"].register_forward_hook(lambda *_: calls.append(2))
    path = SPACE.canonical((0, 3, *(0,) * 34))
    for reduction in (0, 1, 2):
        shared(0, (*path[:19], reduction, *path[20:]))
    assert calls.count(2) == 1


@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("channels", "side"), [(3, 9), (16, 16), (16, 8), (2, 4)])
def test_gradients_of_depthwise_convolutions(kernel: int, dilation: int, stride: int, channels: int, side: int) -> None:
    own = component("spaces.darts.operations").Depthwise(channels, kernel, stride, dilation)
    x = torch.randn(2, channels, side, side).contiguous(memory_format=torch.channels_last).requires_grad_()
    found = []
    for swift in (True, False):
        own.swift = swift
        y = own(x)
        found.append([y, *torch.autograd.grad(y.square().sum(), [x, own.weight])])
    for ours, plain in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain, atol=1e-3, rtol=1e-4)


def test_second_derivatives_exist_within_the_context() -> None:
    network, path = supernet(), (0, 5, 6, *(3,) * 15, *(0,) * 18)
    path = tuple(min(one, count - 1) for one, count in zip(path, SPACE.choices, strict=True))
    weight = network.cells[0].operations["0_dil_conv_3x3"].depthwise[0].weight

    def curvature() -> Any:
        (gradient,) = torch.autograd.grad(network(images(), path).square().mean(), weight, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), weight)[0]

    with network.twice_differentiable():
        assert bool(curvature().abs().sum() > 0)
    with pytest.raises(RuntimeError):
        curvature()


def test_calibration_gives_a_path_statistics_of_its_own() -> None:
    network, (path,) = supernet(batch_norm="running").eval(), paths(SPACE, 1)
    alone = supernet().eval()  # statistics of the batch
    with calibrated(network, path, [images(64)]), torch.no_grad():
        ours, theirs = network(images(64), path), alone(images(64), path)
        assert torch.allclose(ours, theirs, atol=0.2)
    assert not torch.allclose(network(images(64), path), theirs, atol=0.2)


@pytest.mark.parametrize("side", [8, 32, 40])
def test_the_auxiliary_head_runs_in_training_only(side: int) -> None:
    settings = network_settings(SPACE.Network(width=2, depth=3, auxiliary=True, batch_norm="tracked"), image_size=side)
    alone, answers = SPACE.standalone(paths(SPACE, 1)[0], settings), []
    alone.auxiliary.register_forward_hook(lambda module, given, output: answers.append(output))
    x = torch.randn(2, 3, side, side)
    alone.train()(x)
    alone.eval()(x)
    assert [tuple(one.shape) for one in answers] == [(2, 10)]
    assert alone.auxiliary_after == 2 and not any(name == "auxiliary" for name, _ in supernet().named_children())


def test_drop_path_drops_all_edges_but_identities() -> None:
    identities = SPACE.canonical(tuple(2 * (count == 7) for count in SPACE.choices))
    alone = SPACE.standalone(identities, sized(batch_norm="tracked"))
    assert not alone.stochastic
    alone.drop_path = 0.5
    assert alone.stochastic and not torch.equal(alone.train()(images()), alone(images()))  # reductions are dropped
    alone.path[1] = ()  # without them nothing is: identities stay
    assert torch.equal(alone(images()), alone(images()))
    alone.eval()
    assert torch.equal(alone(images()), alone(images()))


def test_the_supernet_of_speed_comparisons_is_the_same_function() -> None:
    """The plain loop over modules, given our weights, has our logits."""
    from tests.perf.darts import PlainSupernet

    ours, plain = supernet(depth=4), PlainSupernet(sized(depth=4))
    plain.take(ours)
    for path in paths(SPACE, 3):
        torch.testing.assert_close(plain(images(), path), ours(images(), path), atol=1e-4, rtol=1e-4)
