"""The panel: what a ranking is worth by many measures, each over those of a set of architectures that were predicted.

All of it follows from the predictions, the table of truth and the settings of the ranking. Whatever is random (which of
equals is taken, samples of architectures, noise) has fixed seeds: equal predictions give equal panels, and two runs are
compared under the same draws. Imports no torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.components.benchmark import Benchmark
from harness.components.selection import RULES
from harness.components.space import Architecture
from harness.documents import finite
from harness.metrics import (
    SPARSE,
    at_k,
    at_k_by_chance,
    bootstrap_error,
    ceiling,
    kendall_tau,
    kendall_taus,
    partial_tau,
    sparse_tau,
    spearman_rho,
    tie_breaks,
    weighted_tau,
)
from harness.seeds import derive
from harness.study.configuration import Ranking

LEAST = 20
"""No measure is taken over fewer architectures."""

FIRST = (1, 10, 100)
"""Numbers of architectures that are ranked first; shares of them are `SHARES`."""

SHARES = (1, 5, 10, 30)
"""Percent."""

DIGITS = 6
"""Decimals that are stored."""

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def panel(
    predictions: Mapping[Architecture, float], benchmark: Benchmark, dataset: str, ranking: Ranking
) -> dict[str, Any]:
    """The panel of predictions for `dataset`, as it is stored (`harness.schema.Panel`).

    The predictions are those that rank: accuracies, or losses times −1.
    """
    table = ranking.truth_in(benchmark, dataset)
    known = {benchmark.space.index(one): value for one, value in predictions.items() if math.isfinite(value)}
    numbers = np.array(sorted(known), dtype=np.int64)
    guess, true = np.array([known[number] for number in numbers.tolist()]), table[numbers]
    made: dict[str, Any] = {"all": _tau(guess, true)}
    for percent in SHARES:
        # All that are as good as the last one: no tie rule is needed.
        worst = np.sort(table)[-math.ceil(len(table) * percent / 100)]
        made[f"best_{percent}_percent"] = _tau(guess[true >= worst], true[true >= worst])
    made |= _selections(numbers, guess, benchmark, dataset, ranking)
    if len(numbers) < LEAST:
        return made
    sizes = [float(benchmark.space.complexity(benchmark.space.architecture(number))) for number in numbers.tolist()]
    made["partial_tau"] = _number(partial_tau(guess, true, sizes))
    made["spearman"] = _number(spearman_rho(guess, true))
    made["weighted_tau"] = _number(weighted_tau(guess, true))
    # Steps of 0.1 points are steps of accuracy: losses are not rounded to them.
    coarsened = SPARSE if ranking.by == "accuracy" else ("truth",)
    made |= {f"sparse_tau_{coarse}": _number(sparse_tau(guess, true, coarse)) for coarse in coarsened}
    counts = {f"at_{k}": k for k in FIRST if k <= len(numbers)}
    counts |= {f"at_{percent}_percent": math.ceil(len(numbers) * percent / 100) for percent in SHARES}
    for name, k in counts.items():
        found, chance = vars(at_k(guess, true, k)), vars(at_k_by_chance(true, k))
        made[name] = {"count": k}
        for key in found:
            made[name] |= {key: _number(found[key]), f"{key}_random": _number(chance[key])}
    return made


def _selections(
    numbers: Numbers, guess: Floats, benchmark: Benchmark, dataset: str, ranking: Ranking
) -> dict[str, dict[str, Any]]:
    """τ over the run's own selection, and over that of each rule by the accuracies that judge."""
    judging = ranking.truth_of(dataset)
    asked = {"selected": (ranking.selection, ranking.selects_on(dataset))}
    asked |= {rule.replace("-", "_"): (rule, judging) for rule in RULES}
    errors = benchmark.standard_errors(judging, ranking.truth_split)
    made: dict[tuple[str, str], dict[str, Any]] = {}
    for rule, on in asked.values():
        selecting = benchmark.accuracies(on, ranking.truth_split)
        if rule == "equal-count" and ranking.bins > len(selecting):
            continue  # no such chunks
        if (rule, on) not in made:
            chosen = RULES[rule](selecting, ranking.bins)
            made[rule, on] = _selection(numbers, guess, ranking.truth_in(benchmark, dataset), selecting, chosen, errors)
    return {name: made[what] for name, what in asked.items() if what in made}


def _selection(
    numbers: Numbers, guess: Floats, table: Floats, selecting: Floats, chosen: Numbers, errors: Floats | None
) -> dict[str, Any]:
    """τ over those of the chosen that were predicted, and how much it depends on which they are."""
    places = np.flatnonzero(np.isin(numbers, chosen))
    true = table[numbers]
    made = _tau(guess[places], true[places])
    # Equals that the rule left out, in the whole table and among those that were predicted.
    exchangeable = _exchangeable(selecting, chosen)[np.isin(chosen, numbers)]
    varied = _exchangeable(selecting[numbers], places)
    made |= {"tied": int(exchangeable.sum()), "varied": int(varied.sum())}
    made |= dict.fromkeys(("lowest", "highest", "error", "ceiling"))
    if made["tau"] is None:
        return made
    if varied.any():
        breaks = tie_breaks(selecting[numbers], places, _rng("tie-breaks"))
        taus = [tau for tau in kendall_taus(guess[breaks], true[breaks]) if not math.isnan(tau)]
        made |= {"lowest": _number(min(taus)), "highest": _number(max(taus))} if taus else {}
    elif not exchangeable.any():
        made |= {"lowest": made["tau"], "highest": made["tau"]}
    made["error"] = _number(bootstrap_error(guess[places], true[places], _rng("bootstrap")))
    if errors is not None:
        made["ceiling"] = _number(ceiling(true[places], errors[numbers][places], _rng("ceiling")))
    return made


def _tau(guess: Floats, true: Floats) -> dict[str, Any]:
    return {"tau": _number(kendall_tau(guess, true)) if len(guess) >= LEAST else None, "count": len(guess)}


def _exchangeable(values: Floats, chosen: Numbers) -> npt.NDArray[np.bool_]:
    """For each of the chosen places, whether one that is not chosen has the same value."""
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    taken = np.bincount(group[chosen], minlength=len(sizes))
    return np.asarray(sizes[group[chosen]] > taken[group[chosen]])


def _rng(purpose: str) -> np.random.Generator:
    return np.random.default_rng(derive(0, "panel", purpose))


def _number(value: float) -> float | None:
    return finite(round(value, DIGITS) + 0.0)  # no minus before a zero
