"""Interface of training to data: batches by step. No torch at import.

The batch of step k is a function of seed, epoch and step alone, so a run that resumes at step k sees what it would have
seen without the interruption, and a loader has no state to store. `harness.data.loading.loader_for` makes the loader
of a data set: one for images in memory, one for images that are streamed. A method may wrap either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from harness.errors import InvalidConfiguration

if TYPE_CHECKING:
    from torch import Tensor


class Batch(NamedTuple):
    """Normalised images (channels_last), labels, and which samples they are.

    Labels are classes (int64, one per image), or probabilities (float32, images × classes): soft labels, as mixing
    makes them. Cross-entropy accepts both.
    """

    images: Tensor
    labels: Tensor
    indices: Tensor


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

    Samples, their transforms and the random numbers of a batch's augmentation do not depend on the share.
    """

    index: int = 0
    size: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.size:
            raise InvalidConfiguration(f"share {self.index} of {self.size}: the index must be 0 to {self.size - 1}")


WHOLE = Share()

EpochOrder = Callable[[int], "Sequence[int] | Tensor | None"]
"""Epoch → as many sample numbers as there are samples, repetitions allowed; None to leave it to another order."""
