"""A source of accuracies as it was read, and the checks it must pass before it counts as ground truth.

Readers of every format return a `Listing`; `validated` turns it into arrays in the order of the space's
numbers. Every error names the file and the row or architecture. Independent of file formats.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from harness.components.space import Space
from harness.errors import DataError, UserError
from harness.truth.imported import Accuracies, Key


@dataclass(frozen=True)
class Listing:
    """Rows as the source has them: architectures as text, and one column of percents per data set and split."""

    path: Path
    kind: str
    architectures: Sequence[str]
    columns: Mapping[Key, Sequence[float]]
    first_row: int = 0
    """The number of the first row as a reader of the file would count."""
    row_name: str = "architecture"
    version: str | None = None
    reader: str | None = None
    """The package that read it, with its version."""
    epochs: int | None = None
    """After how many epochs of training the accuracies are, where the source shows that."""
    meanings: Mapping[Key, str] = field(default_factory=dict)
    """By column, what the source measured."""

    def row(self, number: int) -> str:
        """How a message names a row."""
        return f"{self.row_name} {self.first_row + number}"


def validated(listing: Listing, space: Space) -> dict[Key, Accuracies]:
    """The accuracies in the order of the space's numbers.

    Raises `DataError` unless every architecture of the space is there once, with percents in 0 to 100.
    """
    for key, values in listing.columns.items():
        for number, value in enumerate(values):
            if not (math.isfinite(value) and 0 <= value <= 100):
                raise DataError(
                    f"{listing.path}: {listing.row(number)} ({listing.architectures[number]}): the accuracy "
                    f"{'/'.join(key)} is {value}; it must be a percentage, 0 to 100"
                )
        if max(values) <= 1:
            raise DataError(
                f"{listing.path}: all accuracies {'/'.join(key)} are at most {max(values)}: they look like fractions, "
                "but must be percentages"
            )
    order = np.argsort(_numbers(listing, space))
    return {key: np.array(values, np.float64)[order] for key, values in listing.columns.items()}


def _numbers(listing: Listing, space: Space) -> list[int]:
    """Each row's number in the space; every number occurs exactly once."""
    seen: dict[int, int] = {}
    for row, text in enumerate(listing.architectures):
        try:
            number = space.index(space.parse(text))
        except UserError as error:
            raise DataError(f"{listing.path}: {listing.row(row)}: {error}") from error
        if number in seen:
            first = listing.row(seen[number])
            raise DataError(f"{listing.path}: {listing.row(row)} repeats the architecture {text} of {first}")
        seen[number] = row
    if len(seen) < space.size:
        missing = next(number for number in range(space.size) if number not in seen)
        raise DataError(
            f"{listing.path}: holds {len(seen):,} architectures, but {space.name} has {space.size:,}; missing, for "
            f"example: {space.format(space.architecture(missing))}"
        )
    return list(seen)
