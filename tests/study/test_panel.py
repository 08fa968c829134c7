"""The panel of a ranking, on tables that are made up: over whom each measure is taken, and that ties count."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from harness.components.benchmark import Benchmark
from harness.components.registries import SPACES
from harness.components.selection import RULES
from harness.components.space import Architecture, Space
from harness.documents import problem
from harness.metrics import at_k, bootstrap_error, kendall_tau, spearman_rho
from harness.schema import Panel
from harness.study.configuration import Ranking
from harness.study.panel import panel

SPACE: Space = SPACES.get("nasbench201")()
SIZE = SPACE.size


@dataclass
class MadeUp(Benchmark):
    """A table of any accuracies; those of data set "other" are the same in the opposite order."""

    table: npt.NDArray[np.float64]
    errors: npt.NDArray[np.float64] | None = None
    space = SPACE
    name, datasets = "made up", ("own", "other")

    def accuracies(self, dataset: str, split: str = "test") -> npt.NDArray[np.float64]:
        return self.table if dataset == "own" else self.table[::-1]

    def standard_errors(self, dataset: str, split: str = "test") -> npt.NDArray[np.float64] | None:
        return self.errors


def table(digits: int) -> npt.NDArray[np.float64]:
    return np.round(np.random.default_rng(0).random(SIZE) * 90, digits)


def predicted(numbers: npt.NDArray[Any], benchmark: MadeUp, noise: float = 20.0) -> dict[Architecture, float]:
    rng = np.random.default_rng(1)
    values = np.round(benchmark.table[numbers] + noise * rng.standard_normal(len(numbers)), 0)
    return {SPACE.architecture(number): value for number, value in zip(numbers.tolist(), values.tolist(), strict=True)}


def test_each_measure_is_taken_over_those_of_its_set_that_were_predicted() -> None:
    made = MadeUp(table(2))
    known = np.sort(np.random.default_rng(2).choice(SIZE, 3000, replace=False))
    guess = predicted(known, made)
    found = panel(guess, made, "own", Ranking(bins=100))
    values, truth = np.array(list(guess.values())), made.table[known]
    assert found["all"] == {"tau": pytest.approx(kendall_tau(values, truth), abs=1e-6), "count": 3000}
    for percent, count in ((1, 157), (5, 782), (10, 1563), (30, 4688)):
        best = set(np.argsort(-made.table, kind="stable")[:count].tolist())
        assert np.sum(made.table == np.sort(made.table)[-count]) < 6  # few share the last place
        inside = np.array([number in best for number in known.tolist()])
        own = found[f"best_{percent}_percent"]
        assert abs(own["count"] - inside.sum()) < 6
        assert own["tau"] == pytest.approx(kendall_tau(values[inside], truth[inside]), abs=0.02)
    for rule in RULES:
        chosen = set(RULES[rule](made.table, 100).tolist())
        inside = np.array([number in chosen for number in known.tolist()])
        own = found[rule.replace("-", "_")]
        assert own["count"] == inside.sum()
        expected = kendall_tau(values[inside], truth[inside]) if inside.sum() >= 20 else None
        assert own["tau"] == (None if expected is None else pytest.approx(expected, abs=1e-6))
    assert found["selected"] == found["equal_width"]
    assert found["spearman"] == pytest.approx(spearman_rho(values, truth), abs=1e-6)
    sizes = [SPACE.complexity(one) for one in guess]
    both, ours, theirs = (kendall_tau(*pair) for pair in ((values, truth), (values, sizes), (truth, sizes)))
    beyond = (both - ours * theirs) / ((1 - ours**2) * (1 - theirs**2)) ** 0.5
    assert found["partial_tau"] == pytest.approx(beyond, abs=1e-6)
    for name, k in {"at_1": 1, "at_10": 10, "at_100": 100, "at_1_percent": 30, "at_30_percent": 900}.items():
        assert found[name]["count"] == k
        assert found[name]["precision"] == pytest.approx(at_k(values, truth, k).precision, abs=1e-6)
        assert found[name]["precision_random"] == pytest.approx(k / 3000, abs=1e-6)
        assert found[name]["regret"] <= found[name]["regret_random"] + 1e-9
    assert problem(Panel, found) is None


def test_below_twenty_there_is_a_count_and_nothing_else() -> None:
    made = MadeUp(table(2))
    found = panel(predicted(np.arange(19), made), made, "own", Ranking(bins=100))
    assert found["all"] == {"tau": None, "count": 19}
    assert not any(name.startswith(("at_", "spearman", "weighted", "sparse")) for name in found)
    assert found["selected"]["tau"] is None and problem(Panel, found) is None
    twenty = panel(predicted(np.arange(20), made), made, "own", Ranking(bins=100))
    assert twenty["all"]["tau"] is not None and "at_10" in twenty and "at_100" not in twenty


def test_the_range_is_over_equals_that_were_predicted() -> None:
    coarse = MadeUp(table(0))  # 91 accuracies: some 170 architectures have each
    chosen = RULES["equal-width"](coarse.table, 60)
    many = predicted(np.union1d(chosen, np.arange(0, SIZE, 5)), coarse)
    own = panel(many, coarse, "own", Ranking(bins=60))["equal_width"]
    assert own["tied"] == own["varied"] == own["count"] == 60
    assert own["lowest"] < own["tau"] < own["highest"]
    alone = panel(predicted(chosen, coarse), coarse, "own", Ranking(bins=60))["equal_width"]
    assert (alone["count"], alone["tied"], alone["varied"]) == (60, 60, 0)
    assert alone["lowest"] is alone["highest"] is None  # equals exist, and nobody predicted them
    fine = MadeUp(table(9))
    sure = panel(predicted(RULES["equal-width"](fine.table, 60), fine), fine, "own", Ranking(bins=60))["equal_width"]
    assert sure["tied"] == 0 and sure["lowest"] == sure["tau"] == sure["highest"]


def test_the_own_selection_may_be_by_other_accuracies() -> None:
    """As the released list of architectures, which one data set selects for all."""
    made = MadeUp(table(0))
    chosen = np.sort(RULES["equal-width"](made.accuracies("other"), 60))
    guess = predicted(np.union1d(chosen, np.arange(0, SIZE, 5)), made)
    found = panel(guess, made, "own", Ranking(bins=60, selection_on="other"))
    values = [guess[SPACE.architecture(number)] for number in chosen.tolist()]
    assert found["selected"]["tau"] == pytest.approx(kendall_tau(values, made.table[chosen]), abs=1e-6)
    assert found["selected"] != found["equal_width"] and found["selected"]["lowest"] < found["selected"]["highest"]
    # More chunks than architectures are no selection.
    assert "equal_count" not in panel(guess, made, "own", Ranking(bins=SIZE + 1))


def test_error_and_ceiling() -> None:
    made = MadeUp(table(2))
    numbers = RULES["equal-width"](made.table, 200)
    guess = predicted(numbers, made)
    found = panel(guess, made, "own", Ranking(bins=200))["equal_width"]
    values, truth = np.array(list(guess.values())), made.table[numbers]
    assert found["error"] == pytest.approx(bootstrap_error(values, truth, np.random.default_rng(9)), rel=0.25)
    assert found["ceiling"] is None  # nothing is known of the table's noise
    certain = panel(guess, MadeUp(made.table, np.zeros(SIZE)), "own", Ranking(bins=200))["equal_width"]
    noisy = panel(guess, MadeUp(made.table, np.full(SIZE, 10.0)), "own", Ranking(bins=200))["equal_width"]
    assert certain["ceiling"] == 1.0 and 0.5 < noisy["ceiling"] < 0.95


def test_equal_predictions_give_equal_panels_in_any_order() -> None:
    made = MadeUp(table(1))
    guess = predicted(np.arange(0, SIZE, 20), made)
    items = list(guess.items())
    random.Random(3).shuffle(items)
    ranking = Ranking(bins=50)
    assert panel(dict(items), made, "own", ranking) == panel(guess, made, "own", ranking)
    without = guess | {SPACE.architecture(1): float("nan")}  # what is not a number is not predicted
    assert panel(without, made, "own", ranking) == panel(guess, made, "own", ranking)
