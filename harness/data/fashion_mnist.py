"""Fashion-MNIST in its own format (IDX), plain or compressed, in torchvision's folder and read by it.

No NAS paper defines a division of the training images: the stored division keeps 50,000 for training and
10,000 for ranking. Images stay at 28×28. Clothes are centred in their frames, so crops move them by two
pixels at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.components.dataset import SPLITS, DataSet, Split, taken
from harness.data.places import data_folder
from harness.data.source import FileDataSet, Found, Missing, all_of, altered, check_originals, content, existing
from harness.data.splits import Division


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
        from torchvision import datasets

        check_originals(self.name, found.files, self.originals.values())
        raw = scratch / "FashionMNIST" / "raw"  # torchvision reads uncompressed files only
        raw.mkdir(parents=True)
        for path, name in zip(found.files, self.originals, strict=True):
            (raw / name).write_bytes(content(path))
        read = [datasets.FashionMNIST(scratch, train=training) for training in (True, False)]
        train, test = (Split(one.data.numpy()[:, None], one.targets.numpy()) for one in read)
        first, second = (taken(train, part) for part in self.division.indices(None))
        # Mean and deviation of the 60,000 training images.
        return DataSet(self.name, 10, first, second, test, (72.94,), (90.02,), crop_padding=2, flip=True)

    def check_files(self, found: Found) -> tuple[list[str], list[str]]:
        return [], list(altered(found.files, self.originals.values()))


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
