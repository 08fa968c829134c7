"""The augmentations that ship with the engine: torchvision's, with their options. No torch at import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.components.augmentation import BatchAugmentation, BatchTransform, ImageTransform, Transform
from harness.components.dataset import DataSet
from harness.errors import InvalidConfiguration


def _transforms() -> Any:
    from torchvision.transforms import v2

    return v2


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise InvalidConfiguration(f"{name} must be from {low:g} to {high:g}, not {value:g}")


@dataclass(frozen=True)
class Crop(Transform):
    """A random window of the image, which is padded with black."""

    padding: int = 4
    """Black pixels around the image, before a window is cut."""

    def __post_init__(self) -> None:
        _within("crop.padding", self.padding, 1, 1000)

    def bind(self, dataset: DataSet) -> ImageTransform:
        crop: ImageTransform = _transforms().RandomCrop(dataset.image_size, padding=self.padding)
        return crop


@dataclass(frozen=True)
class ResizedCrop(Transform):
    """A random part of the image, scaled to the data set's size."""

    smallest: float = 0.08
    """The smallest part, as a share of the area."""

    def __post_init__(self) -> None:
        _within("resized-crop.smallest", self.smallest, 0, 1)

    def bind(self, dataset: DataSet) -> ImageTransform:
        size, scale = dataset.image_size, (self.smallest, 1.0)
        crop: ImageTransform = _transforms().RandomResizedCrop(size, scale=scale, antialias=True)
        return crop


@dataclass(frozen=True)
class Flip(Transform):
    """Mirrored, left to right."""

    probability: float = 0.5
    """Of being mirrored."""

    def __post_init__(self) -> None:
        _within("flip.probability", self.probability, 0, 1)

    def bind(self, dataset: DataSet) -> ImageTransform:
        flip: ImageTransform = _transforms().RandomHorizontalFlip(self.probability)
        return flip


@dataclass(frozen=True)
class RandAugment(Transform):
    """Random operations on geometry and colour, all of one magnitude. Images need 1 or 3 channels."""

    operations: int = 2
    """How many per image."""
    magnitude: int = 9
    """Of all operations, from 0 to 30."""

    def __post_init__(self) -> None:
        _within("rand-augment.operations", self.operations, 1, 14)
        _within("rand-augment.magnitude", self.magnitude, 0, 30)

    def bind(self, dataset: DataSet) -> ImageTransform:
        augment: ImageTransform = _transforms().RandAugment(self.operations, self.magnitude)
        return augment


@dataclass(frozen=True)
class Erasing(Transform):
    """A black rectangle at a random place (cutout, random erasing)."""

    probability: float = 0.5
    """Of a rectangle."""
    largest: float = 0.33
    """The largest rectangle, as a share of the area."""

    def __post_init__(self) -> None:
        _within("erasing.probability", self.probability, 0, 1)
        _within("erasing.largest", self.largest, 0.02, 1)

    def bind(self, dataset: DataSet) -> ImageTransform:
        erasing: ImageTransform = _transforms().RandomErasing(self.probability, scale=(0.02, self.largest))
        return erasing


@dataclass(frozen=True)
class MixUp(BatchAugmentation):
    """Each image mixed with its neighbour in the batch, and their labels in the same proportion."""

    alpha: float = 0.2
    """Of the beta distribution that the proportion is drawn from."""

    def __post_init__(self) -> None:
        _within("mixup.alpha", self.alpha, 1e-6, 100)

    def bind(self, dataset: DataSet) -> BatchTransform:
        mix: BatchTransform = _transforms().MixUp(alpha=self.alpha, num_classes=dataset.classes)
        return mix


@dataclass(frozen=True)
class CutMix(BatchAugmentation):
    """A rectangle of the neighbour in the batch, and the labels in the proportion of the areas."""

    alpha: float = 1.0
    """Of the beta distribution that the proportion is drawn from."""

    def __post_init__(self) -> None:
        _within("cutmix.alpha", self.alpha, 1e-6, 100)

    def bind(self, dataset: DataSet) -> BatchTransform:
        mix: BatchTransform = _transforms().CutMix(alpha=self.alpha, num_classes=dataset.classes)
        return mix
