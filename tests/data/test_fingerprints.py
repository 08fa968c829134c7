"""Data sets keep their fingerprints, which are part of the identity of stored runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.data.folder import FOLDER
from harness.data.smaller import Halved
from harness.data.source import FileDataSet
from tests.data.formats import (
    SMALL_CIFAR10,
    SMALL_CIFAR100,
    SMALL_FASHION,
    SMALL_IMAGENET,
    write_cifar,
    write_fashion,
    write_imagenet,
    write_split,
    write_tree,
)


def batches(data: Path) -> None:
    write_cifar(data, SMALL_CIFAR10)


def batches_of_100(data: Path) -> None:
    write_cifar(data, SMALL_CIFAR100)


def divided(data: Path) -> None:
    write_cifar(data, SMALL_CIFAR10)
    write_split(data / "cifar-split.txt", {"train": range(0, 100, 2), "valid": range(1, 100, 2)})


def cifar_tree(data: Path) -> None:
    write_tree(data / "cifar10" / "train", SMALL_CIFAR10.classes, 10, side=32)
    write_tree(data / "cifar10" / "test", SMALL_CIFAR10.classes, 3, side=32)


def parted_tree(data: Path) -> None:
    for part, count in (("train", 8), ("valid", 3), ("test", 2)):
        write_tree(data / "folder" / part, ["bee", "ant", "cat"], count, side=16)


def gray_tree(data: Path) -> None:
    write_tree(data / "folder" / "train", ["ant", "bee"], 10, mode="L")


HALF = Halved("cifar10-16", SMALL_CIFAR10)
CIFAR10 = "66fc16099444c78cb0212ff4232244a1bed249ea2a1f5e9dea0680ba19e2d468"
FASHION = "11fba15fba83d50976a2aed8577ca6493e53b1a243b50ba08b44ec59c070d3f3"


@pytest.mark.parametrize(
    ("dataset", "write", "fingerprint"),
    [
        (SMALL_CIFAR10, batches, CIFAR10),
        (SMALL_CIFAR10, divided, "ecc9099f87a76ded2d869867a0330d5c7f45f7587ebbb23b2ff7597217bcb560"),
        (SMALL_CIFAR10, cifar_tree, "bbcfbd0ab9f225cfac9f5dd644b4364779c1b6e8132f5584034442bb2e4786be"),
        (HALF, batches, "1dfc1bf7cf7a7c30ca0fc13468df552978484574d7cfc54bef147480bf307808"),
        (SMALL_CIFAR100, batches_of_100, "a2c1863b076f2a415a4978501507dc93cde6689f83354c3854709826f71232d0"),
        (SMALL_IMAGENET, write_imagenet, "28ed8dedad662ce285ab65b8270ed0c46b77b314d4d5491a2e6e96ad4c9666c4"),
        (SMALL_FASHION, write_fashion, FASHION),
        (SMALL_FASHION, lambda data: write_fashion(data, ""), FASHION),
        (FOLDER, parted_tree, "e0a978c7c0f4512714a49c1b3ab7d28028c8a25291c456e15ea38d3f958975b8"),
        (FOLDER, gray_tree, "aae8a512baa076df2088f857d645f6d435463362403c47eaeeb4b775799ca43d"),
    ],
    ids=lambda value: getattr(value, "name", getattr(value, "__name__", "")),
)
def test_fingerprints_stay(data: Path, dataset: FileDataSet, write: Callable[[Path], object], fingerprint: str) -> None:
    write(data)
    assert dataset.fingerprint() == dataset().computed_checksum() == fingerprint
