"""Measures of a ranking. Pure functions of arrays; knows no space and no run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from harness.errors import InvalidConfiguration

Values = Sequence[float] | npt.NDArray[np.float64]
Rows = npt.NDArray[np.float64]
"""One ranking per row."""

SPARSE_STEP = 0.1
"""Points of accuracy within which sparse τ does not distinguish architectures."""

SPARSE = ("truth", "prediction", "both")
"""What sparse τ makes coarser: three definitions are in use."""

PAIRWISE = 600
"""The most architectures for which comparing all pairs at once is faster than sorting."""

PERMUTATIONS = 100
"""Predictions that a matched null has."""

SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")


def kendall_tau(predicted: Values, truth: Values) -> float:
    """Kendall's τ-b of two rankings: ties count for neither side. NaN where one of them is constant or too short."""
    from scipy.stats import kendalltau

    if len(predicted) != len(truth):
        raise InvalidConfiguration(f"{len(predicted)} predictions cannot be compared with {len(truth)} accuracies")
    if len(predicted) < 2:  # scipy returns the same, with a warning
        return float("nan")
    return float(kendalltau(predicted, truth, variant="b").statistic)


def complexity_bias(predicted: Values, truth: Values, complexity: Values) -> float:
    """CB: the share of wrongly ordered pairs in which the architecture that is ranked too low is the larger one.

    A pair is wrongly ordered when prediction and truth order it strictly and differently: a tie in either is
    not an error. Equal complexity counts as "not larger", as in the formula. NaN if no pair is wrong.
    """
    columns = [np.asarray(values, dtype=np.float64) for values in (predicted, truth, complexity)]
    if len({len(column) for column in columns}) != 1:
        raise InvalidConfiguration(
            f"predictions, accuracies and complexities differ in number: {[len(column) for column in columns]}"
        )
    order = np.argsort(columns[1], kind="stable")
    # Dense ranks compare like the values and need a quarter of the memory traffic.
    guess, true, size = (_dense_ranks(column)[order] for column in columns)
    wrong = larger = 0
    # In ascending order of truth, the strictly better architectures start at this place.
    first_better = np.searchsorted(true, true, side="right")
    for place, start in enumerate(first_better.tolist()):
        too_low = guess[start:] < guess[place]
        wrong += int(np.count_nonzero(too_low))
        larger += int(np.count_nonzero(too_low & (size[start:] > size[place])))
    return larger / wrong if wrong else float("nan")


def neutral_complexity_bias(truth: Values, complexity: Values) -> float:
    """The CB of random numbers: the CB if all pairs are wrong. Not 0.5, since better networks tend to be larger.

    A predictor that is better than random errs on pairs of similar truth, where size says less: with errors that are
    independent of size its CB is lower (`matched_null`).
    """
    return complexity_bias(-np.asarray(truth, dtype=np.float64), truth, complexity)


def partial_tau(predicted: Values, truth: Values, complexity: Values) -> float:
    """Kendall's τ between prediction and truth given complexity: the part of τ that size does not explain.

    NaN where a τ-b of two of the three does not exist, or where complexity orders as one of the others does.
    """
    both, ours, theirs = (
        kendall_tau(*pair) for pair in ((predicted, truth), (predicted, complexity), (truth, complexity))
    )
    rest = (1 - ours**2) * (1 - theirs**2)
    return (both - ours * theirs) / math.sqrt(rest) if rest > 0 else float("nan")


def blended_tau(predicted: Values, truth: Values, complexity: Values) -> float:
    """Kendall's τ of the mean of two ranks: by the prediction, and by complexity."""
    from scipy.stats import rankdata

    return kendall_tau(rankdata(predicted) + rankdata(complexity), truth)


