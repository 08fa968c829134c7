"""CIFAR-10 and CIFAR-100: the original batches, which torchvision reads, or a tree of images.

Divided as in NAS-Bench-201: the training images of CIFAR-10 in half (a supernet trains on the first half and
is judged on the second), the test images of CIFAR-100 in half. The benchmark's split files count images in the
order of the batches, which a tree does not keep: for a tree the stored division is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.components.dataset import SPLITS, DataSet, Split, taken
from harness.data.places import data_folder
from harness.data.source import FileDataSet, Found, Missing, all_of, altered, check_originals, existing
from harness.data.splits import Division
from harness.data.trees import class_folders, image_files, listing, read_tree
from harness.errors import DataError

SIDE = 32


@dataclass(frozen=True)
class Cifar(FileDataSet):
    """CIFAR-10 or CIFAR-100; the fields are what differs."""

    folder: str
    """The folder of the batches."""
    train: tuple[str, ...]
    test: tuple[str, ...]
    classes: tuple[str, ...]
    originals: Mapping[str, str]
    """The MD5 of each of these files, `train` first."""
    images_per_train_file: int
    images_per_test_file: int
    division: Division
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def find(self) -> Found:
        data = data_folder()
        batches, tree = data / self.folder, data / self.name
        split = existing(data / self.division.file) if self.division.file else None
        if batches.is_dir():
            files = all_of(self.name, tuple(batches / name for name in (*self.train, *self.test)))
            return Found("batches", batches, files, split)
        if (tree / "train").is_dir():
            folders = [self._classes(part) for part in all_of(self.name, (tree / "train", tree / "test"))]
            return Found("image folder", tree, tuple(sum(folders, [])), unused=(split,) if split else ())
        raise Missing(
            (batches, tree / "train"),
            f"put torchvision's {self.folder} or a tree of images there, or get it with "
            f"`harness data check {self.name} --download`",
        )

    def sizes(self) -> dict[str, int]:
        first, second = self.division.first, self.division.second
        train, test = self.images_per_train_file * len(self.train), self.images_per_test_file * len(self.test)
        parts = (first, second, test) if self.division.keys[0] == "train" else (train, first, second)
        return dict(zip(SPLITS, parts, strict=True))

    def decode(self, found: Found, scratch: Path) -> DataSet:
        if found.layout == "batches":
            check_originals(self.name, found.files, self.originals.values())
            train, test = (self._batches(found.root, training) for training in (True, False))
        else:
            train = self._tree(found.root / "train", self.images_per_train_file * len(self.train), scratch)
            test = self._tree(found.root / "test", self.images_per_test_file * len(self.test), scratch)
        first, second = self.division.indices(found.split)
        if self.division.keys[0] == "train":
            parts = taken(train, first), taken(train, second), test
        else:
            parts = train, taken(test, first), taken(test, second)
        return DataSet(self.name, len(self.classes), *parts, self.mean, self.std, crop_padding=4, flip=True)

    def check_files(self, found: Found) -> tuple[list[str], list[str]]:
        if found.layout != "batches":
            warnings = ["the images were re-encoded, so the checksums of the original batches do not apply"]
            warnings += [f"{file}: does not apply to a tree, which has no fixed order" for file in found.unused]
            return warnings, []
        return [], list(altered(found.files, self.originals.values()))

    def listing(self, found: Found) -> str:
        return "" if found.layout == "batches" else listing(found.root / "train", found.root / "test")

    def _batches(self, folder: Path, training: bool) -> Split:
        from torchvision import datasets

        class Ours(getattr(datasets, self.name.upper())):  # type: ignore[misc]
            """torchvision's, with the checksums of this module, and without the file of the classes' names."""

            base_folder = folder.name
            train_list, test_list = ([(n, self.originals[n]) for n in names] for names in (self.train, self.test))

            def _load_meta(self) -> None: ...

        read = Ours(folder.parent, train=training)
        return Split(read.data.transpose(0, 3, 1, 2), np.array(read.targets, np.int64))

    def _classes(self, folder: Path) -> list[Path]:
        """The class folders of a tree, which must have the classes' names."""
        found = class_folders(folder)
        names = {place.name for place in found}
        for wrong in sorted(names.symmetric_difference(self.classes)):
            what = "is not a class" if wrong in names else "missing, although it is a class"
            raise DataError(f"{folder / wrong}: {what} of {self.name}")
        return found

    def _tree(self, folder: Path, count: int, scratch: Path) -> Split:
        for place in class_folders(folder):
            if (there := len(image_files(place))) != count // len(self.classes):
                raise DataError(f"{place}: holds {there:,} images; {self.name} has {count // len(self.classes):,}")
        tree = read_tree(folder, scratch, (SIDE, SIDE))
        return Split(tree.images.transpose(0, 3, 1, 2), tree.labels)


CIFAR10 = Cifar(
    name="cifar10",
    folder="cifar-10-batches-py",
    train=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test=("test_batch",),
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    originals={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    },
    images_per_train_file=10_000,
    images_per_test_file=10_000,
    division=Division("cifar10", 25_000, 25_000, "cifar-split.txt"),
    mean=(125.3, 123.0, 113.9),
    std=(63.0, 62.1, 66.7),
)

_CIFAR100 = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy
porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider
squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
wardrobe whale willow_tree wolf woman worm
"""

CIFAR100 = Cifar(
    name="cifar100",
    folder="cifar-100-python",
    train=("train",),
    test=("test",),
    classes=tuple(_CIFAR100.split()),
    originals={
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    },
    images_per_train_file=50_000,
    images_per_test_file=10_000,
    division=Division("cifar100", 5_000, 5_000, "cifar100-test-split.txt", ("xvalid", "xtest")),
    mean=(129.3, 124.1, 112.4),
    std=(68.2, 65.4, 70.4),
)
