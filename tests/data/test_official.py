"""The official data sets, from small files in their own formats."""

from __future__ import annotations

import gzip
import hashlib
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
    SMALL_CIFAR10,
    SMALL_CIFAR100,
    SMALL_FASHION,
    SMALL_IMAGENET,
    png,
    python2_pickle,
    random_bytes,
    write_cifar,
    write_fashion,
    write_idx,
    write_imagenet,
    write_split,
    write_tree,
)

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
    assert Halved("cifar10-16", SMALL_CIFAR10)().checksum() != before


def test_changed_files_are_seen_and_equal_ones_keep_their_fingerprint(data: Path) -> None:
    write_cifar(data, SMALL_CIFAR10)
    first = replace(SMALL_CIFAR10).fingerprint()
    write_cifar(data, SMALL_CIFAR10, seed=1)
    assert SMALL_CIFAR10().checksum() != first
    assert replace(SMALL_CIFAR10).fingerprint() != first  # as another process has it
    write_cifar(data, SMALL_CIFAR10)
    assert replace(SMALL_CIFAR10).fingerprint() == first


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


def changed(**changes: object) -> bytes:
    good = {"data": random_bytes(20, 3072), "labels": [0] * 20}
    return python2_pickle({key: value for key, value in {**good, **changes}.items() if value is not None})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (changed()[:5000], "truncated, damaged or not a pickle"),
        (b"", "truncated, damaged or not a pickle"),
        (b"<html>404 Not Found</html>", "truncated, damaged or not a pickle"),
        (
            changed(labels=None, fine_labels=[0] * 20),
            "not a file of cifar10: it has no 'labels', only data, fine_labels",
        ),
        (changed(data=None), "not a file of cifar10: it has no 'data', only labels"),
        (changed(data=random_bytes(20, 768)), "rows of 3072 bytes (32×32 pixels), not uint8 of shape (20, 768)"),
        (changed(data=np.zeros((20, 3072))), "not float64 of shape (20, 3072)"),
        (changed(data="pixels"), "rows of 3072 bytes (32×32 pixels), not a bytes"),
        (changed(data=random_bytes(19, 3072), labels=[0] * 19), "holds 19 images, not 20"),
        (changed(labels=[0] * 19), "has 19 labels for 20 images"),
        (changed(labels=[0] * 19 + [10]), "labels must be 0 to 9, not 10"),
        (changed(labels=["cat"] * 20), "labels must be a list of whole numbers"),
        (changed(labels=7), "labels must be a list of whole numbers"),
        (pickle.dumps(pickle.Unpickler), "refused: it asks for _pickle.Unpickler"),
    ],
)
def test_batches_that_are_refused(data: Path, content: bytes, message: str) -> None:
    write_cifar(data, SMALL_CIFAR10)
    file = data / BATCHES / "data_batch_3"
    file.write_bytes(content)
    found = refused(SMALL_CIFAR10)
    assert found.startswith(f"{file}: ") and message in found


def test_the_real_counts_are_asked_of_the_real_data_sets(data: Path) -> None:
    write_cifar(data, SMALL_CIFAR10)
    assert "data_batch_1: holds 20 images, not 10,000" in refused(CIFAR10)
    write_cifar(data, SMALL_CIFAR100)
    assert "train: holds 200 images, not 50,000" in refused(CIFAR100)
    write_imagenet(data)
    message = "holds 60 training images of the first 120 classes; imagenet16-120 has 151,700"
    assert message in refused(IMAGENET16_120)
    assert "holds 10 validation images of the first 120 classes; imagenet16-120 has 6,000" in refused(
        replace(IMAGENET16_120, train_images=60)
    )
    write_fashion(data)
    assert "train-images-idx3-ubyte.gz: has the shape 50×28×28, not 60000×28×28" in refused(FASHION_MNIST)


@pytest.mark.parametrize(
    ("dataset", "write"),
    [
        (SMALL_CIFAR10, lambda data: write_cifar(data, SMALL_CIFAR10)),
        (SMALL_IMAGENET, write_imagenet),
        (SMALL_FASHION, write_fashion),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_files_are_compared_with_the_originals(data: Path, dataset: Any, write: Callable[[Path], object]) -> None:
    write(data)
    found = dataset.found()
    warnings, problems = dataset.check_files(found)
    assert not warnings and [problem.partition(": is not the original file")[0] for problem in problems] == [
        str(file) for file in found.files
    ]
    contents = [file.read_bytes() for file in found.files]
    contents = [gzip.decompress(c) if dataset is SMALL_FASHION else c for c in contents]
    known = dict(zip(dataset.originals, (hashlib.md5(c).hexdigest() for c in contents), strict=False))
    assert replace(dataset, originals=known).check_files(found) == ([], [])


def test_labels_of_imagenet_count_from_1(data: Path) -> None:
    write_imagenet(data)
    file = data / "ImageNet16" / "val_data"
    file.write_bytes(python2_pickle({"data": random_bytes(2, 768), "labels": [0, 5]}))
    assert refused(SMALL_IMAGENET) == f"{file}: labels must be 1 to 1000, not 0"
    file.write_bytes(python2_pickle({"data": random_bytes(2, 3072), "labels": [1, 5]}))
    assert "rows of 768 bytes (16×16 pixels)" in refused(SMALL_IMAGENET)


def test_fashion_mnist_files_that_are_refused(data: Path) -> None:
    write_fashion(data)
    raw = data / "FashionMNIST" / "raw"
    images, labels = raw / "train-images-idx3-ubyte.gz", raw / "train-labels-idx1-ubyte.gz"
    good = images.read_bytes()
    for content, message in (
        (good[:-100], "truncated, damaged or not compressed by gzip"),
        (b"plain", "truncated, damaged or not compressed by gzip"),
        (labels.read_bytes(), "not an IDX file of bytes with 3 dimensions"),
    ):
        images.write_bytes(content)
        assert refused(SMALL_FASHION).startswith(f"{images}: {message}")
    write_idx(images, random_bytes(50, 32, 32))
    assert refused(SMALL_FASHION) == f"{images}: has the shape 50×32×32, not 50×28×28"
    write_idx(images.with_suffix(""), random_bytes(50, 28, 28))
    plain = images.with_suffix("")
    plain.write_bytes(plain.read_bytes()[:-1])
    assert refused(SMALL_FASHION).startswith(f"{plain}: truncated or damaged, has 39,215 bytes")
    plain.unlink()
    images.write_bytes(good)
    write_idx(labels, np.full(50, 10, np.uint8))
    assert refused(SMALL_FASHION) == f"{labels}: labels must be 0 to 9, not 10"
    labels.unlink()
    assert refused(SMALL_FASHION).startswith(f"{raw / 'train-labels-idx1-ubyte'}: missing")


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
