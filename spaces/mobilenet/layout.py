"""The layers of the space as data: which there are, how large each is, and which operations it may choose. No torch.

Everything else (counts, networks, text, drawings) is derived from these tables. Channels and image sizes come from the
settings of a network, so one table serves every width and resolution.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any


@dataclass(frozen=True)
class Operation:
    """A mobile inverted bottleneck (MBConv): expand by a 1×1 convolution, filter depthwise, project by another."""

    kernel: int
    expansion: int

    def __str__(self) -> str:
        return f"{self.kernel}x{self.kernel}e{self.expansion}"


SKIP = "skip"
"""The operation that passes its input on: possible where input and output have one shape."""

THREE_KERNELS = tuple(Operation(kernel, expansion) for kernel in (3, 5, 7) for expansion in (3, 6))
TWO_KERNELS = THREE_KERNELS[:4]
ONE_KERNEL = THREE_KERNELS[:2]

FIRST = Operation(3, 1)
"""The block before the first searchable layer, the same in all architectures; it does not expand."""


@dataclass(frozen=True)
class Stage:
    """Layers with the same number of output channels. The first one has the stride and cannot be skipped."""

    channels: int
    stride: int
    layers: int


@dataclass(frozen=True)
class Layout:
    """A network from input to output: stem, first block, stages of searchable layers, head, classifier."""

    stem: int
    stem_stride: int
    first: int
    stages: tuple[Stage, ...]
    head: int
    operations: tuple[Operation, ...]
    other_operations: Mapping[int, tuple[Operation, ...]] = field(default_factory=dict)
    """By decision, the operations of layers that do not have all."""
    image_size: int = 224
    """Side of the images of the published counts."""
    classes: int = 1000
    """Classes of the published counts."""

    def choices(self, decision: int, may_skip: bool) -> tuple[Operation | str, ...]:
        """What a layer may choose; skipping is the last choice, so that equal operations have equal numbers."""
        own = self.other_operations.get(decision, self.operations)
        return (*own, SKIP) if may_skip else own


PROXYLESS = Layout(
    stem=32,
    stem_stride=2,
    first=16,
    # 24 stands for `network.stage1_width`.
    stages=(Stage(24, 2, 4), Stage(40, 2, 4), Stage(80, 2, 4), Stage(96, 1, 4), Stage(192, 2, 4), Stage(320, 1, 1)),
    head=1280,
    operations=THREE_KERNELS,
)
"""ProxylessNAS's space: 21 searchable layers. Layers 0, 4, 8, 12, 16 and 20 change the shape and cannot be skipped."""

REDUCED = Layout(
    stem=8,
    stem_stride=1,
    first=8,
    stages=(Stage(12, 2, 2), Stage(20, 2, 3), Stage(32, 1, 3)),
    head=96,
    operations=TWO_KERNELS,
    other_operations={1: ONE_KERNEL},
    image_size=16,
    classes=10,
)
"""A small form for machines without GPUs: 8 searchable layers, images of 16 pixels and less.

Layer 1 has 3 choices, so that few-shot methods, which split there, train 3 supernets.
"""


@dataclass(frozen=True)
class Layer:
    """One searchable layer of a network of some size."""

    inputs: int
    outputs: int
    stride: int
    size: int
    """Side of its input."""
    choices: tuple[Operation | str, ...]

    @property
    def size_out(self) -> int:
        return halved(self.size, self.stride)

    @property
    def residual(self) -> bool:
        """Whether the input is added to the output."""
        return self.stride == 1 and self.inputs == self.outputs


@dataclass(frozen=True)
class Plan:
    """A layout at the size that the settings of a network say."""

    image_channels: int
    image_size: int
    stem: int
    stem_stride: int
    first: Layer
    layers: tuple[Layer, ...]
    head: int
    classes: int

    @property
    def last(self) -> Layer:
        return self.layers[-1]


@lru_cache(maxsize=64)
def plan(layout: str, settings: Any) -> Plan:
    """The layout of that name at that size. Settings are compared by value, so each size is planned once."""
    chosen = LAYOUTS[layout]

    def channels(number: int) -> int:
        return scaled(number, settings.width_multiplier)

    size = halved(settings.image_size, chosen.stem_stride)
    inputs = channels(chosen.first)
    first = Layer(channels(chosen.stem), inputs, 1, size, (FIRST,))
    layers: list[Layer] = []
    for number, stage in enumerate(chosen.stages):
        width = getattr(settings, "stage1_width", stage.channels) if number == 0 else stage.channels
        for place in range(stage.layers):
            stride = stage.stride if place == 0 else 1
            choices = chosen.choices(len(layers), may_skip=place > 0)
            layers.append(Layer(inputs, channels(width), stride, size, choices))
            inputs, size = channels(width), layers[-1].size_out
    # As MobileNetV2 does: a narrower network keeps its head, which has most of what the classifier sees.
    head = channels(chosen.head) if settings.width_multiplier > 1 else chosen.head
    return Plan(
        settings.image_channels,
        settings.image_size,
        first.inputs,
        chosen.stem_stride,
        first,
        tuple(layers),
        head,
        settings.classes,
    )


def scaled(channels: int, factor: float) -> int:
    """The nearest multiple of 4, and at least 4."""
    return max(4, round(channels * factor / 4) * 4)


def halved(size: int, stride: int) -> int:
    """Side of the output of a convolution that pads by half its kernel."""
    return -(-size // stride)


LAYOUTS = {"mobilenet": PROXYLESS, "mobilenet-reduced": REDUCED}
