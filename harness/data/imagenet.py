"""ImageNet in torchvision's folders, train/CLASS/*.JPEG and val/CLASS/*.JPEG: indexed once, then read image by image.

`train` is the training folder less 50 images per class, which are `valid`: for rankings and searches. `test` is the
folder val. The index lists relative paths and sizes. These and the content of 1,000 sampled files are the fingerprint:
reading all of it would take as long as an epoch. An image that cannot be read is left out when it is met.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.components.dataset import SPLITS, DataSet, Sample, Stream
from harness.data import cache
from harness.data.cache import Record
from harness.data.places import data_folder
from harness.data.source import FileDataSet, Found, Missing
from harness.data.splits import shuffled
from harness.data.trees import SUFFIXES, class_folders, decoded, progress, reading
from harness.errors import DamagedImage, DataError

HELD_OUT = 50
"""Training images per class that are held out, but at most a fifth of the class."""
SAMPLED = 1000
"""Files whose content is part of the fingerprint."""
MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
"""Of ImageNet's training images, on the scale of bytes: the constants that everybody uses."""


@dataclass(frozen=True)
class ImageFiles:
    """A source of images in files, decoded when they are asked for. Safe to use in several processes."""

    root: Path
    names: npt.NDArray[np.bytes_]
    """Paths relative to the root, as the file system has them."""
    labels: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.names)

    def sample(self, index: int) -> Sample:
        return pixels(self.root / os.fsdecode(self.names[index])), int(self.labels[index])


def pixels(path: Path) -> npt.NDArray[np.uint8]:
    """An image as 3×height×width bytes. Raises `DamagedImage`."""
    try:
        return decoded(path)[0].transpose(2, 0, 1)
    except DataError as error:
        raise DamagedImage(str(error)) from error


