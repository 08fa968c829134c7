"""The default training step on a real supernet, against the paper's algorithms written out."""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch.nn import functional

from harness.components.discovery import component
from harness.components.method import Part
from harness.components.registries import SPACES
from harness.components.space import Architecture, NetworkSettings
from harness.data.loader import Batch
from harness.errors import InvalidConfiguration
from harness.training.separation import SeparatedMomentum
from harness.training.supernet import SupernetTraining

clusters = component("methods.clusters")
samplers = component("methods.samplers")
schedules = component("methods.schedules")
Optimiser: Any = component("methods.optimisers").SGD
fair_paths: Any = component("methods.fairnas").fair_paths

STEPS = 4
RATE = 0.05
SMALL: Architecture = (1, 2, 0, 4, 1, 2)
LARGE: Architecture = (3, 3, 3, 3, 1, 3)


def training(schedule: Any = None, rule: Any = None, optimiser: Any = None, **options: Any) -> SupernetTraining:
    """A training in double precision, so that references need not repeat the order of additions."""
    space = SPACES.get("nasbench201")()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        network = space.supernet(NetworkSettings(width=4, depth=1, classes=4, image_channels=1, image_size=8)).double()
    schedule = schedule or schedules.CaLR()
    return SupernetTraining(
        space=space,
        part=Part({}),
        network=network,
        momentum=SeparatedMomentum(network.parameters(), optimiser or Optimiser(learning_rate=RATE)),
        clustering=(rule or clusters.NoClusters()).bind(space, {}, random.Random(1)),
        source=samplers.Uniform().bind(space, {}),
        factor=schedule.bind(space),
        factor_depends_on_path=schedule.depends_on_path,
        rng=random.Random(2),
        total_steps=STEPS,
        **options,
    )


def batch(step: int) -> Batch:
    rng = torch.Generator().manual_seed(step)
    images = torch.randn(8, 1, 8, 8, generator=rng, dtype=torch.float64)
    return Batch(images, torch.randint(4, (8,), generator=rng), torch.arange(8))


def losses(network: torch.nn.Module, step: int, paths: Sequence[Architecture], smoothing: float = 0.0) -> list[Any]:
    images, labels, _ = batch(step)
    return [functional.cross_entropy(network(images, path), labels, label_smoothing=smoothing) for path in paths]


def sgd(network: torch.nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(network.parameters(), lr=RATE, momentum=0.9, nesterov=True, weight_decay=5e-4)


def sgd_step(
    network: torch.nn.Module, optimiser: torch.optim.SGD, loss: Any, rate: float, decay: float | None = None
) -> None:
    """One step of plain SGD with the defaults of ours."""
    optimiser.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(network.parameters(), 5.0)
    optimiser.param_groups[0].update(lr=rate, weight_decay=5e-4 if decay is None else decay)
    optimiser.step()


def assert_same(one: torch.nn.Module, other: torch.nn.Module, rtol: float = 1e-9) -> None:
    for ours, theirs in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=rtol, atol=1e-12)


