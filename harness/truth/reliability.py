"""How well a computed table orders architectures, by its own seeds (test images). Also of an unfinished one.

Every figure is over architectures, not classes, as in a ranking: those whose class has been trained.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from harness.components.selection import equal_width
from harness.components.space import Space
from harness.metrics import kendall_tau
from harness.truth.table import Table, rows_of

Floats = npt.NDArray[np.float64]
Halves = list[tuple[list[int], list[int]]]


@dataclass(frozen=True)
class Agreement:
    """Kendall's τ of a table's rankings by some of its seeds, over one set of architectures."""

    parameters: float
    """τ of the number of parameters with accuracy."""
    seed_pair: float
    """τ between two single seeds, mean over all pairs."""
    split_half: float
    """τ between the two halves of the seeds, mean over all ways to halve."""
    whole: float
    """τ between the mean of all seeds and that of as many others, by the Spearman-Brown formula from `split_half`."""
    ceiling: float
    """τ between the mean of all seeds and the truth without noise, in the same way."""


@dataclass(frozen=True)
class Reliability:
    """Span, selected set and agreement of the seeds."""

    architectures: int
    lowest: float
    highest: float
    median: float
    seed_deviation: float
    signal: float
    """The standard deviation of true accuracy between connected architectures, in standard errors of one mean."""
    selected: int
    on_selected: Agreement
    on_all: Agreement


def reliability(space: Space, table: Table, bins: int = 400) -> Reliability:
    """The reliability of the table, estimated from its own seeds."""
    rows = rows_of(space, table)
    known = np.flatnonzero(rows >= 0)
    seeds = table.test[rows[known]].astype(np.float64) * (100 / table.provenance["images"]["test"])
    means = seeds.mean(1)
    architectures = [space.architecture(int(number)) for number in known]
    parameters = np.array([space.complexity(architecture) for architecture in architectures], np.float64)
    connected = np.array([space.is_connected(architecture) for architecture in architectures], np.bool_)
    selected = equal_width(means, bins)
    return Reliability(
        architectures=len(known),
        lowest=float(means.min()),
        highest=float(means.max()),
        median=float(np.median(means)),
        seed_deviation=float(seeds.std(1, ddof=1).mean()) if table.seeds > 1 else math.nan,
        signal=_signal(seeds[connected]),
        selected=len(selected),
        on_selected=agreement(seeds[selected], parameters[selected]),
        on_all=agreement(seeds, parameters),
    )


def _signal(seeds: Floats) -> float:
    """The deviation of the means, without the part that is noise, over the standard error of a mean."""
    count = seeds.shape[1]
    if count < 2 or len(seeds) < 2:
        return math.nan
    noise = float(seeds.var(1, ddof=1).mean()) / count
    observed = float(seeds.mean(1).var(ddof=1))
    return math.sqrt(max(observed - noise, 0) / noise) if noise else math.inf


def agreement(seeds: Floats, parameters: Floats) -> Agreement:
    """How far the columns of `seeds`, accuracies of the same architectures, order them alike."""
    count = seeds.shape[1]
    everyone = set(range(count))
    halves = [
        (sorted(half), sorted(everyone - set(half)))
        for half in combinations(range(count), count // 2)
        # With an even number of seeds, each division occurs twice, once from either side.
        if half and (count % 2 or 0 in half)
    ]
    split_half = _mean_tau(seeds, halves)
    whole, ceiling = _of_all_seeds(split_half)
    return Agreement(
        parameters=kendall_tau(parameters, seeds.mean(1)),
        seed_pair=_mean_tau(seeds, [([a], [b]) for a, b in combinations(range(count), 2)]),
        split_half=split_half,
        whole=whole,
        ceiling=ceiling,
    )


def _of_all_seeds(split_half: float) -> tuple[float, float]:
    """`Agreement.whole` and `Agreement.ceiling`; 0 where the halves do not agree at all.

    τ of two normal variables is a function of their correlation (Greiner); the Spearman-Brown formula is about
    correlations.
    """
    if math.isnan(split_half):
        return math.nan, math.nan
    half = max(math.sin(math.pi / 2 * split_half), 0.0)
    whole = min(2 * half / (1 + half), 1.0)
    return 2 / math.pi * math.asin(whole), 2 / math.pi * math.asin(math.sqrt(whole))


def _mean_tau(seeds: Floats, pairs: Halves) -> float:
    values = [kendall_tau(seeds[:, a].mean(1), seeds[:, b].mean(1)) for a, b in pairs]
    return float(np.mean(values)) if values else math.nan
