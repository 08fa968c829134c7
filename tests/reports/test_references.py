"""Reference rows: computed once, kept in the store, recomputed when what they depend on changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.components.discovery import component
from harness.components.preset import Preset
from harness.stores.directory.store import DirectoryStore
from harness.study.layout import Column, Row
from harness.study.study import Study

TOY = Preset(
    "toy",
    "for this test",
    seeds=2,
    datasets=("toy",),
    settings={"space": "toy", "network.width": 2, "network.depth": 1, "rank.bins": 9, "rank.images": 20},
)
STUDY = Study(
    "one",
    "One",
    [Row({"CaLR": False, "Method": "SPOS"})],
    [Column("τ", "kendall_tau"), Column("Top-1", "top1_accuracy", digits=1), Column("Passes", "passes")],
    group="Method",
)


def references(store: Path, preset: Preset = TOY) -> list[Any]:
    rows = component("reports.tables").build(STUDY, preset, DirectoryStore(store), references=True).blocks[-1]
    return list(rows)


def test_untrained_parameters_and_random_are_judged_as_runs_are(toy_project: Path, tmp_path: Path) -> None:
    rows = references(tmp_path)
    assert [(row.name, row.labels) for row in rows] == [
        ("untrained", (None, "Untrained supernet")),
        ("parameters", (None, "Number of parameters")),
        ("random", (None, "Random numbers")),
    ]
    by_name = {row.name: row.values for row in rows}
    # Not one of the seeds has a part in the number of parameters.
    tau, accuracy, passes = by_name["parameters"]
    assert (len(tau.numbers), tau.deviation, accuracy.deviation) == (2, "0.000", "0.0")
    assert len(set(by_name["random"][0].numbers)) == 2
    assert [one.run_id for one in tau.measurements] == ["reference parameters"] * 2
    # A cost is not measured of them, and not missed.
    assert (passes.mean, passes.count) == ("", "")
    assert not any(value.best for row in rows for value in row.values)


def test_a_second_report_reads_them_from_the_store(
    toy_project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = references(tmp_path)
    files = sorted((tmp_path / "references").iterdir())
    assert len(files) == 6 and all(file.suffix == ".json" for file in files)
    stamps = [file.stat().st_mtime_ns for file in files]
    assert references(tmp_path) == first
    assert [file.stat().st_mtime_ns for file in files] == stamps
    # A damaged one is computed again; a store with references only has no runs and no problems.
    files[0].write_text('{"half')
    assert references(tmp_path) == first
    assert files[0].read_text().startswith('{\n "reference"')
    store = DirectoryStore(tmp_path)
    assert (store.runs(), store.problems) == ([], [])
