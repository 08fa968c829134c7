"""Decoded data sets on disk: memory-mapped, checksummed, built once. Independent of formats and data sets.

An entry is a folder with one `.npy` file per split for images and labels and `record.json`, which describes
them. It is created atomically, under a name that depends on the source files' state: changed files give another
entry. Opening one reads the record and checks sizes and headers; `verify` reads everything. Several processes
may need one entry at the same time: one builds it, the others wait.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from harness.components.dataset import SPLITS, DataSet, Split
from harness.data.places import cache_folder
from harness.errors import DataError

FORMAT = 1
RECORD = "record.json"


@dataclass(frozen=True)
class Record:
    """The content of an entry."""

    name: str
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop_padding: int
    flip: bool
    images: dict[str, list[int]]
    """Each split's shape."""
    sizes: dict[str, int]
    """The bytes of each file."""
    checksum: str
    """`DataSet.checksum` of the whole data set."""
    about: dict[str, str]
    """Where the images come from, and how they are divided."""
    format: int = FORMAT

    @property
    def counts(self) -> dict[str, int]:
        return {split: shape[0] for split, shape in self.images.items()}


def entry(name: str, key: str) -> Path:
    """The folder of a data set for one state of its source files (`key`)."""
    return cache_folder() / "data" / f"{name}-{key[:24]}"


def read(folder: Path) -> Record | None:
    """The entry's record, or None if it is missing, of another version, or visibly damaged."""
    try:
        document = json.loads((folder / RECORD).read_bytes())
        if document["format"] != FORMAT:
            return None
        record = Record(**{**document, "mean": tuple(document["mean"]), "std": tuple(document["std"])})
        if any((folder / file).stat().st_size != size for file, size in record.sizes.items()):
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return record


def load(folder: Path, record: Record) -> DataSet:
    """The data set of an entry, memory-mapped and not read. Raises `DataError` when it is damaged."""
    splits = {}
    try:
        for split, shape in record.images.items():
            # Copy-on-write, because torch warns about read-only arrays.
            images, labels = (np.asarray(np.load(file, mmap_mode="c")) for file in _files(folder, split))
            if list(images.shape) != shape:
                raise DataError(f"{folder}: {split} has the shape {images.shape}, not {shape}")
            splits[split] = Split(images, labels)
        dataset = DataSet(
            name=record.name,
            classes=record.classes,
            **splits,
            mean=record.mean,
            std=record.std,
            crop_padding=record.crop_padding,
            flip=record.flip,
        )
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{folder}: damaged ({error}); remove it, the next use rebuilds it") from error
    return dataset.with_known_checksum(record.checksum)


def verify(folder: Path, record: Record) -> bool:
    """Whether the entry's content is still what was written. Reads all of it."""
    try:
        return load(folder, record).computed_checksum() == record.checksum
    except DataError:
        return False


def build(folder: Path, decode: Callable[[Path], DataSet], about: Mapping[str, str]) -> Record:
    """Build the entry of decoded images unless it exists. `decode` gets an empty folder for temporary files."""
    return build_with(folder, lambda part, scratch: _write(part, decode(scratch), about))


def build_with(folder: Path, write: Callable[[Path, Path], Record]) -> Record:
    """Build the entry unless it exists. `write` fills a folder and gets another one for temporary files.

    Raises `DataError` when the cache cannot be written; errors of `write` are passed on and leave no files.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with alone_in(folder) as alone:
            if (record := read(folder)) is not None:
                return record
            for leftover in folder.parent.glob(f".{folder.name}.*.part") if alone else ():  # of a process that died
                shutil.rmtree(leftover, ignore_errors=True)
            part = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}.part")
            try:
                part.mkdir()  # with the usual permissions: others may share the cache
                (scratch := part / "scratch").mkdir()
                record = write(part, scratch)
                write_record(part, record)
                shutil.rmtree(scratch)
                if read(folder) is None:  # without locks, another process may have been faster
                    remove(folder)
                    part.rename(folder)
            finally:
                shutil.rmtree(part, ignore_errors=True)
            return record
    except OSError as error:
        place = f"decoded data cannot be written to {folder.parent}"
        raise DataError(f"{place} ({error.strerror or error}); set HARNESS_CACHE to a writable folder") from error


def remove(folder: Path) -> None:
    """Remove an entry; processes that have mapped it keep its data."""
    shutil.rmtree(folder, ignore_errors=True)


def _write(part: Path, dataset: DataSet, about: Mapping[str, str]) -> Record:
    shapes, sizes = {}, {}
    for name in SPLITS:
        split: Split = getattr(dataset, name)
        for file, array in zip(_files(part, name), (split.images, split.labels), strict=True):
            with file.open("wb") as stream:
                np.save(stream, np.ascontiguousarray(array), allow_pickle=False)
                stream.flush()
                os.fsync(stream.fileno())
            sizes[file.name] = file.stat().st_size
        shapes[name] = list(split.images.shape)
    return Record(
        name=dataset.name,
        classes=dataset.classes,
        mean=dataset.mean,
        std=dataset.std,
        crop_padding=dataset.crop_padding,
        flip=dataset.flip,
        images=shapes,
        sizes=sizes,
        checksum=dataset.computed_checksum(),
        about=dict(about),
    )


def write_record(part: Path, record: Record) -> None:
    with (part / RECORD).open("w") as stream:
        json.dump(asdict(record), stream, indent=1)
        stream.flush()
        os.fsync(stream.fileno())


def _files(folder: Path, split: str) -> tuple[Path, Path]:
    return folder / f"{split}_images.npy", folder / f"{split}_labels.npy"


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[bool]:
    """Lock the entry for building; yields whether locking works. A lock ends with its process."""
    import fcntl

    with (folder.parent / f".{folder.name}.lock").open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:  # a file system without locks: all processes build, and one entry stays
            yield False
        else:
            yield True
