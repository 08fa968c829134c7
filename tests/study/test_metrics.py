"""A study that names a metric which no run has is refused when it is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cli import main
from harness.components import discovery
from harness.errors import InvalidConfiguration
from harness.study.catalogue import all_studies, find_studies
from tests.test_documents import example_files

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
    'one(metrics={"kendall_tau": "rank"})': r"did you mean 'ranks'\?",
    'one(points={"observe.kendal_tau_every": 5})': r"points of row .*; did you mean 'observe.kendall_tau_every'\?",
    'one(points={"observe.spread": 5})': "points of row .*no curve is named 'observe.spread'",
    'one(panels=[Curves("", "", [Line("a", row, "kendall_tau")])])': r"line 'a': row \('SPOS',\) does not observe",
    'one(panels=[Curves("", "", [Line("a", {"Method": "SPSO"}, "train_loss")])])': "0 rows are labelled {.*'SPSO'}",
    'one([Column("s", "valid_loss_smal")], points={"observe.subnets_every": 5})': r"did you mean 'valid_loss_small'\?",
    'one([Column("s", "mgcs_one")], settings={"observe.gradient_similarity": True})': "no metric is named 'mgcs_one'",
    'one(settings={"rank.metrics": ["regre"]})': r"rank.metrics of row \('SPOS',\): .* did you mean 'regret'\?",
    'one(settings={"observe": {"own": ["weight_norm"]}})': r"observe.own of row .* did you mean 'weight-norm'\?",
    'one([Column("r", "regret_worst")])': r"did you mean 'regret'\?",
    'one([Column("n", "kendal_tau")], settings={"observe.own": ["weight-norm"]})': r"did you mean 'kendall_tau'\?",
    'one(panels=[Curves("", "", [Line("a", row, "regret")])])': "no metric is named 'regret'",
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
    # Registered metrics and observations; what an observation calls its curves is its own affair.
    'one([Column("r", "regret")], settings={"rank.metrics": ["regret"]})',
    'one([Column("n", "weight_norm"), Column("s", "weight_norm_stem")])',
    'one([Column("f", "flatness")], settings={"observe.own": ["weight-norm"]})',
    'one(panels=[Curves("", "", [Line("a", row, "weight_norm")])], settings={"observe.own": ["weight-norm"]})',
]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with discovery.fresh():
        monkeypatch.chdir(tmp_path)
        (tmp_path / "methods").mkdir()
        (tmp_path / "methods" / "measures.py").write_text(example_files()["methods/measures.py"])
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


def test_a_registered_metric_that_no_row_asks_for_is_refused_before_anything_runs(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "mine.py").write_text(STUDY + 'study = one([Column("R", "regret")])')
    for command in ("plan", "run"):
        assert main([command, "mine.py", "--preset", "tiny", "--store", str(project)]) == 2
        said = capsys.readouterr().err
        assert "study mine: column 'R' shows the metric 'regret', but no row asks for it; set \"rank.metrics\"" in said
    assert (
        main(["plan", "mine.py", "--preset", "tiny", "--store", str(project), "with", "rank.metrics=['regret']"]) == 0
    )


def test_ours_are_all_loaded() -> None:
    assert len(all_studies()) >= 14
