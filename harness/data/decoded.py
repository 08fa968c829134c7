"""Streamed images, decoded and scaled once, as arrays in the cache: reading them is several times as fast as decoding.

Images are scaled until their shorter side has `side` pixels and cut to a square at the centre. Pieces of 1,024 images
are written one by one, each atomically: an interrupted build goes on where it stopped. ImageNet takes 252 GB at 256
pixels. Scaled images are other images: such a data set has its own name and fingerprint.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from harness.components.dataset import SPLITS, DataSet, Sample, Stream
from harness.data.cache import Record, alone_in
from harness.data.imagenet import ImageNet
from harness.data.trees import cores, progress
from harness.errors import DamagedImage, DataError

if TYPE_CHECKING:
    from harness.data.streaming import LeftOut

PIECE = 1024
"""Images per file."""


@dataclass(frozen=True)
class Pieces:
    """A source of decoded images. Files are mapped when they are needed, in each process."""

    folder: Path
    split: str
    labels: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def sample(self, index: int) -> Sample:
        number, place = divmod(index, PIECE)
        images, damaged = _piece(self.folder, self.split, number)
        if place in damaged:
            raise DamagedImage(damaged[place])
        return images[place].transpose(2, 0, 1), int(self.labels[index])


@functools.lru_cache(maxsize=4096)
def _piece(folder: Path, split: str, number: int) -> tuple[npt.NDArray[np.uint8], dict[int, str]]:
    file = _file(folder, split, number)
    try:
        return np.load(file, mmap_mode="r"), _damaged(file)
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: damaged ({error}); remove {folder}, the next use rebuilds it") from error


def _damaged(file: Path) -> dict[int, str]:
    """By place in the piece, why an image could not be read."""
    stored = json.loads(file.with_suffix(".json").read_bytes())
    return {int(place): reason for place, reason in stored.items()}


def _file(folder: Path, split: str, number: int) -> Path:
    return folder / f"{split}-{number:05d}.npy"


@dataclass(frozen=True)
class DecodedImageNet(ImageNet):
    """ImageNet from arrays of scaled images, which the first use makes."""

    side: int = 256

    def load(self, folder: Path, record: Record) -> DataSet:
        streamed = super().load(folder, record)
        place = folder.with_name(f"{folder.name}-{self.side}")
        decode_into(place, streamed, self.side)

        def decoded(split: str) -> Stream:
            before: Any = getattr(streamed, split)
            source = Pieces(place, split, before.source.labels)
            return Stream(source, before.shape, None, before.shape[1] / self.side, before.interpolation)

        train, valid, test = map(decoded, SPLITS)
        return replace(streamed, train=train, valid=valid, test=test).with_known_checksum(record.checksum)

    def _fingerprint(self, *given: Any) -> str:
        return hashlib.sha256(f"{super()._fingerprint(*given)} scaled to {self.side}".encode()).hexdigest()


def decode_into(folder: Path, dataset: DataSet, side: int) -> None:
    """Decode what is not there yet. Raises `DataError` when the disk is too small or too many images are damaged."""
    if all(_there(folder, split, number) for split, number in _numbers(dataset)):
        return
    from harness.data.streaming import Damaged, LeftOut

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with alone_in(folder):
            missing = [one for one in _numbers(dataset) if not _there(folder, *one)]
            _check_space(folder, len(missing) * PIECE * 3 * side * side)
            left_out = {split: LeftOut(getattr(dataset, split), dataset) for split in SPLITS}
            for split, number in _numbers(dataset):
                if (split, number) not in missing:  # what an interrupted build has found counts, too
                    found = _damaged(_file(folder, split, number))
                    left_out[split].note([Damaged(number * PIECE + place, why) for place, why in found.items()])
            with progress(f"decoding {dataset.name}", len(missing)) as advance:
                for split, number in missing:
                    _write(folder, dataset, split, number, side, left_out[split])
                    advance(1)
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"decoded images cannot be written to {folder} ({reason}); set HARNESS_CACHE") from error


def _numbers(dataset: DataSet) -> Iterator[tuple[str, int]]:
    for split in SPLITS:
        for number in range(-(-len(getattr(dataset, split)) // PIECE)):
            yield split, number


def _there(folder: Path, split: str, number: int) -> bool:
    return _file(folder, split, number).exists()  # written last


def _check_space(folder: Path, wanted: int) -> None:
    free = shutil.disk_usage(folder).free
    if wanted > free:
        raise DataError(
            f"decoded images need {wanted / 1e9:.1f} GB in {folder}, where {free / 1e9:.1f} GB are free; "
            "set HARNESS_CACHE to a larger disk, or use the data set without decoding"
        )


def _write(folder: Path, dataset: DataSet, split: str, number: int, side: int, left_out: LeftOut) -> None:
    """Decode one piece. Damaged images stay black, are counted, and are listed beside it."""
    from harness.data.streaming import Samples, batches

    stream: Stream = getattr(dataset, split)
    square = Stream(stream.source, (stream.shape[0], side, side), None, 1.0, stream.interpolation)
    indices = range(number * PIECE, min((number + 1) * PIECE, len(stream)))
    images = np.zeros((len(indices), side, side, stream.shape[0]), np.uint8)
    damaged: dict[int, str] = {}
    keys = ([(index, 0) for index in indices[start : start + 32]] for start in range(0, len(indices), 32))
    for place, read in enumerate(batches(Samples(square, dataset), keys, _processes())):
        left_out.note(read.damaged)
        if len(read.kept):
            images[place * 32 + read.kept.numpy()] = read.images.permute(0, 2, 3, 1).numpy()
        damaged |= {index - indices.start: reason for index, reason in read.damaged}
    file = _file(folder, split, number)
    for target in (file.with_suffix(".json"), file):
        part = target.with_name(f".{target.name}.part")
        with part.open("wb") as stream_:
            if target is file:
                np.save(stream_, images, allow_pickle=False)
            else:
                stream_.write(json.dumps(damaged).encode())
            stream_.flush()
            os.fsync(stream_.fileno())
        part.replace(target)


def _processes() -> int:
    text = os.environ.get("HARNESS_DATA_WORKERS", "")
    return int(text) if text.isdecimal() else 0 if sys.platform != "linux" else cores()


IMAGENET_256 = DecodedImageNet("imagenet-256")
