"""The preset `official` against a plain loop of the released protocol: the same weights, step for step.

The loop shares nothing with the harness but initial weights, batches and paths. It runs every operation of a path, also
those that cannot reach the output, and keeps gradients as torch 1.8 did: filled with zeros, never removed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from harness.components.dataset import DataSet, Split
from harness.components.preset import get_preset
from harness.components.space import Architecture
from harness.data.loader import Batch
from harness.study.configuration import RunConfig
from harness.study.expansion import expand
from harness.study.layout import Row
from harness.study.study import Study
from harness.study.trial import Trial
from harness.training.separation import SeparatedMomentum
from harness.training.stages.train import build_supernets, make_step, prepare

STEPS = {"spos": 20, "fairnas": 5, "fsnas": 5}
BOTH = {"schedule.name": "calr", "clusters.name": "operation"}
ROWS = [(method, settings) for method in STEPS for settings in ({}, BOTH)]
NAMES = [f"{method} {'with CaLR and MS' if settings else 'alone'}" for method, settings in ROWS]
CHANNELS, SIZE, CLASSES = 3, 8, 10
Weights = dict[str, Tensor]


# --- the released protocol ---


def cell(weights: Weights, place: str, x: Tensor, path: Architecture) -> Tensor:
    """Nodes 1 to 3 from the earlier ones, edge after edge; "none" multiplies by 0, so all stays in the graph."""
    nodes, edges = [x], iter(enumerate(path))
    for target in range(1, 4):
        incoming = []
        for source in range(target):
            edge, operation = next(edges)
            value = nodes[source]
            if operation == 0:
                incoming.append(value * 0.0)
            elif operation == 1:
                incoming.append(value)
            elif operation == 4:
                incoming.append(functional.avg_pool2d(value, 3, 1, padding=1, count_include_pad=False))
            else:
                incoming.append(convolution(weights, f"{place}.convolutions.{edge}_{operation}.convolution", value))
        nodes.append(torch.stack(incoming).sum(0))
    return nodes[-1]


def convolution(weights: Weights, place: str, x: Tensor, stride: int = 1) -> Tensor:
    """ReLU, convolution with bias, batch normalisation without weights and running statistics."""
    weight = weights[f"{place}.weight"]
    y = functional.conv2d(torch.relu(x), weight, weights[f"{place}.bias"], stride, padding=weight.shape[-1] // 2)
    return normalised(y)


def normalised(x: Tensor) -> Tensor:
    return functional.batch_norm(x, None, None, training=True)


def reduction(weights: Weights, place: str, x: Tensor) -> Tensor:
    main = convolution(weights, f"{place}.first.convolution", x, stride=2)
    main = convolution(weights, f"{place}.second.convolution", main)
    return main + functional.conv2d(functional.avg_pool2d(x, 2, 2), weights[f"{place}.shortcut.weight"])


def logits(weights: Weights, images: Tensor, path: Architecture) -> Tensor:
    x = normalised(functional.conv2d(images, weights["stem.weight"], padding=1))
    for block in range(5):  # cell, reduction, cell, reduction, cell
        x = reduction(weights, f"blocks.{block}", x) if block % 2 else cell(weights, f"blocks.{block}", x, path)
    features = torch.relu(normalised(x)).mean((2, 3))
    return features @ weights["classifier.weight"].flatten(1).t() + weights["classifier.bias"]


class Released:
    """The training of one supernet: gradients that stay, and the momentum buffers of each optimiser."""

    def __init__(self, weights: Weights, clipped: bool) -> None:
        self.weights = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
        self.gradients: Weights = {}
        self.buffers: dict[int, Weights] = {}
        self.clipped = clipped

    def step(
        self, batch: Batch, paths: list[Architecture], scales: list[float], rate: float, cluster: int
    ) -> list[float]:
        for gradient in self.gradients.values():
            gradient.zero_()
        losses = []
        for path, scale in zip(paths, scales, strict=True):
            loss = functional.cross_entropy(logits(self.weights, batch.images, path), batch.labels)
            losses.append(float(loss.detach()))
            found = torch.autograd.grad(loss * scale, list(self.weights.values()), allow_unused=True)
            for name, gradient in zip(self.weights, found, strict=True):
                if gradient is not None:
                    self.gradients[name] = self.gradients.get(name, 0) + gradient
        self.update(rate, self.buffers.setdefault(cluster, {}))
        return losses

    @torch.no_grad()
    def update(self, rate: float, buffers: Weights) -> None:
        """SGD with Nesterov's momentum 0.9 and weight decay 5e-4 of all that has had a gradient."""
        norm = math.sqrt(sum(float(gradient.square().sum()) for gradient in self.gradients.values()))
        shrunk = min(1.0, 5 / (norm + 1e-6)) if self.clipped else 1.0
        for name, gradient in self.gradients.items():
            gradient.mul_(shrunk)
            descent = gradient + 5e-4 * self.weights[name]
            buffers[name] = 0.9 * buffers[name] + descent if name in buffers else descent.clone()
            self.weights[name] -= rate * (descent + 0.9 * buffers[name])


def decay(path: Architecture, progress: float) -> float:
    """(1 − t/T)^γ(α), γ from 4 at the smallest subnet to 1/4 at the largest, linear in ln C."""

    def logarithm(pointwise: int, wide: int) -> float:
        return math.log(72_752 + 26_880 * pointwise + 241_920 * wide)

    low, high, own = logarithm(0, 0), logarithm(0, 6), logarithm(path.count(2), path.count(3))
    return float((1 - progress) ** (4 - (4 - 1 / 4) * (own - low) / (high - low)))