def matched_null(predicted: Values, truth: Values, rng: np.random.Generator, samples: int = PERMUTATIONS) -> Rows:
    """Predictions as good as these whose errors have nothing to do with size, one per row.

    An isotonic fit of prediction on truth gives each architecture what is predicted at its truth; the residuals are
    permuted among architectures of the same decile of truth.
    """
    from scipy.optimize import isotonic_regression

    guess, true = np.asarray(predicted, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    _, group, counts = np.unique(true, return_inverse=True, return_counts=True)
    means = np.bincount(group, weights=guess) / counts
    fitted = isotonic_regression(means, weights=counts.astype(np.float64)).x[group]
    made = np.tile(fitted, (samples, 1))
    for decile in np.array_split(np.argsort(true, kind="stable"), 10):
        residuals = np.tile((guess - fitted)[decile], (samples, 1))
        made[:, decile] += rng.permuted(residuals, axis=1)
    return made


def against_null(value: float, null: Sequence[float]) -> tuple[float, float]:
    """The mean of a measure over its null, and how many standard deviations the value is above it."""
    known = [one for one in null if not math.isnan(one)]
    if len(known) < 2:
        return float("nan"), float("nan")
    mean, deviation = statistics.fmean(known), statistics.stdev(known)
    return mean, (value - mean) / deviation if deviation else float("nan")


def complexity_convergence(predicted: Values, truth: Values, complexity: Values) -> float:
    """C³: Kendall's τ-b between complexity and the convergence ratio, predicted over true accuracy."""
    ratio = np.asarray(predicted, dtype=np.float64) / np.asarray(truth, dtype=np.float64)
    return kendall_tau(complexity, ratio)


def spearman_rho(predicted: Values, truth: Values) -> float:
    """Spearman's ρ: Pearson's correlation of the ranks; ties share their mean rank. NaN as for `kendall_tau`."""
    # Twice the ranks, centred: whole numbers, so that no sum depends on its order.
    ours, theirs = (_doubled_ranks(np.asarray(values)) - (len(values) + 1) for values in (predicted, truth))
    spread = float(ours @ ours) * float(theirs @ theirs)
    return float(ours @ theirs) / math.sqrt(spread) if spread else float("nan")


def weighted_tau(predicted: Values, truth: Values) -> float:
    """Kendall's τ in which exchanges near the top weigh more (scipy's `weightedtau`, hyperbolic weights)."""
    from scipy.stats import weightedtau

    if len(set(predicted)) < 2 or len(set(truth)) < 2:  # scipy warns of a division by zero
        return float("nan")
    return float(weightedtau(predicted, truth).statistic)


def sparse_tau(predicted: Values, truth: Values, coarse: str, step: float = SPARSE_STEP) -> float:
    """Kendall's τ-b with the truth cut down to multiples of a step, the prediction rounded to them, or both."""
    if coarse not in SPARSE:
        raise InvalidConfiguration(f"sparse τ cannot make {coarse!r} coarser; allowed: {', '.join(SPARSE)}")
    ours, theirs = np.asarray(predicted, dtype=np.float64) / step, np.asarray(truth, dtype=np.float64) / step
    # 0.3 / 0.1 is a little less than 3: what differs in the ninth digit is the same multiple.
    return kendall_tau(
        ours if coarse == "truth" else np.rint(np.round(ours, 9)),
        theirs if coarse == "prediction" else np.floor(np.round(theirs, 9)),
    )


@dataclass(frozen=True)
class AtK:
    """What one gets who takes the k architectures that are ranked first. Ranks count from 1, equals share the best.

    Where predictions tie, each order of the equals is as likely: the numbers are means over all of them. A constant
    prediction is thus exactly a random order.
    """

    precision: float
    """The share of the k that is among the k best by truth."""
    best_rank: float
    """The best true rank of the k."""
    worst_rank: float
    """The worst true rank of the k."""
    regret: float
    """How much the best of the k is worse than the best of all, in points."""


def at_k(predicted: Values, truth: Values, k: int) -> AtK:
    """The measures of the k architectures that are ranked first. Raises `InvalidConfiguration` for an impossible k."""
    guess, true = np.asarray(predicted, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    if not 1 <= k <= len(true) or len(guess) != len(true):
        raise InvalidConfiguration(f"the first {k} of {len(guess)} predictions and {len(true)} accuracies do not exist")
    sure, tied, open_places = _first(guess, k)
    # The number of strictly better ones.
    standing = np.searchsorted(np.sort(-true), -true, side="left")
    certain, among, places = _first(true, k)
    membership = np.zeros(len(true))
    membership[certain] = 1.0
    membership[among] = places / len(among)
    hits = math.fsum(membership[sure]) + math.fsum(membership[tied]) * open_places / len(tied)
    return AtK(
        hits / k,
        1 - _expected_best(-standing[sure], -standing[tied], open_places),
        1 + _expected_best(standing[sure], standing[tied], open_places),
        float(true.max()) - _expected_best(true[sure], true[tied], open_places),
    )


def at_k_by_chance(truth: Values, k: int) -> AtK:
    """The expected measures of a random order, in closed form."""
    return at_k(np.zeros(len(truth)), truth, k)


def expected_best(values: Values, k: int) -> float:
    """The expected highest of k values that are drawn without replacement. Raises `InvalidConfiguration`."""
    given = np.asarray(values, dtype=np.float64)
    if not 1 <= k <= len(given):
        raise InvalidConfiguration(f"{k} of {len(given)} values cannot be drawn")
    return _expected_best(np.array([]), given, k)


def kendall_taus(predicted: Rows, truth: Rows) -> list[float]:
    """Kendall's τ-b of each row of predictions and the same row of accuracies: fast for many short rows."""
    return [_pairwise_tau(ours, theirs) for ours, theirs in zip(predicted, truth, strict=True)]


def bootstrap_error(predicted: Values, truth: Values, rng: np.random.Generator, samples: int = 200) -> float:
    """The standard deviation of Kendall's τ-b over random samples, with replacement, of the architectures."""
    drawn = (rng.random((samples, len(truth))) * len(truth)).astype(np.int64)
    taus = kendall_taus(np.asarray(predicted)[drawn], np.asarray(truth)[drawn])
    known = [tau for tau in taus if not math.isnan(tau)]  # a sample of equals has none
    return statistics.stdev(known) if len(known) > 1 else float("nan")


def ceiling(truth: Values, errors: Values, rng: np.random.Generator, samples: int = 50) -> float:
    """The mean τ-b between the true accuracies and the same with random errors of these standard deviations.

    About what a predictor reaches against a noisy table if it knows what the table would hold without noise.
    """
    true = np.tile(np.asarray(truth, dtype=np.float64), (samples, 1))
    return statistics.fmean(kendall_taus(true, true + rng.standard_normal(true.shape) * np.asarray(errors)))


def tie_breaks(
    truth: npt.NDArray[np.float64], chosen: npt.NDArray[np.int64], rng: np.random.Generator, breaks: int = 200
) -> npt.NDArray[np.int64]:
    """As many selections that are as good as the chosen one: equally accurate architectures take each other's place.

    Each row holds as many places of `truth` as `chosen` does, with the same accuracies in the same order.
    """
    made = np.tile(chosen, (breaks, 1))
    order = np.argsort(truth, kind="stable")
    for value in np.unique(truth[chosen]).tolist():
        start, end = (int(np.searchsorted(truth, value, side=side, sorter=order)) for side in SIDES)
        places = np.flatnonzero(truth[chosen] == value)
        if end - start > len(places):
            draws = rng.random((breaks, end - start))
            made[:, places] = order[start:end][np.argsort(draws, axis=1, kind="stable")[:, : len(places)]]
    return made


def _dense_ranks(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
    return np.unique(values, return_inverse=True)[1].astype(np.int32)


def _pairwise_tau(predicted: npt.NDArray[np.float64], truth: npt.NDArray[np.float64]) -> float:
    if len(truth) > PAIRWISE:
        return kendall_tau(predicted, truth)
    ours, theirs = (values[:, None] < values[None, :] for values in (predicted, truth))
    agreement = int(np.count_nonzero(ours & theirs)) - int(np.count_nonzero(ours & theirs.T))
    untied = int(np.count_nonzero(ours)) * int(np.count_nonzero(theirs))
    return agreement / math.sqrt(untied) if untied else float("nan")


def _first(values: npt.NDArray[np.float64], k: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], int]:
    """Those that are among the k highest for sure, those that tie for the last places, and how many places are left."""
    edge = np.partition(values, len(values) - k)[len(values) - k]
    sure, tied = np.flatnonzero(values > edge), np.flatnonzero(values == edge)
    return sure, tied, k - len(sure)


def _expected_best(sure: npt.NDArray[Any], tied: npt.NDArray[Any], places: int) -> float:
    """The mean of the highest of `sure` and of so many of `tied`, over all ways to draw these.

    Of n in ascending order, the i-th is the highest of k drawn with probability C(i-1, k-1) / C(n, k).
    """
    count = len(tied)
    floor = float(sure.max()) if len(sure) else -math.inf
    others = np.arange(count, places, -1)
    # From one to the next lower: C(i-2, k-1) / C(i-1, k-1).
    weights = places / count * np.cumprod(np.r_[1.0, (others - places) / (others - 1)])
    highest = np.maximum(np.sort(tied)[::-1][: len(weights)], floor)
    return math.fsum((weights * highest).tolist())


def _doubled_ranks(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Twice the ranks, from 1 on; equals share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (2 * last - counts + 1)[inverse].astype(np.int64)
