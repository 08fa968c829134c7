"""The DARTS supernet at its usual size: our training step against a plain loop over modules.

Both sides train the same paths on the same batch of 64 images of 32×32 pixels, with gradients clipped. The plain side
has every operation as a sequence of torch's modules, in NCHW order or in channels_last order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from harness.components.registries import SPACES
from harness.components.space import Architecture, network_settings
from spaces.darts.cell import EDGES, INPUTS, NODES, OPERATIONS, operation_decision, taken
from spaces.darts.layout import CellSize, cells
from tests.perf.turns import our_turn, paths, plain_turn, random_batch

BATCH, SIDE, CLASSES = 64, 32, 10
PATHS = 3
"""Different paths per turn, the same in every turn."""
RATE, MOMENTUM, DECAY, CLIP = 0.025, 0.9, 3e-4, 5.0


def _norm(channels: int) -> nn.Module:
    return nn.BatchNorm2d(channels, affine=False, track_running_stats=False)


def _separable(channels: int, kernel: int, stride: int, dilation: int) -> list[nn.Module]:
    padding = dilation * (kernel // 2)
    depthwise = nn.Conv2d(channels, channels, kernel, stride, padding, dilation, groups=channels, bias=False)
    return [nn.ReLU(), depthwise, nn.Conv2d(channels, channels, 1, bias=False), _norm(channels)]


class Reduce(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.even = nn.Conv2d(inputs, outputs // 2, 1, 2, bias=False)
        self.odd = nn.Conv2d(inputs, outputs - outputs // 2, 1, 2, bias=False)
        self.norm = _norm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(x)
        y: Tensor = self.norm(torch.cat([self.even(x), self.odd(x[:, :, 1:, 1:])], 1))
        return y


def _operation(name: str, channels: int, stride: int) -> nn.Module:
    if name == "skip_connect":
        return nn.Identity() if stride == 1 else Reduce(channels, channels)
    if name == "max_pool_3x3":
        return nn.Sequential(nn.MaxPool2d(3, stride, 1), _norm(channels))
    if name == "avg_pool_3x3":
        return nn.Sequential(nn.AvgPool2d(3, stride, 1, count_include_pad=False), _norm(channels))
    kernel = int(name[-1])
    if name.startswith("dil"):
        return nn.Sequential(*_separable(channels, kernel, stride, 2))
    return nn.Sequential(*_separable(channels, kernel, stride, 1), *_separable(channels, kernel, 1, 1))


def _pointwise(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.ReLU(), nn.Conv2d(inputs, outputs, 1, bias=False), _norm(outputs))


class PlainCell(nn.Module):
    def __init__(self, size: CellSize) -> None:
        super().__init__()
        self.kind = size.kind
        self.first = (Reduce if size.halves_first else _pointwise)(size.before[0], size.channels)
        self.second = _pointwise(size.before[1], size.channels)
        self.edges = nn.ModuleList(
            nn.ModuleList(_operation(name, size.channels, size.stride(source)) for name in OPERATIONS)
            for source, _ in EDGES
        )

    def forward(self, first: Tensor, second: Tensor, path: Architecture) -> Tensor:
        values = [self.first(first), self.second(second)]
        edges = taken(path, self.kind)
        for node in range(NODES):
            into = [edge for edge in edges if EDGES[edge].target == INPUTS + node]
            terms = [
                self.edges[edge][path[operation_decision(self.kind, edge)]](values[EDGES[edge].source])  # type: ignore[index]
                for edge in into
            ]
            values.append(sum(terms[1:], terms[0]))
        return torch.cat(values[INPUTS:], 1)


class PlainSupernet(nn.Module):
    """The whole space over one set of weights: one sequence of modules per cell, edge and operation."""

    def __init__(self, settings: Any) -> None:
        super().__init__()
        sizes = cells(settings)
        self.stem = nn.Sequential(
            nn.Conv2d(settings.image_channels, 3 * settings.width, 3, padding=1, bias=False), _norm(3 * settings.width)
        )
        self.cells = nn.ModuleList(map(PlainCell, sizes))
        self.classifier = nn.Linear(sizes[-1].outputs, settings.classes)

    def forward(self, x: Tensor, path: Architecture) -> Tensor:
        first = second = self.stem(x)
        for cell in self.cells:
            first, second = second, cell(first, second, path)
        logits: Tensor = self.classifier(second.mean((2, 3)))
        return logits

    def take(self, network: Any) -> None:
        """The weights of our supernet, module by module."""
        for mine, its in zip(self.cells, network.cells, strict=True):
            for part in ("first", "second"):
                _copy(getattr(mine, part), getattr(its, part))
            for edge, operations in enumerate(mine.edges):  # type: ignore[arg-type]
                for name, module in zip(OPERATIONS, operations, strict=True):
                    if f"{edge}_{name}" in its.operations:
                        _copy(module, its.operations[f"{edge}_{name}"])
        _copy(self.stem, network.stem)
        _copy(self.classifier, network.classifier)


def _copy(mine: nn.Module, its: Any) -> None:
    """Parameters in the order in which they are used; those of separable convolutions come in turns."""
    theirs = list(its.parameters())
    if hasattr(its, "depthwise"):
        turns = zip(its.depthwise, its.pointwise, strict=True)
        theirs = [convolution.weight for pair in turns for convolution in pair]
    with torch.no_grad():
        for own, value in zip(mine.parameters(), theirs, strict=True):
            own.copy_(value)


def _settings() -> Any:
    return network_settings(SPACES.get("darts").Network(), classes=CLASSES, image_channels=3, image_size=SIDE)


def step() -> Callable[[], object]:
    """Training as the harness does it."""
    optimiser = {"learning_rate": RATE, "momentum": MOMENTUM, "weight_decay": DECAY, "clip": CLIP, "nesterov": False}
    asked = {
        "space": "darts",
        "benchmark": None,
        "dataset": "cifar10",
        "train": {"epochs": 50, "batch_size": BATCH},
        "optimiser": optimiser,
    }
    return our_turn(asked, _settings(), random_batch(BATCH, SIDE, CLASSES), paths("darts", PATHS), PATHS)


def plain_step(order: str = "contiguous") -> Callable[[], object]:
    torch.manual_seed(0)
    network = PlainSupernet(_settings())
    optimiser = torch.optim.SGD(network.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)
    return plain_turn(network, optimiser, random_batch(BATCH, SIDE, CLASSES), paths("darts", PATHS), PATHS, order, CLIP)
