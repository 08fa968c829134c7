"""The official data sets, from small files in their own formats."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.components.dataset import DataSet, fingerprint
from harness.components.registries import DATASETS
from harness.data.cifar import CIFAR10, CIFAR100, Cifar
from harness.data.fashion_mnist import FASHION_MNIST
from harness.data.imagenet16 import IMAGENET16_120
from harness.data.smaller import CIFAR10_16, Halved, halved
from harness.data.source import FileDataSet
from harness.errors import DataError
from tests.data.formats import (
    FASHION_FILES,
    SMALL_CIFAR10,
    SMALL_CIFAR100,
    SMALL_FASHION,
    SMALL_IMAGENET,
    idx,
    png,
    small_cifar10,
    write_cifar,
    write_fashion,
    write_idx,
    write_imagenet,
    write_split,
    write_tree,
)
from tests.official_files import RunsACommand

BATCHES = Path("cifar-10-batches-py")


def refused(load: Callable[[], object]) -> str:
    with pytest.raises(DataError) as raised:
        load()
    assert "\n" not in str(raised.value)
    return str(raised.value)


def counts(dataset: DataSet) -> list[int]:
    return [len(split) for split in (dataset.train, dataset.valid, dataset.test)]


def test_cifar10_from_its_batches(data: Path) -> None:
    written = write_cifar(data, SMALL_CIFAR10)
    dataset = SMALL_CIFAR10()
    images = np.concatenate([written[name][0] for name in CIFAR10.train])
    labels = np.concatenate([written[name][1] for name in CIFAR10.train])
    first, second = SMALL_CIFAR10.division.indices(None)
    assert np.array_equal(dataset.train.images, images[first]) and np.array_equal(dataset.train.labels, labels[first])
    assert np.array_equal(dataset.valid.images, images[second]) and np.array_equal(dataset.valid.labels, labels[second])
    assert np.array_equal(dataset.test.images, written["test_batch"][0])
    assert dataset.test.labels.tolist() == written["test_batch"][1]
    assert (dataset.classes, dataset.crop_padding, dataset.flip) == (10, 4, True)
    assert (dataset.mean, dataset.std) == ((125.3, 123.0, 113.9), (63.0, 62.1, 66.7))


def test_cifar10_divided_by_the_benchmarks_file(data: Path) -> None:
    written = write_cifar(data, SMALL_CIFAR10)
    images = np.concatenate([written[name][0] for name in CIFAR10.train])
    stored = SMALL_CIFAR10().checksum()
    write_split(data / "cifar-split.txt", {"train": range(0, 100, 2), "valid": range(1, 100, 2)})
    dataset = SMALL_CIFAR10()
    assert np.array_equal(dataset.train.images, images[::2]) and np.array_equal(dataset.valid.images, images[1::2])
    assert dataset.checksum() != stored
    (data / "cifar-split.txt").write_text("{}")
    assert refused(SMALL_CIFAR10).startswith(f"{data / 'cifar-split.txt'}: not a split file")
    (data / "cifar-split.txt").unlink()
    assert SMALL_CIFAR10().checksum() == stored


def test_cifar100_from_its_batches(data: Path) -> None:
    written = write_cifar(data, SMALL_CIFAR100)
    dataset = SMALL_CIFAR100()
    images, labels = written["test"]
    first, second = SMALL_CIFAR100.division.indices(None)
    assert counts(dataset) == [200, 50, 50]
    assert np.array_equal(dataset.train.images, written["train"][0])
    assert dataset.train.labels.tolist() == written["train"][1]
    assert np.array_equal(dataset.valid.images, images[first]) and np.array_equal(dataset.test.images, images[second])
    assert dataset.valid.labels.tolist() == [labels[index] for index in first]
    assert (dataset.classes, dataset.crop_padding, dataset.flip) == (100, 4, True)
    write_split(data / "cifar100-test-split.txt", {"xvalid": range(50, 100), "xtest": range(50)})
    assert np.array_equal(SMALL_CIFAR100().valid.images, images[50:])


def test_imagenet16_120(data: Path) -> None:
    written = write_imagenet(data)
    dataset = SMALL_IMAGENET()
    assert counts(dataset) == [60, 5, 5]
    kept = [
        (image, label - 1)
        for name, (images, labels) in written.items()
        if name != "val_data"
        for image, label in zip(images, labels, strict=True)
        if label <= 120
    ]
    assert np.array_equal(dataset.train.images, np.stack([image for image, _ in kept]))
    assert dataset.train.labels.tolist() == [label for _, label in kept]
    assert dataset.train.labels.min() == 0 and dataset.train.labels.max() < 120 == dataset.classes
    assert (dataset.crop_padding, dataset.flip) == (2, True)
    assert (dataset.mean, dataset.std) == ((122.68, 116.66, 104.01), (63.22, 61.26, 65.09))
    write_split(data / "imagenet-16-120-test-split.txt", {"xvalid": range(5), "xtest": range(5, 10)})
    images, labels = written["val_data"]
    held = images[[label <= 120 for label in labels]]
    assert np.array_equal(SMALL_IMAGENET().valid.images, held[:5])
    assert np.array_equal(SMALL_IMAGENET().test.images, held[5:])


@pytest.mark.parametrize("suffix", [".gz", ""])
def test_fashion_mnist(data: Path, suffix: str) -> None:
    written = write_fashion(data, suffix)
    dataset = SMALL_FASHION()
    first, second = SMALL_FASHION.division.indices(None)
    images = written["train-images-idx3-ubyte"][:, None]
    assert np.array_equal(dataset.train.images, images[first]) and np.array_equal(dataset.valid.images, images[second])
    assert np.array_equal(dataset.test.images[:, 0], written["t10k-images-idx3-ubyte"])
    assert dataset.test.labels.tolist() == written["t10k-labels-idx1-ubyte"].tolist()
    assert (dataset.image_channels, dataset.image_size, dataset.classes) == (1, 28, 10)


def test_cifar10_from_a_tree_of_images(data: Path) -> None:
    write_tree(data / "cifar10" / "train", CIFAR10.classes, 10, side=32)
    write_tree(data / "cifar10" / "test", CIFAR10.classes, 3, side=32)
    dataset = SMALL_CIFAR10()
    assert counts(dataset) == [50, 50, 30]
    seen = set()
    for split in (dataset.train, dataset.valid):
        assert np.array_equal(split.images[:, 0, 0, 0], split.labels)
        seen |= {(int(image[0, 0, 0]), int(image[0, 0, 1])) for image in split.images}
    assert len(seen) == 100
    # Whoever takes the first images gets all classes, not only airplanes.
    assert len(set(dataset.valid.labels[:20])) > 4 and len(set(dataset.test.labels[:20])) > 4


def test_batches_go_before_a_tree(data: Path) -> None:
    write_tree(data / "cifar10" / "train", CIFAR10.classes, 10, side=32)
    write_tree(data / "cifar10" / "test", CIFAR10.classes, 3, side=32)
    from_tree = SMALL_CIFAR10().checksum()
    written = write_cifar(data, SMALL_CIFAR10)
    assert SMALL_CIFAR10().checksum() != from_tree
    assert np.array_equal(SMALL_CIFAR10().test.images, written["test_batch"][0])


def test_the_benchmarks_file_does_not_apply_to_a_tree(data: Path) -> None:
    write_tree(data / "cifar10" / "train", CIFAR10.classes, 10, side=32)
    write_tree(data / "cifar10" / "test", CIFAR10.classes, 3, side=32)
    stored = SMALL_CIFAR10().checksum()
    write_split(data / "cifar-split.txt", {"train": range(50), "valid": range(50, 100)})
    assert SMALL_CIFAR10().checksum() == stored
    warnings, problems = SMALL_CIFAR10.check_files(SMALL_CIFAR10.found())
    assert any(str(data / "cifar-split.txt") in warning for warning in warnings) and not problems


def test_half_the_size_is_the_mean_of_four(data: Path) -> None:
    write_cifar(data, SMALL_CIFAR10)
    small, whole = Halved("cifar10-16", SMALL_CIFAR10)(), SMALL_CIFAR10()
    assert small.name == "cifar10-16" and small.image_size == 16
    assert (small.crop_padding, small.flip, small.mean, small.std) == (2, True, whole.mean, whole.std)
    assert counts(small) == counts(whole) and np.array_equal(small.valid.labels, whole.valid.labels)
    exact = whole.valid.images.reshape(-1, 3, 16, 2, 16, 2).mean((3, 5))
    assert np.array_equal(small.valid.images, np.floor(exact + 0.5))
    assert halved(np.full((1, 1, 2, 2), 255, np.uint8)) == 255
    before = Halved("cifar10-16", SMALL_CIFAR10).fingerprint()
    write_cifar(data, SMALL_CIFAR10, seed=1)
    assert Halved("cifar10-16", small_cifar10(seed=1))().checksum() != before


def test_changed_files_are_seen_and_equal_ones_keep_their_fingerprint(data: Path) -> None:
    write_cifar(data, SMALL_CIFAR10)
    first = replace(SMALL_CIFAR10).fingerprint()
    write_cifar(data, SMALL_CIFAR10, seed=1)
    assert "is not the original file" in refused(SMALL_CIFAR10)
    assert small_cifar10(seed=1).fingerprint() != first
    write_cifar(data, SMALL_CIFAR10)
    assert replace(SMALL_CIFAR10).fingerprint() == first  # as another process has it


def test_a_fingerprint_tells_division_and_use_apart(data: Path) -> None:
    write_cifar(data, SMALL_CIFAR10)
    others: list[dict[str, Any]] = [
        {},
        {"division": replace(SMALL_CIFAR10.division, name="another")},
        {"division": replace(SMALL_CIFAR10.division, first=40, second=60)},
        {"mean": (1.0, 2.0, 3.0)},
        {"std": (1.0, 2.0, 3.0)},
    ]
    assert len({replace(SMALL_CIFAR10, **other).fingerprint() for other in others}) == len(others)


def test_data_sets_without_files_have_no_fingerprint() -> None:
    assert fingerprint("digits") is None


def test_fingerprints_by_name(data: Path) -> None:
    assert "data set cifar10 not found" in refused(lambda: fingerprint("cifar10"))
    write_tree(data / "folder" / "train", ["a", "b"], 10)
    assert fingerprint("folder") == DATASETS.get("folder")().checksum()


@pytest.mark.parametrize(
    "dataset", [CIFAR10, CIFAR10_16, CIFAR100, IMAGENET16_120, FASHION_MNIST], ids=lambda d: d.name
)
def test_what_is_missing_is_said_with_where_and_how(data: Path, dataset: FileDataSet) -> None:
    assert DATASETS.get(dataset.name) is dataset
    message = refused(dataset)
    assert message.startswith(f"data set {dataset.name} not found: looked for {data}") and "get " in message


@pytest.mark.parametrize("which", [SMALL_CIFAR10, SMALL_CIFAR100], ids=lambda d: d.name)
def test_one_missing_batch_is_named(data: Path, which: Cifar) -> None:
    write_cifar(data, which)
    (file := data / which.folder / which.train[-1]).unlink()
    assert refused(which) == f"{file}: missing; the other files of {which.name} are in {file.parent}"


@pytest.mark.parametrize(
    ("dataset", "write"),
    [
        (SMALL_CIFAR10, lambda data: write_cifar(data, SMALL_CIFAR10)),
        (SMALL_IMAGENET, write_imagenet),
        (SMALL_FASHION, write_fashion),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
@pytest.mark.parametrize("place", [0, -1])
def test_only_the_original_files_are_read(
    data: Path, tmp_path: Path, dataset: Any, write: Callable[[Path], object], place: int
) -> None:
    write(data)
    file = dataset.found().files[place]
    good = file.read_bytes()
    evil = pickle.dumps(RunsACommand(tmp_path / "executed"))
    for content in (good[:-1], b"", b"<html>404 Not Found</html>", evil):
        file.write_bytes(content)
        message = refused(dataset)
        assert message.startswith(f"{file}: ")
        if file.suffix == ".gz":
            assert "truncated, damaged or not compressed by gzip" in message or not content
        else:
            assert "is not the original file" in message and f"get {dataset.name} again" in message
    assert not (tmp_path / "executed").exists()
    file.write_bytes(good)
    dataset()


def test_fashion_mnist_must_be_the_original_in_its_content(data: Path) -> None:
    write_fashion(data)
    file = data / "FashionMNIST" / "raw" / "t10k-labels-idx1-ubyte.gz"
    write_idx(file, np.full(15, 3, np.uint8))
    assert refused(SMALL_FASHION).startswith(f"{file}: is not the original file (MD5 of its content ")
    file.write_bytes(gzip.compress(idx(FASHION_FILES["t10k-labels-idx1-ubyte"]), 1))  # compressed in another way
    SMALL_FASHION()
    file.unlink()
    assert refused(SMALL_FASHION).startswith(f"{file.with_suffix('')}: missing")


def test_the_real_data_sets_ask_for_the_published_files(data: Path) -> None:
    write_cifar(data, SMALL_CIFAR10)
    write_cifar(data, SMALL_CIFAR100)
    write_imagenet(data)
    write_fashion(data)
    for dataset in (CIFAR10, CIFAR100, IMAGENET16_120, FASHION_MNIST):
        assert f"{dataset.found().files[0]}: is not the original file" in refused(dataset)


def test_files_are_compared_with_the_originals(data: Path) -> None:
    for dataset, write in ((SMALL_IMAGENET, write_imagenet), (SMALL_FASHION, write_fashion)):
        write(data)
        assert dataset.check_files(dataset.found()) == ([], [])
    write_cifar(data, SMALL_CIFAR10, seed=1)
    found = SMALL_CIFAR10.found()
    warnings, problems = SMALL_CIFAR10.check_files(found)
    assert not warnings and [problem.partition(": is not the original file")[0] for problem in problems] == [
        str(file) for file in found.files
    ]


def test_trees_that_are_not_cifar10(data: Path) -> None:
    root = data / "cifar10"
    write_tree(root / "train", CIFAR10.classes, 10, side=32)
    assert refused(SMALL_CIFAR10).startswith(f"{root / 'test'}: missing")
    write_tree(root / "test", CIFAR10.classes[1:], 3, side=32)
    assert refused(SMALL_CIFAR10) == f"{root / 'test' / 'airplane'}: missing, although it is a class of cifar10"
    write_tree(root / "test", CIFAR10.classes, 3, side=32)
    (root / "train" / "zebra").mkdir()
    assert refused(SMALL_CIFAR10) == f"{root / 'train' / 'zebra'}: is not a class of cifar10"
    (root / "train" / "zebra").rmdir()
    extra = root / "train" / "cat" / "more.png"
    extra.write_bytes(png(32))
    assert refused(SMALL_CIFAR10) == f"{root / 'train' / 'cat'}: holds 11 images; cifar10 has 10"
    extra.unlink()
    (wrong := root / "test" / "cat" / "0001.png").write_bytes(png(16))
    assert refused(SMALL_CIFAR10).startswith(f"{wrong}: has 16×16 pixels, not 32×32")
