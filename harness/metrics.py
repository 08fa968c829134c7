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
    if len(predicted) < 2:  # scipy says the same, with a warning
        return float("nan")
    return float(kendalltau(predicted, truth, variant="b").statistic)
