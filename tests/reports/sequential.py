"""Rules that add seeds until comparisons are decided: how many trials each needs, and how often it is wrong.

The comparisons are the nine of Table 3 (each row against its method without CaLR and MS, Kendall's τ), with the paper's
means and the deviations of Table 2. Trials are independent; a row gets seeds while one of its comparisons is undecided.
AdaStop is written from its paper (Mathieu et al., TMLR 2024): group sequential permutation tests, with a step-down over
the largest of all statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from harness import statistics
from harness.statistics import ALPHA, PRIMARY, Numbers
from harness.study.comparisons import primary_contrasts
from tests.reports.rates import METRICS, PRINTED, Scene, scene

STUDY, MOST = "ablation_calr_ms", 30
BLOCK = 5
"""Seeds between two looks of AdaStop."""
PERMUTATIONS = 2000
TAU = METRICS[0]

Decided = npt.NDArray[np.bool_]
"""By campaign, comparison and number of seeds, whether it is decided."""
Rule = Callable[[Numbers, float], Decided]
"""Which e-values decide at an error rate."""


@dataclass(frozen=True)
class Ran:
    """What a rule decided in many campaigns."""

    signs: Numbers
    """By campaign and comparison: 1, 0 or -1."""
    trials: float
    """Trials of a campaign, on average."""


def campaigns(made: Scene, repetitions: int, seeds: int, rng: np.random.Generator) -> tuple[Numbers, Numbers]:
    """Values by campaign, row and seed; and the pairs of rows that are compared."""
    rows = sorted({row for row, _ in made.means})
    means = np.array([made.means[row, TAU] for row in rows])[:, None]
    spreads = np.array([made.deviations[row, TAU] for row in rows])[:, None]
    pairs = [(row, row - row % 4) for row in rows if row % 4]
    return means + spreads * rng.normal(size=(repetitions, len(rows), seeds)), np.array(pairs)


def bonferroni(e_values: Numbers, alpha: float) -> Decided:
    return np.asarray(np.maximum.accumulate(e_values, axis=-1) >= e_values.shape[-2] / alpha)


def holm(e_values: Numbers, alpha: float) -> Decided:
    p = 1 / np.maximum(np.maximum.accumulate(e_values, axis=-1), 1.0)
    return np.asarray(np.moveaxis(statistics.holm(np.moveaxis(p, -2, -1)), -1, -2) <= alpha)


def averages(e_values: Numbers, alpha: float) -> Decided:
    """Closed testing: each average of e-values with any others must be large; the smallest others are the hardest."""
    found = []
    for number in range(e_values.shape[-2]):
        others = np.sort(np.delete(e_values, number, axis=-2), axis=-2)
        sums = e_values[..., number : number + 1, :] + np.concatenate(
            [np.zeros_like(others[..., :1, :]), others.cumsum(axis=-2)], axis=-2
        )
        counts = np.arange(1, e_values.shape[-2] + 1)[:, None]
        found.append((sums / counts >= 1 / alpha).all(axis=-2))
    return np.asarray(np.maximum.accumulate(np.stack(found, axis=-2), axis=-1))


RULES: dict[str, Rule] = {
    "e-values, Bonferroni's rule": bonferroni,
    "e-values, Holm's rule (`--until decided`)": holm,
    "e-values, closed testing by averages": averages,
}


def e_values(differences: Numbers) -> Numbers:
    return np.asarray(np.exp(np.minimum(statistics.log_e_value(statistics.looks(differences)), 500.0)))


def by_e_values(values: Numbers, pairs: Numbers, rule: Rule) -> Ran:
    differences = values[:, pairs[:, 0]] - values[:, pairs[:, 1]]
    decided = rule(e_values(differences), ALPHA)
    first = np.where(decided.any(axis=-1), decided.argmax(axis=-1) + 2, values.shape[-1])
    signs = np.sign(statistics.looks(differences).mean)
    at = np.take_along_axis(signs, (first - 2)[..., None], axis=-1)[..., 0]
    return Ran(np.where(decided.any(axis=-1), at, 0), _trials(first, pairs))


def by_adastop(values: Numbers, pairs: Numbers, rng: np.random.Generator) -> Ran:
    found = [adastop(campaign, pairs, rng) for campaign in values]
    return Ran(np.array([signs for signs, _ in found]), _trials(np.array([seeds for _, seeds in found]), pairs))


def adastop(values: Numbers, pairs: Numbers, rng: np.random.Generator) -> tuple[Numbers, Numbers]:
    """The decisions of one campaign, and the seeds after which each comparison was decided."""
    looks = values.shape[-1] // BLOCK
    signs, seeds = np.zeros(len(pairs)), np.full(len(pairs), values.shape[-1])
    observed, permuted = np.zeros(len(pairs)), np.zeros((PERMUTATIONS, len(pairs)))
    alive, spent = np.ones(PERMUTATIONS, dtype=bool), 0
    plain = np.repeat([1.0, -1.0], BLOCK) / BLOCK
    for look in range(looks):
        block = values[:, look * BLOCK : (look + 1) * BLOCK]
        both = np.concatenate([block[pairs[:, 0]], block[pairs[:, 1]]], axis=1)
        shuffled = rng.permuted(np.tile(plain, (PERMUTATIONS, 1)), axis=1)
        shuffled[0] = plain
        observed += both @ plain
        permuted += shuffled @ both.T
        allowed = int(ALPHA * (look + 1) / looks * PERMUTATIONS) - spent
        while not signs.all():
            largest = np.abs(permuted[:, signs == 0]).max(axis=1)
            ordered = np.sort(largest[alive])[::-1]
            limit = ordered[allowed] if allowed < len(ordered) else 0.0
            best = int(np.argmax(np.where(signs == 0, np.abs(observed), -1)))
            if np.abs(observed[best]) <= limit:
                break
            signs[best], seeds[best] = np.sign(observed[best]), (look + 1) * BLOCK
        if signs.all():
            break
        spent += int((alive & (largest > limit)).sum())
        alive &= largest <= limit
    return signs, seeds


def by_plan(made: Scene, seeds: int, repetitions: int, rng: np.random.Generator) -> Ran:
    """t-tests with pooled variances at a number of seeds that was fixed before, by the real code."""
    # Under another name it has no statements of the paper, but its nine comparisons of rows.
    alone = replace(made.study, name="simulated", primary=(), factors=())
    fixed = replace(made, study=alone, preset=replace(made.preset, seeds=seeds))
    signs = [[_sign(one) for one in fixed.verdicts(rng)] for _ in range(repetitions)]
    return Ran(np.array(signs), float(len(fixed.requests)))


def _sign(one: Any) -> float:
    return float(np.sign(one.effect)) if one.has_effect else 0.0


def _trials(seeds: Numbers, pairs: Numbers) -> float:
    """The trials of a campaign if each row gets seeds until the last of its comparisons is decided."""
    rows = [seeds[:, (pairs == row).any(axis=1)].max(axis=1) for row in np.unique(pairs)]
    return float(np.mean(np.sum(rows, axis=0)))


def primary_seeds(rule: Rule, repetitions: int, most: int = 60) -> float:
    """Seeds until all primary contrasts of Table 3 are decided, on average, at the rate that they share."""
    made = scene(STUDY, PRINTED, effects=True)
    values, _ = campaigns(made, repetitions, most, np.random.default_rng(0))
    contrasts = np.zeros((3, values.shape[1]))
    for place, one in enumerate(primary_contrasts(made.study)):
        for row, weight in one.weights.items():
            contrasts[place, row] = weight
    decided = rule(e_values(contrasts @ values), PRIMARY).all(axis=-2)
    return float(np.mean(np.where(decided.any(axis=-1), decided.argmax(axis=-1) + 2, most)))


def table(repetitions: int) -> Iterator[str]:
    """The lines of the table of rules."""
    yield "| rule | right of 9 | any false | trials | seeds for the primary contrasts |"
    yield "|:--|--:|--:|--:|--:|"
    true, none = (scene(STUDY, PRINTED, effects) for effects in (True, False))
    for seeds in (3, 5, 10):
        few = repetitions // 10
        made, nothing = (scene(STUDY, PRINTED, effects, seeds) for effects in (True, False))
        ran = by_plan(made, seeds, few, np.random.default_rng(0))
        false = by_plan(nothing, seeds, few, np.random.default_rng(1))
        yield _line(f"t-tests at {seeds} planned seeds", ran, false, "–")
    made_values = campaigns(true, repetitions, MOST, np.random.default_rng(0))
    no_values = campaigns(none, repetitions, MOST, np.random.default_rng(1))
    for name, rule in RULES.items():
        primary = f"{primary_seeds(rule, repetitions):.1f}"
        yield _line(name, by_e_values(*made_values, rule), by_e_values(*no_values, rule), primary)
    few = repetitions // 4
    ran, false = (
        by_adastop(values[:few], pairs, np.random.default_rng(2)) for values, pairs in (made_values, no_values)
    )
    yield _line(f"AdaStop, a look every {BLOCK} seeds", ran, false, "–")


def _line(name: str, ran: Ran, false: Ran, primary: str) -> str:
    right = (ran.signs > 0).sum(axis=1).mean()  # the paper's effects are all above 0
    wrong = 100 * (false.signs != 0).any(axis=1).mean()
    return f"| {name} | {right:.1f} | {wrong:.1f} % | {ran.trials:.0f} | {primary} |"
