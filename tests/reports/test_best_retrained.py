"""A row that retrains all that a search has found: one trial each, and the table shows the best of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.components.discovery import component
from harness.components.preset import get_preset
from harness.errors import InvalidConfiguration
from harness.stores.directory.store import DirectoryStore
from harness.study.expansion import expand
from harness.study.layout import Column, Row
from harness.study.study import Study
from harness.work.plan import make_plan
from tests.stored_runs import store_run
from tests.toy import user_folder

TINY = get_preset("tiny")
SEARCH = {"search": {"name": "random", "keep": 3}}


def study(which: Any) -> Study:
    rows = [Row({"Found": name}, SEARCH | {"retrain.which": one}) for name, one in (("one", 1), ("all", which))]
    return Study("best", "Best", rows, [Column("Acc.", "retrained_accuracy", digits=1), Column("Passes", "passes")])


def stored(folder: Path, results: list[float | str | None], which: Any = "all") -> Any:
    """The table of a store in which the retrainings of one seed gave these accuracies, diverged, or are missing."""
    asked = expand(study(which), TINY, 1)
    for number, (request, result) in enumerate(zip(asked[1:], results, strict=True)):
        if result is not None:
            bad = {"step": 3, "loss": "nan"} if result == "diverged" else None
            more = {"retrained_accuracy": None if bad else result}
            store_run(folder, request, diverged=bad, more=more, cost={"passes": number})
    return component("reports.tables").build(study(which), TINY, DirectoryStore(folder), seeds=1)


def shown(table: Any) -> list[tuple[str, str]]:
    return [(row.values[0].mean, row.values[1].mean) for block in table.blocks for row in block]


def test_the_best_by_test_accuracy_is_shown_with_all_its_columns(tmp_path: Path) -> None:
    table = stored(tmp_path, [40.0, 62.5, 62.5])
    assert shown(table) == [("62.5", "1.000"), ("62.5", "1.000")] and not table.missing  # of equal ones the first
    (note,) = table.notes
    assert note.startswith("all: of 3 retrained architectures per seed the one with the best accuracy on the test")


def test_the_best_is_not_known_while_one_is_missing(tmp_path: Path) -> None:
    table = stored(tmp_path, [40.0, 62.5, None])
    assert shown(table)[1] == ("", "") and len(table.missing) == 2
    assert any(note.endswith("seed 0: found 2 is missing") for note in table.notes)


def test_one_that_diverged_is_not_the_best(tmp_path: Path) -> None:
    assert shown(stored(tmp_path / "one", [40.0, "diverged", 30.0]))[1] == ("40.0", "0.000")
    table = stored(tmp_path / "all", ["diverged"] * 3)
    assert shown(table)[1] == ("", "") and any("found 2 is diverged at step 3" in note for note in table.notes)


def test_a_condition_chooses_among_whom(tmp_path: Path) -> None:
    stored(tmp_path, [40.0, 62.5, 50.0])
    build = component("reports.tables").build
    table = build(study("all"), TINY, DirectoryStore(tmp_path), seeds=1, where="retrained_accuracy < 60")
    assert shown(table) == [("50.0", "2.000")]
    assert table.notes[0] == "The condition leaves out 2 of 4 runs." and "all: of 2 retrained" in table.notes[1]


def test_numbers_may_be_listed_and_all_are_planned(tmp_path: Path) -> None:
    assert shown(stored(tmp_path, [30.0, 40.0], [0, 2]))[1] == ("40.0", "1.000")
    assert len(make_plan([study([0, 2])], TINY, [], seeds=2).work) == 2 * (1 + 3)  # searches, found 0, 1 and 2
    plan = make_plan([study("all")], TINY, [], seeds=1)
    assert len(plan.work) == 1 + 3 and len({work.label for work in plan.work}) == 4
    overridden = [Row({"Found": "all"}, SEARCH | {"retrain.epochs": 1})]
    asked = expand(replace(study("all"), rows=overridden), TINY, 1, {"retrain.which": "all"})
    assert [one.trial.config.retrain and one.trial.config.retrain.which for one in asked] == [0, 1, 2]


FINDER = """
from harness.components.method import Method
from harness.components.registries import METHODS

@METHODS.register("finder")
class Finder(Method):
    def paths(self, training):
        return training.draw(1)

    def found(self, training):
        return [(1,) * 6, (2,) * 6]
"""


def test_what_a_method_finds_is_listed_by_numbers(tmp_path: Path) -> None:
    settings = {"method": "finder", "retrain.which": "all"}
    with user_folder(tmp_path, {"methods/finder.py": FINDER}):
        with pytest.raises(InvalidConfiguration, match=r"finder finds is not known before it has run: .* as \[0, 1\]"):
            make_plan([replace(study(0), rows=[Row({"Found": "own"}, settings)])], TINY, [], seeds=1)
        listed = replace(study(0), rows=[Row({"Found": "own"}, settings | {"retrain.which": [0, 1]})])
        assert len(make_plan([listed], TINY, [], seeds=1).work) == 3
    ranked = [Row({"Found": "ranked"}, {"retrain.which": "all"})]
    assert len(make_plan([replace(study(0), rows=ranked)], TINY, [], seeds=1).work) == 2  # a ranking has one best
