"""Writes small files in exactly the formats that real data sets come in."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from harness.components.dataset import DataSet, Split
from harness.data.cifar import CIFAR10, CIFAR100, Cifar
from harness.data.fashion_mnist import FASHION_MNIST
from harness.data.imagenet16 import IMAGENET16_120

Bytes = npt.NDArray[np.uint8]


def random_bytes(*shape: int, seed: int = 0) -> Bytes:
    return np.random.default_rng([seed, *shape]).integers(0, 256, shape, np.uint8)


def small_set() -> DataSet:
    train, valid, test = (Split(random_bytes(count, 3, 4, 4), np.arange(count) % 10) for count in (20, 10, 5))
    mean, std = (120.0, 110.0, 100.0), (60.0, 61.0, 62.0)
    return DataSet("small", 10, train, valid, test, mean, std, crop_padding=1, flip=True)


def python2_pickle(document: Mapping[str, Any]) -> bytes:
    """A dictionary as Python 2's cPickle and an old numpy write it, protocol 2: text is of 8-bit characters."""
    parts = [b"\x80\x02}("]
    for key, value in document.items():
        parts += [_python2(key), _python2(value)]
    return b"".join([*parts, b"u."])


def _python2(value: Any) -> bytes:
    if isinstance(value, str):
        value = value.encode("latin-1")
    if isinstance(value, bytes):
        return b"U" + bytes([len(value)]) + value if len(value) < 256 else b"T" + struct.pack("<i", len(value)) + value
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if isinstance(value, list):
        return b"](" + b"".join(map(_python2, value)) + b"e"
    assert isinstance(value, np.ndarray)
    name, order = value.dtype.str[1:], value.dtype.str[:1]
    sides = b"".join(map(_python2, value.shape))
    return b"".join(
        [
            b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n(K\x00t",
            _python2("b"),
            b"\x87R(K\x01(" + sides + b"t",
            b"cnumpy\ndtype\n" + _python2(name) + b"K\x00K\x01\x87R(K\x03" + _python2(order),
            b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89" + _python2(value.tobytes()) + b"tb",
        ]
    )


def cifar_batches(which: Cifar, seed: int = 0) -> Iterator[tuple[str, Bytes, list[int], bytes]]:
    """Name, images, labels and content of each file of a (small) CIFAR."""
    number = 0
    for part, names, count in (
        ("training", which.train, which.images_per_train_file),
        ("testing", which.test, which.images_per_test_file),
    ):
        for place, name in enumerate(names, 1):
            rows = random_bytes(count, 3072, seed=seed + number)
            labels = [(7 * image + place) % len(which.classes) for image in range(count)]
            label = "labels" if len(which.classes) == 10 else "fine_labels"
            document: dict[str, Any] = {"batch_label": f"{part} batch {place} of {len(names)}", label: labels}
            if label == "fine_labels":
                document["coarse_labels"] = [label // 5 for label in labels]
            document |= {"data": rows, "filenames": [f"image_{image}.png" for image in range(count)]}
            yield name, rows.reshape(-1, 3, 32, 32), labels, python2_pickle(document)
            number += 1


def write_cifar(folder: Path, which: Cifar, seed: int = 0) -> dict[str, tuple[Bytes, list[int]]]:
    """The batches of a (small) CIFAR in its folder; returns what is in each file."""
    (folder / which.folder).mkdir(parents=True, exist_ok=True)
    written = {}
    for name, images, labels, content in cifar_batches(which, seed):
        (folder / which.folder / name).write_bytes(content)
        written[name] = images, labels
    return written


def imagenet_batches() -> Iterator[tuple[str, Bytes, list[int], bytes]]:
    """Ten training files with 6 images of the first 120 classes each, and 10 of them for validation."""
    for number, name in enumerate(IMAGENET16_120.originals):
        wanted = 10 if name == "val_data" else 6
        labels = [1 + (13 * image + number) % 120 for image in range(wanted)]
        labels = [label for pair in zip(labels, [121 + number, 1000] * wanted, strict=False) for label in pair]
        rows = random_bytes(len(labels), 768, seed=number)
        content = python2_pickle({"data": rows, "labels": labels, "mean": rows.mean(0)})
        yield name, rows.reshape(-1, 3, 16, 16), labels, content


def write_imagenet(folder: Path) -> dict[str, tuple[Bytes, list[int]]]:
    written = {}
    (folder / SMALL_IMAGENET.folder).mkdir(parents=True)
    for name, images, labels, content in imagenet_batches():
        (folder / SMALL_IMAGENET.folder / name).write_bytes(content)
        written[name] = images, labels
    return written


def idx(array: Bytes) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_idx(path: Path, array: Bytes) -> None:
    content = idx(array)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def write_fashion(folder: Path, suffix: str = ".gz") -> dict[str, Bytes]:
    for name, array in FASHION_FILES.items():
        write_idx(folder / "FashionMNIST" / "raw" / f"{name}{suffix}", array)
    return FASHION_FILES


def write_tree(folder: Path, classes: Sequence[str], count: int, side: int = 8, mode: str = "RGB") -> None:
    """A class's images have its number in the first pixel, and their own in the second; PNG keeps them."""
    for label, name in enumerate(classes):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            pixels = random_bytes(side, side, 3, seed=label * 1000 + number)
            pixels[0, 0], pixels[0, 1] = label, number
            Image.fromarray(pixels).convert(mode).save(folder / name / f"{number:04}.png")


def write_split(path: Path, parts: Mapping[str, Sequence[int]]) -> None:
    """As the benchmark has it: a type, and the numbers as text."""
    path.write_text(json.dumps({key: ["int", [str(index) for index in indices]] for key, indices in parts.items()}))


def png(side: int, mode: str = "RGB") -> bytes:
    stream = io.BytesIO()
    Image.new(mode, (side, side)).save(stream, "PNG")
    return stream.getvalue()


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def known(batches: Iterable[tuple[str, Bytes, list[int], bytes]]) -> dict[str, str]:
    return {name: md5(content) for name, _, _, content in batches}


def small_cifar10(seed: int = 0) -> Cifar:
    """CIFAR-10 with fewer images, whose published files are those that `write_cifar` writes from this seed."""
    division = replace(CIFAR10.division, first=50, second=50)
    small = replace(CIFAR10, images_per_train_file=20, images_per_test_file=30, division=division)
    return replace(small, originals=known(cifar_batches(small, seed)))


# The real data sets with fewer images.
SMALL_CIFAR10 = small_cifar10()
SMALL_CIFAR100 = replace(
    CIFAR100,
    images_per_train_file=200,
    images_per_test_file=100,
    division=replace(CIFAR100.division, first=50, second=50),
)
SMALL_CIFAR100 = replace(SMALL_CIFAR100, originals=known(cifar_batches(SMALL_CIFAR100)))
SMALL_IMAGENET = replace(
    IMAGENET16_120,
    train_images=60,
    division=replace(IMAGENET16_120.division, first=5, second=5),
    originals=known(imagenet_batches()),
)
FASHION_FILES = {
    "train-images-idx3-ubyte": random_bytes(50, 28, 28),
    "train-labels-idx1-ubyte": np.arange(50, dtype=np.uint8) % 10,
    "t10k-images-idx3-ubyte": random_bytes(15, 28, 28),
    "t10k-labels-idx1-ubyte": np.arange(15, dtype=np.uint8) % 10,
}
SMALL_FASHION = replace(
    FASHION_MNIST,
    test_images=15,
    division=replace(FASHION_MNIST.division, first=40, second=10),
    originals={name: md5(idx(array)) for name, array in FASHION_FILES.items()},
)
