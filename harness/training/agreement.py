"""Whether the ranks of a trial compute the same: a cheap checksum now and then, exact to the last bit."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import torch
from torch import Tensor

from harness.training.supernet import SupernetTraining

EVERY = 100
"""Steps between two comparisons; the first step and the last one of an epoch are compared, too."""

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_LIMIT = 2**61


def compare(training: SupernetTraining, step: int, last: bool) -> None:
    """Raise an error that names the rank if weights, statistics, paths or draws differ, when a comparison is due."""
    if training.ranks.size == 1 or not (training.checking or last or (step + 1) % EVERY == 0):
        return
    numbers = {
        **of_network(training.network),
        "paths": zlib.crc32(repr(training.trained).encode()),
        "random numbers": zlib.crc32(repr(training.rng.getstate()).encode()),
        "random numbers of torch": zlib.crc32(torch.get_rng_state().numpy().tobytes()),
    }
    training.ranks.agree(numbers, f"after step {step + 1}")


def of_network(network: torch.nn.Module) -> dict[str, int]:
    """The checksums of a network, by what they are of."""
    return {
        "weights": checksum(network.parameters()),
        "statistics of batch normalisation": checksum(network.buffers()),
    }


@torch.no_grad()
def checksum(tensors: Iterable[Tensor]) -> int:
    """A number that other bits change: the sum of each tensor's bits, times its place."""
    sums = [one.view(_BITS[one.element_size()]).sum(dtype=torch.long) for one in tensors]
    if not sums:
        return 0
    found: list[int] = torch.stack(sums).tolist()
    return sum((place + 1) * (own % _LIMIT) for place, own in enumerate(found)) % _LIMIT
