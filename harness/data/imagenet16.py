"""ImageNet16-120: the downsampled ImageNet's pickles at 16×16, the first 120 of their 1,000 classes.

Ten training files and one of validation images, whose labels count from 1. The benchmark divides the
6,000 validation images of the 120 classes into two halves. torchvision has no reader of them.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.components.dataset import SPLITS, DataSet, Split, joined, taken
from harness.data.places import data_folder
from harness.data.source import FileDataSet, Found, Missing, all_of, altered, check_originals, existing
from harness.data.splits import Division

SIDE = 16


@dataclass(frozen=True)
class DownsampledImageNet(FileDataSet):
    """The first classes of the downsampled ImageNet."""

    folder: str
    classes: int
    train_images: int
    """How many training images those classes have."""
    division: Division
    originals: Mapping[str, str]
    """File names and their MD5: the training files first, the validation file last."""

    def find(self) -> Found:
        root = data_folder() / self.folder
        if not root.is_dir():
            raise Missing(
                (root / "train_data_batch_1 … val_data",),
                "get the 16×16 images (train and validation, Python pickles) from image-net.org's download page, "
                f"which requires a login, and unpack them into {root}",
            )
        files = all_of(self.name, tuple(root / name for name in self.originals))
        split = existing(data_folder() / self.division.file) if self.division.file else None
        return Found("batches", root, files, split)

    def sizes(self) -> dict[str, int]:
        return dict(zip(SPLITS, (self.train_images, self.division.first, self.division.second), strict=True))

    def decode(self, found: Found, scratch: Path) -> DataSet:
        check_originals(self.name, found.files, self.originals.values())
        *training, held = map(self._read, found.files)
        train = joined(training)
        valid, test = (taken(held, part) for part in self.division.indices(found.split))
        mean, std = (122.68, 116.66, 104.01), (63.22, 61.26, 65.09)
        return DataSet(self.name, self.classes, train, valid, test, mean, std, crop_padding=2, flip=True)

    def check_files(self, found: Found) -> tuple[list[str], list[str]]:
        return [], list(altered(found.files, self.originals.values()))

    def _read(self, path: Path) -> Split:
        with path.open("rb") as file:
            document = pickle.load(file, encoding="latin1")
        images = Split(document["data"].reshape(-1, 3, SIDE, SIDE), np.array(document["labels"], np.int64) - 1)
        return taken(images, images.labels < self.classes)


IMAGENET16_120 = DownsampledImageNet(
    name="imagenet16-120",
    folder="ImageNet16",
    classes=120,
    train_images=151_700,
    division=Division("imagenet16-120", 3_000, 3_000, "imagenet-16-120-test-split.txt", ("xvalid", "xtest")),
    originals={
        "train_data_batch_1": "27846dcaa50de8e21a7d1a35f30f0e91",
        "train_data_batch_2": "c7254a054e0e795c69120a5727050e3f",
        "train_data_batch_3": "4333d3df2e5ffb114b05d2ffc19b1e87",
        "train_data_batch_4": "1620cdf193304f4a92677b695d70d10f",
        "train_data_batch_5": "348b3c2fdbb3940c4e9e834affd3b18d",
        "train_data_batch_6": "6e765307c242a1b3d7d5ef9139b48945",
        "train_data_batch_7": "564926d8cbf8fc4818ba23d2faac7564",
        "train_data_batch_8": "f4755871f718ccb653440b9dd0ebac66",
        "train_data_batch_9": "bb6dd660c38c58552125b1a92f86b5d4",
        "train_data_batch_10": "8f03f34ac4b42271a294f91bf480f29b",
        "val_data": "3410e3017fdaefba8d5073aaa65e4bd6",
    },
)
