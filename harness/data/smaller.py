"""Data sets at half their size, each pixel the mean of four; kept in the cache beside the original."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from harness.components.dataset import DataSet, Split
from harness.data import cache
from harness.data.cache import Record
from harness.data.cifar import CIFAR10
from harness.data.source import FileDataSet, Found


@dataclass(frozen=True)
class Halved(FileDataSet):
    """Another data set at half its width and height."""

    original: FileDataSet

    def find(self) -> Found:
        return self.original.find()

    def sizes(self) -> dict[str, int] | None:
        return self.original.sizes()

    def entry(self, found: Found) -> Path:
        _, record = self.original.prepared(found)
        return cache.entry(self.name, hashlib.sha256(f"{self.version} {record.checksum}".encode()).hexdigest())

    def known_record(self, found: Found) -> Record | None:
        return super().known_record(found) if self.original.known_record(found) else None

    def decode(self, found: Found, scratch: Path) -> DataSet:
        whole = self.original()
        train, valid, test = (Split(halved(s.images), s.labels) for s in (whole.train, whole.valid, whole.test))
        padding = whole.crop_padding // 2
        return replace(whole, name=self.name, train=train, valid=valid, test=test, crop_padding=padding)

    def check_files(self, found: Found) -> tuple[list[str], list[str]]:
        return self.original.check_files(found)

    def refresh(self, found: Found) -> tuple[list[str], list[str]]:
        warnings, problems = self.original.refresh(found)
        own_warnings, own_problems = super().refresh(found)
        return warnings + own_warnings, problems + own_problems

    def listing(self, found: Found) -> str:
        return self.original.listing(found)

    def describe(self, found: Found) -> dict[str, str]:
        return {**self.original.describe(found), "made from": self.original.name}


def halved(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Every 2×2 pixels as their mean, halves rounded up."""
    small = np.empty((*images.shape[:2], images.shape[2] // 2, images.shape[3] // 2), np.uint8)
    for start in range(0, len(images), 1000):  # sums need twice the memory
        part = images[start : start + 1000].astype(np.uint16)
        total = part[:, :, ::2, ::2] + part[:, :, 1::2, ::2] + part[:, :, ::2, 1::2] + part[:, :, 1::2, 1::2]
        small[start : start + 1000] = (total + 2) // 4
    return small


CIFAR10_16 = Halved("cifar10-16", CIFAR10)
