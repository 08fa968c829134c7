"""Convolution, batch normalisation and pooling on a CPU, each with its gradient, by the fastest way for its size.

oneDNN's convolutions are close to the machine's peak speed from 16 channels and 8×8 pixels on. Below that, their
start-up costs more than their arithmetic, and the gradient of a convolution with stride 2 is slow at any size.
There a 1×1 convolution is computed as a matrix product over pixels, and a convolution of a small image as a
product with the matrix of the whole linear map. Forward and backward passes are written by hand, for float32
tensors in channels_last order. Knows no networks.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional

DENSE = 256 * 128
"""The largest matrix for which its product is faster than the convolution, measured with 64 and 256 images."""

POINTWISE = 4096
"""The most pixels of a batch of 64 for which a product of few channels is faster than a 1×1 convolution."""

SMALLEST_SIDE = 8
"""Side length from which pooling by a convolution with ones is faster."""

LARGE = 8192
"""Number of values of an image from which halving by a convolution with ones is faster."""

FEW_CHANNELS, MANY_PIXELS, MANY_ROWS = 8, 64, 2048
"""Torch's batch normalisation is slow for so few channels with at least so many pixels per image and per batch."""

EPSILON = 1e-5

_convolution_backward = torch.ops.aten.convolution_backward.default
_norm_backward = torch.ops.aten.native_batch_norm_backward.default
_pool_backward = torch.ops.aten.avg_pool2d_backward.default
_relu_backward = torch.ops.aten.threshold_backward.default
_ONLY_INPUT = [True, False, False]


def flat(x: Tensor) -> Tensor:
    """A view with one image per row, the channels of each pixel side by side."""
    return x.permute(0, 2, 3, 1).flatten(1)


def unflat(rows: Tensor, channels: int, height: int, width: int) -> Tensor:
    """The inverse of `flat`, also a view."""
    return rows.view(-1, height, width, channels).permute(0, 3, 1, 2)


def repeated(values: Tensor, times: int) -> Tensor:
    """The values repeated `times` times; several times as fast as `Tensor.repeat`."""
    return values.expand(times, -1).reshape(-1)


Gradients = tuple[Tensor | None, Tensor, Tensor | None]
"""Gradients of the input, the weights and the bias."""


class Convolve(Protocol):
    """A way to convolve. `saved` is what the gradient needs."""

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Any]: ...

    def backward(self, gradient: Tensor, x: Tensor, weight: Tensor, saved: Any, inner: bool) -> Gradients:
        """`inner` says whether the input's gradient is needed."""
        ...


class Direct(NamedTuple):
    """oneDNN's convolution."""

    stride: int
    padding: int
    bias: bool

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Any]:
        return torch.conv2d(x, weight, bias, self.stride, self.padding), None

    def backward(self, gradient: Tensor, x: Tensor, weight: Tensor, saved: Any, inner: bool) -> Gradients:
        sizes = [weight.shape[0]] if self.bias else None
        stride, padding = [self.stride] * 2, [self.padding] * 2
        mask = [inner, True, self.bias]
        found = _convolution_backward(gradient, x, weight, sizes, stride, padding, [1, 1], False, [0, 0], 1, mask)
        return found  # type: ignore[no-any-return]


class Pointwise:
    """A 1×1 convolution as a product over pixels."""

    def __init__(self, inner: int, outer: int, height: int, width: int, bias: bool) -> None:
        self.inner, self.outer, self.height, self.width, self.bias = inner, outer, height, width, bias

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Any]:
        pixels = x.permute(0, 2, 3, 1).reshape(-1, self.inner)
        y = functional.linear(pixels, weight.view(self.outer, self.inner), bias)
        return unflat(y, self.outer, self.height, self.width), pixels

    def backward(self, gradient: Tensor, x: Tensor, weight: Tensor, saved: Any, inner: bool) -> Gradients:
        rows = gradient.permute(0, 2, 3, 1).reshape(-1, self.outer)
        own = rows.t().mm(saved).view_as(weight)
        if not inner:
            return None, own, rows.sum(0) if self.bias else None
        found = unflat(rows.mm(weight.view(self.outer, self.inner)), self.inner, self.height, self.width)
        return found, own, rows.sum(0) if self.bias else None


