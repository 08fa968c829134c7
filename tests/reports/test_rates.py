"""Verdicts of whole simulated studies: false ones are rare, and the paper's effects are found."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from harness import statistics
from harness.components.discovery import component
from harness.components.preset import Preset
from harness.statistics import Block
from harness.study.layout import Column, Comparison, Row
from harness.study.study import Request, Study
from tests.reports import rates, sequential
from tests.reports.rates import CLUSTER_EDGE, EQUAL, PRINTED, SPLIT_EDGE, STUDIES, false_rate, power

DOCUMENT = Path(__file__).parents[2] / "docs" / "reports.md"

comparison: Any = component("reports.comparison")
evidence: Any = component("reports.evidence")
verdicts: Any = component("reports.verdicts")


def limit(repetitions: int) -> float:
    """5 %, and two standard errors of the simulation."""
    return 0.05 + 2 * math.sqrt(0.05 * 0.95 / repetitions)


@pytest.mark.parametrize("deviations", [EQUAL, PRINTED, SPLIT_EDGE])
def test_few_studies_without_effects_have_any_verdict(deviations: str) -> None:
    assert false_rate("ablation_calr_ms", deviations, 100) <= limit(100)


@pytest.mark.long
@pytest.mark.parametrize("deviations", [EQUAL, PRINTED])
@pytest.mark.parametrize("name", STUDIES)
def test_at_most_5_percent_of_studies_without_effects_have_any_verdict(name: str, deviations: str) -> None:
    rate = false_rate(name, deviations, 4000, seed=1)
    print(f"{name}, {deviations}: {rate:.1%}")
    assert rate <= limit(4000)


@pytest.mark.long
def test_the_document_shows_the_tables_that_the_simulations_print() -> None:
    for lines in (rates.table(), sequential.table(rates.REPETITIONS)):
        text = "\n".join(lines)
        print(text, end="\n\n")
        assert text in DOCUMENT.read_text()


def test_the_document_has_the_same_columns_and_rows() -> None:
    text = DOCUMENT.read_text()
    headings = [next(rates.table(4)), next(sequential.table(4))]
    names = [*sequential.RULES, f"AdaStop, a look every {sequential.BLOCK} seeds", *(f"`{name}` (" for name in STUDIES)]
    assert all(heading in text for heading in headings) and all(f"\n| {name}" in text for name in names)


def test_three_seeds_find_most_of_the_papers_primary_contrasts() -> None:
    ours, paired = power("ablation_calr_ms", 25), power("ablation_calr_ms", 25, paired=True)
    assert ours.counts == (3, 32, 10) and ours.primary > 2
    assert ours.primary > paired.primary and ours.statements > 2 + 2 * paired.statements


def test_an_edge_that_all_rows_with_ms_share_is_part_of_the_error() -> None:
    """Without it, 14 % of studies have a false verdict where the edge moves these rows by one deviation."""
    assert false_rate("ablation_calr_ms", CLUSTER_EDGE, 200) <= 0.1


def test_rules_that_add_seeds_are_compared() -> None:
    """Holm's rule needs fewer trials than Bonferroni's; no rule decides many comparisons without effects."""
    made, none = (rates.scene("ablation_calr_ms", PRINTED, effects) for effects in (True, False))
    values, pairs = sequential.campaigns(made, 150, 30, np.random.default_rng(0))
    nothing, _ = sequential.campaigns(none, 150, 30, np.random.default_rng(1))
    trials = []
    for rule in sequential.RULES.values():
        ran, false = sequential.by_e_values(values, pairs, rule), sequential.by_e_values(nothing, pairs, rule)
        assert (ran.signs > 0).sum(axis=1).mean() > 8
        assert (false.signs != 0).any(axis=1).mean() <= limit(150)
        trials.append(ran.trials)
    assert trials[0] > trials[1] >= trials[2]
    rng = np.random.default_rng(2)
    assert (sequential.by_adastop(values[:30], pairs, rng).signs > 0).sum(axis=1).mean() > 8
    assert (sequential.by_adastop(nothing, pairs, rng).signs != 0).any(axis=1).mean() <= limit(150)


def test_what_a_seed_adds_to_all_rows_cancels_out() -> None:
    rng = np.random.default_rng(0)
    weights = np.array([0.5, -0.5, 0.5, -0.5])
    false = 0
    for _ in range(2000):
        values = rng.normal(0, 0.01, (4, 3)) + rng.normal(0, 0.15, 3)
        block = Block(values, weights, pooled=True, drawn=np.ones((1, 4)))
        estimate = statistics.contrast(float(weights @ values.mean(axis=1)), [block])
        assert estimate is not None
        assert estimate.degrees == pytest.approx(6)
        false += estimate.p() <= 0.05
    assert false / 2000 <= limit(2000)
    # Of two rows it is the paired t-test.
    two = values[:2]
    estimate = statistics.contrast(
        float(two[0].mean() - two[1].mean()), [Block(two, np.array([1.0, -1.0]), True, np.ones((1, 2)))]
    )
    assert estimate is not None
    assert estimate.p() == pytest.approx(float(statistics.t_test(statistics.Sample.of(two[0] - two[1]))))


def test_pooled_and_welch_by_hand() -> None:
    values = np.array([[0.1, 0.2, 0.3], [0.5, 0.5, 0.8], [0.0, 0.4, 0.2]])
    weights = np.array([1.0, -1.0, 0.0])
    squares = values.var(axis=1, ddof=1)
    pooled = statistics.contrast(0.4, [Block(values, weights, pooled=True)])
    assert pooled is not None
    assert [pooled.degrees, pooled.error] == pytest.approx([6, (2 * squares.mean() / 3) ** 0.5])
    from scipy import stats

    welch = statistics.contrast(float(values[0].mean() - values[1].mean()), [Block(values, weights, pooled=False)])
    known = stats.ttest_ind(values[0], values[1], equal_var=False)
    assert welch is not None
    assert [welch.p(), welch.degrees] == pytest.approx([known.pvalue, known.df])
    assert statistics.contrast(0.4, [Block(np.ones((2, 3)), weights[:2], pooled=True)]) is None


def test_variance_of_edges_and_of_seeds_by_hand() -> None:
    rng = np.random.default_rng(0)
    edges = [seed % 6 for seed in range(600)]
    by_edge, by_seed = rng.normal(0, 0.3, 6), rng.normal(0, 0.2, 600)
    values = rng.normal(0, 0.1, (4, 600))
    values[2:] += by_edge[edges] + by_seed
    block = Block(values, np.zeros(4), pooled=True, drawn=np.array([[0.0, 0.0, 1.0, 1.0]]))
    assert statistics.residual(block)[0] == pytest.approx(0.01, rel=0.1)
    found = statistics.shared_variance(block, 0, edges)
    assert found == pytest.approx((by_edge.var(ddof=1), 0.04), rel=0.15)
    both, none = statistics.shared_variance(block, 0, list(range(600)))
    assert both == pytest.approx(sum(cast(Any, found)), rel=0.3) and none is None


LABELS = [{"Method": "A", "Arm": arm} for arm in ("plain", "new", "other")]
NEW = Comparison({"Arm": "new"}, {"Arm": "plain"})
MINE = Study(
    "mine",
    "Made up",
    [Row(labels) for labels in LABELS],
    [Column("τ", "kendall_tau")],
    group="Method",
    primary=[NEW],
)


def made(values: dict[int, list[float | None]]) -> list[Any]:
    """Evidence by row and seed; None for a trial that has not finished."""
    return [
        evidence.Evidence(
            Request("mine", row, "digits", seed, cast(Any, None), False),
            None,
            "missing" if value is None else "done",
            metrics={} if value is None else {"kendall_tau": value},
        )
        for row, every in values.items()
        for seed, value in enumerate(every)
    ]


def test_primary_contrasts_have_4_percent_and_pass_it_on(preset: Preset) -> None:
    values: dict[int, list[float | None]] = {0: [0.50, 0.51, 0.52], 1: [0.70, 0.71, 0.72], 2: [0.50, 0.52, 0.53]}
    judged = verdicts.judge(comparison.compare(MINE, preset, made(values), {}))
    assert [(one.compared.kind, one.level, one.m) for one in judged] == [
        ("primary", 0.04, 1),
        ("rows", 0.04, 1),  # asks the same
        ("rows", 0.05, 1),
    ]
    assert [one.verdict for one in judged] == ["supported", "supported", "undecided"]
    values[1] = [0.51, 0.50, 0.53]
    judged = verdicts.judge(comparison.compare(MINE, preset, made(values), {}))
    assert [(one.level, one.verdict) for one in judged][::2] == [(0.04, "undecided"), (0.01, "undecided")]
    assert judged[2].adjusted == pytest.approx(min(1.0, 5 * judged[2].p))


def test_the_error_rate_of_a_study_does_not_depend_on_the_others(preset: Preset) -> None:
    every = comparison.compare(MINE, preset, made({0: [0.5, 0.51, 0.52], 1: [0.6, 0.6, 0.63], 2: [0.5, 0.5, 0.6]}), {})
    alone = verdicts.judge(every)
    beside = verdicts.judge([*every, *(replace(one, study="another") for one in every)])
    assert [one.adjusted for one in beside] == [one.adjusted for one in alone] * 2


def test_equivalence_is_corrected_for_multiplicity(preset: Preset) -> None:
    values = {0: [0.500, 0.512, 0.52], 1: [0.502, 0.511, 0.521], 2: [0.499, 0.513, 0.519]}
    plain = replace(MINE, primary=())
    (first, second) = comparison.compare(plain, preset, made(cast(Any, values)), {"kendall_tau": 0.025})
    assert verdicts.judge([first])[0].verdict == "equivalent"
    many = verdicts.judge([first, second, *(replace(second, key=number) for number in range(20))])
    assert (many[0].verdict, many[0].leans) == ("undecided", "equivalent")


def test_a_comparison_ends_at_the_first_seed_that_a_row_has_not_finished(preset: Preset) -> None:
    values: dict[int, list[float | None]] = {0: [0.5, 0.52, 0.51, 0.5], 1: [0.6, None, 0.62, 0.61], 2: [0.5] * 4}
    found = made(values)
    assert [one.seeds for one in comparison.compare(MINE, preset, found, {})] == [(0,), (0,), (0, 1, 2, 3)]
    diverged = [replace(one, state="diverged") if one.state == "missing" else one for one in found]
    assert [one.seeds for one in comparison.compare(MINE, preset, diverged, {})][0] == (0, 2, 3)


def test_primary_contrasts_with_a_margin_pass_nothing_on(preset: Preset) -> None:
    """Decided as equivalent, the contrast may still be one without effect, which needs its share."""
    values: dict[int, list[float | None]] = {0: [0.50, 0.51, 0.52], 1: [0.51, 0.50, 0.52], 2: [0.50, 0.52, 0.53]}
    for study in (MINE, replace(MINE, primary=[replace(NEW, margin=0.2)])):
        judged = verdicts.judge(comparison.compare(study, preset, made(values), {}))
        assert judged[0].verdict == ("undecided" if study is MINE else "equivalent")
        assert judged[2].level == 0.01
    values[1] = [0.70, 0.71, 0.72]
    wide = replace(MINE, primary=[replace(NEW, margin=0.01)])
    judged = verdicts.judge(comparison.compare(wide, preset, made(values), {}))
    assert (judged[0].verdict, judged[2].level) == ("supported", 0.01)


def test_holms_rule_holds_for_verdicts_at_any_time(preset: Preset) -> None:
    """A comparison that is decided leaves its share to the others, and what has no data counts."""
    plain = replace(MINE, primary=())
    values: dict[int, list[float | None]] = {
        0: [0.50, 0.51, 0.52, 0.50, 0.53, 0.51],
        1: [0.70, 0.71, 0.73, 0.71, 0.72, 0.72],
        2: [0.53, 0.54, 0.54, 0.54, 0.58, 0.53],
    }
    first, second = verdicts.judge(comparison.compare(plain, preset, made(values), {}), anytime=True)
    assert (first.m, first.adjusted) == (2, pytest.approx(2 / first.e_value, rel=0.01))
    assert second.adjusted == pytest.approx(1 / second.e_value)
    assert [first.verdict, second.verdict] == ["supported"] * 2 and 20 < second.e_value < 40
    values[1] = [None] * 6
    second = verdicts.judge(comparison.compare(plain, preset, made(values), {}), anytime=True)[1]
    assert (second.m, second.verdict, second.leans) == (2, "undecided", "supported")
    assert second.adjusted == pytest.approx(2 / second.e_value)
