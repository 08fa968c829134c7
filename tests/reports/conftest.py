"""A small study with everything that can go wrong in its store."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.components.preset import Preset, get_preset
from harness.study.expansion import expand
from harness.study.layout import Column, Row
from harness.study.study import Study
from tests.stored_runs import store_run

GOLDEN = Path(__file__).with_name("golden")

STUDY = Study(
    name="small",
    title="CaLR at 50 % & γ′ = {2}",
    paper="Table 0",
    rows=[
        Row({"Method_name": label, "CaLR": calr}, {"method.name": method} | ({"schedule.name": "calr"} if calr else {}))
        for method, label in [("spos", "SPOS"), ("fairnas", "Fair_NAS | 7")]
        for calr in (False, True)
    ]
    + [Row({"Method_name": "lone", "CaLR": True}, {"clusters.name": "operation"})],
    group="Method_name",
    columns=[
        Column("Kendall's τ", "kendall_tau", digits=3),
        Column("Top-1 (%)", "top1_accuracy", digits=1),
        Column("Memory", "peak_memory_bytes", digits=0, best="min"),
    ],
)


@pytest.fixture
def study() -> Study:
    return STUDY


@pytest.fixture
def preset() -> Preset:
    return replace(get_preset("tiny"), seeds=3)


@pytest.fixture
def names(tmp_path: Path, preset: Preset) -> dict[str, str]:
    """The store `tmp_path/runs` with some runs of the study; their ids, and the names that stand for them.

    Ids depend on every default of the configuration; golden files should not.
    """
    store = tmp_path / "runs"
    requests = {(request.row, request.seed): request for request in expand(STUDY, preset)}
    runs = {
        # Complete, and a tie in the shown accuracy.
        (0, 0): store_run(store, requests[0, 0], 0.50, 60.0),
        (0, 1): store_run(store, requests[0, 1], 0.52, 61.0),
        (0, 2): store_run(store, requests[0, 2], 0.57, 62.0),
        (1, 0): store_run(store, requests[1, 0], 0.61, 61.01, cost={"peak_memory_bytes": 2_000_000}),
        (1, 1): store_run(store, requests[1, 1], 0.60, 61.02, cost={"peak_memory_bytes": 2_000_000}),
        (1, 2): store_run(store, requests[1, 2], 0.62, 61.03, cost={"peak_memory_bytes": 2_000_000}),
        # One seed of three: against two seeds it does not compete. One diverged, one failed.
        (2, 0): store_run(store, requests[2, 0], 0.99, 99.0),
        (2, 1): store_run(store, requests[2, 1], diverged={"step": 7, "loss": None}),
        (2, 2): store_run(store, requests[2, 2], status="failed"),
        # Two seeds, one of which has no τ; the third was lost.
        (3, 0): store_run(store, requests[3, 0], -0.2, 50.0),
        (3, 1): store_run(store, requests[3, 1], None, 52.0),
        (3, 2): store_run(store, requests[3, 2], status="lost"),
        (4, 1): store_run(store, requests[4, 1], status="interrupted"),
        (4, 2): store_run(store, requests[4, 2], status="running"),
    }
    return {run.id: f"run-{row}-{seed}" for (row, seed), run in runs.items()}


@pytest.fixture
def golden(names: dict[str, str]) -> Callable[[str, str], None]:
    """Compares a text with a golden file; with UPDATE_GOLDEN set, writes it instead."""

    def compare(file: str, text: str) -> None:
        for run_id, name in names.items():
            text = text.replace(run_id, name)
        if os.environ.get("UPDATE_GOLDEN"):
            (GOLDEN / file).write_text(text)
        assert text == (GOLDEN / file).read_text()

    return compare