def differ(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    return any(not torch.allclose(a, b, 1e-6) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_one_path_has_its_own_learning_rate() -> None:
    ours, network = training(), training().network
    optimiser = sgd(network)
    ratio = schedules.CaLR().decay_ratio(ours.space)
    for step in range(STEPS):
        path = (SMALL, LARGE)[step % 2]
        ours.descend(batch(step), [path], step)
        [loss] = losses(network, step, [path])
        sgd_step(network, optimiser, loss, RATE * (1 - (step + 1) / STEPS) ** ratio(path))
    assert_same(ours.network, network)


def test_paths_of_one_rate_have_their_gradients_summed() -> None:
    ours, network = training(schedules.Cosine()), training().network
    optimiser, rng = sgd(network), random.Random(3)
    for step in range(STEPS):
        paths = fair_paths(ours.space, rng, {})
        ours.descend(batch(step), paths, step)
        factor = ours.factor(paths[0], (step + 1) / STEPS)
        sgd_step(network, optimiser, sum(losses(network, step, paths)), RATE * factor)
    assert_same(ours.network, network)


@pytest.mark.parametrize("rule", [clusters.NoClusters(), clusters.ByOperation(at=(2,))])
def test_paths_of_different_rates_follow_algorithm_2(rule: Any) -> None:
    """g ← Σ η_k·g_k, μ_i ← β·μ_i + g, W(α) ← W(α) − μ_i, without anything that the paper does not have."""
    plain = Optimiser(learning_rate=RATE, nesterov=False, weight_decay=0.0, clip=None)
    ours, network = training(rule=rule, optimiser=plain), training().network
    ratio, rng = schedules.CaLR().decay_ratio(ours.space), random.Random(4)
    buffers: dict[tuple[int, str], torch.Tensor] = {}
    for step in range(STEPS):
        held = {decision: rng.randrange(2) for decision in ours.clustering.decisions or ()}
        paths = fair_paths(ours.space, rng, held)
        cluster = ours.clustering.of(paths[0])
        ours.descend(batch(step), paths, step)
        gradients: dict[str, torch.Tensor] = {}
        for path in paths:
            rate = RATE * (1 - (step + 1) / STEPS) ** ratio(path)
            network.zero_grad()
            losses(network, step, [path])[0].backward()
            for name, parameter in network.named_parameters():
                if parameter.grad is not None:
                    gradients[name] = gradients.get(name, torch.zeros_like(parameter)) + rate * parameter.grad
        for name, gradient in gradients.items():
            buffer = 0.9 * buffers.get((cluster, name), torch.zeros_like(gradient)) + gradient
            buffers[cluster, name] = buffer
            with torch.no_grad():
                network.get_parameter(name).sub_(buffer)
    assert len({cluster for cluster, _ in buffers}) == (2 if ours.clustering.count > 1 else 1)
    assert_same(ours.network, network, rtol=1e-6)
    assert differ(ours.network, training().network)


@pytest.mark.parametrize("weighting", ["algorithm-2", "loss"])
def test_weight_decay_is_weighted_by_algorithm_2_only(weighting: str) -> None:
    strong = Optimiser(learning_rate=RATE, weight_decay=0.1)
    ours, network = training(optimiser=strong, weighting=weighting), training().network
    other = training(optimiser=strong, weighting={"loss": "algorithm-2", "algorithm-2": "loss"}[weighting])
    optimiser, rng = sgd(network), random.Random(6)
    for step in range(STEPS):
        paths = fair_paths(ours.space, rng, {})
        ours.descend(batch(step), paths, step)
        other.descend(batch(step), paths, step)
        factors = [ours.factor(path, (step + 1) / STEPS) for path in paths]
        total = sum(f * loss for f, loss in zip(factors, losses(network, step, paths), strict=True))
        decay = 0.1 * sum(factors) / len(factors) if weighting == "algorithm-2" else 0.1
        sgd_step(network, optimiser, total, RATE, decay)
    assert_same(ours.network, network)
    assert differ(ours.network, other.network)


def test_algorithm_2_without_weight_decay_equals_the_released_weighting() -> None:
    plain = Optimiser(learning_rate=RATE, weight_decay=0.0)
    networks: list[torch.nn.Module] = []
    for weighting in ("algorithm-2", "loss"):
        ours, rng = training(optimiser=plain, weighting=weighting), random.Random(6)
        for step in range(2):
            ours.descend(batch(step), fair_paths(ours.space, rng, {}), step)
        networks.append(ours.network)
    assert_same(networks[0], networks[1])


@pytest.mark.parametrize("paths", [[SMALL], [SMALL, LARGE]])
def test_the_first_step_shifts_t(paths: list[Architecture]) -> None:
    from_0, from_1 = training(first_step=0), training(first_step=1)
    ratio = schedules.CaLR().decay_ratio(from_0.space)
    assert from_0.rate_factors(paths, 0) == [1.0] * len(paths)
    for step in range(STEPS):
        assert from_1.rate_factors(paths, step) == pytest.approx(
            [(1 - (step + 1) / STEPS) ** ratio(path) for path in paths]
        )
        if step:
            assert from_0.rate_factors(paths, step) == from_1.rate_factors(paths, step - 1)
    before = [parameter.detach().clone() for parameter in from_1.network.parameters()]
    from_1.descend(batch(0), paths, STEPS - 1)  # t = T: the rate is zero
    if len(paths) == 1:
        assert all(torch.equal(a, b) for a, b in zip(before, from_1.network.parameters(), strict=True))
    from_0.descend(batch(0), paths, STEPS - 1)
    assert any(not torch.equal(a, b) for a, b in zip(before, from_0.network.parameters(), strict=True))


def test_paths_of_two_clusters_are_refused_before_anything_changes() -> None:
    ours = training(rule=clusters.ByOperation(at=(0,)))
    with pytest.raises(InvalidConfiguration, match="the 2 paths of one step are in 2 clusters"):
        ours.descend(batch(0), [SMALL, LARGE], 0)
    assert not differ(ours.network, training().network)
    assert not ours.momentum.optimisers


def test_a_step_updates_the_momentum_of_its_cluster() -> None:
    ours = training(rule=clusters.ByOperation(at=(0,)))
    ours.descend(batch(0), [LARGE], 0)
    assert set(ours.momentum.optimisers) == {3}
    ours.descend(batch(1), [SMALL], 1)
    assert set(ours.momentum.optimisers) == {3, 1}


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_step_gives_each_paths_loss_from_before_the_update(smoothing: float) -> None:
    ours = training(label_smoothing=smoothing)
    expected = [loss.item() for loss in losses(ours.network, 0, [SMALL, LARGE], smoothing)]
    given = ours.descend(batch(0), [SMALL, LARGE], 0)
    assert given.tolist() == pytest.approx(expected)
    assert not given.requires_grad
    after = [loss.item() for loss in losses(ours.network, 0, [SMALL, LARGE], smoothing)]
    assert after != pytest.approx(expected)


def test_gradients_do_not_carry_over_to_the_next_step() -> None:
    without = Optimiser(learning_rate=RATE, momentum=0.0, weight_decay=0.0, clip=None)
    ours, network = training(schedules.Constant(), optimiser=without), training().network
    for step in range(3):
        ours.descend(batch(step), [LARGE], step)
        network.zero_grad()
        losses(network, step, [LARGE])[0].backward()
        with torch.no_grad():
            for parameter in network.parameters():
                if parameter.grad is not None:
                    parameter.sub_(RATE * parameter.grad)
    assert_same(ours.network, network)


class Constant(torch.nn.Module):
    """A network whose paths through choice 0 have no weights at all."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(4, dtype=torch.float64))

    def forward(self, images: torch.Tensor, path: Architecture) -> torch.Tensor:
        logits = self.bias if path[0] else torch.zeros(4, dtype=torch.float64)
        return logits.expand(len(images), -1)


def test_a_path_without_weights_trains_nothing_and_stops_nothing() -> None:
    ours = training(schedules.Cosine())
    ours.network = Constant()
    ours.momentum = SeparatedMomentum(ours.network.parameters(), Optimiser())
    empty, full = (0,) * 6, (3,) * 6
    assert ours.descend(batch(0), [empty], 0).tolist() == pytest.approx([1.3862943611])  # log 4
    assert ours.network.bias.tolist() == [0.0] * 4
    ours.descend(batch(0), [empty, full], 1)
    assert ours.network.bias.abs().sum() > 0


def test_training_goes_on_from_a_stored_state_as_if_nothing_had_been() -> None:
    def steps(state: SupernetTraining, first: int, last: int) -> list[Architecture]:
        paths = [state.source.draw(state.rng) for _ in range(first, last)]
        for step, path in enumerate(paths, first):
            state.descend(batch(step), [path], step)
        return paths

    through = training(rule=clusters.ByOperation())
    steps(through, 0, 2)
    file = io.BytesIO()
    torch.save(through.state(), file)
    paths = steps(through, 2, 4)

    file.seek(0)
    resumed = training(rule=clusters.ByOperation())
    resumed.restore(torch.load(file))
    assert steps(resumed, 2, 4) == paths
    assert all(
        torch.equal(a, b) for a, b in zip(through.network.parameters(), resumed.network.parameters(), strict=True)
    )
    assert differ(through.network, training().network)


def test_the_memory_of_a_method_is_part_of_the_state() -> None:
    ours, resumed = training(), training()
    ours.memory.update(step=3, means=[torch.arange(3.0), (torch.ones(1), "x")], by_path={SMALL: 0.5})
    file = io.BytesIO()
    torch.save(ours.state(), file)
    ours.memory["means"][0].zero_()
    file.seek(0)
    resumed.restore(torch.load(file))
    assert resumed.memory.keys() == ours.memory.keys()
    assert resumed.memory["step"] == 3 and resumed.memory["by_path"] == {SMALL: 0.5}
    assert resumed.memory["means"][0].tolist() == [0, 1, 2]
    assert resumed.memory["means"][1] == (torch.ones(1), "x")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weighting": "mean"}, "'mean'; allowed: algorithm-2, loss"),
        ({"first_step": 2}, "first_step must be 0 or 1, not 2"),
        ({"first_step": -1}, "first_step must be 0 or 1, not -1"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfiguration, match=message):
        training(**options)
