"""A study that names a metric which no run has is refused when it is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cli import main
from harness.components import discovery
from harness.components.registries import REGISTRIES
from harness.components.registry import Registry
from harness.errors import InvalidConfiguration
from harness.study.catalogue import all_studies, find_studies

STUDY = """
from harness.study import Column, Row, Study
from harness.study.layout import Bars, Curves, Figure, Line, Scatter

tau = Column("τ", "kendall_tau")
row = {"Method": "SPOS"}

def one(columns=(tau,), panels=(), **more):
    return Study("mine", "Mine", [Row(row, **more)], list(columns), figures=[Figure("f", "F", list(panels))])

"""
REFUSED = {
    'one([Column("τ", "kendal_tau")])': r"column 'τ': no metric is named 'kendal_tau'; did you mean 'kendall_tau'\?",
    'one([Column("h", "wall_second")])': r"did you mean 'wall_seconds'\?",
    'one([Column("h", "stage_second.train")])': r"no metric is named 'stage_second.train'",
    'one([Column("top", "top1")])': "no metric is named 'top1'",
    'one([Column("CB", "complexity_bias", best="nearest", reference="neutral_bias")])': "the reference of column 'CB'",
    'one([Column("s", "gradient_spread")])': "no row observes 'gradient_spread'; set observe.spread in",
    'one([Column("s", "gradient_spred")], settings={"observe.spread": True})': r"did you mean 'gradient_spread'\?",
    'one(metrics={"kendal_tau": "ranked"})': r"no column's metric is named 'kendal_tau'; did you mean 'kendall_tau'\?",
    'one(metrics={"kendall_tau": "rank"})': r"did you mean 'ranked'\?",
    'one(points={"observe.kendal_tau_every": 5})': r"points of row .*; did you mean 'observe.kendall_tau_every'\?",
    'one(points={"observe.spread": 5})': "points of row .*no curve is named 'observe.spread'",
    'one(panels=[Curves("", "", [Line("a", row, "kendall_tau")])])': "line 'a': no row observes 'kendall_tau'",
    'one(panels=[Bars("", Column("b", "rankd"))])': r"column 'b': .*did you mean 'ranked'\?",
    'one(panels=[Scatter("", tau, Column("y", "pases"))])': r"column 'y': .*did you mean 'passes'\?",
}
LOADED = [
    'one([Column("h", "stage_seconds.train"), Column("m", "training_memory_bytes")])',
    'one([Column("s", "momentum_spread")], settings={"observe.spread": True})',
    'one([Column("s", "valid_loss_small")], points={"observe.subnets_every": 5})',
    'one([Column("MGCS", "mgcs")], settings={"observe": {"gradient_similarity": True}}, metrics={"mgcs": "mgcs_3"})',
    'one(panels=[Curves("", "", [Line("a", row, "kendall_tau")])], points={"observe.kendall_tau_every": 5})',
    'one(panels=[Scatter("", Column("x", "passes"), tau), Bars("", tau)])',
]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with discovery.fresh():
        monkeypatch.chdir(tmp_path)
        yield tmp_path


@pytest.mark.parametrize("text", REFUSED)
def test_a_metric_that_no_run_has_is_refused(text: str, project: Path) -> None:
    (project / "mine.py").write_text(STUDY + f"study = {text}")
    with pytest.raises(InvalidConfiguration, match=f"mine.py: study mine: .*{REFUSED[text]}"):
        find_studies("mine.py")


@pytest.mark.parametrize("text", LOADED)
def test_numbers_and_curves_that_rows_observe_are_metrics(text: str, project: Path) -> None:
    (project / "mine.py").write_text(STUDY + f"study = {text}")
    assert [study.name for study in find_studies("mine.py")] == ["mine"]


def test_a_command_says_it_in_one_line(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "mine.py").write_text(STUDY + 'study = one([Column("τ", "kendal_tau")])')
    for command in ("plan", "run", "report"):
        assert main([command, "mine.py"]) == 2
        assert "did you mean 'kendall_tau'?" in capsys.readouterr().err


def test_components_may_add_metrics(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own: Registry[object] = Registry("metric")
    own.register("regret")(object())
    monkeypatch.setattr("harness.study.metrics.REGISTRIES", {**REGISTRIES, "metrics": own})
    (project / "mine.py").write_text(STUDY + 'study = one([Column("r", "regret"), Column("w", "regret_worst")])')
    assert find_studies("mine.py")
    (project / "mine.py").write_text(STUDY + 'study = one([Column("r", "regrets")])')
    with discovery.fresh(), pytest.raises(InvalidConfiguration, match=r"did you mean 'regret'\?"):
        find_studies("mine.py")


def test_ours_are_all_loaded() -> None:
    assert len(all_studies()) >= 14
