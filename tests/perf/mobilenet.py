"""The MobileNet supernet at ImageNet's size: our training step against the same step written with timm's blocks.

Both sides train the same paths on the same batch of 32 images of 224×224 pixels: forward, backward, update by SGD.
Images are random and made beforehand. The plain side is in NCHW order, as its blocks are by default, or in
channels_last order, as a careful reader of torch's manual would have it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from harness.components.registries import SPACES
from harness.components.space import Architecture, network_settings
from spaces.mobilenet.layout import plan
from tests.perf.turns import our_turn, paths, plain_turn, random_batch

BATCH, SIDE, CLASSES = 32, 224, 1000
PATHS = 2
"""Different paths per turn: few, since a step takes seconds; the same in every turn, so that turns are comparable."""
RATE, MOMENTUM, DECAY = 0.045, 0.9, 4e-5


class PlainSupernet(nn.Module):
    """The whole space over one set of weights, as a reader of timm would write it: one block per choice and layer."""

    def __init__(self, sizes: Any, epsilon: float = 1e-3) -> None:
        from timm.models._efficientnet_blocks import ConvBnAct, DepthwiseSeparableConv, InvertedResidual

        super().__init__()
        shared: dict[str, Any] = {"act_layer": nn.ReLU6, "norm_layer": partial(nn.BatchNorm2d, eps=epsilon)}
        self.stem = ConvBnAct(sizes.image_channels, sizes.stem, 3, stride=sizes.stem_stride, **shared)
        self.first = DepthwiseSeparableConv(sizes.first.inputs, sizes.first.outputs, 3, **shared)
        self.layers = nn.ModuleList()
        for layer in sizes.layers:
            blocks = nn.ModuleList()
            for operation in layer.choices:
                if operation == "skip":
                    blocks.append(nn.Identity())
                    continue
                kernel, expansion = operation.kernel, operation.expansion
                block = InvertedResidual(
                    layer.inputs, layer.outputs, kernel, layer.stride, exp_ratio=expansion, **shared
                )
                blocks.append(block)
            self.layers.append(blocks)
        self.head = ConvBnAct(sizes.last.outputs, sizes.head, 1, **shared)
        self.classifier = nn.Linear(sizes.head, sizes.classes)

    def forward(self, x: Tensor, path: Architecture) -> Tensor:
        x = self.first(self.stem(x))
        for blocks, choice in zip(self.layers, path, strict=True):
            assert isinstance(blocks, nn.ModuleList)
            x = blocks[choice](x)
        logits: Tensor = self.classifier(self.head(x).mean((2, 3)))
        return logits

    def take(self, network: nn.Module) -> None:
        """The weights and statistics of our supernet, whose modules are in the same order."""
        own, theirs = self.state_dict(), list(network.state_dict().values())
        pairs = zip(own.items(), theirs, strict=True)
        self.load_state_dict({name: value.reshape(mine.shape) for (name, mine), value in pairs})


def _settings() -> Any:
    own = SPACES.get("mobilenet").Network()
    return network_settings(own, classes=CLASSES, image_channels=3, image_size=SIDE)


def step() -> Callable[[], object]:
    """Training as the harness does it, in the order of dimensions in which its loaders give images."""
    asked = {
        "space": "mobilenet",
        "benchmark": None,
        "dataset": "imagenet",
        "train": {"epochs": 150, "batch_size": BATCH},
        "optimiser": {"learning_rate": RATE, "momentum": MOMENTUM, "weight_decay": DECAY, "clip": None},
    }
    return our_turn(asked, _settings(), random_batch(BATCH, SIDE, CLASSES), paths("mobilenet", PATHS), PATHS)


def plain_step(order: str = "contiguous") -> Callable[[], object]:
    """The same with timm's blocks and torch's SGD."""
    torch.manual_seed(0)
    network = PlainSupernet(plan("mobilenet", _settings()))
    optimiser = torch.optim.SGD(network.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)
    return plain_turn(network, optimiser, random_batch(BATCH, SIDE, CLASSES), paths("mobilenet", PATHS), PATHS, order)
