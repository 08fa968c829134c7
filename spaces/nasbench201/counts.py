"""Exact parameter and multiply-add counts of NAS-Bench-201 architectures, by formula.

All counts are for the benchmark's own size (16 channels, 5 cells per stage, 10 classes, 32×32 images)
and, as the benchmark does, include edges that cannot reach the output. `network_parameters` counts
at any size.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.components.space import Architecture, NetworkSettings

from .cell import CONV1X1, CONV3X3


def parameters(architecture: Architecture) -> int:
    """Trainable parameters of the stand-alone network, as the benchmark counts them."""
    return 73_306 + 28_000 * architecture.count(CONV1X1) + 243_040 * architecture.count(CONV3X3)


def parameters_released(architecture: Architecture) -> int:
    """The released code's count: no batch normalisation, no bias of the classifier."""
    return 72_752 + 26_880 * architecture.count(CONV1X1) + 241_920 * architecture.count(CONV3X3)


def flops(architecture: Architecture) -> int:
    """Multiply-adds of convolutions and classifier (bias included) for one 32×32 image."""
    return 7_783_050 + 3_932_160 * architecture.count(CONV1X1) + 35_389_440 * architecture.count(CONV3X3)


COUNTS: dict[str, Callable[[Architecture], int]] = {
    "parameters": parameters,
    "parameters-released": parameters_released,
    "flops": flops,
}


def network_parameters(architecture: Architecture, settings: NetworkSettings) -> int:
    """Trainable parameters of the stand-alone network (affine batch normalisation) at any size."""
    width, depth = settings.width, settings.depth
    n1, n3 = architecture.count(CONV1X1), architecture.count(CONV3X3)
    total = 9 * settings.image_channels * width + 2 * width  # stem
    for stage in range(3):
        channels = width * 2**stage
        cell = n1 * (channels**2 + 2 * channels) + n3 * (9 * channels**2 + 2 * channels)
        total += depth * cell
        if stage:
            half = channels // 2
            total += 9 * half * channels + 2 * channels + 9 * channels**2 + 2 * channels + half * channels
    last = 4 * width
    return total + 2 * last + last * settings.classes + settings.classes


def network_flops(architecture: Architecture, settings: NetworkSettings) -> int:
    """Multiply-adds of the stand-alone network for one image at any size."""
    width, size = settings.width, settings.image_size
    n1, n3 = architecture.count(CONV1X1), architecture.count(CONV3X3)
    total = 9 * settings.image_channels * width * size**2
    for stage in range(3):
        channels = width * 2**stage
        if stage:
            size = (size + 1) // 2
            half = channels // 2
            total += (9 * half * channels + 9 * channels**2 + half * channels) * size**2
        total += settings.depth * (n1 + 9 * n3) * channels**2 * size**2
    last = 4 * width
    return total + last * settings.classes + settings.classes


AT_ANY_SIZE: dict[str, Callable[[Architecture, NetworkSettings], int]] = {
    "parameters": network_parameters,
    "flops": network_flops,
}
