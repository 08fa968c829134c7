"""Fashion-MNIST in its own format (IDX), plain or compressed, in the folder that torchvision uses.

No NAS paper defines a division of the training images: the stored division keeps 50,000 for training and
10,000 for ranking. Images stay at 28×28. Clothes are centred in their frames, so crops move them by two
pixels at most.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from harness.components.dataset import SPLITS, DataSet, Split
from harness.data.batches import taken
from harness.data.places import data_folder
from harness.data.source import FileDataSet, Found, Missing, all_of, existing
from harness.data.splits import Division
from harness.errors import DataError

SIDE = 28


@dataclass(frozen=True)
class FashionMnist(FileDataSet):
    """Four files: images and labels for training and for testing."""

    division: Division
    test_images: int
    originals: Mapping[str, str]
    """The files' names without `.gz`, and the MD5 of their uncompressed content."""

    def find(self) -> Found:
        root = data_folder() / "FashionMNIST" / "raw"
        files = tuple(existing(root / name, root / f"{name}.gz") or root / name for name in self.originals)
        if not any(file.exists() for file in files):
            raise Missing(
                (root / "train-images-idx3-ubyte[.gz]",),
                f"get it with `harness data check {self.name} --download`, or link {root} to the folder of Debian's "
                "package dataset-fashion-mnist, /usr/share/datasets/fashion-mnist",
            )
        return Found("IDX files", root, all_of(self.name, files))

    def sizes(self) -> dict[str, int]:
        return dict(zip(SPLITS, (self.division.first, self.division.second, self.test_images), strict=True))

    def decode(self, found: Found, scratch: Path) -> DataSet:
        train = self._read(found.files[0], found.files[1], self.division.first + self.division.second)
        test = self._read(found.files[2], found.files[3], self.test_images)
        first, second = (taken(train, part) for part in self.division.indices(None))
        # Mean and deviation of the 60,000 training images.
        return DataSet(self.name, 10, first, second, test, (72.94,), (90.02,), crop_padding=2, flip=True)

    def check_files(self, found: Found) -> tuple[list[str], list[str]]:
        return [], [
            f"{path}: is not the original file (MD5 of its content {own}, not {known})"
            for path, known in zip(found.files, self.originals.values(), strict=True)
            if (own := hashlib.md5(_content(path), usedforsecurity=False).hexdigest()) != known
        ]

    def _read(self, images: Path, labels: Path, count: int) -> Split:
        pixels = read_idx(images, (count, SIDE, SIDE))
        numbers = read_idx(labels, (count,)).astype(np.int64)
        if numbers.max() > 9:
            raise DataError(f"{labels}: labels must be 0 to 9, not {numbers.max()}")
        return Split(pixels[:, None], numbers)


def read_idx(path: Path, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """The array in an IDX file: two zeros, 8 for bytes, the number of dimensions, each as four bytes, the data."""
    content = _content(path)
    header = 4 + 4 * len(shape)
    if len(content) < header or content[:4] != bytes((0, 0, 8, len(shape))):
        raise DataError(f"{path}: not an IDX file of bytes with {len(shape)} dimensions")
    sides = tuple(int(side) for side in np.frombuffer(content, ">u4", len(shape), offset=4))
    if sides != shape:
        raise DataError(f"{path}: has the shape {_times(sides)}, not {_times(shape)}")
    if len(content) != header + int(np.prod(shape)):
        raise DataError(f"{path}: truncated or damaged, has {len(content):,} bytes for the shape {_times(shape)}")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def _times(sides: tuple[int, ...]) -> str:
    return "×".join(map(str, sides))


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: truncated, damaged or not compressed by gzip ({error})") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error


FASHION_MNIST = FashionMnist(
    name="fashion-mnist",
    division=Division("fashion-mnist", 50_000, 10_000),
    test_images=10_000,
    # Published MD5s are of the compressed files, but copies may be recompressed: these are of Debian's copy.
    originals={
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
    },
)