def rates(method: str, calr: bool, paths: list[Architecture], progress: float) -> tuple[list[float], float]:
    """What the paths' losses are multiplied by, and the learning rate."""
    if method == "fairnas":
        return [decay(path, progress) if calr else 1.0 for path in paths], 0.025
    return [1.0], 0.025 * (decay(paths[0], progress) if calr else (1 + math.cos(math.pi * progress)) / 2)


# --- both side by side ---


def configured(method: str, settings: dict[str, Any]) -> RunConfig:
    study = Study("one", "one row", [Row({"": ""}, {"method.name": method, **settings})], [])
    small = {"network.width": 4, "network.depth": 1, "train.epochs": 1}
    return expand(study, get_preset("official"), 1, small)[0].trial.config


def images() -> DataSet:
    whole = Split(torch.zeros(8, CHANNELS, SIZE, SIZE, dtype=torch.uint8).numpy(), torch.arange(8).numpy())
    return DataSet("none", CLASSES, whole, whole, whole, mean=(0.0,) * CHANNELS, std=(1.0,) * CHANNELS)


def batches(kind: torch.dtype) -> Iterator[Batch]:
    chance = torch.Generator().manual_seed(5)
    while True:
        pixels = torch.randn(8, CHANNELS, SIZE, SIZE, generator=chance).to(kind)
        yield Batch(pixels, torch.randint(CLASSES, (8,), generator=chance), torch.arange(8))


def parted(method: str, settings: dict[str, Any], kind: torch.dtype = torch.double) -> tuple[float, float, int]:
    """The largest difference of a loss and of a weight, and how many weights were sampled and never live."""
    config, steps = configured(method, settings), STEPS[method]
    supernets = build_supernets(config, images())
    for network in supernets.networks:
        network.to(kind)
    rule, trainings = prepare(config, supernets, steps)
    assert len(trainings) == (5 if method == "fsnas" else 1)
    of_losses, of_weights, dead = 0.0, 0.0, 0
    for number, training in enumerate(trainings):
        separated = training.clustering.decisions
        assert training.clustering.count == (5 if settings else 1) and (not settings or len(separated or ()) == 1)
        weights = {name: one.detach().double() for name, one in training.network.named_parameters()}
        plain = Released(weights, clipped=method != "fairnas")
        live = set()
        for step, batch in zip(range(steps), batches(kind), strict=False):
            done = make_step(rule, training, batch, step)
            named = training.network.named_parameters()
            live |= {name for name, one in named if one.grad is not None and one.grad.any()}
            paths = list(training.trained)
            check_paths(method, number, paths, separated if settings else None)
            scales, rate = rates(method, bool(settings), paths, step / steps)
            cluster = paths[0][separated[0]] if settings and separated else 0
            losses = plain.step(batch._replace(images=batch.images.double()), paths, scales, rate, cluster)
            of_losses = max(of_losses, *(abs(a - b) for a, b in zip(losses, done.losses.tolist(), strict=True)))
        touched = {name for name, one in training.network.named_parameters() if one.grad is not None}
        assert touched >= live
        for name, own in training.network.named_parameters():
            of_weights = max(of_weights, float((own.detach().double() - plain.weights[name].detach()).abs().max()))
        dead += len([name for name in plain.gradients if name not in live and not name.endswith("bias")])
        if kind == torch.float:  # rounding hides what decay changes in a few steps, not whether it changes anything
            assert touched == set(plain.gradients)
    return of_losses, of_weights, dead


def check_paths(method: str, number: int, paths: list[Architecture], separated: Any) -> None:
    """FairNAS: one permutation of operations per edge, but the separated edge is constant. FSNAS: edge 0 is split."""
    if method == "fairnas":
        for edge, chosen in enumerate(zip(*paths, strict=True)):
            assert len(set(chosen)) == (1 if separated and edge in separated else 5)
    else:
        assert len(paths) == 1
    if method == "fsnas":
        assert paths[0][0] == number and (not separated or separated[0] != 0)


@pytest.mark.parametrize(("method", "settings"), ROWS, ids=NAMES)
def test_losses_and_weights_are_those_of_the_released_protocol(method: str, settings: dict[str, Any]) -> None:
    of_losses, of_weights, dead = parted(method, settings)
    assert of_losses < 1e-8 and of_weights < 1e-8
    assert dead or method == "fairnas"  # its five paths soon use every operation


def test_the_fast_passes_touch_the_same_weights() -> None:
    of_losses, of_weights, dead = parted("spos", BOTH, torch.float)
    assert of_losses < 1e-3 and of_weights < 1e-3 and dead


def test_without_decay_of_dead_operations_weights_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SeparatedMomentum, "touch", lambda *_: None)
    of_losses, of_weights, _ = parted("spos", {})
    assert of_weights > 1e-7


def test_runs_without_decay_of_dead_operations_do_not_count() -> None:
    """Their keys were made without a version of the option; those of configurations without decay still are."""
    decaying = Trial(configured("spos", {})).identity()["versions"]
    untouched = Trial(configured("spos", {"optimiser.inactive": "untouched"})).identity()["versions"]
    assert decaying == {**untouched, "optimiser.inactive": 2}
