"""Batches of images in the format of CIFAR and the downsampled ImageNet: a pickled dictionary of rows and labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.components.dataset import Split
from harness.data.pickles import read_pickle
from harness.errors import DataError


def read_batch(
    path: Path, of: str, side: int, classes: int, label: str = "labels", lowest: int = 0, count: int | None = None
) -> Split:
    """A file's images, one per row of its `data`, and the labels under the key `label`, counted from 0.

    `of` is the data set that the file should belong to, `lowest` the label of the first class. Raises
    `DataError` for a file that is damaged or does not belong to it.
    """
    document = read_pickle(path)
    for key in ("data", label):
        if key not in document:
            raise DataError(f"{path}: not a file of {of}: it has no {key!r}, only {', '.join(document) or 'nothing'}")
    images = _pixels(path, document["data"], side)
    if count is not None and len(images) != count:
        raise DataError(f"{path}: holds {len(images):,} images, not {count:,}")
    return Split(images, _labels(path, document[label], len(images), classes, lowest) - lowest)


def taken(split: Split, indices: npt.NDArray[Any]) -> Split:
    """The images with these indices, or those that a mask selects."""
    return Split(split.images[indices], split.labels[indices])


def _pixels(path: Path, data: Any, side: int) -> npt.NDArray[np.uint8]:
    row = 3 * side * side
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != row:
        what = f"{data.dtype} of shape {data.shape}" if isinstance(data, np.ndarray) else f"a {type(data).__name__}"
        raise DataError(f"{path}: images must be rows of {row} bytes ({side}×{side} pixels), not {what}")
    return data.reshape(-1, 3, side, side)


def _labels(path: Path, values: Any, count: int, classes: int, lowest: int) -> npt.NDArray[np.int64]:
    try:
        found = np.array(values)
    except ValueError:  # lists of different lengths
        found = np.empty((), object)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise DataError(f"{path}: labels must be a list of whole numbers")
    if len(found) != count:
        raise DataError(f"{path}: has {len(found):,} labels for {count:,} images")
    highest = lowest + classes - 1
    wrong = found[(found < lowest) | (found > highest)]
    if len(wrong):
        raise DataError(f"{path}: labels must be {lowest} to {highest}, not {wrong[0]}")
    return found.astype(np.int64)
