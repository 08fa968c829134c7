"""Selection of the architectures that a ranking is judged on: the best of each bin of accuracy.

Two readings of "evenly split all subnets into 400 chunks and take the best of each":
`equal_width` is what the released list of 327 architectures follows exactly, `equal_count` is the
paper's wording.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from harness.errors import InvalidConfiguration

Accuracies = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


def equal_width(accuracies: Accuracies, bins: int = 400) -> Indices:
    """The best of each non-empty bin; bins are right-closed, equally wide, over the range of accuracies.

    The lowest accuracy joins the first bin; ties go to the lowest index; bins ascend.
    """
    _check(accuracies, bins)
    edges = np.linspace(accuracies.min(), accuracies.max(), bins + 1)
    # Right-closed: a value equal to an edge belongs to the bin below it.
    numbers = np.clip(np.searchsorted(edges, accuracies, side="left"), 1, bins)
    return _best_of_each(accuracies, numbers)


def equal_count(accuracies: Accuracies, bins: int = 400) -> Indices:
    """The best of each of `bins` chunks of (nearly) equal size, in ascending order of accuracy.

    Equal accuracies are ordered by index, the lowest index as the best.
    """
    _check(accuracies, bins)
    if bins > len(accuracies):
        raise InvalidConfiguration(f"{len(accuracies)} architectures cannot be split into {bins} chunks")
    order = np.lexsort((-np.arange(len(accuracies)), accuracies))
    return np.array([chunk[-1] for chunk in np.array_split(order, bins)], dtype=np.int64)


RULES = {"equal-width": equal_width, "equal-count": equal_count}


def _best_of_each(accuracies: Accuracies, numbers: npt.NDArray[np.intp]) -> Indices:
    order = np.lexsort((np.arange(len(accuracies)), -accuracies, numbers))
    first = np.r_[True, np.diff(numbers[order]) > 0]
    return order[first].astype(np.int64)


def _check(accuracies: Accuracies, bins: int) -> None:
    if bins < 1:
        raise InvalidConfiguration(f"the number of bins must be at least 1, not {bins}")
    if not len(accuracies):
        raise InvalidConfiguration("no accuracies to select from")
    # A missing value in the table would make every edge NaN and the selection meaningless.
    unusable = np.flatnonzero(~np.isfinite(accuracies))
    if len(unusable):
        raise InvalidConfiguration(f"accuracy {unusable[0]} is {accuracies[unusable[0]]}; all must be finite")
