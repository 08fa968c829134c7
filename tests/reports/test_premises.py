"""Premises of the paper's statements: checked on the store, told under the statements, and beside their verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

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

WHOLE = find_studies("ablation_calr_ms")[0]
SPOS = replace(WHOLE, rows=WHOLE.rows[:4], factors=(), primary=())
"""The baseline, CaLR, MS, and both."""
UNFAIR = {"complexity_bias": 0.7, "neutral_complexity_bias": 0.6, "complexity_convergence": -0.1}


def told(
    store: Path,
    preset: Preset,
    of_parameters: float | None,
    baseline: Mapping[str, float],
    spreads: Mapping[int, float],
) -> tuple[dict[str, str], dict[str, str]]:
    """Verdicts of SPOS on τ by statement, and notes on premises by their first words."""
    for request in expand(SPOS, preset):
        curve = {"gradient_spread": [[1, 9.0], [2, spreads[request.row]]]} if request.row in spreads else {}
        more = baseline if request.row == 0 else {}
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
    verdicts, notes = told(tmp_path, preset, 0.64, UNFAIR, {0: 3.0, 2: 2.0})
    assert notes == {
        "larger": "It holds: τ = 0.640.",
        "the": "It holds: SPOS (CB 0.700, neutral 0.600; C³ -0.100; 3 seeds).",
        "gradients": "It holds: SPOS (3 and 2).",
    }
    assert not any("premise" in verdict for verdict in verdicts.values())


def test_a_verdict_whose_premise_fails_says_so(preset: Preset, tmp_path: Path) -> None:
    """CaLR needs larger networks to be better; MS does not."""
    verdicts, notes = told(tmp_path, preset, 0.17, UNFAIR, {})
    assert notes["larger"] == "It does not hold: τ = 0.170." and notes["gradients"] == "Not measured: SPOS."
    assert verdicts["CaLR"].endswith("; premise fails") and "premise" not in verdicts["MS"]


@pytest.mark.parametrize("changed", [{"complexity_bias": 0.55}, {"complexity_convergence": 0.1}])
def test_unfair_is_by_both_measures(changed: dict[str, float], preset: Preset, tmp_path: Path) -> None:
    verdicts, notes = told(tmp_path, preset, None, UNFAIR | changed, {0: 2.0, 2: 3.0})
    assert notes["the"].startswith("It does not hold: SPOS (") and notes["larger"] == "Not measured."
    assert notes["gradients"] == "It does not hold: SPOS (2 and 3)."
    assert all(verdict.endswith("; premise fails") for verdict in verdicts.values())


def test_a_reference_is_found_without_the_table_that_judged_it(
    preset: Preset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = told(tmp_path, preset, 0.64, {}, {})

    def gone() -> None:
        raise DataError("the table is not there")

    entry = BENCHMARKS.entries["digits"]
    monkeypatch.setitem(BENCHMARKS.entries, "digits", replace(entry, thing=gone))
    assert shown(tmp_path, preset) == before and before[1]["larger"] == "It holds: τ = 0.640."
