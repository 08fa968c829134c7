"""Any-time curves: on a common grid, over all costs, in every format; and the time to a target τ."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.components.discovery import component
from harness.components.preset import get_preset
from harness.stores.directory.store import DirectoryStore
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from tests.stored_runs import store_run
from tests.toy import user_folder

anytime = component("reports.anytime")
report = component("reports.report")

MINE = """
from harness.study import Column, Row, Study

rows = [Row({"Method": name}, {"method.name": name, "train.epochs": 10}, points={"observe.kendall_tau_every": 5})
        for name in ("spos", "fairnas")]
study = Study("mine", "Mine", rows, [Column("τ", "kendall_tau")])
"""
CURVES = {
    # By row and seed, τ at the second and at the last epoch.
    ("spos", 0): (0.1, 0.5),
    ("spos", 1): (0.3, 0.7),
    ("fairnas", 0): (0.0, 0.25),
    ("fairnas", 1): (0.2, 0.35),
}


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with user_folder(tmp_path, {"mine.py": MINE}):
        for request in expand(find_studies("mine.py")[0], get_preset("tiny"), 2):
            config = request.trial.config
            first, last = CURVES[config.method.name, request.seed]
            steps = (2, config.train.epochs)
            observed = {
                "kendall_tau": [[step, tau] for step, tau in zip(steps, (first, last), strict=True)],
                "selected_top1": [[step, 60 + 10 * tau] for step, tau in zip(steps, (first, last), strict=True)],
                "selected_regret": [[step, 10 - 10 * tau] for step, tau in zip(steps, (first, last), strict=True)],
            }
            cost = {"passes": 1000, "stage_seconds": {"train": 36.0, "observe": 99.0}}
            store_run(Path("runs"), request, last, observed=observed, cost=cost)
        yield Path("runs")


def section(store: Path) -> Any:
    study = find_studies("mine.py")[0]
    return report.section(study, DirectoryStore(store), report.Asked(get_preset("tiny"), 2, figures=True))


def test_curves_are_means_on_a_common_grid_over_every_cost(store: Path) -> None:
    (figure,) = [one for one in section(store).figures if one.name == "anytime"]
    assert [(panel.y, panel.x) for panel in figure.panels] == [
        (y, x)
        for y in ("Kendall's τ", "Regret (points)", "Top-1 acc. (%)")
        for x in ("Passes", "Updates", "Seconds", "Device-hours")
    ]
    by_axis = {panel.x: {curve.label: curve for curve in panel.curves} for panel in figure.panels[:4]}
    spos = by_axis["Passes"]["spos"]
    # 1,000 passes in all; the last point is at the end of training.
    assert spos.x[-1] == pytest.approx(1000) and spos.y[-1] == pytest.approx(0.6)
    assert (spos.low[-1], spos.high[-1]) == (pytest.approx(0.5), pytest.approx(0.7))
    share = (spos.x[20] - spos.x[0]) / (spos.x[-1] - spos.x[0])
    assert spos.y[20] == pytest.approx(0.2 + 0.4 * share)
    # Five paths per update; seconds without observing; one device.
    assert by_axis["Updates"]["fairnas"].x[-1] == pytest.approx(200)
    assert by_axis["Seconds"]["spos"].x[-1] == pytest.approx(36)
    assert by_axis["Device-hours"]["spos"].x[-1] == pytest.approx(0.01)
    regret = {curve.label: curve for curve in figure.panels[4].curves}["spos"]
    assert regret.y[-1] == pytest.approx(4.0)


def test_the_grid_is_where_all_seeds_are() -> None:
    places, values = anytime.on_grid([[(0, 0.0), (10, 1.0)], [(4, 1.0), (9, 2.25)]], [0, 2, 4, 6, 8, 10])
    assert places == [4, 6, 8, 9] and values == [pytest.approx([x / 10, x / 4]) for x in places]


def test_the_target_is_what_every_row_reaches(store: Path) -> None:
    (grid,) = section(store).anytime
    cells = {row[0]: dict(zip(grid.headings, row, strict=True)) for row in grid.rows}
    assert cells["fairnas"]["Final τ"] == "0.300" and cells["spos"]["Target τ"] == "0.30"
    # Seed 1 of SPOS is there at its second epoch, seed 0 at the end; of FairNAS one seed is.
    epochs = find_epochs()
    assert cells["spos"]["Seeds that reach it"] == "2 of 2" and cells["fairnas"]["Seeds that reach it"] == "1 of 2"
    assert float(cells["spos"]["Passes"]) == pytest.approx((1000 + 1000 * 2 / epochs) / 2, abs=1)


def find_epochs() -> int:
    (one, *_) = expand(find_studies("mine.py")[0], get_preset("tiny"), 1)
    return one.trial.config.train.epochs


@pytest.mark.parametrize("form", ["markdown", "latex", "csv", "html"])
def test_every_format_has_the_figure_and_the_table(
    form: str, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["report", "mine.py", "--preset", "tiny", "--seeds", "2", "--format", form, "--out", "out"]
    assert main(command) == 0
    out = tmp_path / "out"
    assert {"mine-anytime.svg", "mine-anytime.pdf", "mine-anytime.csv"} <= {file.name for file in out.iterdir()}
    if form == "html":
        page = (out / "index.html").read_text()
        assert "any-time performance" in page and "Time to a target" in page
    elif form == "latex":
        assert "mine-anytime" in (out / "mine-figures.tex").read_text()
        assert "Target" in (out / "mine-target.tex").read_text()
        assert "mine-target" in (out / "main.tex").read_text()
    elif form == "markdown":
        assert "Target τ" in (out / "mine-target.md").read_text()
    else:
        assert "Target τ" in (out / "mine-target.csv").read_text()
    with (out / "mine-anytime.csv").open() as file:
        assert {row["label"] for row in csv.DictReader(file)} == {"spos", "fairnas"}
