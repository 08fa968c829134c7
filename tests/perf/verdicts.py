"""How long it takes to judge many comparisons.

    python -m tests.perf.verdicts [--comparisons 1000]

The comparisons are those of simulated campaigns of the study of Table 3; finding their runs is not part of it.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from harness.components.discovery import component
from tests.reports.rates import scene


def seconds(count: int, turns: int = 5) -> float:
    """The median time of judging so many comparisons, all of one study."""
    verdicts: Any = component("reports.verdicts")
    made, rng = scene("ablation_calr_ms", "Table 2", effects=True), np.random.default_rng(0)
    compared: list[Any] = []
    while len(compared) < count:
        compared += [replace(one.compared, key=(len(compared), n)) for n, one in enumerate(made.verdicts(rng))]
    times = []
    for _ in range(turns):
        begin = time.perf_counter()
        verdicts.judge(compared[:count])
        times.append(time.perf_counter() - begin)
    return median(times)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--comparisons", type=int, default=1000)
    many = parser.parse_args().comparisons
    print(f"{many} comparisons: {seconds(many):.2f} s, median of 5")
