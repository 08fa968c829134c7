"""The control study of CaLR: five schedules per method under every preset, and its columns in every format."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli import main
from harness.components.preset import get_preset
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from tests.stored_runs import store_run

COLUMNS = ("τ by loss", "τ by accuracy", "Partial τ", "CB", "CB z", "C³", "C³ z")
VALUES = {
    "kendall_tau_by_loss": 0.688,
    "kendall_tau_by_accuracy": 0.656,
    "partial_tau": 0.438,
    "complexity_bias": 0.562,
    "complexity_bias_null": 0.5,
    "complexity_bias_z": 1.3,
    "complexity_convergence": 0.125,
    "complexity_convergence_null": 0.1,
    "complexity_convergence_z": 2.6,
}


@pytest.mark.parametrize("preset", ["tiny", "demo", "small"])
def test_each_method_has_five_schedules_under_every_preset(preset: str) -> None:
    (study,) = find_studies("calr_control")
    configs = [one.trial.config for one in expand(study, get_preset(preset), 1)]
    schedules = [(config.schedule.name, config.schedule.options.get("function") == "reversed") for config in configs]
    five = [("cosine", False), ("calr-mean", False), ("calr-permuted", False), ("calr", False), ("calr", True)]
    assert schedules == 3 * five
    assert [config.method.name for config in configs] == [name for name in ("spos", "fairnas", "fsnas") for _ in five]
    assert all(config.rank.top_share for config in configs)  # without it there are no CB and C³


@pytest.mark.parametrize("form", ["markdown", "latex", "csv", "html"])
def test_every_format_shows_its_columns_and_primary_contrasts(form: str, tmp_path: Path) -> None:
    (study,) = find_studies("calr_control")
    store, out = tmp_path / "runs", tmp_path / "out"
    for request in expand(study, get_preset("tiny"), 1):
        if request.trial.config.method.name == "spos":
            store_run(store, request, 0.656, more=VALUES)
    where = ["--where", "method.name == 'spos'", "--seeds", "1", "--preset", "tiny", "--no-figures"]
    command = ["report", "calr_control", *where, "--compare", "--format", form, "--store", str(store)]
    assert main([*command, "--out", str(out)]) == 0
    text = "".join(file.read_text() for file in out.iterdir())
    nulls = ("complexity_bias_null", "complexity_convergence_null")
    assert all(str(value) in text for name, value in VALUES.items() if name not in nulls)
    if form != "latex":
        assert all(column in text for column in COLUMNS)
    for control in ("same average rate", "permuted"):
        assert f"CaLR against {control}" in text
