"""Interface of training to data: batches by step. No torch at import.

The batch of step k is a function of seed, epoch and step alone, so a run that resumes at step k sees what it would have
seen without the interruption, and a loader has no state to store. `harness.data.loading.loader_for` makes the loader
of a data set: one for images in memory, one for images that are streamed. A method may wrap either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from harness.errors import InvalidConfiguration

if TYPE_CHECKING:
    from torch import Tensor


class Batch(NamedTuple):
    """Normalised images (in the layout of their device), labels, and which samples they are.

    Labels are classes (int64, one per image), or probabilities (float32, images × classes): soft labels, as mixing
    makes them. Cross-entropy accepts both.
    """

    images: Tensor
    labels: Tensor
    indices: Tensor


class BatchPart(Batch):
    """The part of a batch that one process of a group trains on."""

    weight: float
    """Its share of the batch's images."""
    start: int
    """The place of its first image in the batch."""
    whole: int
    """How many images the batch has."""

    def _replace(self, **values: Any) -> BatchPart:
        return part_of(super()._replace(**values), self.weight, self.start, self.whole)


def part_of(batch: Batch, weight: float, start: int, whole: int) -> BatchPart:
    """These images as a part of a batch."""
    part = BatchPart(*batch)
    part.weight, part.start, part.whole = weight, start, whole
    return part


class Loader(Protocol):
    """Shuffled, augmented batches of one split."""

    @property
    def steps_per_epoch(self) -> int: ...

    def batch(self, step: int) -> Batch:
        """The batch of that step, counted from the start of training. Steps may be requested in any order."""
        ...

    def close(self) -> None:
        """End worker processes, if there are any. Another `batch` starts them again."""
        ...


@dataclass(frozen=True)
class Share:
    """The part of every batch that one process of a group trains on. A process without a group has the whole batch.

    A batch is divided into `groups` (of batch normalisation), which differ by one image at most. A process has some of
    them one after the other, or a part of one. Samples, their transforms and the random numbers of a batch's
    augmentation do not depend on the share.
    """

    index: int = 0
    size: int = 1
    groups: int = 1
    sum: Callable[[float], float] | None = field(default=None, compare=False)
    """The sum of a number over all processes: an image that cannot be read is known to one of them only."""

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.size:
            raise InvalidConfiguration(f"share {self.index} of {self.size}: the index must be 0 to {self.size - 1}")
        if self.groups % self.size and self.size % self.groups:
            raise InvalidConfiguration(f"{self.groups} groups cannot be shared by {self.size} processes")

    def of(self, count: int) -> slice:
        """Its part of a batch of so many images."""
        if self.groups >= self.size:
            own = self.groups // self.size
            ends = (_end(count, self.groups, (self.index + place) * own) for place in (0, 1))
            return slice(*ends)
        group, place = divmod(self.index, self.size // self.groups)
        start, end = (_end(count, self.groups, group + one) for one in (0, 1))
        inside = (start + _end(end - start, self.size // self.groups, place + one) for one in (0, 1))
        return slice(*inside)


def _end(count: int, pieces: int, place: int) -> int:
    """Where the first `place` of so many pieces end; the larger ones come first."""
    size, larger = divmod(count, pieces)
    return place * size + min(place, larger)


WHOLE = Share()

EpochOrder = Callable[[int], "Sequence[int] | Tensor | None"]
"""Epoch → as many sample numbers as there are samples, repetitions allowed; None to leave it to another order."""
