"""What a reader of a table must not miss: rows at unequal cost, and stored runs that the table does not show."""

from __future__ import annotations

import csv
import importlib
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness import results
from harness.cli import main
from harness.components.discovery import component
from harness.components.preset import Preset, get_preset
from harness.stores.directory.store import DirectoryStore
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from harness.study.layout import Row
from harness.study.study import Study
from tests.stored_runs import store_run
from tests.toy import user_folder

MINE = """
from harness.study import Column, Row, Study

rows = [Row({"Method": method, "CaLR": calr}, {"method.name": method, "schedule.name": "calr" if calr else "cosine"})
        for method in ("spos", "fairnas") for calr in (False, True)]
study = Study("mine", "Mine", rows, [Column("τ", "kendall_tau")], group="Method")
"""
DIFFER = "Rows of spos differ in training passes and are not compared at equal cost: 30 (no CaLR), 90 (CaLR)."
TINY = ["report", "mine.py", "--preset", "tiny"]


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[Path]:
    """A user's folder with a study of two groups; no run is stored yet."""
    with user_folder(tmp_path, {"mine.py": MINE}):
        yield tmp_path


def fill(preset: str = "tiny", seeds: int = 2, overrides: dict[str, Any] | None = None, unequal: bool = False) -> None:
    """Store runs of the study; if `unequal`, one row of the first group has made three times the passes."""
    for request in expand(find_studies("mine.py")[0], get_preset(preset), seeds, overrides):
        cost = {"passes": 90 if unequal and request.row == 1 else 30}
        store_run(Path("runs"), request, 0.5, preset=preset, overrides=overrides, cost=cost)


def report(capsys: pytest.CaptureFixture[str], *more: str) -> tuple[str, str]:
    capsys.readouterr()
    assert main([*TINY, *more]) == 0
    printed = capsys.readouterr()
    return printed.out, printed.err


def test_rows_of_a_group_at_unequal_passes_are_named_in_every_format(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(unequal=True)
    text, errors = report(capsys)
    assert f"\n- {DIFFER}\n" in text and not errors
    assert DIFFER in report(capsys, "--format", "latex")[0]
    page, errors = report(capsys, "--format", "html")
    assert DIFFER in page and errors == f"mine: {DIFFER}\n"
    table, errors = report(capsys, "--format", "csv")
    assert errors == f"mine: {DIFFER}\n"
    assert [row["passes"] for row in csv.DictReader(io.StringIO(table))] == ["30"] * 2 + ["90"] * 2 + ["30"] * 4
    out, errors = report(capsys, "--format", "parquet", "--out", "tables")
    assert errors == f"mine: {DIFFER}\n"
    parquet = importlib.import_module("pyarrow.parquet")
    assert parquet.read_table("tables/mine.parquet")["passes"].to_pylist()[2:4] == [90, 90]
    assert set(results.runs("mine.py").passes) == {30, 90}


def test_rows_of_equal_passes_have_no_note(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill()
    assert report(capsys)[0].endswith("|\n")


def test_groups_may_differ_and_a_table_without_groups_is_one(study: Study, preset: Preset, tmp_path: Path) -> None:
    rows = [study.rows[0], study.rows[2]]
    grouped = replace(study, rows=rows, columns=study.columns[:1])
    for request in expand(grouped, preset):
        store_run(tmp_path, request, 0.5, cost={"passes": (10, 50)[request.row]})
    build, store = component("reports.tables").build, DirectoryStore(tmp_path)
    assert build(grouped, preset, store).notes == ()
    (note,) = build(replace(grouped, group=None), preset, store).notes
    assert "Rows differ in training passes" in note and "10 (SPOS, no CaLR), 50 (Fair_NAS | 7, no CaLR)" in note


def test_a_note_stays_short_and_names_data_sets_where_they_differ(
    toy_project: Path, study: Study, preset: Preset, tmp_path: Path
) -> None:
    rows = [Row({"Rate": f"{rate}"}, {"optimiser.learning_rate": rate}) for rate in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)]
    many = Study("many", "Many", rows, study.columns[:1])
    two = replace(preset, datasets=("digits", "toy"))
    for request in expand(many, replace(preset, datasets=("digits",)), 2):
        passes = 40 + request.seed if request.row == 5 else 30
        store_run(tmp_path, request, 0.5, cost={"passes": passes})
    build, store = component("reports.tables").build, DirectoryStore(tmp_path)
    told = "30 (0.1; 0.2; 0.3; 2 more), 40 to 41 (0.6)."
    assert build(many, preset, store, 2).warnings[0].endswith(told)
    assert build(many, two, store, 2).warnings[0].endswith(f"{told} (digits)")


def test_more_seeds_than_the_table_takes_are_told_of(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(seeds=4)
    text, _ = report(capsys)
    assert "\n- Not in the table: 8 stored runs of seeds 2 to 3; --seeds 4 shows them.\n" in text
    assert "Not in the table" not in report(capsys, "--seeds", "4")[0]
    assert "Not in the table" not in report(capsys, "--seeds", "2")[0]  # asked for in so many words


@pytest.mark.parametrize(
    ("preset", "overrides", "told"),
    [
        ("demo", {}, "8 runs of this study are stored under preset demo: --preset demo"),
        (
            "tiny",
            {"train.epochs": 7, "optimiser.clip": None},
            "8 runs of this study are stored under preset tiny with train.epochs=7 optimiser.clip=null: "
            "--preset tiny with train.epochs=7 optimiser.clip=null",
        ),
    ],
)
def test_a_table_that_finds_nothing_says_where_the_runs_are(
    preset: str, overrides: dict[str, Any], told: str, mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(preset, overrides=overrides)
    assert f"\n- {told}\n" in report(capsys)[0]
    assert report(capsys, "--format", "csv")[1] == f"mine: {told}\n"
    # The options that it names find them all.
    _, _, options = told.rpartition(": ")
    assert main(["report", "mine.py", "--seeds", "2", "--strict", *options.split()]) == 0
    assert told not in capsys.readouterr().out


def test_a_report_of_no_study_at_all_says_so_too(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill("tiny")
    assert main(["report"]) == 2
    assert capsys.readouterr().err == (
        "error: no study has a run under preset demo in runs; 8 runs are stored under preset tiny: --preset tiny\n"
    )


def test_the_ablation_has_no_such_note(tmp_path: Path) -> None:
    study, tiny = find_studies("ablation_calr_ms")[0], get_preset("tiny")
    for request in expand(study, tiny):
        method, epochs = request.trial.config.method.name, request.trial.config.train.epochs
        passes = 3 * epochs * {"spos": 1, "fairnas": 5, "fsnas": 5}[method]
        store_run(tmp_path, request, 0.5, cost={"passes": passes})
    assert component("reports.tables").build(study, tiny, DirectoryStore(tmp_path)).warnings == ()
