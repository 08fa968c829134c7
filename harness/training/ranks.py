"""The ranks of a data-parallel group: processes that train one trial together. Today a group of one.

All ranks draw the same paths from the same rng and make the same updates; each sees its share of a batch. So all that
they exchange is sums. `Ranks()` is the null object: one process, nothing to exchange. A step, an update, a loss or an
evaluation asks it and never whether there is a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor

Batch = TypeVar("Batch", bound=tuple[Any, ...])
T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """A group of `size` processes, seen from process `index`."""

    index: int = 0
    size: int = 1

    def __post_init__(self) -> None:
        if self.size != 1 or self.index != 0:
            raise NotImplementedError("groups of more than one process are not built yet")

    @property
    def first(self) -> bool:
        """Whether this process writes what is stored."""
        return self.index == 0

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over the ranks."""

    def mean_(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its mean over the ranks."""

    def mean(self, value: float) -> float:
        """The mean of a number over the ranks."""
        return value

    def barrier(self) -> None:
        """Wait for all ranks."""

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """This rank's share of items that the ranks divide among themselves."""
        return items

    def share_of(self, batch: Batch) -> Batch:
        """This rank's share of a batch."""
        return batch


ALONE = Ranks()
