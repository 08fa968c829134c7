"""The orders of samples that ship with the engine. No torch at import."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.components.augmentation import Order
from harness.errors import InvalidConfiguration

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Shuffled(Order):
    """A random permutation per epoch."""

    def indices(self, count: int, epoch: int) -> Sequence[int] | Tensor:
        import torch

        return torch.randperm(count)


@dataclass(frozen=True)
class Stored(Order):
    """As the samples are stored, in every epoch."""

    def indices(self, count: int, epoch: int) -> Sequence[int] | Tensor:
        return range(count)


@dataclass(frozen=True)
class Repeated(Order):
    """A random share of the samples per epoch, each several times in a row with other random transforms."""

    times: int = 3
    """How often a sample comes in a row; an epoch has a share of the samples."""

    def __post_init__(self) -> None:
        if self.times < 1:
            raise InvalidConfiguration(f"order.times must be at least 1, not {self.times}")

    def indices(self, count: int, epoch: int) -> Sequence[int] | Tensor:
        import torch

        return torch.randperm(count)[: -(-count // self.times)].repeat_interleave(self.times)[:count]
