"""The operations of edges, and what is before and after the cells, as modules.

Every operation but pooling and skipping begins with a ReLU. Several edges leave one node, so the activated values are
made once: these modules take them. Initial weights are torch's own.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import cell, kernels


@dataclass(frozen=True)
class Norms:
    """Which batch normalisation a network has."""

    affine: bool
    tracked: bool

    def make(self, channels: int) -> nn.BatchNorm2d:
        return nn.BatchNorm2d(channels, affine=self.affine, track_running_stats=self.tracked)

    @property
    def stateless(self) -> bool:
        """Whether it is the same function at every place."""
        return not self.affine and not self.tracked


class Depthwise(nn.Conv2d):
    """Every channel convolved with a kernel of its own, padded so that only the stride changes the size."""

    swift = True
    """Whether the gradient is our own. Set it to False for gradients of gradients."""

    def __init__(self, channels: int, kernel: int, stride: int, dilation: int) -> None:
        padding = dilation * (kernel // 2)
        super().__init__(channels, channels, kernel, stride, padding, dilation, groups=channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.swift and kernels.fits(x):
            return kernels.depthwise(x, self.weight, self.stride[0], self.dilation[0])
        return super().forward(x)


class Separable(nn.Module):
    """Depthwise and 1×1 convolution, normalised; once (dilated), or twice with a ReLU between."""

    def __init__(self, channels: int, parts: cell.Separable, stride: int, norms: Norms) -> None:
        super().__init__()
        kernel, dilation, times = parts
        self.depthwise = nn.ModuleList(
            Depthwise(channels, kernel, stride if number == 0 else 1, dilation) for number in range(times)
        )
        self.pointwise = nn.ModuleList(nn.Conv2d(channels, channels, 1, bias=False) for _ in range(times))
        self.norms = nn.ModuleList(norms.make(channels) for _ in range(times))

    def forward(self, active: Tensor) -> Tensor:
        x = active
        for number, parts in enumerate(zip(self.depthwise, self.pointwise, self.norms, strict=True)):
            # In place: the gradient of batch normalisation needs its input, not its output.
            x = torch.relu_(x) if number else x
            for part in parts:
                x = part(x)
        return x


class Pointwise(nn.Module):
    """A 1×1 convolution, normalised."""

    def __init__(self, inputs: int, outputs: int, norms: Norms) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, 1, bias=False)
        self.norm = norms.make(outputs)

    def forward(self, active: Tensor) -> Tensor:
        y: Tensor = self.norm(self.convolution(active))
        return y


class Halving(nn.Module):
    """Half as large: one half of the channels from the even pixels, the other from the odd ones, normalised."""

    def __init__(self, inputs: int, outputs: int, norms: Norms) -> None:
        super().__init__()
        self.even = nn.Conv2d(inputs, outputs // 2, 1, stride=2, bias=False)
        self.odd = nn.Conv2d(inputs, outputs - outputs // 2, 1, stride=2, bias=False)
        self.norm = norms.make(outputs)

    def forward(self, active: Tensor) -> Tensor:
        height, width = active.shape[2:]
        shifted = active[:, :, 1:, 1:]
        if height % 2 or width % 2:  # an odd side has no last odd pixel: zeros stand for it
            shifted = functional.pad(shifted, (0, width % 2, 0, height % 2))
        y: Tensor = self.norm(torch.cat([self.even(active), self.odd(shifted)], 1))
        return y


class Pooling(nn.Module):
    """3×3 pooling; normalised in the form for search."""

    def __init__(self, largest: bool, stride: int, norm: nn.Module | None) -> None:
        super().__init__()
        self.largest, self.stride, self.norm = largest, stride, norm

    def forward(self, x: Tensor) -> Tensor:
        if self.largest:
            y = functional.max_pool2d(x, 3, self.stride, 1)
        else:
            y = functional.avg_pool2d(x, 3, self.stride, 1, count_include_pad=False)
        return y if self.norm is None else self.norm(y)


class AuxiliaryHead(nn.Module):
    """A classifier of a middle cell's output, for training only; made for 8×8 pixels.

    Smaller maps are pooled to 2×2 as they are. Larger ones leave more than one pixel, whose mean is taken.
    """

    POOLED, SIDE = 128, 8

    def __init__(self, inputs: int, classes: int, norms: Norms) -> None:
        super().__init__()
        self.pointwise = Pointwise(inputs, self.POOLED, norms)
        self.convolution = nn.Conv2d(self.POOLED, 6 * self.POOLED, 2, bias=False)
        self.norm = norms.make(6 * self.POOLED)
        self.classifier = nn.Linear(6 * self.POOLED, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(x)
        if min(x.shape[2:]) < self.SIDE:
            x = functional.adaptive_avg_pool2d(x, 2)
        else:
            x = functional.avg_pool2d(x, 5, 3, count_include_pad=False)
        x = torch.relu(self.norm(self.convolution(torch.relu(self.pointwise(x)))))
        logits: Tensor = self.classifier(x.mean((2, 3)))
        return logits
