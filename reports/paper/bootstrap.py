"""Confidence intervals by resampling seeds. Pure functions of arrays; deterministic.

With few seeds every resample is enumerated and the interval is exact; with many, resamples are drawn by a
generator with a fixed seed, so that the same runs always give the same interval.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
Resamples = npt.NDArray[np.int64]
"""A resample a row: which of the seeds it holds, as often as it holds them."""

ENUMERATED = 50_000
"""Up to so many resamples all are taken: those of six seeds are 46,656."""
DRAWN = 10_000
LEVEL = 0.95


@lru_cache(maxsize=8)
def resamples(seeds: int) -> Resamples:
    """All resamples of so many seeds, or a fixed draw of them where these would be too many."""
    if seeds**seeds <= ENUMERATED:
        found: Resamples = np.indices((seeds,) * seeds).reshape(seeds, -1).T
        return found
    return np.random.default_rng(0).integers(0, seeds, (DRAWN, seeds))


def interval(seeds: int, statistic: Callable[[Resamples], Numbers], level: float = LEVEL) -> tuple[float, float]:
    """The percentile interval of a statistic, which gives one number a resample.

    As many resamples lie outside on either side as the level allows, and never more: with up to three seeds
    the interval goes from the least to the greatest. What holds for a statistic holds mirrored for its negative.
    """
    # Rounded: 0.1 + 0.2 - 0.3 is 0, whatever binary fractions say, and 0 decides nothing.
    ordered = np.sort(statistic(resamples(seeds)).round(12))
    outside = int((1 - level) / 2 * len(ordered) + 1e-9)
    return float(ordered[outside]), float(ordered[len(ordered) - 1 - outside])


def mean_interval(values: Numbers, level: float = LEVEL) -> tuple[float, float]:
    """The interval of a mean over seeds."""
    return interval(len(values), lambda chosen: values[chosen].mean(axis=1), level)
