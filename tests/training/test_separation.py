"""Momentum separation on real supernets, against plain SGD and against Eq. 8 written out."""

from __future__ import annotations

import copy
import io
import random
from typing import Any

import pytest
import torch
from torch.nn import functional

from harness.components.discovery import component
from harness.components.registries import SPACES
from harness.components.space import Architecture, NetworkSettings, Space
from harness.errors import InvalidConfiguration
from harness.training.separation import SeparatedMomentum

Optimiser: Any = component("methods.optimisers").SGD

ALL_3X3: Architecture = (3,) * 6
ALL_1X1: Architecture = (2,) * 6


def nasbench201() -> Space:
    return SPACES.get("nasbench201")()


def supernet(dtype: torch.dtype = torch.float32) -> torch.nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        settings = NetworkSettings(width=4, depth=1, classes=4, image_channels=1, image_size=8)
        return nasbench201().supernet(settings).to(dtype)


def backward(network: torch.nn.Module, path: Architecture, step: int) -> None:
    """The gradients of that path on the batch of that step."""
    rng = torch.Generator().manual_seed(step)
    dtype = next(network.parameters()).dtype
    images = torch.randn(8, 1, 8, 8, generator=rng, dtype=torch.float64).to(dtype)
    labels = torch.randint(4, (8,), generator=rng)
    functional.cross_entropy(network(images, path), labels).backward()  # type: ignore[no-untyped-call]


def random_paths(count: int, seed: int = 3) -> list[Architecture]:
    space, rng = nasbench201(), random.Random(seed)
    return [space.sample(rng) for _ in range(count)]


def rate(step: int) -> float:
    return 0.05 * (1 - step / 25)


def train(
    network: torch.nn.Module, momentum: SeparatedMomentum, paths: list[Architecture], clusters: int = 1, start: int = 0
) -> None:
    """One step a path; the cluster is that of the operation at edge 0."""
    for step, path in enumerate(paths, start):
        momentum.clear_gradients()
        backward(network, path, step)
        momentum.step(path[0] % clusters, rate(step))


def equal(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def snapshot(network: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in network.named_parameters()}


def moved(network: torch.nn.Module, before: dict[str, torch.Tensor]) -> set[str]:
    return {name for name, parameter in network.named_parameters() if not torch.equal(parameter, before[name])}


def operations(names: set[str], operation: int) -> set[str]:
    """Those of the named parameters that belong to the trials' convolutions of that kind."""
    return {name for name in names if f"_{operation}.convolution" in name}


@pytest.mark.parametrize("clip", [None, 5.0, 0.5])
@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("inactive", ["untouched", "decay"])
def test_one_cluster_is_plain_sgd_bit_for_bit(inactive: str, nesterov: bool, clip: float | None) -> None:
    ours, theirs = supernet(), supernet()
    momentum = SeparatedMomentum(ours.parameters(), Optimiser(nesterov=nesterov, clip=clip, inactive=inactive))
    plain = torch.optim.SGD(
        theirs.parameters(), lr=0.025, momentum=0.9, nesterov=nesterov, weight_decay=5e-4, foreach=True
    )
    initial = snapshot(ours)
    paths = random_paths(20)
    train(ours, momentum, paths)
    for step, path in enumerate(paths):
        plain.zero_grad(set_to_none=inactive == "untouched")
        backward(theirs, path, step)
        if clip:
            torch.nn.utils.clip_grad_norm_(theirs.parameters(), clip, foreach=True)
        plain.param_groups[0]["lr"] = rate(step)
        plain.step()
    assert equal(ours, theirs)
    assert len(moved(ours, initial)) > 20


class Slow:
    """Eq. 8 written out, with weight decay and Nesterov's look-ahead: one buffer a cluster and parameter."""

    def __init__(self, network: torch.nn.Module, settings: Any) -> None:
        self.network, self.settings = network, settings
        self.buffers: dict[tuple[int, str], torch.Tensor] = {}

    @torch.no_grad()
    def step(self, cluster: int, learning_rate: float) -> None:
        settings = self.settings
        active = [(name, p, p.grad) for name, p in self.network.named_parameters() if p.grad is not None]
        norm = sum(float((gradient**2).sum()) for _, _, gradient in active) ** 0.5
        shrink = 1.0 if settings.clip is None else min(1.0, settings.clip / (norm + 1e-6))
        for name, parameter, raw in active:
            gradient = raw * shrink + settings.weight_decay * parameter
            buffer = settings.momentum * self.buffers.get((cluster, name), torch.zeros_like(raw)) + gradient
            self.buffers[cluster, name] = buffer
            ahead = gradient + settings.momentum * buffer if settings.nesterov else buffer
            parameter.sub_(learning_rate * ahead)


@pytest.mark.parametrize("clusters", [2, 5])
@pytest.mark.parametrize(
    "settings",
    [
        Optimiser(),
        Optimiser(nesterov=False, clip=None, weight_decay=0.0),  # Eq. 8 as it stands
        Optimiser(clip=0.3, weight_decay=0.02),
    ],
)
def test_several_clusters_are_eq_8(settings: Any, clusters: int) -> None:
    ours, theirs = supernet(torch.float64), supernet(torch.float64)
    momentum, slow = SeparatedMomentum(ours.parameters(), settings), Slow(theirs, settings)
    paths = random_paths(20)
    train(ours, momentum, paths, clusters)
    for step, path in enumerate(paths):
        for parameter in theirs.parameters():
            parameter.grad = None
        backward(theirs, path, step)
        slow.step(path[0] % clusters, rate(step))
    for mine, reference in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-9, atol=1e-12)
    buffers = {
        (cluster, name): optimiser.state[parameter]["momentum_buffer"]
        for cluster, optimiser in momentum.optimisers.items()
        for name, parameter in ours.named_parameters()
        if parameter in optimiser.state
    }
    assert buffers.keys() == slow.buffers.keys()
    for key, buffer in buffers.items():
        torch.testing.assert_close(buffer, slow.buffers[key], rtol=1e-9, atol=1e-12)


