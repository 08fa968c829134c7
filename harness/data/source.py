"""A data set that comes from files: decoded once, then opened from the cache.

The modules of the individual data sets define the formats. This module defines how a data set is found,
when its files count as changed, and what identifies it.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harness.components.dataset import DataSet
from harness.data import cache
from harness.data.cache import Record
from harness.data.places import cache_folder, data_folder, image_folder
from harness.errors import DataError

Paths = tuple[Path, ...]


@dataclass(frozen=True)
class Found:
    """The files of a data set on disk."""

    layout: str
    """The form: "batches", "image folder", …"""
    root: Path
    files: Paths
    """Paths that are checked for changes: the files, or for trees of many small files their folders."""
    split: Path | None = None
    """The benchmark's split file, where it applies."""
    unused: Paths = ()
    """Files that look relevant, but do not apply."""

    def state(self) -> list[tuple[str, int, int]]:
        """Names, sizes and modification times."""
        paths = (*self.files, self.split) if self.split else self.files
        return [_state(path) for path in paths]


class Missing(Exception):
    """The files were not found: where they were looked for, and how to get them."""

    def __init__(self, places: Paths, advice: str) -> None:
        super().__init__(places, advice)
        self.places = places
        self.advice = advice


@dataclass(frozen=True)
class FileDataSet(ABC):
    """A named data set. Calling it loads the images: `DATASETS.get("cifar10")()`."""

    name: str
    # The fingerprints known to this process, by the folders of the data and its cache.
    _known: dict[tuple[Path, ...], str] = field(default_factory=dict, init=False, repr=False, compare=False)

    version = 1
    """Changes when the same files give different images."""

    @abstractmethod
    def find(self) -> Found:
        """Find the files, without opening them. Raises `Missing`, or `DataError` if only some exist."""

    @abstractmethod
    def decode(self, found: Found, scratch: Path) -> DataSet:
        """All images, checked; `scratch` is an empty folder for data that does not fit into memory."""

    def check_files(self, found: Found) -> tuple[list[str], list[str]]:
        """Warnings about the files, and problems: differences from the originals, if these are known."""
        return [], []

    def listing(self, found: Found) -> str:
        """A hash of all files' names, sizes and times, if `Found.files` are only their folders."""
        return ""

    def sizes(self) -> dict[str, int] | None:
        """How many images the splits have, if that is known without the files; None if it is not."""
        return None

    def describe(self, found: Found) -> dict[str, str]:
        """Where the images come from and how they are divided, for the cache record."""
        division = str(found.split) if found.split else "the stored one"
        return {"layout": found.layout, "root": os.path.abspath(found.root), "split": division}

    def found(self) -> Found:
        """The files. Raises `DataError` that says where they were looked for and how to get them."""
        try:
            return self.find()
        except Missing as missing:
            places = " or ".join(map(str, missing.places))
            raise DataError(f"data set {self.name} not found: looked for {places}; {missing.advice}") from None

    def entry(self, found: Found) -> Path:
        """The data set's folder in the cache. It changes with the files, and with the constants in the code."""
        state = [repr(self), str(self.version), found.layout, os.path.abspath(found.root), repr(found.state())]
        return cache.entry(self.name, hashlib.sha256("\0".join(state).encode()).hexdigest())

    def known_record(self, found: Found) -> Record | None:
        """The record of an existing cache entry, or None; builds nothing."""
        return cache.read(self.entry(found))

    def prepared(self, found: Found) -> tuple[Path, Record]:
        """The data set's cache entry, built now if it does not exist."""
        folder = self.entry(found)
        record = cache.read(folder)
        if record is None:
            about = {**self.describe(found), "listing": self.listing(found)}
            record = cache.build(folder, lambda scratch: self.decode(found, scratch), about)
        return folder, record

    def __call__(self) -> DataSet:
        found = self.found()
        folder, record = self.prepared(found)
        try:
            return self.load(folder, record)
        except DataError:  # damaged, but with the right sizes
            cache.remove(folder)
            return self.load(*self.prepared(found))

    def load(self, folder: Path, record: Record) -> DataSet:
        """The data set of a cache entry. Raises `DataError` when it is damaged."""
        return cache.load(folder, record)

    def verify(self, folder: Path, record: Record) -> bool:
        """Whether the cache entry is still what was written. May read all of it."""
        return cache.verify(folder, record)

    def refresh(self, found: Found) -> tuple[list[str], list[str]]:
        """Check the whole entry and all file names; remove the entry if they do not match. Warnings, problems."""
        folder = self.entry(found)
        record = cache.read(folder)
        if record is None:
            return [], []
        changed = record.about["listing"] != self.listing(found)
        if not changed and self.verify(folder, record):
            return [], []
        cache.remove(folder)
        self._known.clear()
        if changed:
            return [f"{found.root}: images changed in place since they were decoded; decoding them again"], []
        return [], [f"{folder}: decoded images do not match their checksum; removed, will be rebuilt"]

    def fingerprint(self) -> str:
        """The checksum of the images, their division and use; looked up once per process and folder."""
        place = (data_folder().absolute(), image_folder().absolute(), cache_folder().absolute())
        if place not in self._known:
            self._known[place] = self.prepared(self.found())[1].checksum
        return self._known[place]


def existing(*paths: Path) -> Path | None:
    """The first path that exists, or None."""
    return next((path for path in paths if path.exists()), None)


def all_of(name: str, paths: Paths) -> Paths:
    """The paths, which must all exist. Raises `DataError` naming the first that does not."""
    for path in paths:
        if not path.exists():
            raise DataError(f"{path}: missing; the other files of {name} are in {path.parent}")
    return paths


def altered(files: Iterable[Path], originals: Iterable[str]) -> Iterator[str]:
    """A message for each file whose content does not have the MD5 of the published one."""
    for path, known in zip(files, originals, strict=True):
        if (own := hashlib.md5(content(path), usedforsecurity=False).hexdigest()) != known:
            yield f"{path}: is not the original file (MD5 of its content {own}, not {known})"


def check_originals(name: str, files: Iterable[Path], originals: Iterable[str]) -> None:
    """Raise `DataError` unless all files are the published ones. Only these are read: unpickling can run any code."""
    for message in altered(files, originals):
        raise DataError(f"{message}, and only that is read; get {name} again")


def content(path: Path) -> bytes:
    """The bytes of a file, without its compression by gzip."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return file.read()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: truncated, damaged or not compressed by gzip ({error})") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error


def _state(path: Path) -> tuple[str, int, int]:
    try:
        state = path.stat()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    return "/".join(path.parts[-2:]), state.st_size, state.st_mtime_ns
