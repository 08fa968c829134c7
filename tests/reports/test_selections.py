"""The winner by each selection of architectures, and tables that lack a panel or a part of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.components.discovery import component
from harness.components.preset import get_preset
from harness.stores.directory.store import DirectoryStore
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from tests.stored_runs import store_run

PRESET = get_preset("tiny")
(STUDY,) = find_studies("selection_sensitivity")


def measured(everything: float | None, width: float) -> dict[str, Any]:
    """A panel with τ over all and over equal-width bins, and nothing else that could be computed."""
    bins = {"tau": width, "count": 30, "tied": 2, "varied": 2, "lowest": width - 0.1, "highest": width + 0.1}
    few = {"tau": None, "count": 3, "tied": 0, "varied": 0, "lowest": None, "highest": None}
    rest = {"error": 0.02, "ceiling": None}
    return {"all": {"tau": everything, "count": 40}, "equal_width": bins | rest, "equal_count": few | rest}


def table(store: Path, panels: list[dict[str, Any] | None]) -> Any:
    for request, own in zip(expand(STUDY, PRESET, 1), panels, strict=False):
        store_run(store, request, 0.5 + request.row / 100, more={} if own is None else {"panel": own})
    return component("reports.tables").build(STUDY, PRESET, DirectoryStore(store), 1)


def test_the_trials_are_those_of_the_ablation() -> None:
    (ablation,) = find_studies("ablation_calr_ms")
    ours, theirs = ({(r.trial.key, r.trial.ranking_key) for r in expand(one, PRESET)} for one in (STUDY, ablation))
    assert ours == theirs


def test_the_winner_may_change_with_the_selection(tmp_path: Path) -> None:
    found = table(tmp_path, [measured(0.6, 0.3), measured(0.5, 0.4), measured(0.4, 0.2)])
    (line,) = [note for note in found.notes if note.startswith("digits: the winner")]
    assert line == (
        "digits: the winner changes with the selection: SPOS, no CaLR, MS by Kendall's τ; SPOS, no CaLR, no MS by All; "
        "SPOS, CaLR, no MS by Equal width. 3 of 3 pairs of rows change their order."
    )
    row = found.blocks[0][0]
    shown = {column.label: value.mean for column, value in zip(found.columns, row.values, strict=True)}
    assert (shown["Equal width, lowest"], shown["Equal width, highest"], shown["n, all"]) == ("0.200", "0.400", "40")


def test_the_same_winner_is_said_too(tmp_path: Path) -> None:
    found = table(tmp_path, [measured(0.1, 0.1), measured(0.2, 0.2)])
    line = "the winner is the same by each selection: SPOS, CaLR, no MS by Kendall's τ, All, Equal width. 0 of 1 pairs"
    assert any(line in note for note in found.notes)


def test_what_too_few_were_predicted_for_is_no_column(tmp_path: Path) -> None:
    found = table(tmp_path, [measured(0.1, 0.1), measured(None, 0.2)])
    labels = [column.label for column in found.columns]
    assert "Equal count" not in labels and "All" in labels and "n, equal count" in labels
    (told,) = [note for note in found.notes if "fewer than 20 of the architectures" in note]
    assert "equal_count.tau" in told and "equal_width.ceiling" in told


def test_runs_of_older_versions_are_told_with_the_remedy(tmp_path: Path) -> None:
    found = table(tmp_path, [None, measured(0.2, 0.2)])
    told = "1 runs were stored without a panel of measures; `harness store recompute selection_sensitivity "
    assert any(note.startswith(told) for note in found.notes)
    assert not any("the winner" in note for note in found.notes if "digits" in note)  # nothing to compare with
    assert not any("undefined" in note for note in found.notes if "seed 0: All" in note)


def test_without_any_panel_its_columns_are_not_shown(tmp_path: Path) -> None:
    found = table(tmp_path, [None, None])
    assert [column.label for column in found.columns] == ["Kendall's τ"]
    assert any(note.startswith("2 runs were stored without a panel") for note in found.notes)
    assert not any("fewer than 20" in note or "undefined" in note for note in found.notes)
