"""The data sets, orders and augmentations that ship with the engine, by name. All are imported when they are used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.components.dataset import DataSet, Split
from harness.components.registries import AUGMENTATIONS, DATASETS, ORDERS

if TYPE_CHECKING:
    from harness.data.digits import Recipe


@DATASETS.register("digits")
def load_digits() -> DataSet:
    """Handwritten digits under strong noise, 1×8×8, 10 classes (embedded)."""
    from harness.data.digits import Recipe

    return _digits("digits", Recipe(), mean=80.0, std=60.0)


@DATASETS.register("digits-16")
def load_large_digits() -> DataSet:
    """The digits enlarged, at random places of 1×16×16, under strong noise, 10 classes (embedded)."""
    from harness.data.digits import LARGE

    return _digits("digits-16", LARGE, mean=97.0, std=83.0)


@DATASETS.register("digits-polar")
def load_polar_digits() -> DataSet:
    """The digits at random places of 1×10×10, contrast inverted at random, noise, 10 classes (embedded)."""
    from harness.data.digits import POLAR

    return _digits("digits-polar", POLAR, mean=128.0, std=66.0)


def _digits(name: str, recipe: Recipe, mean: float, std: float) -> DataSet:
    from harness.data.digits import make

    parts = {name: Split(images, labels.astype(np.int64)) for name, (images, labels) in make(recipe).items()}
    return DataSet(name, 10, parts["train"], parts["valid"], parts["test"], mean=(mean,), std=(std,))


for _name, _target, _summary in (
    ("cifar10", "cifar:CIFAR10", "CIFAR-10, 3×32×32, 10 classes; training images split in half"),
    ("cifar10-16", "smaller:CIFAR10_16", "CIFAR-10 averaged to 3×16×16"),
    ("cifar100", "cifar:CIFAR100", "CIFAR-100, 3×32×32, 100 classes; test images split in half"),
    ("imagenet16-120", "imagenet16:IMAGENET16_120", "ImageNet downsampled to 3×16×16, its first 120 classes"),
    ("fashion-mnist", "fashion_mnist:FASHION_MNIST", "Fashion-MNIST, 1×28×28, 10 classes"),
    ("imagenet", "imagenet:IMAGENET", "ImageNet, 3×224×224, 1,000 classes; images are decoded as they are needed"),
    ("imagenet-256", "decoded:IMAGENET_256", "ImageNet, decoded once to 256 pixels (252 GB), 3×224×224"),
    ("folder", "folder:FOLDER", "any tree of images: train/CLASS/*.png, optionally valid/ and test/"),
):
    DATASETS.register(_name, lazy=f"harness.data.{_target}", summary=_summary)

for _name, _target, _summary in (
    ("shuffled", "orders:Shuffled", "a random permutation per epoch"),
    ("stored", "orders:Stored", "as the samples are stored, in every epoch"),
    ("repeated", "orders:Repeated", "every sample several times in a row, a share of the samples per epoch"),
):
    ORDERS.register(_name, lazy=f"harness.data.{_target}", summary=_summary)

for _name, _target, _summary in (
    ("crop", "augmentations:Crop", "windows of the image, padded with black"),
    ("resized-crop", "augmentations:ResizedCrop", "parts of the image, scaled to its size"),
    ("flip", "augmentations:Flip", "mirrored images"),
    ("rand-augment", "augmentations:RandAugment", "RandAugment: random operations of one magnitude"),
    ("timm-rand-augment", "augmentations:TimmRandAugment", "timm's RandAugment, of varying magnitude"),
    ("erasing", "augmentations:Erasing", "a black rectangle in the image (random erasing)"),
    ("cutout", "augmentations:Cutout", "a square of the mean colour in the image"),
    ("auto-augment", "augmentations:AutoAugment", "AutoAugment: a learned policy of operations"),
    ("lighting", "augmentations:Lighting", "PCA lighting: random amounts of ImageNet's main colours"),
    ("mixup", "augmentations:MixUp", "mixtures of two images and their labels"),
    ("cutmix", "augmentations:CutMix", "a rectangle of another image, the label in proportion"),
    ("mixing", "augmentations:Mixing", "mixup or cutmix, drawn for each batch"),
):
    AUGMENTATIONS.register(_name, lazy=f"harness.data.{_target}", summary=_summary)

SHAPES = {
    name: {"image_size": size, "classes": classes, "image_channels": 3}
    for name, size, classes in (("cifar10", 32, 10), ("cifar100", 32, 100), ("imagenet", 224, 1000))
}
"""The images of data sets whose files need not be here, for plans and for counting operations."""