class Dense:
    """A convolution of a small image as the product with its whole matrix, which is mostly zeros."""

    def __init__(self, shape: torch.Size, channels: int, height: int, width: int, stride: int, bias: bool) -> None:
        self.bias = bias
        self.inner = channels, height, width
        self.outer = shape[0], -(-height // stride), -(-width // stride)
        self.columns = self.outer[1] * self.outer[2]
        inputs, outputs = channels * height * width, self.columns * shape[0]
        weights = shape.numel()
        # The index of the weight at each place of the matrix. An extra weight, which is zero, is everywhere else.
        number = torch.arange(weights).view(shape[0], *shape[2:], channels)
        place = torch.full((height, width, channels, *self.outer[1:], shape[0]), weights)
        for row in range(self.outer[1]):
            for column in range(self.outer[2]):
                for y in range(shape[2]):
                    for x in range(shape[3]):
                        at = row * stride + y - shape[2] // 2, column * stride + x - shape[3] // 2
                        if 0 <= at[0] < height and 0 <= at[1] < width:
                            place[at[0], at[1], :, row, column] = number[:, y, x].t()
        self.place = place.flatten()
        self.shape = shape
        self.weights = torch.zeros(weights + 1)
        self.filled = self.weights[:-1].view(shape[0], *shape[2:], channels).permute(0, 3, 1, 2)
        # The inverse: for every weight all its places, padded with one index past the last.
        order = torch.argsort(self.place, stable=True)
        counts = torch.bincount(self.place, minlength=weights + 1)[:weights]
        starts = torch.cumsum(counts, 0) - counts
        turns = torch.arange(max(1, int(counts.max())))[:, None]
        found = order[(starts + turns).clamp(max=len(order) - 1)]
        self.places = torch.where(turns < counts, found, len(self.place)).flatten()
        self.turns = len(turns)
        self.products = torch.zeros(len(self.place) + 1)
        self.product = self.products[:-1].view(inputs, outputs)

    def matrix(self, weight: Tensor) -> Tensor:
        """The linear map of flat images."""
        self.filled.copy_(weight)
        return self.weights.index_select(0, self.place).view(self.product.shape)

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Any]:
        return self.applied(x, self.matrix(weight), bias)

    def applied(self, x: Tensor, matrix: Tensor, bias: Tensor | None) -> tuple[Tensor, Any]:
        rows = flat(x)
        y = rows.mm(matrix) if bias is None else torch.addmm(repeated(bias, self.columns), rows, matrix)
        return unflat(y, *self.outer), (rows, matrix)

    def backward(self, gradient: Tensor, x: Tensor, weight: Tensor, saved: Any, inner: bool) -> Gradients:
        rows, matrix = saved
        outer_rows = flat(gradient)
        torch.mm(rows.t(), outer_rows, out=self.product)
        own = self.products.index_select(0, self.places).view(self.turns, -1).sum(0)
        own = own.view(self.shape[0], *self.shape[2:], self.shape[1]).permute(0, 3, 1, 2)
        outer = unflat(outer_rows.mm(matrix.t()), *self.inner) if inner else None
        return outer, own, outer_rows.sum(0).view(self.columns, -1).sum(0) if self.bias else None


