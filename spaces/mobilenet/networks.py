"""The space's networks: the supernet, and an architecture as a network of its own.

Every block is a module of its own. A path runs only its blocks, so the others get no gradient. Activations
are in channels_last order, in which depthwise convolutions on a CPU are several times faster.

Initial weights: convolutions from a normal distribution with variance 2/(kernel² · output channels), as MobileNetV2's
and ProxylessNAS's; batch normalisation 1 and 0; the classifier from a normal distribution of deviation 0.01, bias 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.components.latency import Piece, Pieces
from harness.components.space import Architecture
from harness.data.devices import laid_out
from harness.errors import InvalidConfiguration

from .counts import squeezed
from .layout import Layer, Operation, Plan


class Convolution(nn.Conv2d):
    """A convolution that pads by half its kernel, for `copies` stacked networks. Channels are those of one network."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, copies: int, stride: int = 1, groups: int = 1, bias: bool = False
    ) -> None:
        self.deviation = math.sqrt(2 / (kernel**2 * outputs))
        super().__init__(
            inputs * copies, outputs * copies, kernel, stride, kernel // 2, groups=groups * copies, bias=bias
        )

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=self.deviation)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


class Normed(nn.Module):
    """Convolution, batch normalisation and, unless `linear`, ReLU6."""

    def __init__(
        self,
        settings: Any,
        inputs: int,
        outputs: int,
        kernel: int,
        stride: int = 1,
        groups: int = 1,
        linear: bool = False,
    ) -> None:
        super().__init__()
        self.convolution = Convolution(inputs, outputs, kernel, settings.copies, stride, groups)
        self.norm = nn.BatchNorm2d(
            outputs * settings.copies,
            eps=settings.norm_epsilon,
            momentum=settings.norm_momentum,
            track_running_stats=settings.batch_norm == "tracked",
        )
        self.linear = linear

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.convolution(x))
        # Not in place: the gradient needs the input, and torch would copy that first.
        return x if self.linear else functional.hardtanh(x, 0.0, 6.0)


