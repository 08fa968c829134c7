"""Interfaces of the order of samples and of augmentation, per sample and per batch. No torch at import.

All of these may use global rngs (of torch, numpy and Python's `random`), as torchvision does. The engine seeds them
from the trial's seed, the epoch and the sample (or the step) before every call, and restores them afterwards. So the
result does not depend on workers, on interruptions or on what ran before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from harness.components.dataset import DataSet

ImageTransform = Callable[["Tensor"], "Tensor"]
"""One image (uint8, channels×height×width) → the changed image."""

BatchTransform = Callable[["Tensor", "Tensor"], "tuple[Tensor, Tensor]"]
"""Normalised images and their labels → the same, changed. Labels may become probabilities (images × classes)."""


@dataclass(frozen=True)
class Augmentation:
    """A step of `train.augment` or `retrain.augment`: a `Transform` or a `BatchAugmentation`.

    A frozen dataclass whose fields are its options. It is bound to the data set before training begins.
    """


@dataclass(frozen=True)
class Transform(Augmentation, ABC):
    """Changes single images before they are normalised, in the process that reads them."""

    @abstractmethod
    def bind(self, dataset: DataSet) -> ImageTransform: ...


@dataclass(frozen=True)
class BatchAugmentation(Augmentation, ABC):
    """Changes whole batches after they are normalised, on the training device: mixing, for example."""

    @abstractmethod
    def bind(self, dataset: DataSet) -> BatchTransform: ...


@dataclass(frozen=True)
class Order(ABC):
    """The order of the samples of an epoch. A method's own order (`Method.data_order`) comes before it."""

    @abstractmethod
    def indices(self, count: int, epoch: int) -> Sequence[int] | Tensor:
        """The sample numbers of the epoch: `count` of them, from 0 to count - 1, repetitions allowed."""
