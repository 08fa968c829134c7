"""The augmentations that ship with the engine: torchvision's and timm's, with their options. No torch at import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.components.augmentation import BatchAugmentation, BatchTransform, ImageTransform, Transform
from harness.components.dataset import DataSet
from harness.components.option import added
from harness.errors import InvalidConfiguration


def _transforms() -> Any:
    from torchvision.transforms import v2

    return v2


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise InvalidConfiguration(f"{name} must be from {low:g} to {high:g}, not {value:g}")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidConfiguration(f"{name} is {value!r}; allowed: {', '.join(allowed)}")


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
    interpolation: str = added("bilinear")
    """`bilinear` or `bicubic`."""

    def __post_init__(self) -> None:
        _within("resized-crop.smallest", self.smallest, 0, 1)
        _one_of("resized-crop.interpolation", self.interpolation, ("bilinear", "bicubic"))

    def bind(self, dataset: DataSet) -> ImageTransform:
        v2 = _transforms()
        crop: ImageTransform = v2.RandomResizedCrop(
            dataset.image_size,
            scale=(self.smallest, 1.0),
            interpolation=v2.InterpolationMode(self.interpolation),
            antialias=True,
        )
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
    fill: str = added("black")
    """`black`; `mean`: the data set's mean colour, which is zero once images are normalised; or `noise`: each pixel
    from a normal distribution with the data set's mean and deviation (timm's mode `pixel`)."""

    def __post_init__(self) -> None:
        _within("erasing.probability", self.probability, 0, 1)
        _within("erasing.largest", self.largest, 0.02, 1)
        _one_of("erasing.fill", self.fill, ("black", "mean", "noise"))

    def bind(self, dataset: DataSet) -> ImageTransform:
        if self.fill == "noise":
            return self._noise(dataset)
        value = [round(channel) for channel in dataset.mean] if self.fill == "mean" else 0
        erasing: ImageTransform = _transforms().RandomErasing(self.probability, (0.02, self.largest), value=value)
        return erasing

    def _noise(self, dataset: DataSet) -> ImageTransform:
        import torch
        from torchvision.transforms import RandomErasing

        mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (dataset.mean, dataset.std))

        def erased(image: torch.Tensor) -> torch.Tensor:
            if torch.rand(()) >= self.probability:
                return image
            top, left, height, width, _ = RandomErasing.get_params(image, (0.02, self.largest), (0.3, 3.3), [0.0])
            noise = torch.randn(len(image), height, width) * std + mean
            image = image.clone()
            image[:, top : top + height, left : left + width] = noise.round_().clamp_(0, 255).to(torch.uint8)
            return image

        return erased


@dataclass(frozen=True)
class TimmRandAugment(Transform):
    """RandAugment as timm has it, whose magnitudes vary. Images need 1 or 3 channels; needs the extra `[imagenet]`."""

    policy: str = "rand-m9-mstd0.5-inc1"
    """timm's text of the policy: magnitude 9, deviation 0.5, and operations that grow with the magnitude."""

    def bind(self, dataset: DataSet) -> ImageTransform:
        try:
            from timm.data.auto_augment import rand_augment_transform
        except ModuleNotFoundError as error:
            raise InvalidConfiguration(
                "the augmentation timm-rand-augment needs timm, which is not installed: "
                "pip install 'nas-harness[imagenet]'; rand-augment does without"
            ) from error
        mean = (*(round(channel) for channel in dataset.mean),)
        options = {"translate_const": max(1, int(dataset.image_size * 0.45)), "img_mean": (mean * 3)[:3]}
        try:
            change = rand_augment_transform(self.policy, options)
        except (AssertionError, ValueError, KeyError, NotImplementedError) as error:
            raise InvalidConfiguration(
                f"timm-rand-augment.policy is {self.policy!r}, which timm does not know: {error}"
            ) from error
        for operation in change.ops:
            if operation.name.startswith("Posterize"):
                operation.aug_fn = _one_bit_at_least(operation.aug_fn)
        functional = _transforms().functional

        def changed(image: Any) -> Any:
            colours = functional.to_pil_image(image.expand(3, -1, -1))
            return functional.pil_to_tensor(change(colours))[: len(image)]

        return changed


