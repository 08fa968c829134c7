"""Confidence intervals by resampling seeds. Pure functions of arrays; deterministic.

With few seeds every resample is enumerated and the interval is exact; with many, resamples are drawn by an
rng with a fixed seed, so that the same runs always give the same interval.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
Resamples = npt.NDArray[np.int64]
"""One resample per row: the indices of its seeds, repeated as often as they occur."""

ENUMERATED = 50_000
"""Up to this number, all resamples are used: six seeds have 46,656."""
DRAWN = 10_000
LEVEL = 0.95


@lru_cache(maxsize=8)
def resamples(seeds: int) -> Resamples:
    """All resamples of this number of seeds, or a fixed random draw if there are too many."""
    if seeds**seeds <= ENUMERATED:
        found: Resamples = np.indices((seeds,) * seeds).reshape(seeds, -1).T
        return found
    return np.random.default_rng(0).integers(0, seeds, (DRAWN, seeds))


def interval(seeds: int, statistic: Callable[[Resamples], Numbers], level: float = LEVEL) -> tuple[float, float]:
    """The percentile interval of a statistic, which returns one number per resample.

    On each side at most as many resamples are outside as the level allows: with up to three seeds the interval
    goes from the lowest to the highest value. Negating the statistic mirrors the interval.
    """
    # Rounded: 0.1 + 0.2 - 0.3 is 0 despite binary rounding, and 0 decides nothing.
    ordered = np.sort(statistic(resamples(seeds)).round(12))
    outside = int((1 - level) / 2 * len(ordered) + 1e-9)
    return float(ordered[outside]), float(ordered[len(ordered) - 1 - outside])


def mean_interval(values: Numbers, level: float = LEVEL) -> tuple[float, float]:
    """The interval of a mean over seeds."""
    return interval(len(values), lambda chosen: values[chosen].mean(axis=1), level)
