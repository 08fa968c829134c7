"""Measures of a ranking. Pure functions of arrays; knows no space and no run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from harness.errors import InvalidConfiguration

Values = Sequence[float] | npt.NDArray[np.float64]


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
    """The CB of a predictor whose errors are independent of size: the CB if all pairs are wrong.

    Not 0.5, since better networks tend to be larger.
    """
    return complexity_bias(-np.asarray(truth, dtype=np.float64), truth, complexity)


def complexity_convergence(predicted: Values, truth: Values, complexity: Values) -> float:
    """C³: Kendall's τ-b between complexity and the convergence ratio, predicted over true accuracy."""
    ratio = np.asarray(predicted, dtype=np.float64) / np.asarray(truth, dtype=np.float64)
    return kendall_tau(complexity, ratio)


def _dense_ranks(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
    return np.unique(values, return_inverse=True)[1].astype(np.int32)
