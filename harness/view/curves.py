"""Curves over training: single runs, and groups of runs with mean and band. Knows no page and no store.

Groups are compared at common places of the x axis: the places that all runs of the group have measured, or, where
these differ (seconds), an even grid over the range that all runs cover, by linear interpolation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]

POINTS = 1000
"""The most points of a line that a page draws."""
GRID = 200
"""Places of a grid where the runs of a group have none in common."""
AXES = {"step": "step", "images": "training images", "seconds": "seconds since the start"}
BANDS = {"range": "range of the seeds", "sd": "± standard deviation", "t": "95 % t interval of the mean"}


@dataclass(frozen=True)
class Series:
    """One curve of one run."""

    run: str
    seed: int
    x: Numbers
    y: Numbers


def series(run: str, seed: int, points: Sequence[Mapping[str, Any]], axis: str, images: float | None = None) -> Series:
    """The points of a metric along an axis; values that are not numbers are left out.

    `images` is the number of training images of the whole run, assumed to grow evenly with the step.
    """
    measured = [point for point in points if point["value"] is not None]
    steps = np.array([point["step"] for point in measured], np.float64)
    values = np.array([point["value"] for point in measured], np.float64)
    if axis == "seconds":
        times = np.array([np.datetime64(point["timestamp"]) for point in measured], "datetime64[us]")
        x = (times - times[0]) / np.timedelta64(1, "s") if len(times) else steps
    elif axis == "images":
        x = steps * (images / steps.max()) if images and len(steps) and steps.max() else np.full(len(steps), np.nan)
    else:
        x = steps
    kept = np.isfinite(x)
    order = np.argsort(x[kept], kind="stable")
    return Series(run, seed, np.asarray(x[kept][order], np.float64), values[kept][order])


def downsampled(x: Numbers, y: Numbers, points: int = POINTS) -> tuple[Numbers, Numbers]:
    """At most so many points of a line: the lowest and the highest of each bucket, so that no peak is lost."""
    if len(x) <= points:
        return x, y
    chosen: set[int] = {0, len(x) - 1}
    for bucket in np.array_split(np.arange(len(x)), (points - 2) // 2):
        chosen |= {int(bucket[np.argmin(y[bucket])]), int(bucket[np.argmax(y[bucket])])}
    places = sorted(chosen)
    return x[places], y[places]


def common_grid(members: Sequence[Series]) -> Numbers:
    """Where the curves of a group are compared."""
    shared = set(members[0].x.tolist())
    for one in members[1:]:
        shared &= set(one.x.tolist())
    if len(shared) >= min(len(one.x) for one in members) / 2:
        return np.array(sorted(shared))
    start, stop = max(one.x[0] for one in members), min(one.x[-1] for one in members)
    return np.linspace(start, stop, GRID) if stop > start else np.array([])


def group(label: str, members: Sequence[Series]) -> dict[str, Any]:
    """A group of runs as plain JSON: mean and bands on a common grid, and every run by itself."""
    members = [one for one in members if len(one.x)]
    lines = []
    for one in members:
        x, y = downsampled(one.x, one.y)
        lines.append({"run": one.run, "seed": one.seed, "x": plain(x), "y": plain(y), "points": len(one.x)})
    found: dict[str, Any] = {"label": label, "n": len(members), "runs": lines, "x": [], "mean": [], "bands": {}}
    grid = common_grid(members) if members else np.array([])
    if not len(grid):
        return found
    values = np.stack([np.interp(grid, one.x, one.y) for one in members])
    mean = values.mean(0)
    bands = {"range": (values.min(0), values.max(0))}
    if len(members) > 1:
        deviation = values.std(0, ddof=1)
        half = t_quantile(len(members) - 1) * deviation / math.sqrt(len(members))
        bands |= {"sd": (mean - deviation, mean + deviation), "t": (mean - half, mean + half)}
    kept = np.isin(grid, downsampled(grid, mean)[0])
    edges = {name: {"low": plain(low[kept]), "high": plain(high[kept])} for name, (low, high) in bands.items()}
    return {**found, "x": plain(grid[kept]), "mean": plain(mean[kept]), "bands": edges, "points": len(grid)}


def t_quantile(freedom: int) -> float:
    """The 97.5 % quantile of Student's t distribution."""
    from scipy.stats import t

    return float(t.ppf(0.975, freedom))


def plain(values: Numbers) -> list[float]:
    """Numbers for JSON, to seven digits."""
    return [float(f"{value:.7g}") for value in values.tolist()]