def test_separation_changes_the_result() -> None:
    one, two = supernet(), supernet()
    for network, clusters in ((one, 1), (two, 2)):
        train(network, SeparatedMomentum(network.parameters(), Optimiser()), random_paths(6), clusters)
    assert not equal(one, two)


def test_a_step_leaves_the_buffers_of_other_clusters_alone() -> None:
    network = supernet()
    momentum = SeparatedMomentum(network.parameters(), Optimiser())
    train(network, momentum, [ALL_3X3, ALL_1X1], clusters=2)
    stem = next(network.parameters())
    before = [momentum.of(cluster).state[stem]["momentum_buffer"].clone() for cluster in (0, 1)]
    train(network, momentum, [ALL_3X3], clusters=2, start=2)
    after = [momentum.of(cluster).state[stem]["momentum_buffer"] for cluster in (0, 1)]
    assert torch.equal(after[0], before[0])
    assert not torch.equal(after[1], before[1])


def test_optimisers_and_buffers_are_made_when_first_needed() -> None:
    network = supernet()
    momentum = SeparatedMomentum(network.parameters(), Optimiser())
    assert not momentum.optimisers
    train(network, momentum, [ALL_3X3], clusters=5)
    assert set(momentum.optimisers) == {3}
    state = momentum.of(3).state
    with_buffer = {name for name, parameter in network.named_parameters() if parameter in state}
    everything = {name for name, _ in network.named_parameters()}
    assert operations(with_buffer, 3) == operations(everything, 3) != set()
    assert not operations(with_buffer, 2)
    train(network, momentum, [ALL_1X1], clusters=5, start=1)
    assert set(momentum.optimisers) == {3, 2}


def test_inactive_parameters_are_left_untouched() -> None:
    network = supernet()
    momentum = SeparatedMomentum(network.parameters(), Optimiser(inactive="untouched"))
    train(network, momentum, [ALL_3X3] * 3)
    before = snapshot(network)
    train(network, momentum, [ALL_1X1], start=3)
    changed = moved(network, before)
    assert not operations(changed, 3)
    assert operations(changed, 2) == operations(set(before), 2)
    assert changed == set(before) - operations(set(before), 3)


def test_inactive_parameters_decay_once_they_have_had_a_gradient() -> None:
    network = supernet()
    momentum = SeparatedMomentum(network.parameters(), Optimiser(inactive="decay"))
    before = snapshot(network)
    train(network, momentum, [ALL_3X3] * 3)
    assert not operations(moved(network, before), 2)  # these have had none
    before = snapshot(network)
    train(network, momentum, [ALL_1X1], start=3)
    assert operations(moved(network, before), 3) == operations(set(before), 3)
    # Another cluster has no momentum for them yet: what moves them is weight decay alone.
    before = snapshot(network)
    train(network, momentum, [ALL_1X1], clusters=5, start=4)
    for name in operations(set(before), 3):
        shrunk = before[name] * (1 - rate(4) * 5e-4 * 1.9)  # Nesterov: the gradient and 0.9 times the first buffer
        torch.testing.assert_close(network.get_parameter(name).detach(), shrunk)


def through_a_file(state: Any) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file)  # plain types and tensors only