def _one_bit_at_least(posterize: Any) -> Any:
    """timm asks for 0 bits at the greatest magnitude, which Pillow refuses."""
    return lambda image, bits, **options: posterize(image, max(1, bits), **options)


@dataclass(frozen=True)
class Cutout(BatchAugmentation):
    """A square of the mean colour at a random place of every image; it may reach over the border."""

    length: int = 16
    """Its side, in pixels."""

    def __post_init__(self) -> None:
        _within("cutout.length", self.length, 1, 1000)

    def bind(self, dataset: DataSet) -> BatchTransform:
        import torch

        def cut(images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            inside = []
            for side in images.shape[2:]:
                centre = torch.randint(side, (len(images), 1), device=images.device)
                place = torch.arange(side, device=images.device) - centre + self.length // 2
                inside.append((place >= 0) & (place < self.length))
            hole = inside[0][:, None, :, None] & inside[1][:, None, None, :]
            return images.masked_fill(hole, 0.0), labels  # normalised: zero is the mean

        return cut


@dataclass(frozen=True)
class AutoAugment(Transform):
    """A learned policy of operations on geometry and colour. Images need 1 or 3 channels."""

    policy: str = "imagenet"
    """The data set that the policy was learned on: `imagenet`, `cifar10` or `svhn`."""

    def __post_init__(self) -> None:
        _one_of("auto-augment.policy", self.policy, ("imagenet", "cifar10", "svhn"))

    def bind(self, dataset: DataSet) -> ImageTransform:
        v2 = _transforms()
        augment: ImageTransform = v2.AutoAugment(v2.AutoAugmentPolicy(self.policy))
        return augment


EIGENVALUES = (0.2175, 0.0188, 0.0045)
EIGENVECTORS = ((-0.5675, -0.5808, -0.5836), (0.7192, -0.0045, -0.6948), (0.4009, -0.8140, 0.4203))
"""Principal components of the colours of ImageNet, red, green and blue from 0 to 1: one vector per eigenvalue."""


@dataclass(frozen=True)
class Lighting(Transform):
    """Random light: the principal components of ImageNet's colours are added in random amounts (PCA lighting)."""

    deviation: float = 0.1
    """Of the normal distribution that the amounts are drawn from."""

    def __post_init__(self) -> None:
        _within("lighting.deviation", self.deviation, 0, 10)

    def bind(self, dataset: DataSet) -> ImageTransform:
        import torch

        if dataset.image_channels != 3:
            channels = dataset.image_channels
            raise InvalidConfiguration(f"lighting needs images with 3 channels; {dataset.name} has {channels}")
        components = torch.tensor(EIGENVECTORS).T * torch.tensor(EIGENVALUES)

        def lit(image: torch.Tensor) -> torch.Tensor:
            light = components @ (torch.randn(3) * self.deviation) * 255
            return (image + light[:, None, None]).round_().clamp_(0, 255).to(torch.uint8)

        return lit


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


@dataclass(frozen=True)
class Mixing(BatchAugmentation):
    """Either `mixup` or `cutmix` for each batch, drawn at random, as vision transformers are trained with."""

    mixup: float = 0.8
    """Of the beta distribution of `mixup`."""
    cutmix: float = 1.0
    """Of the beta distribution of `cutmix`."""
    switch: float = 0.5
    """The probability of `cutmix`."""

    def __post_init__(self) -> None:
        _within("mixing.mixup", self.mixup, 1e-6, 100)
        _within("mixing.cutmix", self.cutmix, 1e-6, 100)
        _within("mixing.switch", self.switch, 0, 1)

    def bind(self, dataset: DataSet) -> BatchTransform:
        either = [MixUp(self.mixup).bind(dataset), CutMix(self.cutmix).bind(dataset)]
        mix: BatchTransform = _transforms().RandomChoice(either, p=[1 - self.switch, self.switch])
        return mix
