"""The study of CaLR's premise: both tasks under every schedule, each judged by its own table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.cli import main
from harness.components.discovery import component
from harness.components.preset import get_preset
from harness.components.registries import DATASETS
from harness.study.catalogue import all_studies, find_studies
from harness.study.expansion import expand
from harness.study.study import Study
from harness.truth.table import Table

FILE = Path(__file__).parents[2] / "studies" / "_premise.py"


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    """With a made-up table of `digits-polar`: the accuracies on `digits`, reversed."""
    official = component("spaces.nasbench201.benchmark.official")
    if not official.POLAR.is_file():
        digits = Table.read(official.EMBEDDED)
        images = {split: len(getattr(DATASETS.get("digits-polar")(), split)) for split in ("train", "valid", "test")}
        provenance = digits.provenance | {"dataset": "digits-polar", "images": images}
        reversed_ = {split: np.uint16(1000) - getattr(digits, split) for split in ("valid", "test")}
        replace(digits, provenance=provenance, **reversed_).write(tmp_path / "tables" / "digits-polar.npz")
    monkeypatch.setenv("HARNESS_BENCHMARKS", str(tmp_path / "tables"))
    monkeypatch.setenv("HARNESS_STORE", str(tmp_path / "runs"))
    (found,) = find_studies(str(FILE))
    return found


def test_it_crosses_tasks_and_schedules_and_ranks_by_loss(study: Study) -> None:
    configs = [one.trial.config for one in expand(study, get_preset("demo"), seeds=1)]
    assert [(config.dataset, config.benchmark) for config in configs] == [("digits",) * 2] * 5 + [
        ("digits-polar",) * 2
    ] * 5
    schedules = [(config.schedule.name, config.schedule.options.get("function")) for config in configs]
    assert schedules[:5] == schedules[5:] and len(set(schedules)) == 5
    assert {config.rank.by for config in configs} == {"loss"}
    assert "premise" not in [one.name for one in all_studies()]  # its table is not finished


def test_both_tasks_run_and_the_report_shows_how_far_larger_is_better(study: Study, tmp_path: Path) -> None:
    asked = [str(FILE), "--preset", "tiny", "--seeds", "1"]
    cosine = ["with", "schedule.name=cosine"]
    assert main(["run", *asked, *cosine]) == 0
    out = tmp_path / "out"
    assert main(["report", *asked, "--references", "--format", "markdown", "--out", str(out), *cosine]) == 0
    shown = (out / "premise.md").read_text()
    for task in ("digits", "digits-polar"):
        assert f"Number of parameters (benchmark={task}, dataset={task})" in shown
