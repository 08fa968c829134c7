"""Interface of a data set: three splits of images, and how they are normalised. Imports no torch.

A data set is registered as a function without arguments that loads it. A data set that is read from
files is an object (`harness.data.source.FileDataSet`), which also says where its files are. A split is held in
memory (`Split`), or is read one image at a time (`Stream`). `harness.data.loading` makes batches of either.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

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

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels, height and width of every image."""
        return self.images.shape[1:]

    def sample(self, index: int) -> Sample:
        return self.images[index], int(self.labels[index])

    def head(self, count: int | None) -> Split:
        """The first `count` images; all of them for None."""
        return self if count is None else Split(self.images[:count], self.labels[:count])

    def chosen(self, indices: Sequence[int]) -> Split:
        """The images of these numbers, in that order."""
        return Split(self.images[list(indices)], self.labels[list(indices)])


Sample = tuple[npt.NDArray[np.uint8], "int | npt.NDArray[np.float32]"]
"""An image, channels×height×width, and its label: a class, or (only in training) one probability per class."""


class Source(Protocol):
    """Images that are read one at a time, by number.

    `sample` may be called in several processes at once, in any order. It must return the same for the same number,
    so it draws no random numbers: transforms do that (`harness.components.augmentation`). It raises `DamagedImage` for
    an image that cannot be read: that one is left out.
    """

    def __len__(self) -> int: ...

    def sample(self, index: int) -> Sample: ...


class Stream(Split):
    """A split that is too large for memory. Each image is read when a batch needs it.

    Images of another size than `shape` are scaled and cut at the centre, after the transforms of training. `images`
    and `labels` are not there: code that needs them in memory gets an error that says so.
    """

    def __init__(
        self,
        source: Source,
        shape: tuple[int, ...],
        count: int | None = None,
        crop_ratio: float = 1.0,
        interpolation: str = "bilinear",
    ) -> None:
        """`shape` is channels, height and width of an image in a batch; `count` leaves only the first images.

        The part that is cut at the centre has `crop_ratio` times the shorter side of the image.
        """
        if len(shape) != 3 or min(shape) < 1:
            raise DataError(f"the shape of streamed images must be channels, height and width, not {shape}")
        count = len(source) if count is None else count
        vars(self).update(
            source=source, _shape=tuple(shape), count=count, crop_ratio=crop_ratio, interpolation=interpolation
        )

    source: Source
    count: int
    crop_ratio: float
    interpolation: str
    _shape: tuple[int, ...]
    __eq__, __hash__ = object.__eq__, object.__hash__

    def __repr__(self) -> str:
        return f"Stream({self.source!r}, {self.shape}, {self.count})"

    def __getattr__(self, name: str) -> Any:
        if name in ("images", "labels"):
            raise DataError(f"{name} of a streamed split are not in memory; harness.data.loading makes batches")
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __len__(self) -> int:
        return self.count

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    def sample(self, index: int) -> Sample:
        return self.source.sample(index)

    def head(self, count: int | None) -> Stream:
        if count is None:
            return self
        return Stream(self.source, self.shape, min(count, self.count), self.crop_ratio, self.interpolation)

    def chosen(self, indices: Sequence[int]) -> Stream:
        return Stream(Chosen(self.source, tuple(indices)), self.shape, None, self.crop_ratio, self.interpolation)


@dataclass(frozen=True)
class Chosen:
    """Some images of a source, by their numbers."""

    source: Source
    indices: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.indices)

    def sample(self, index: int) -> Sample:
        return self.source.sample(self.indices[index])


@dataclass(frozen=True)
class Joined:
    """Sources, one after the other."""

    sources: tuple[Source, ...]

    def __len__(self) -> int:
        return sum(map(len, self.sources))

    def sample(self, index: int) -> Sample:
        for source in self.sources:
            if index < len(source):
                return source.sample(index)
            index -= len(source)
        raise IndexError(index)


def joined(splits: Sequence[Split]) -> Split:
    """All images, in this order; streamed if one of the splits is."""
    if any(isinstance(split, Stream) for split in splits):
        first = next(split for split in splits if isinstance(split, Stream))
        return Stream(Joined(tuple(splits)), first.shape, None, first.crop_ratio, first.interpolation)
    return Split(np.concatenate([s.images for s in splits]), np.concatenate([s.labels for s in splits]))


def taken(split: Split, indices: npt.NDArray[Any]) -> Split:
    """The images with these indices, or those that a mask selects."""
    return Split(split.images[indices], split.labels[indices])


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
        shape = self.train.shape
        for split in SPLITS:
            images: Split = getattr(self, split)
            if images.shape != shape:
                raise DataError(f"{self.name}: images of {split} are {images.shape}, those of train {shape}")
            if isinstance(images, Stream):  # their labels are checked when they are read
                continue
            outside = images.labels[(images.labels < 0) | (images.labels >= self.classes)]
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
        return int(self.train.shape[0])

    @property
    def image_size(self) -> int:
        return int(self.train.shape[1])

    @property
    def inputs(self) -> dict[str, int]:
        """What the images add to the settings of a network (`harness.components.space.network_settings`)."""
        return {"classes": self.classes, "image_channels": self.image_channels, "image_size": self.image_size}

    def checksum(self) -> str:
        """SHA-256 of all images, labels and how they are used; must be equal for data sets of the same name."""
        return self._known_checksum or self.computed_checksum()

    def computed_checksum(self) -> str:
        """The checksum, computed from all bytes."""
        digest = hashlib.sha256()
        for split in (self.train, self.valid, self.test):
            if isinstance(split, Stream):
                for image, label in map(split.sample, range(len(split))):
                    digest.update(f"{image.shape} {np.asarray(label).tolist()}".encode())
                    digest.update(np.ascontiguousarray(image).data)
                continue
            digest.update(np.ascontiguousarray(split.images).data)
            digest.update(np.ascontiguousarray(split.labels, dtype="<i8").data)
        use = [self.train.shape, self.classes, self.mean, self.std, self.crop_padding, self.flip]
        digest.update(json.dumps(use).encode())
        return digest.hexdigest()

    def with_known_checksum(self, checksum: str) -> DataSet:
        """A copy with a checksum that was computed before, so that large files need not be read."""
        known = replace(self)
        object.__setattr__(known, "_known_checksum", checksum)
        return known


LoadDataSet = Callable[[], DataSet]


def inputs_of(name: str) -> dict[str, int] | None:
    """`DataSet.inputs` of a data set; None if its files are not here.

    A registered object with an attribute `inputs` says so without being read.
    """
    registered = DATASETS.get(name)
    if (declared := getattr(registered, "inputs", None)) is not None:
        return dict(declared)
    try:
        found: dict[str, int] = registered().inputs
        return found
    except DataError:
        return None


def fingerprint(name: str) -> str | None:
    """Hash of the current files of a data set; None for a data set that needs no files.

    Fast once the files have been decoded; the first call decodes them. Raises `DataError` for files that are
    missing, damaged or not what they should be.
    """
    known = getattr(DATASETS.get(name), "fingerprint", None)
    return None if known is None else str(known())
