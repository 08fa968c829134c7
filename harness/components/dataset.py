"""Interface of a data set: three splits of images in memory, and how they are normalised. Imports no torch.

A data set is registered as a function without arguments that loads it. A data set that is read from
files is an object (`harness.data.source.FileDataSet`), which also says where its files are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from harness.components.registries import DATASETS
from harness.errors import DataError

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class Split:
    """Images as N×channels×height×width bytes, and their labels."""

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.images.dtype != np.uint8:
            raise DataError(f"images must be N×C×H×W bytes, not {self.images.dtype} of shape {self.images.shape}")
        if self.labels.shape != self.images.shape[:1]:
            raise DataError(f"{len(self.images)} images have labels of shape {self.labels.shape}")
        if self.labels.dtype != np.int64:  # the loss accepts no other type
            raise DataError(f"labels must be int64, not {self.labels.dtype}")

    def __len__(self) -> int:
        return len(self.images)

    def head(self, count: int | None) -> Split:
        """The first `count` images; all of them for None."""
        return self if count is None else Split(self.images[:count], self.labels[:count])


@dataclass(frozen=True)
class DataSet:
    """Three splits and how images are normalised (on the scale 0 to 255) and augmented.

    `train` trains the supernet, `valid` ranks architectures, `test` is only for stand-alone networks.
    """

    name: str
    classes: int
    train: Split
    valid: Split
    test: Split
    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop_padding: int = 0
    flip: bool = False
    # Not an argument, so that `replace` does not copy it to a changed data set.
    _known_checksum: str | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        shape = self.train.images.shape[1:]
        for split in SPLITS:
            images, labels = getattr(self, split).images, getattr(self, split).labels
            if images.shape[1:] != shape:
                raise DataError(f"{self.name}: images of {split} are {images.shape[1:]}, those of train {shape}")
            outside = labels[(labels < 0) | (labels >= self.classes)]
            if len(outside):
                raise DataError(f"{self.name}: labels of {split} must be 0 to {self.classes - 1}, not {outside[0]}")
        if not len(self.mean) == len(self.std) == shape[0]:
            raise DataError(
                f"{self.name}: {shape[0]} channels need as many means and deviations, not {self.mean} and {self.std}"
            )
        if min(self.std) <= 0:
            raise DataError(f"{self.name}: deviations must be above 0, not {self.std}")
        if self.crop_padding < 0:
            raise DataError(f"{self.name}: crop_padding must not be negative, not {self.crop_padding}")

    @property
    def image_channels(self) -> int:
        return int(self.train.images.shape[1])

    @property
    def image_size(self) -> int:
        return int(self.train.images.shape[2])

    def checksum(self) -> str:
        """SHA-256 of all images, labels and how they are used; must be equal for data sets of the same name."""
        return self._known_checksum or self.computed_checksum()

    def computed_checksum(self) -> str:
        """The checksum, computed from all bytes."""
        digest = hashlib.sha256()
        for split in (self.train, self.valid, self.test):
            digest.update(np.ascontiguousarray(split.images).data)
            digest.update(np.ascontiguousarray(split.labels, dtype="<i8").data)
        use = [self.train.images.shape[1:], self.classes, self.mean, self.std, self.crop_padding, self.flip]
        digest.update(json.dumps(use).encode())
        return digest.hexdigest()

    def with_known_checksum(self, checksum: str) -> DataSet:
        """A copy with a checksum that was computed before, so that large files need not be read."""
        known = replace(self)
        object.__setattr__(known, "_known_checksum", checksum)
        return known


LoadDataSet = Callable[[], DataSet]


def fingerprint(name: str) -> str | None:
    """Hash of the current files of a data set; None for a data set that needs no files.

    Fast once the files have been decoded; the first call decodes them. Raises `DataError` for files that are
    missing, damaged or not what they should be.
    """
    known = getattr(DATASETS.get(name), "fingerprint", None)
    return None if known is None else str(known())
