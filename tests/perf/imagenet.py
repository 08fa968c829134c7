"""ImageNet-sized images: batches of ours against torchvision's `ImageFolder`, over made-up JPEGs of the usual size."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

BATCH = 32


@functools.cache
def _folder() -> Any:
    return tempfile.TemporaryDirectory(prefix="imagenet-perf-")


def write_images(root: Path, classes: int, train: int, val: int) -> None:
    """Write a folder `imagenet` with so many JPEGs per class, of 500×375 pixels and the bytes of photographs."""
    rng = np.random.default_rng(0)
    for part, count in (("train", train), ("val", val)):
        for number in range(classes):
            folder = root / "imagenet" / part / f"n{number:08d}"
            folder.mkdir(parents=True, exist_ok=True)
            for image in range(count):
                coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8))
                smooth = np.asarray(coarse.resize((500, 375), Image.Resampling.BICUBIC)).astype(int)
                noisy = (smooth + rng.integers(-12, 13, smooth.shape)).clip(0, 255).astype(np.uint8)
                Image.fromarray(noisy).save(folder / f"{number}_{image}.JPEG", quality=90)


@functools.cache
def made_up() -> Path:
    """A data folder with such images, in use; made once per process."""
    write_images(root := Path(_folder().name), classes=4, train=64, val=10)
    os.environ.update(HARNESS_DATA=str(root), HARNESS_CACHE=str(root / "cache"))
    return root


def batches(name: str, count: str) -> Callable[[], object]:
    """Batches of the data set of that name with the supernet's transforms, in the training process itself."""
    from harness.components.registries import AUGMENTATIONS, DATASETS
    from harness.data.loading import loader_for

    made_up()
    augment = [AUGMENTATIONS.get("resized-crop")(), AUGMENTATIONS.get("flip")()]
    loader, done = loader_for(DATASETS.get(name)(), "train", BATCH, 0, augment=augment), 0

    def turn() -> None:
        nonlocal done
        for _ in range(int(count)):
            loader.batch(done)
            done += 1

    return turn


def plain_batches(count: str) -> Callable[[], object]:
    """The same with torchvision alone, normalised and in the order of dimensions that convolutions want."""
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    change = transforms.Compose(
        [
            transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    images = ImageFolder(str(made_up() / "imagenet" / "train"), change)

    def endless() -> Iterator[Any]:
        while True:
            yield from torch.utils.data.DataLoader(images, batch_size=BATCH, shuffle=True, drop_last=True)

    source = endless()

    def turn() -> None:
        for _ in range(int(count)):
            next(source)[0].contiguous(memory_format=torch.channels_last)

    return turn
