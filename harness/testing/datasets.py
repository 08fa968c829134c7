"""Checks of a data set: shapes, types and labels of its images, and that they are the same twice. Stores nothing."""

from __future__ import annotations

import numpy as np

from harness.components.dataset import SPLITS, DataSet, Split, Stream
from harness.components.registries import DATASETS
from harness.work.findings import Checks, Unfit

READ = 8
"""Images that are read of a streamed split."""


def check_images(found: Checks, name: str) -> DataSet | None:
    """Check all that needs no training; returns the data set, or None if it is not usable."""
    made: list[DataSet] = []
    with found.check("loads, with images and labels of the right shapes and types"):
        loaded = DATASETS.get(name)()
        if not isinstance(loaded, DataSet):
            raise Unfit(f"it must give a harness.components.dataset.DataSet, not {type(loaded).__name__}: `return` it")
        if loaded.name != name:
            raise Unfit(f"its name is {loaded.name!r}, but it is registered as {name!r}: make them equal")
        for split in SPLITS:
            _check_split(split, getattr(loaded, split), loaded.classes)
        made.append(loaded)
    if not made:
        return None
    dataset = made[0]
    with found.check("is the same when it is loaded twice"):
        if any(not _equal(getattr(dataset, split), getattr(DATASETS.get(name)(), split)) for split in SPLITS):
            raise Unfit("two loads differ: draw its random numbers from a generator with a fixed seed, made inside it")
    with found.check("is normalised on the scale 0 to 255"):
        if max(dataset.std) <= 1 and int(_some(dataset.train).max()) > 1:
            raise Unfit(f"mean {dataset.mean} and std {dataset.std} are on the scale 0 to 1: multiply them by 255")
    channels, height, width = dataset.train.shape
    if height != width:
        found.note(f"images are {height}×{width}; spaces get only one size, the height")
    absent = set(range(dataset.classes)) - {int(label) for label in _labels(dataset.train)}
    if absent and not isinstance(dataset.train, Stream):
        found.note(f"no image of train has the label{'s' * (len(absent) > 1)} {', '.join(map(str, sorted(absent)))}")
    return dataset


def _check_split(name: str, split: Split, classes: int) -> None:
    if not len(split):
        raise Unfit(f"{name} has no images")
    if not isinstance(split, Stream):
        return  # checked when it was made
    for image, label in map(split.sample, range(min(READ, len(split)))):
        if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim != 3:
            raise Unfit(
                f"{name}: a sample must be bytes, channels×height×width, not {getattr(image, 'shape', image)!r}"
            )
        if image.shape[0] != split.shape[0]:
            raise Unfit(f"{name}: a sample has {image.shape[0]} channels, but the stream says {split.shape[0]}")
        if np.ndim(label) == 0 and not 0 <= int(label) < classes:
            raise Unfit(f"{name}: labels must be 0 to {classes - 1}, not {label}")


def _equal(one: Split, other: Split) -> bool:
    if isinstance(one, Stream) or isinstance(other, Stream):
        pairs = ((one.sample(number), other.sample(number)) for number in range(min(READ, len(one))))
        return len(one) == len(other) and all(
            np.array_equal(mine[0], its[0]) and np.array_equal(mine[1], its[1]) for mine, its in pairs
        )
    return np.array_equal(one.images, other.images) and np.array_equal(one.labels, other.labels)


def _some(split: Split) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.stack([split.sample(number)[0].max() for number in range(min(READ, len(split)))])


def _labels(split: Split) -> list[int]:
    return [] if isinstance(split, Stream) else split.labels.tolist()
