"""How images are divided if a data set's own files do not say. Independent of formats and images.

NAS-Bench-201 divides CIFAR-10's training images and the test images of the other sets in two, and lists
the indices in files (`cifar-split.txt` and others). Such a file is used if it is in the data folder.
Otherwise the division stored in `splits.npz` is used: one bit per image, drawn once by `drawn`, without
any library's rng.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.errors import DataError

Indices = npt.NDArray[np.int64]

STORED = Path(__file__).with_name("splits.npz")


@dataclass(frozen=True)
class Division:
    """The division of some images of a data set into two parts of given sizes."""

    name: str
    """The name of the data set and of the stored division."""
    first: int
    second: int
    file: str | None = None
    """The benchmark's split file."""
    keys: tuple[str, str] = ("train", "valid")
    """The names of the parts in that file."""

    def indices(self, file: Path | None) -> tuple[Indices, Indices]:
        """The two parts: from the file if there is one, otherwise the stored ones. Raises `DataError`."""
        if file is not None:
            return self._listed(file)
        with np.load(STORED) as stored:
            bits = stored[self.name] if self.name in stored else np.empty(0, np.uint8)
        count = self.first + self.second
        member = np.unpackbits(bits, count=min(count, 8 * len(bits))).astype(bool)
        if len(bits) != -(-count // 8) or member.sum() != self.first:  # not the size of the real data set
            member = drawn(self.name, count, self.first)
        return np.flatnonzero(member), np.flatnonzero(~member)

    def _listed(self, file: Path) -> tuple[Indices, Indices]:
        """Two lists of indices in JSON: {"train": ["int", ["0", "3", …]], "valid": [...]}."""
        try:
            document = json.loads(file.read_bytes())
            parts = [_numbers(document[key]) for key in self.keys]
        except OSError as error:
            raise DataError(f"{file}: cannot be read ({error.strerror or error})") from error
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            form = f'{{"{self.keys[0]}": ["int", [indices]], "{self.keys[1]}": …}}'
            raise DataError(f"{file}: not a split file of the form {form} ({_short(error)})") from error
        sizes = [len(part) for part in parts]
        if sizes != [self.first, self.second]:
            wanted = f"{self.first:,} and {self.second:,}"
            raise DataError(f"{file}: lists {sizes[0]:,} and {sizes[1]:,} images; {self.name} has {wanted}")
        count = self.first + self.second
        if not np.array_equal(np.sort(np.concatenate(parts)), np.arange(count)):
            raise DataError(f"{file}: must list every index from 0 to {count - 1} once, in one of its two parts")
        return parts[0], parts[1]


def drawn(name: str, count: int, first: int) -> npt.NDArray[np.bool_]:
    """Which of `count` images are in the part of size `first`: those with the lowest SHA-256 of name and number."""
    chosen = shuffled([f"{name} {index}" for index in range(count)])[:first]
    member = np.zeros(count, bool)
    member[chosen] = True
    return member


def shuffled(names: list[str]) -> list[int]:
    """The positions of different names, in an order that depends only on the names."""
    digests = [hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest() for name in names]
    return sorted(range(len(names)), key=digests.__getitem__)


def _numbers(entry: Any) -> Indices:
    kind, values = entry
    if kind != "int":
        raise ValueError(f"its type is {kind!r}")
    return np.array([int(value) for value in values], np.int64)


def _short(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return f"no key {text}" if isinstance(error, KeyError) else text[:80]
