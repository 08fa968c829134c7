"""The training stage: bytes-equal repetition, shared randomness, exact counts, divergence."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from harness.components.dataset import DataSet
from harness.components.registries import SPACES
from harness.data.loader import Batch, DeviceLoader
from harness.errors import Diverged, InvalidConfiguration
from harness.seeds import derive
from harness.study.configuration import RunConfig
from harness.training.cost import Meter
from harness.training.stages.train import Progress, Supernets, build_supernets, check_finite, train

METHODS = ("spos", "fairnas", "fsnas")
PLAIN: dict[str, Any] = {}
PAPER: dict[str, Any] = {"schedule": "calr", "clusters": "operation"}


def tiny(method: str = "spos", seed: int = 0, **more: Any) -> RunConfig:
    """Two epochs of two steps on the few digits, the second of them of 16 images."""
    document = {
        "method": method,
        "seed": seed,
        "network": {"width": 2, "depth": 1},
        "train": {"epochs": 2, "batch_size": 32},
        **more,
    }
    return RunConfig.from_json(document)


def meter() -> Meter:
    return Meter(torch.device("cpu"))


def weights(supernets: Supernets) -> list[bytes]:
    return [tensor.numpy().tobytes() for network in supernets.networks for tensor in network.state_dict().values()]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("settings", [PLAIN, PAPER], ids=["plain", "calr and operation clusters"])
def test_one_seed_gives_the_same_bytes_and_another_seed_others(
    method: str, settings: dict[str, Any], few_digits: DataSet
) -> None:
    first = weights(train(tiny(method, **settings), few_digits, meter()))
    torch.rand(3), random.random(), np.random.rand()  # what ran before must not matter
    assert weights(train(tiny(method, **settings), few_digits, meter())) == first
    assert weights(train(tiny(method, seed=1, **settings), few_digits, meter())) != first


def test_schedule_and_clusters_each_change_the_weights(few_digits: DataSet) -> None:
    """Otherwise equality above could be that of untouched settings."""
    settings: list[dict[str, Any]] = [PLAIN, {"schedule": "calr"}, {"clusters": "operation"}, PAPER]
    found = {b"".join(weights(train(tiny(**one), few_digits, meter()))) for one in settings}
    untrained = b"".join(weights(build_supernets(tiny(), few_digits)))
    assert len(found | {untrained}) == 5


@pytest.mark.parametrize("seed", [3])
def test_methods_share_initial_weights_and_data_order(
    seed: int, few_digits: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int, list[int]]] = []
    batch_of = DeviceLoader.batch

    def watched(loader: DeviceLoader, step: int) -> Batch:
        batch = batch_of(loader, step)
        seen.append((id(loader), step, batch.indices.tolist()))
        return batch

    monkeypatch.setattr(DeviceLoader, "batch", watched)
    initial, orders = [], []
    for method in METHODS:
        seen.clear()
        train(tiny(method, seed), few_digits, meter())
        orders.append([(step, indices) for loader, step, indices in seen[:4]])
        if method == "fsnas":  # its other parts see the data in other orders
            assert len(seen) == 20
            assert len({str([indices for _, _, indices in seen[start : start + 4]]) for start in range(0, 20, 4)}) == 5
        network = build_supernets(tiny(method, seed), few_digits).networks[0]
        initial.append([tensor.numpy().tobytes() for tensor in network.state_dict().values()])
    assert initial[0] == initial[1] == initial[2]
    assert orders[0] == orders[1] == orders[2]
    assert [step for step, _ in orders[0]] == [0, 1, 2, 3]
    for epoch in (orders[0][:2], orders[0][2:]):
        assert sorted(index for _, indices in epoch for index in indices) == list(range(48))


def test_parts_start_from_different_weights(few_digits: DataSet) -> None:
    networks = build_supernets(tiny("fsnas"), few_digits).networks
    assert len({network.stem.weight.detach().numpy().tobytes() for network in networks}) == 5  # type: ignore[operator, union-attr]


def test_a_combination_that_cannot_be_trained_is_refused_before_training(few_digits: DataSet) -> None:
    counts = meter()
    told: list[Progress] = []
    with pytest.raises(InvalidConfiguration, match="FairNAS cannot use these clusters"):
        train(tiny("fairnas", clusters="random"), few_digits, counts, told.append)
    assert (counts.passes, counts.images, counts.stages, told) == (0, 0, {}, [])


def reference(config: RunConfig, dataset: DataSet) -> tuple[torch.nn.Module, list[float]]:
    """SPOS with cosine written out, one step after the other, looking at each loss; stops at the first bad one."""
    space = SPACES.get(config.space)()
    network = build_supernets(config, dataset).networks[0]
    optimiser = torch.optim.SGD(
        network.parameters(), lr=1.0, momentum=0.9, nesterov=True, weight_decay=config.optimiser.weight_decay
    )
    loader = DeviceLoader(dataset.train, dataset, config.train.batch_size, derive(config.seed, "data", 0))
    paths = random.Random(derive(config.seed, "paths", 0))
    steps = config.train.epochs * loader.steps_per_epoch
    losses: list[float] = []
    for step in range(steps):
        batch = loader.batch(step)
        loss = functional.cross_entropy(network(batch.images, space.sample(paths)), batch.labels)
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            break
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if config.optimiser.clip is not None:
            torch.nn.utils.clip_grad_norm_(network.parameters(), config.optimiser.clip)
        optimiser.param_groups[0]["lr"] = (
            config.optimiser.learning_rate * (1 + math.cos(math.pi * (step + 1) / steps)) / 2
        )
        optimiser.step()
    return network, losses


@pytest.mark.parametrize("clip", [0.5, None])
def test_spos_is_the_plain_loop(clip: float | None, few_digits: DataSet) -> None:
    config = tiny(optimiser={"clip": clip})
    told: list[Progress] = []
    trained = train(config, few_digits, meter(), told.append)
    network, losses = reference(config, few_digits)
    for mine, theirs in zip(trained.networks[0].state_dict().values(), network.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-7)
    assert [(p.part, p.parts, p.epoch, p.epochs) for p in told] == [(0, 1, 1, 2), (0, 1, 2, 2)]
    assert [p.loss for p in told] == pytest.approx([sum(losses[:2]) / 2, sum(losses[2:]) / 2], rel=1e-6)


@pytest.mark.parametrize("seed", [0, 1])
def test_divergence_is_reported_at_its_step(seed: int, few_digits: DataSet) -> None:
    """Each step multiplies the weights by some hundreds: out of the floats within the second epoch."""
    config = tiny(
        seed=seed,
        train={"epochs": 4, "batch_size": 12},
        optimiser={"learning_rate": 1e6, "clip": None},
    )
    told: list[Progress] = []
    with pytest.raises(Diverged) as stop:
        train(config, few_digits, meter(), told.append)
    _, losses = reference(config, few_digits)
    assert stop.value.step == len(losses) - 1
    assert stop.value.step > 4 and stop.value.step % 4 in (1, 2)  # neither in the first epoch nor at an end of one
    assert all(map(math.isfinite, losses[:-1])) and not math.isfinite(stop.value.loss)
    assert len(told) == stop.value.step // 4


@pytest.mark.parametrize("method", METHODS)
def test_training_leaves_the_global_generators_alone(method: str, few_digits: DataSet) -> None:
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()
    train(tiny(method, **PAPER), few_digits, meter())
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    np.testing.assert_equal(np.random.get_state(), before[2])


@pytest.mark.parametrize(("method", "paths", "parts"), [("spos", 1, 1), ("fairnas", 5, 1), ("fsnas", 1, 5)])
def test_the_meter_counts_passes_and_images(method: str, paths: int, parts: int, few_digits: DataSet) -> None:
    counts = meter()
    train(tiny(method), few_digits, counts)
    assert counts.passes == 2 * 2 * paths * parts
    assert counts.images == 2 * 48 * paths * parts
    assert counts.evaluations == 0
    assert list(counts.stages) == ["train"]


def test_the_loss_of_a_step_is_the_mean_over_its_paths() -> None:
    losses = [torch.tensor([1.0, 3.0]), torch.tensor([5.0])]
    assert check_finite(losses, 1) == 3.5  # every step counts once, however many paths it has
    with pytest.raises(Diverged) as caught:
        check_finite([*losses, torch.tensor([1.0, math.inf])], 10)
    assert caught.value.step == 12