@dataclass(frozen=True)
class ImageNet(FileDataSet):
    """The images of the folder `imagenet` in the data folder, at 224 pixels."""

    image_size: int = 224
    crop_ratio: float = 0.875
    """Evaluation cuts the centre out of an image whose shorter side is `image_size / crop_ratio` pixels."""

    @property
    def inputs(self) -> dict[str, int] | None:
        """What networks get, without the index, which planning need not wait for; None if the folders are not here."""
        try:
            classes = len(class_folders(data_folder() / "imagenet" / "train"))
        except DataError:
            return None
        return {"classes": classes, "image_channels": 3, "image_size": self.image_size}

    def find(self) -> Found:
        root = data_folder() / "imagenet"
        if not (root / "train").is_dir() or not (root / "val").is_dir():
            advice = "put torchvision's folders train/CLASS/*.JPEG and val/CLASS/*.JPEG there; ImageNet needs a licence"
            raise Missing((root / "train", root / "val"), advice)
        places = {part: class_folders(root / part) for part in ("train", "val")}
        names = {part: {place.name for place in found} for part, found in places.items()}
        for wrong in sorted(names["train"] ^ names["val"]):
            has, lacks = ("train", "val") if wrong in names["train"] else ("val", "train")
            raise DataError(f"{root / lacks / wrong}: missing, while {has} has that class")
        return Found("image folders", root, (*places["train"], *places["val"]))

    def decode(self, found: Found, scratch: Path) -> DataSet:
        raise DataError(f"{self.name} is streamed, not decoded")

    def listing(self, found: Found) -> str:
        digest = hashlib.sha256()
        for name, size, changed in _entries(found.root):
            digest.update(f"{name} {size} {changed}\n".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    def describe(self, found: Found) -> dict[str, str]:
        division = f"valid is {HELD_OUT} images per class of train (at most a fifth of them), test is val"
        return {**super().describe(found), "split": division}

    def prepared(self, found: Found) -> tuple[Path, Record]:
        folder = self.entry(found)
        record = cache.read(folder) or cache.build_with(folder, lambda part, scratch: self._index(found, part))
        return folder, record

    def load(self, folder: Path, record: Record) -> DataSet:
        return self._dataset(Path(record.about["root"]), _arrays(folder), record.checksum)

    def verify(self, folder: Path, record: Record) -> bool:
        try:
            parts = _arrays(folder)
            return self._fingerprint(Path(record.about["root"]), parts, _sizes(folder)) == record.checksum
        except DataError:
            return False

    def _index(self, found: Found, part: Path) -> Record:
        """Write the index into the folder: names and labels of each split, and all sizes."""
        sizes: dict[str, int] = {}
        listing = hashlib.sha256()
        for name, size, changed in _entries(found.root):
            sizes[name] = size
            listing.update(f"{name} {size} {changed}\n".encode("utf-8", "surrogateescape"))
        splits = divided(list(sizes))
        classes = {place.name: label for label, place in enumerate(class_folders(found.root / "train"))}
        for split, names in splits.items():
            np.save(part / f"{split}_names.npy", np.array([os.fsencode(name) for name in names]))
            labels = np.array([classes[name.split("/")[1]] for name in names], np.int64)
            np.save(part / f"{split}_labels.npy", labels)
            np.save(part / f"{split}_sizes.npy", np.array([sizes[name] for name in names], np.int64))
        shape = [3, self.image_size, self.image_size]
        return Record(
            name=self.name,
            classes=len(classes),
            mean=MEAN,
            std=STD,
            crop_padding=0,
            flip=False,
            images={split: [len(names), *shape] for split, names in splits.items()},
            sizes={file.name: file.stat().st_size for file in part.glob("*.npy")},
            checksum=self._fingerprint(found.root, _arrays(part), _sizes(part)),
            about={**self.describe(found), "listing": listing.hexdigest()},
        )

    def _dataset(self, root: Path, parts: Parts, checksum: str) -> DataSet:
        shape = (3, self.image_size, self.image_size)
        train, valid, test = (
            Stream(ImageFiles(root, *parts[split]), shape, None, self.crop_ratio, "bicubic") for split in SPLITS
        )
        classes = 1 + int(max(labels.max(initial=0) for _, labels in parts.values()))
        return DataSet(self.name, classes, train, valid, test, MEAN, STD).with_known_checksum(checksum)

    def _fingerprint(self, root: Path, parts: Parts, sizes: Mapping[str, npt.NDArray[np.int64]]) -> str:
        """Of relative paths with sizes, of the sampled files' content, and of how the images are used."""
        digest = hashlib.sha256(json.dumps([self.image_size, self.crop_ratio, MEAN, STD, self.version]).encode())
        for split, (names, _) in parts.items():
            for name, size in zip(names.tolist(), sizes[split].tolist(), strict=True):
                digest.update(b"%s %s %d\n" % (split.encode(), name, size))
        everything = [os.fsdecode(name) for names, _ in parts.values() for name in names.tolist()]
        for number in shuffled(everything)[:SAMPLED]:
            with reading(root / everything[number]):
                digest.update(hashlib.sha256((root / everything[number]).read_bytes()).digest())
        return digest.hexdigest()


Parts = Mapping[str, tuple[npt.NDArray[np.bytes_], npt.NDArray[np.int64]]]
"""By split: names and labels."""


def divided(names: Sequence[str]) -> dict[str, list[str]]:
    """The splits of these relative paths (train/CLASS/FILE, val/CLASS/FILE), each in an order of its names' hashes.

    In alphabetical order the first thousand images would be of one class.
    """
    mixed = [names[number] for number in shuffled(list(names))]
    by_class: dict[str, list[str]] = {}
    for name in mixed:
        by_class.setdefault(name.rpartition("/")[0], []).append(name)
    held = {
        name
        for place, members in by_class.items()
        if place.startswith("train/")
        for name in members[: min(HELD_OUT, len(members) // 5)]
    }
    if not held:
        raise DataError("ImageNet's training folder has fewer than 5 images per class: none can be held out")
    return {
        "train": [name for name in mixed if name.startswith("train/") and name not in held],
        "valid": [name for name in mixed if name in held],
        "test": [name for name in mixed if name.startswith("val/")],
    }


def _entries(root: Path) -> list[tuple[str, int, int]]:
    """Relative path, size and time of every image, sorted by path."""
    places = [(part, place) for part in ("train", "val") for place in class_folders(root / part)]
    found: list[tuple[str, int, int]] = []
    with progress(f"indexing {root}", len(places)) as advance:
        for part, place in places:
            with reading(place), os.scandir(place) as entries:
                for entry in entries:
                    if entry.name.lower().endswith(SUFFIXES) and not entry.name.startswith("."):
                        state = entry.stat()
                        found.append((f"{part}/{place.name}/{entry.name}", state.st_size, state.st_mtime_ns))
            advance(1)
    return sorted(found)


def _arrays(folder: Path) -> Parts:
    return {split: (_mapped(folder, split, "names"), _mapped(folder, split, "labels")) for split in SPLITS}


def _sizes(folder: Path) -> dict[str, npt.NDArray[np.int64]]:
    return {split: _mapped(folder, split, "sizes") for split in SPLITS}


def _mapped(folder: Path, split: str, what: str) -> Any:
    file = folder / f"{split}_{what}.npy"
    try:
        return np.load(file, mmap_mode="r")
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: damaged ({error}); remove its folder, the next use rebuilds it") from error


IMAGENET = ImageNet("imagenet")
