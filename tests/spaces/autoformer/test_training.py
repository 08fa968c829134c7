"""Trials in this space: the whole recipe trains, resumes exactly, and what is found is tested without retraining."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from harness.components.discovery import component
from harness.components.registries import DATASETS, SPACES
from harness.components.space import network_settings
from harness.data.loading import evaluation_batches
from harness.study.configuration import RunConfig
from harness.training.separation import SeparatedMomentum
from harness.training.trial import run_trial
from tests.stores.test_checkpoints import Stop, checkpoint, seed_globals

AdamW: Any = component("methods.optimisers").AdamW
REDUCED: Any = SPACES.get("autoformer-reduced")()

RECIPE: dict[str, Any] = {
    "space": "autoformer-reduced",
    "dataset": "digits-16",
    "benchmark": None,
    "method": "autoformer",
    "schedule": {"name": "calr", "gamma_prime": 3.0, "final": 0.01},
    "clusters": "first-layer",
    "network": {"patch_size": 8, "drop_path": 0.2},
    "optimiser": {"name": "adamw", "learning_rate": 3e-3, "clip": None},
    "train": {
        "epochs": 2,
        "batch_size": 800,
        "warmup_steps": 2,
        "label_smoothing": 0.1,
        "order": "repeated",
        "augment": [{"name": "erasing", "fill": "noise"}, "mixing"],
    },
    "rank": {"images": 64, "batch_size": 64, "top1": False},
    "search": {"name": "best-of-n-random", "samples": 3, "test_accuracy": True},
}
"""AutoFormer's recipe in small, with CaLR and MS."""


def test_an_interrupted_trial_ends_with_the_same_bytes(tmp_path: Path) -> None:
    config = RunConfig.from_json(RECIPE)
    seed_globals()
    whole = run_trial(config)
    attempts, resumed = 0, None
    while resumed is None and attempts < 50:
        attempts += 1
        seed_globals()
        with suppress(Stop):
            resumed = run_trial(config, checkpoint=checkpoint(tmp_path, config, 3))
    assert attempts > 2 and resumed is not None and json.dumps(resumed.result) == json.dumps(whole.result)
    assert whole.supernets is not None and resumed.supernets is not None
    states = [outcome.networks[0].state_dict() for outcome in (whole.supernets, resumed.supernets)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    check_the_best(whole, config)


def check_the_best(outcome: Any, config: RunConfig) -> None:
    """What the result says of the best architecture found, computed again."""
    (found,) = outcome.result["found"]
    one, (network,) = tuple(found["architecture"]), outcome.supernets.networks
    dataset = DATASETS.get("digits-16")()
    answers = [
        (network(images, one).argmax(1) == labels).float()
        for images, labels in evaluation_batches(dataset, dataset.test, 64)
    ]
    assert outcome.result["found_accuracy"] == pytest.approx(100 * torch.cat(answers).mean().item())
    settings = network_settings(config.network, **dataset.inputs)
    assert outcome.result["found_parameters"] == REDUCED.complexity(one, "parameters", settings)
    assert outcome.result["found_flops"] == REDUCED.complexity(one, "flops", settings)


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    settings = network_settings(REDUCED.Network(patch_size=4), classes=4, image_channels=1, image_size=8)
    return REDUCED.supernet(settings)  # type: ignore[no-any-return]


def descend(one: torch.nn.Module, step: int, path: Any) -> None:
    rng = torch.Generator().manual_seed(step)
    images, labels = torch.randn(4, 1, 8, 8, generator=rng), torch.randint(4, (4,), generator=rng)
    torch.manual_seed(step)  # paths are dropped at random
    functional.cross_entropy(one(images, path), labels).backward()  # type: ignore[no-untyped-call]


def test_one_cluster_is_torchs_adamw_bit_for_bit() -> None:
    ours, theirs = network(), network()
    groups = [[dict(group) for group in REDUCED.parameter_groups(one)] for one in (ours, theirs)]
    momentum = SeparatedMomentum(groups[0], AdamW(clip=None))
    groups[1][1]["weight_decay"] = 0.0
    plain = torch.optim.AdamW(groups[1], lr=5e-4, weight_decay=0.05, fused=True)
    rng = random.Random(0)
    for step in range(8):
        path = REDUCED.sample(rng)
        momentum.clear_gradients()
        plain.zero_grad()
        for one in (ours, theirs):
            descend(one, step, path)
        momentum.step(0, 0.01 / (step + 1))
        for group in plain.param_groups:
            group["lr"] = 0.01 / (step + 1)
        plain.step()
    assert all(map(torch.equal, ours.parameters(), theirs.parameters()))
    counts = {int(state["step"]) for state in plain.state.values()}
    assert len(counts) > 1  # blocks beyond a path's depth have had fewer updates
    states = zip(momentum.of(0).state.values(), plain.state.values(), strict=True)
    assert all(torch.equal(own[name], other[name]) for own, other in states for name in other)


def test_clusters_have_their_own_means_and_counts() -> None:
    one = network()
    momentum = SeparatedMomentum(REDUCED.parameter_groups(one), AdamW(clip=None))
    for step, cluster in enumerate((0, 1, 1)):
        momentum.clear_gradients()
        descend(one, step, (0,) * 12)
        momentum.step(cluster, 1e-3)
    first, second = (momentum.of(cluster).state[one.head.weight] for cluster in (0, 1))  # type: ignore[union-attr, index]
    assert (int(first["step"]), int(second["step"])) == (1, 2)
    assert not torch.equal(first["exp_avg"], second["exp_avg"])
    assert not torch.equal(first["exp_avg_sq"], second["exp_avg_sq"])