@cache
def way(shape: torch.Size, channels: int, height: int, width: int, stride: int, bias: bool) -> Convolve:
    """The fastest way to convolve images of that size with weights of that shape."""
    outputs = shape[0] * -(-height // stride) * -(-width // stride)
    if shape[2:] == (1, 1) and stride == 1 and (channels >= 16 or 64 * height * width <= POINTWISE):
        return Pointwise(channels, shape[0], height, width, bias)
    if channels * height * width * outputs <= DENSE:
        with torch.inference_mode(False):
            return Dense(shape, channels, height, width, stride, bias)
    return Direct(stride, shape[2] // 2, bias)


def normalise(y: Tensor, groups: int = 1) -> tuple[Tensor, Any]:
    """Batch normalisation by the batch's own statistics, and what its gradient needs. May overwrite `y`.

    The batch may be divided into groups, each with its own statistics.
    """
    if groups > 1:
        found, saved = zip(*map(normalise, y.tensor_split(groups)), strict=True)
        return torch.cat(found), (None, saved, None)
    images, channels, height, width = y.shape
    if channels > FEW_CHANNELS or height * width < MANY_PIXELS or images * height * width < MANY_ROWS:
        normal, mean, inverse = torch.native_batch_norm(y, None, None, None, None, True, 0.1, EPSILON)
        return normal, (y, mean, inverse)
    # All pixels of an image in one row: then sums run over whole vectors, not over a few channels.
    rows, pixels = flat(y), height * width
    share = 1 / (images * pixels)
    rows.sub_(repeated(rows.sum(0).view(pixels, channels).sum(0).mul_(share), pixels))
    variance = (rows * rows).sum(0).view(pixels, channels).sum(0).mul_(share)
    inverse = repeated(variance.add_(EPSILON).rsqrt_(), pixels)
    rows.mul_(inverse)
    return y, (y, None, inverse)


def normalise_backward(gradient: Tensor, saved: Any) -> Tensor:
    y, mean, inverse = saved
    if y is None:
        own: tuple[Any, ...] = mean
        groups = zip(gradient.tensor_split(len(own)), own, strict=True)
        return torch.cat([normalise_backward(*group) for group in groups])
    if mean is not None:
        found = _norm_backward(gradient, y, None, None, None, mean, inverse, True, EPSILON, _ONLY_INPUT)
        return found[0]  # type: ignore[no-any-return]
    images, channels, height, width = y.shape
    rows, normal, pixels = flat(gradient), flat(y), height * width
    share = 1 / (images * pixels)
    along = repeated((rows * normal).sum(0).view(pixels, channels).sum(0).mul_(-share), pixels)
    result = rows - repeated(rows.sum(0).view(pixels, channels).sum(0).mul_(share), pixels)
    return unflat(result.addcmul_(normal, along).mul_(inverse), channels, height, width)


def pool(x: Tensor) -> Tensor:
    """The mean of 3×3 pixels, without padding pixels.

    As a convolution with ones it adds in the same order as torch's own pooling and gives the same bits.
    """
    if min(x.shape[2:]) < SMALLEST_SIDE:
        return functional.avg_pool2d(x, 3, 1, padding=1, count_include_pad=False)
    ones, counts = window(*x.shape[1:])
    return torch.conv2d(x, ones, None, 1, 1, 1, x.shape[1]).div_(counts)


def pool_backward(gradient: Tensor, x: Tensor) -> Tensor:
    if min(x.shape[2:]) < SMALLEST_SIDE:
        return _pool_backward(gradient, x, [3, 3], [1, 1], [1, 1], False, False, None)  # type: ignore[no-any-return]
    ones, counts = window(*x.shape[1:])
    return torch.conv2d(gradient / counts, ones, None, 1, 1, 1, x.shape[1])


def halve(x: Tensor) -> Tensor:
    """The mean of 2×2 pixels; ceil_mode agrees with the strided convolution on odd sizes."""
    images, channels, height, width = x.shape
    if min(height, width) < SMALLEST_SIDE or height % 2 or width % 2:
        return functional.avg_pool2d(x, 2, 2, ceil_mode=True)
    if channels * height * width >= LARGE:
        return torch.conv2d(x, corners(channels), None, 2, 0, 1, channels).mul_(0.25)
    # First rows, which are contiguous, then columns: few channels alone are too short for vectors.
    rows = x.permute(0, 2, 3, 1).reshape(images, height // 2, 2, width * channels)
    pairs = (rows[:, :, 0] + rows[:, :, 1]).view(images, height // 2, width // 2, 2, channels)
    return (pairs[:, :, :, 0] + pairs[:, :, :, 1]).mul_(0.25).permute(0, 3, 1, 2)


def halve_backward(gradient: Tensor, x: Tensor) -> Tensor:
    return _pool_backward(gradient, x, [2, 2], [2, 2], [0, 0], True, True, None)  # type: ignore[no-any-return]


def relu_backward(gradient: Tensor, activated: Tensor) -> Tensor:
    return _relu_backward(gradient, activated, 0)  # type: ignore[no-any-return]


@cache
def corners(channels: int) -> Tensor:
    with torch.inference_mode(False):
        return torch.ones(channels, 1, 2, 2)


@cache
def window(channels: int, height: int, width: int) -> tuple[Tensor, Tensor]:
    """A window of ones for every channel, and the number of pixels averaged at each place."""
    with torch.inference_mode(False), torch.no_grad():
        counts = torch.conv2d(torch.ones(1, 1, height, width), torch.ones(1, 1, 3, 3), padding=1)
        # One for every channel: division without broadcasting is faster.
        counts = counts.expand(1, channels, height, width).contiguous(memory_format=torch.channels_last)
        return torch.ones(channels, 1, 3, 3), counts
