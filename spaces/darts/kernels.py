"""Depthwise convolution on a CPU whose gradient is computed by the fastest way for its kernel.

oneDNN's forward pass is fast for every kernel, and so is its gradient for kernels of 3×3. That of dilated ones takes
ten times as long, and so does that of 5×5 weights. Here they are reduced to what is fast. The input's gradient is a
convolution with the mirrored kernel. A dilated convolution is a plain one of each quarter of the image, the pixels of
equal parity; with stride 2 it sees one quarter only. The gradient of 5×5 weights is four of 3×3, at the corners of the
kernel. For tensors in channels_last order. Knows no networks.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

_backward = torch.ops.aten.convolution_backward.default
SMALL = 8
"""Side up to which quarters of 5×5 are faster, and from which on corners are, measured with 64 images."""
MANY = 16
"""Channels from which on corners are faster."""

_INPUT, _WEIGHT = [True, False, False], [False, True, False]


def fits(x: Tensor) -> bool:
    """Whether `depthwise` may be used for such images."""
    return x.device.type == "cpu" and x.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")


def depthwise(x: Tensor, weight: Tensor, stride: int, dilation: int) -> Tensor:
    """Every channel convolved with a kernel of its own, padded so that only the stride changes the size."""
    if not (torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)):
        return _forward(x, weight, stride, dilation)
    result: Tensor = _Depthwise.apply(x, weight, stride, dilation)
    return result


class _Depthwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: int, dilation: int) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.stride, ctx.dilation = stride, dilation
        return _forward(x, weight, stride, dilation)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, weight = ctx.saved_tensors
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        inner = _of_input(gradient, x, weight, ctx.stride, ctx.dilation) if ctx.needs_input_grad[0] else None
        own = _of_weight(gradient, x, weight, ctx.stride, ctx.dilation) if ctx.needs_input_grad[1] else None
        return inner, own, None, None


def _forward(x: Tensor, weight: Tensor, stride: int, dilation: int) -> Tensor:
    padding = dilation * (weight.shape[-1] // 2)
    return functional.conv2d(x, weight, None, stride, padding, dilation, len(weight))


def _of_input(gradient: Tensor, x: Tensor, weight: Tensor, stride: int, dilation: int) -> Tensor:
    if dilation == 1:
        return _native(gradient, x, weight, stride, dilation, _INPUT)[0]
    if stride == 1:
        return _forward(gradient, weight.flip(2, 3), 1, dilation)
    found = torch.zeros_like(x)
    found[:, :, ::2, ::2] = _forward(gradient, weight.flip(2, 3), 1, 1)
    return found


def _of_weight(gradient: Tensor, x: Tensor, weight: Tensor, stride: int, dilation: int) -> Tensor:
    if dilation == 2 and stride == 2:  # odd pixels are not looked at
        x, stride, dilation = _last(x[:, :, ::2, ::2]), 1, 1
    kernel, channels, sides = weight.shape[-1], len(weight), x.shape[2:]
    if dilation == 2 and not any(side % 2 for side in sides) and (kernel == 3 or max(sides) <= SMALL):
        x, gradient, dilation = _quarters(x), _quarters(gradient), 1
    if kernel == 5 and (stride, dilation) == (1, 1) and channels >= MANY and min(x.shape[2:]) >= SMALL:
        return _by_corners(gradient, x, weight)
    return _native(gradient, x, weight, stride, dilation, _WEIGHT)[1]


def _by_corners(gradient: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """The gradient of 5×5 weights: corner by corner, which have the middle row and column in common."""
    found = torch.empty_like(weight)
    small = weight[:, :, :3, :3].contiguous()
    padded = functional.pad(x, (2, 2, 2, 2))
    height, width = x.shape[2] + 2, x.shape[3] + 2
    for row in (0, 2):
        for column in (0, 2):
            part = _last(padded[:, :, row : row + height, column : column + width])
            own = _backward(gradient, part, small, None, [1, 1], [0, 0], [1, 1], False, [0, 0], len(weight), _WEIGHT)[1]
            found[:, :, row : row + 3, column : column + 3] = own
    return found


def _native(
    gradient: Tensor, x: Tensor, weight: Tensor, stride: int, dilation: int, mask: list[bool]
) -> tuple[Tensor, Tensor, Tensor]:
    padding = dilation * (weight.shape[-1] // 2)
    sizes = [stride] * 2, [padding] * 2, [dilation] * 2
    found: tuple[Tensor, Tensor, Tensor] = _backward(
        gradient, x, weight, None, *sizes, False, [0, 0], len(weight), mask
    )
    return found


def _quarters(x: Tensor) -> Tensor:
    """The pixels of equal parity as images of their own: four times as many of a quarter of the size."""
    images, channels, height, width = x.shape
    rows = x.permute(0, 2, 3, 1).reshape(images, height // 2, 2, width // 2, 2, channels)
    return rows.permute(2, 4, 0, 1, 3, 5).reshape(-1, height // 2, width // 2, channels).permute(0, 3, 1, 2)


def _last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)