@pytest.mark.parametrize("inactive", ["untouched", "decay"])
def test_training_goes_on_from_a_stored_state_as_if_nothing_had_been(inactive: str) -> None:
    paths = random_paths(20)
    network = supernet()
    momentum = SeparatedMomentum(network.parameters(), Optimiser(inactive=inactive))
    train(network, momentum, paths[:10], clusters=3)
    stored = through_a_file({"network": network.state_dict(), "momentum": momentum.state()})
    train(network, momentum, paths[10:], clusters=3, start=10)

    resumed = supernet()
    resumed.load_state_dict(stored["network"])
    again = SeparatedMomentum(resumed.parameters(), Optimiser(inactive=inactive))
    again.restore(stored["momentum"])
    assert len(again.optimisers) == 3
    train(resumed, again, paths[10:], clusters=3, start=10)
    assert equal(network, resumed)

    forgetful = supernet()
    forgetful.load_state_dict(stored["network"])
    fresh = SeparatedMomentum(forgetful.parameters(), Optimiser(inactive=inactive))
    train(forgetful, fresh, paths[10:], clusters=3, start=10)
    assert not equal(network, forgetful)


def test_which_parameters_have_had_a_gradient_is_part_of_the_state() -> None:
    network = supernet()
    momentum = SeparatedMomentum(network.parameters(), Optimiser(inactive="decay"))
    train(network, momentum, [ALL_3X3])
    stored = through_a_file(momentum.state())
    resumed = copy.deepcopy(network)
    for parameter in resumed.parameters():
        parameter.grad = None
    again = SeparatedMomentum(resumed.parameters(), Optimiser(inactive="decay"))
    again.restore(stored)
    train(network, momentum, [ALL_1X1], start=1)
    train(resumed, again, [ALL_1X1], start=1)
    assert equal(network, resumed)


def test_restoring_replaces_what_was_there() -> None:
    network = supernet()
    momentum = SeparatedMomentum(network.parameters(), Optimiser())
    empty = momentum.state()
    train(network, momentum, [ALL_3X3, ALL_1X1], clusters=2)
    momentum.restore(empty)
    assert not momentum.optimisers
    assert all(parameter.grad is None for parameter in network.parameters())


def test_two_supernets_restored_from_one_state_share_nothing() -> None:
    first = supernet()
    momentum = SeparatedMomentum(first.parameters(), Optimiser())
    train(first, momentum, random_paths(3))
    second = copy.deepcopy(first)
    others = SeparatedMomentum(second.parameters(), Optimiser())
    others.restore(momentum.state())
    stem, same_stem = next(first.parameters()), next(second.parameters())
    before = others.of(0).state[same_stem]["momentum_buffer"].clone()
    assert torch.equal(before, momentum.of(0).state[stem]["momentum_buffer"])
    train(first, momentum, random_paths(3), start=3)
    assert torch.equal(others.of(0).state[same_stem]["momentum_buffer"], before)
    assert not torch.equal(momentum.of(0).state[stem]["momentum_buffer"], before)


def test_without_momentum_there_is_nothing_to_separate() -> None:
    """β = 0 with the Nesterov setting left on, which torch alone refuses."""
    results = []
    for clusters in (1, 5):
        network = supernet()
        momentum = SeparatedMomentum(network.parameters(), Optimiser(momentum=0.0, nesterov=True, clip=None))
        train(network, momentum, random_paths(10), clusters)
        results.append(network)
    by_hand = supernet()
    for step, path in enumerate(random_paths(10)):
        by_hand.zero_grad()
        backward(by_hand, path, step)
        with torch.no_grad():
            for parameter in by_hand.parameters():
                if parameter.grad is not None:
                    parameter.sub_(rate(step) * (parameter.grad + 5e-4 * parameter))
    assert equal(*results)
    for ours, reference in zip(results[0].parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(ours, reference, rtol=1e-4, atol=1e-5)


def test_weight_decay_may_differ_for_one_step() -> None:
    network = supernet()
    momentum = SeparatedMomentum(network.parameters(), Optimiser(clip=None))
    for decay, expected in [(0.1, 0.1), (None, 5e-4)]:
        momentum.clear_gradients()
        stem = next(network.parameters())
        stem.grad = torch.zeros_like(stem)
        momentum.optimisers.clear()
        before = stem.detach().clone()
        momentum.step(0, 0.5, decay)
        torch.testing.assert_close(stem.detach(), before * (1 - 0.5 * expected * 1.9))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": 0.0}, "learning_rate must be above 0, not 0"),
        ({"learning_rate": -1.0}, "learning_rate must be above 0, not -1"),
        ({"momentum": -0.1}, r"momentum must be in \[0, 1\), not -0.1"),
        ({"momentum": 1.0}, r"momentum must be in \[0, 1\), not 1"),
        ({"weight_decay": -1e-4}, "weight_decay must not be negative"),
        ({"clip_value": 0.0}, "clip_value must be above 0, or null"),
        ({"clip": 0.0}, "clip must be above 0, or null"),
        ({"clip": -5.0}, "clip must be above 0, or null"),
        ({"inactive": "skip"}, "'skip'; allowed: untouched, decay"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfiguration, match=message):
        Optimiser(**options)