class Excitation(nn.Module):
    """Squeeze-and-excitation: each channel is scaled by a function of all channels' means."""

    def __init__(self, channels: int, hidden: int, copies: int) -> None:
        super().__init__()
        self.squeeze = Convolution(channels, hidden, 1, copies, bias=True)
        self.excite = Convolution(hidden, channels, 1, copies, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        means = torch.relu(self.squeeze(x.mean((2, 3), keepdim=True)))
        return x * torch.sigmoid(self.excite(means))


class Bottleneck(nn.Module):
    """MBConv: expand, filter depthwise, project; the input is added where the shapes agree."""

    def __init__(self, layer: Layer, operation: Operation, settings: Any) -> None:
        super().__init__()
        hidden = layer.inputs * operation.expansion
        self.residual = layer.residual
        parts: list[nn.Module] = []
        if operation.expansion > 1:
            parts.append(Normed(settings, layer.inputs, hidden, 1))
        parts.append(Normed(settings, hidden, hidden, operation.kernel, layer.stride, groups=hidden))
        if narrow := squeezed(layer.inputs, settings.squeeze):
            parts.append(Excitation(hidden, narrow, settings.copies))
        parts.append(Normed(settings, hidden, layer.outputs, 1, linear=True))
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for part in self.parts:
            y = part(y)
        return y + x if self.residual else y


class Classifier(nn.Module):
    """Global average and the classifier, a grouped 1×1 convolution, so that it stacks like everything else."""

    def __init__(self, inputs: int, settings: Any) -> None:
        super().__init__()
        self.copies, self.classes = settings.copies, settings.classes
        self.linear = Convolution(inputs, settings.classes, 1, settings.copies, bias=True)
        self.linear.deviation = 0.01
        self.linear.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.linear(x.mean((2, 3), keepdim=True)).flatten(1)
        return logits if self.copies == 1 else logits.view(len(logits), self.copies, self.classes)


class Network(nn.Module):
    """The chain, with the blocks of each layer left open."""

    def __init__(self, sizes: Plan, settings: Any, blocks: Sequence[Mapping[int, Operation]]) -> None:
        super().__init__()
        self.decays_all: bool = settings.norm_decay
        self.stem = Normed(settings, sizes.image_channels, sizes.stem, 3, sizes.stem_stride)
        first = sizes.first.choices[0]
        assert isinstance(first, Operation)
        self.first = Bottleneck(sizes.first, first, settings)
        self.layers = nn.ModuleList(
            nn.ModuleDict({str(choice): Bottleneck(layer, operation, settings) for choice, operation in own.items()})
            for layer, own in zip(sizes.layers, blocks, strict=True)
        )
        self.head = Normed(settings, sizes.last.outputs, sizes.head, 1)
        self.classifier = Classifier(sizes.head, settings)
        self.to(memory_format=torch.channels_last)

    def choices(self) -> list[nn.ModuleDict]:
        """By layer, the blocks by the number of their choice."""
        return [layer for layer in self.layers if isinstance(layer, nn.ModuleDict)]

    def path(self, architecture: Architecture) -> list[nn.Module]:
        """The modules of a path in their order; a skip has none."""
        pairs = zip(self.choices(), architecture, strict=True)
        blocks = [layer[str(choice)] for layer, choice in pairs if str(choice) in layer]
        return [self.stem, self.first, *blocks, self.head, self.classifier]

    def run(self, x: Tensor, architecture: Architecture) -> Tensor:
        x = laid_out(x)
        for module in self.path(architecture):
            x = module(x)
        return x


class Supernet(Network):
    """All architectures of the space over one set of weights."""

    def __init__(self, sizes: Plan, settings: Any) -> None:
        super().__init__(sizes, settings, [_blocks(layer.choices) for layer in sizes.layers])
        self.tracked = settings.batch_norm == "tracked"

    def operation_parameters(self) -> dict[tuple[int, int], list[Tensor]]:
        """By layer and choice, the parameters of the block."""
        return {
            (layer, int(choice)): list(block.parameters())
            for layer, blocks in enumerate(self.choices())
            for choice, block in blocks.items()
        }

    def forward(self, x: Tensor, architecture: Architecture) -> Tensor:
        return self.run(x, architecture)

    @contextmanager
    def calibrated(self, architecture: Architecture, batches: Sequence[Tensor]) -> Iterator[None]:
        """Context in which the path has the statistics of these images; afterwards it has those of before.

        The statistics are reset, then averaged over the batches with equal weights.
        """
        if not self.tracked:
            raise InvalidConfiguration(
                "network.batch_norm=batch-statistics keeps no statistics to calibrate; "
                "use network.batch_norm=tracked, or rank.calibration=0"
            )
        modules = (one for part in self.path(architecture) for one in part.modules())
        norms = [one for one in modules if isinstance(one, nn.BatchNorm2d)]
        before = [({name: value.clone() for name, value in norm.named_buffers()}, norm.momentum) for norm in norms]
        training = [norm.training for norm in norms]
        try:
            for norm in norms:
                norm.reset_running_stats()
                norm.train()
            with torch.no_grad():
                for number, images in enumerate(batches, 1):
                    for norm in norms:
                        norm.momentum = 1 / number  # equal weights; None would wait for the device in every layer
                    self.run(images, architecture)
            for norm in norms:
                norm.eval()
            yield
        finally:
            for norm, (buffers, momentum), mode in zip(norms, before, training, strict=True):
                for name, value in norm.named_buffers():
                    value.copy_(buffers[name])
                norm.momentum = momentum
                norm.train(mode)


class StandaloneNetwork(Network):
    """One architecture as a network of its own."""

    def __init__(self, architecture: Architecture, sizes: Plan, settings: Any) -> None:
        self.architecture = architecture
        pairs = zip(sizes.layers, architecture, strict=True)
        super().__init__(sizes, settings, [_blocks(layer.choices, choice) for layer, choice in pairs])

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x, self.architecture)

    def block_features(self, x: Tensor) -> list[Tensor]:
        """The output of the stem, and of each block; a skipped one has none."""
        features, (stem, *blocks) = [laid_out(x)], self.path(self.architecture)[:-2]
        for block in (stem, *blocks):
            features.append(block(features[-1]))
        return features[1:]


def _blocks(choices: Sequence[Operation | str], only: int | None = None) -> dict[int, Operation]:
    """The choices that have weights, by number; of a single one if `only` is given."""
    return {
        number: operation
        for number, operation in enumerate(choices)
        if isinstance(operation, Operation) and only in (None, number)
    }


def pieces(sizes: Plan, settings: Any) -> Pieces:
    """Every block by itself, stem and head included, for measurements of latency."""
    whole = Supernet(sizes, settings)

    def piece(module: nn.Module, layer: Layer) -> Piece:
        return Piece(module, (layer.inputs, layer.size, layer.size))

    side, last = sizes.image_size, sizes.last
    layers = [
        [piece(blocks[str(choice)], layer) if str(choice) in blocks else None for choice in range(len(layer.choices))]
        for layer, blocks in zip(sizes.layers, whole.choices(), strict=True)
    ]
    head = nn.Sequential(whole.head, whole.classifier)
    shared = [
        Piece(whole.stem, (sizes.image_channels, side, side)),
        piece(whole.first, sizes.first),
        Piece(head, (last.outputs, last.size_out, last.size_out)),
    ]
    return Pieces(shared, layers)


def parameter_groups(network: nn.Module) -> list[dict[str, Any]]:
    """All parameters in one group; those of one dimension apart and without decay if the settings say so."""
    parameters = list(network.parameters())
    if getattr(network, "decays_all", True):
        return [{"params": parameters}]
    flat, others = ([one for one in parameters if (one.ndim == 1) is wanted] for wanted in (True, False))
    return [{"params": others}, {"params": flat, "weight_decay_factor": 0.0}]
