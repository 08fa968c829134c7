"""Premises of the paper's statements: checked on the store, told under the statements, and beside their verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness import metrics
from harness.components.discovery import component
from harness.components.preset import Preset
from harness.components.registries import BENCHMARKS
from harness.errors import DataError
from harness.stores.directory.store import DirectoryStore
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from harness.study.references import references_of
from tests.stored_runs import judged, store_run

report: Any = component("reports.report")
premises: Any = component("reports.paper.premises")

WHOLE = find_studies("ablation_calr_ms")[0]
SPOS = replace(WHOLE, rows=WHOLE.rows[:4], factors=(), primary=())
"""The baseline, CaLR, MS, and both."""
UNFAIR = {"complexity_bias_z": (4.0, 4.5, 3.5), "complexity_convergence_z": (-3.0, -2.75, -3.25)}
"""By seed."""


def told(
    store: Path,
    preset: Preset,
    of_parameters: float | None,
    baseline: Mapping[str, Sequence[float]],
    share: float | None = None,
) -> tuple[dict[str, str], dict[str, str]]:
    """Verdicts of SPOS on τ by statement, and notes on premises by their first words."""
    for request in expand(SPOS, preset):
        observed = share is not None and request.row == 0
        curve = {"gradient_share_between": [[1, 9.0], [2, (share or 0) + 0.001 * request.seed]]} if observed else {}
        more = {key: values[request.seed] for key, values in baseline.items()} if request.row == 0 else {}
        store_run(store, request, 0.5 + 0.01 * request.seed, more=more, observed=curve)
    opened = DirectoryStore(store)
    for one in references_of(SPOS, preset, opened.runs):
        if one.name == "parameters" and of_parameters is not None:
            document = {"reference": one.name, "cell": one.trial.json(), "result": judged(of_parameters)}
            opened.remember(one.key, document)
    return shown(store, preset)


def shown(store: Path, preset: Preset) -> tuple[dict[str, str], dict[str, str]]:
    asked = report.Asked(preset, compare=True)
    (section,) = report.judged([report.section(SPOS, DirectoryStore(store), asked)])
    grid = next(grid for grid in section.grids if grid.name.endswith("-statements"))
    verdicts = {row[0].partition(" ")[0]: row[1] for row in grid.rows if "τ" in row[0]}
    lines = [note.removeprefix("Premise: ") for note in grid.notes if note.startswith("Premise: ")]
    return verdicts, {line.partition(" ")[0]: line.partition("). ")[2] for line in lines}


def test_premises_that_hold_say_so_and_change_no_verdict(preset: Preset, tmp_path: Path) -> None:
    verdicts, notes = told(tmp_path, preset, 0.64, UNFAIR, 0.2)
    assert notes == {
        "larger": "It holds: τ = 0.640.",
        "the": "It holds: SPOS (z of CB +4.0, of C³ -3.0; 3 seeds).",
        "gradients": "It holds: SPOS (20.1 %; 3 seeds).",
    }
    assert not any("premise" in verdict for verdict in verdicts.values())


def test_a_verdict_whose_premise_fails_says_so(preset: Preset, tmp_path: Path) -> None:
    """CaLR needs larger networks to be better; MS does not."""
    verdicts, notes = told(tmp_path, preset, 0.17, UNFAIR)
    assert notes["larger"] == "It does not hold: τ = 0.170." and notes["gradients"] == "Not measured: SPOS."
    assert verdicts["CaLR"].endswith("; premise fails") and "premise" not in verdicts["MS"]


def test_a_baseline_that_favours_the_large_is_not_unfair_to_them(preset: Preset, tmp_path: Path) -> None:
    favours = {key: [-one for one in values] for key, values in UNFAIR.items()}
    verdicts, notes = told(tmp_path, preset, None, favours, 0.0)
    assert notes["the"] == "It does not hold: SPOS (z of CB -4.0, of C³ +3.0; 3 seeds)."
    assert notes["gradients"] == "It does not hold: SPOS (0.1 %; 3 seeds)." and notes["larger"] == "Not measured."
    assert all(verdict.endswith("; premise fails") for verdict in verdicts.values())


def test_near_the_null_a_premise_is_undecided_and_changes_no_verdict(preset: Preset, tmp_path: Path) -> None:
    """CB above a "neutral" .619 and C³ below 0 were once enough, whatever the seeds say."""
    near = {"complexity_bias_z": (1.0, -0.5, 0.75), "complexity_convergence_z": (-0.5, 0.75, -0.25)}
    near |= {"complexity_bias": (0.7, 0.7, 0.7), "complexity_convergence": (-0.1, -0.1, -0.1)}
    verdicts, notes = told(tmp_path, preset, 0.64, near)
    assert notes["the"] == "Undecided: SPOS (z of CB +0.4, of C³ +0.0; 3 seeds)."
    assert not any("premise" in verdict for verdict in verdicts.values())


def test_gradients_of_a_separated_training_say_nothing_of_the_premise(preset: Preset, tmp_path: Path) -> None:
    """What separation does to gradients is its effect: the baseline alone tests its premise."""
    for request in expand(SPOS, preset):
        curve = {"gradient_share_between": [[1, 0.2 + 0.001 * request.seed]]}
        if request.row:
            store_run(tmp_path, request, 0.5, observed=curve)
    assert shown(tmp_path, preset)[1]["gradients"] == "Not measured: SPOS."


def test_one_seed_decides_no_premise() -> None:
    assert premises.three_way([9.0]) is None and premises.three_way([-9.0], 0.01) is None


@pytest.mark.parametrize("noise_of_truth", [0.0, 0.1])
def test_predictors_without_bias_are_called_unfair_in_few_campaigns(noise_of_truth: float) -> None:
    """Five seeds each; with a bias for small networks nearly all campaigns find it."""
    rng = np.random.default_rng(0)
    fair, unfair = (
        [campaign(rng, *about) for _ in range(count)]
        for count, *about in ((25, 0.0, noise_of_truth), (6, 1.5, noise_of_truth))
    )
    assert fair.count(None) >= 20  # 24 are expected; 19 or fewer have a probability of 0.2 %
    assert unfair.count(True) >= 5 and unfair.count(False) == 0


def campaign(rng: np.random.Generator, bias: float, noise_of_truth: float) -> bool | None:
    """The premise of one method: predictors that err by 1, and by `bias` per deviation of size, on the best 100."""
    skill = np.sort(rng.standard_normal(300))[-100:]
    sizes = np.argsort(np.argsort(skill + 2 * rng.standard_normal(100))).astype(float)
    truth = 90 + skill + noise_of_truth * rng.standard_normal(100)
    scores = []
    for _ in range(5):
        guess = 60 + 5 * skill + rng.standard_normal(100) - bias * (sizes - sizes.mean()) / sizes.std()
        nulls = metrics.matched_null(guess, truth, rng, 25)
        z = []
        for measure in (metrics.complexity_bias, metrics.complexity_convergence):
            null = [measure(row, truth, sizes) for row in nulls]
            z.append(metrics.against_null(measure(guess, truth, sizes), null)[1])
        scores.append((z[0] - z[1]) / 2)
    answer: bool | None = premises.three_way(scores)
    return answer


def test_a_reference_is_found_without_the_table_that_judged_it(
    preset: Preset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = told(tmp_path, preset, 0.64, {})

    def gone() -> None:
        raise DataError("the table is not there")

    entry = BENCHMARKS.entries["digits"]
    monkeypatch.setitem(BENCHMARKS.entries, "digits", replace(entry, thing=gone))
    assert shown(tmp_path, preset) == before and before[1]["larger"] == "It holds: τ = 0.640."


def test_figure_5b_and_its_statement_are_of_momenta_within_clusters(preset: Preset, tmp_path: Path) -> None:
    """Where clusters differ, separated momenta spread more if they are pooled: these are values of the simulation."""
    (study,) = find_studies("clustering")
    simulated = {"none": (2.49, 2.45), "random": (2.49, 2.44), "operation": (4.85, 2.24)}
    for request in expand(study, preset):
        config = request.trial.config
        if config.method.name == "spos":
            pooled, within = (one + 0.01 * request.seed for one in simulated[config.clusters.name])
            curves = {"momentum_spread": [[1, pooled]], "momentum_spread_within": [[1, within]]}
            store_run(tmp_path, request, 0.5, observed=curves)
    asked = report.Asked(preset, compare=True, figures=True)
    (section,) = report.judged([report.section(study, DirectoryStore(tmp_path), asked)])
    grid = next(grid for grid in section.grids if grid.name.endswith("-statements"))
    effects = [float(row[grid.headings.index("Effect")]) for row in grid.rows if "momenta spread less" in row[0]]
    assert sorted(effects) == pytest.approx([0.20, 0.21])
    (figure,) = [one for one in section.figures if one.name == "spread"]
    shown = {line.label: line.y for line in figure.panels[1].curves}
    expected = {"SPOS": 2.46, "SPOS + MS (random)": 2.45, "SPOS + MS": 2.25}
    assert {label: pytest.approx((value,)) for label, value in expected.items()} == shown
