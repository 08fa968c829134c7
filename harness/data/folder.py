"""The data set `folder`: any tree of images, train/CLASS/*.png, optionally with valid/ and test/ beside it. Further
trees have the names that the settings of the user's folder give them.

A part that is missing is taken from the training images: a fifth of them, by a fixed order of their names.
Normalised by the mean and deviation of the remaining training images; mirrored, and cropped by an eighth of
the side, as CIFAR is.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from harness.components.dataset import DataSet, Split
from harness.data.places import image_folder
from harness.data.source import FileDataSet, Found, Missing
from harness.data.trees import Tree, class_folders, listing, read_tree
from harness.errors import DataError
from harness.settings import FILE, IMAGES, image_folders


@dataclass(frozen=True)
class Folder(FileDataSet):
    """The images in the folder."""

    def find(self) -> Found:
        named = self.name != FOLDER.name
        root = image_folders()[self.name] if named else image_folder()
        if not (root / "train").is_dir():
            where = f"in {FILE}, [{IMAGES}]" if named else "in HARNESS_DATA_FOLDER"
            raise Missing((root / "train",), f"put a tree train/CLASS/*.png there, or name its folder {where}")
        return Found("image folder", root, tuple(place for part in _parts(root) for place in _classes(root, part)))

    def decode(self, found: Found, scratch: Path) -> DataSet:
        train = read_tree(found.root / "train", scratch)
        height, width = train.images.shape[1:3]
        if height != width:
            raise DataError(f"{found.root}: images must be square, not {width}×{height} pixels")
        trees = {part: read_tree(found.root / part, scratch, (height, width)) for part in _parts(found.root)[1:]}
        gray = all(tree.gray for tree in (train, *trees.values()))
        splits = {part: _split(tree, gray) for part, tree in trees.items()}
        left = _split(train, gray)
        fifth = max(1, len(left) // 5)
        for part in ("test", "valid"):
            if part not in splits:
                splits[part] = Split(left.images[-fifth:], left.labels[-fifth:])
                left = Split(left.images[:-fifth], left.labels[:-fifth])
        if not len(left):
            raise DataError(f"{found.root / 'train'}: holds too few images to divide, {len(train.images)}")
        mean, std = _statistics(left.images)
        padding, classes = height // 8, len(train.classes)
        return DataSet(self.name, classes, left, splits["valid"], splits["test"], mean, std, padding, flip=True)

    def listing(self, found: Found) -> str:
        return listing(*(found.root / part for part in _parts(found.root)))

    def describe(self, found: Found) -> dict[str, str]:
        division = "as in the tree" if len(_parts(found.root)) == 3 else "a fifth of train for each missing part"
        return {**super().describe(found), "split": division}


def _parts(root: Path) -> list[str]:
    return ["train", *(part for part in ("valid", "test") if (root / part).is_dir())]


def _classes(root: Path, part: str) -> list[Path]:
    """The class folders of a part, which must be those of train."""
    wanted, found = class_folders(root / "train"), class_folders(root / part)
    for wrong in sorted({place.name for place in wanted} ^ {place.name for place in found}):
        has, lacks = ("train", part) if (root / "train" / wrong).is_dir() else (part, "train")
        raise DataError(f"{root / lacks / wrong}: missing, while {has} has that class")
    return found


def _split(tree: Tree, gray: bool) -> Split:
    images = tree.images.transpose(0, 3, 1, 2)
    return Split(images[:, :1] if gray else images, tree.labels)


def _statistics(images: npt.NDArray[np.uint8]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of each channel, to two digits; flat images count as having a deviation of 1."""
    channels = [np.bincount(images[:, channel].ravel(), minlength=256) for channel in range(images.shape[1])]
    values = np.arange(256.0)
    means = [float(counts @ values / counts.sum()) for counts in channels]
    spreads = [float(counts @ (values - m) ** 2 / counts.sum()) for counts, m in zip(channels, means, strict=True)]
    return tuple(round(m, 2) for m in means), tuple(round(s**0.5, 2) or 1.0 for s in spreads)


FOLDER = Folder("folder")


def __getattr__(name: str) -> Folder:
    """The data set of an image folder that the settings of the user's folder name."""
    if name not in image_folders():
        raise AttributeError(name)
    return Folder(name)
