"""`harness report --verdicts` on made-up stores: what was found, in lines below the table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.components.discovery import component
from harness.components.preset import get_preset
from harness.errors import InvalidConfiguration
from harness.statistics import t_power
from harness.stores.directory.store import DirectoryStore
from harness.study import Pilot
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from tests.stored_runs import store_run

REPORT = ["report", "nb201_main", "--preset", "tiny"]
NOISE = [0.010, 0.000, 0.004]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Rows with Ours are better by 0.2, with little noise."""
    for request in expand(find_studies("nb201_main")[0], get_preset("tiny")):
        noise = NOISE[(request.seed + request.row) % 3] * (1 + request.row % 3)
        store_run(tmp_path, request, 0.5 + 0.2 * (request.row % 2) + noise)
    monkeypatch.setenv("HARNESS_STORE", str(tmp_path))
    return tmp_path


def lines(text: str, start: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(f"- {start}")]


def test_below_the_table_are_verdicts_premises_and_power(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(REPORT) == 0
    plain = capsys.readouterr().out
    assert not lines(plain, "Ours improved")
    assert main([*REPORT, "--verdicts"]) == 0
    text = capsys.readouterr().out
    first, second = lines(text, "Ours ")
    assert first.startswith("- Ours improved Kendall's τ by 0.20") and first.endswith("2 seeds) on digits: supported.")
    assert second.startswith("- Ours against no Ours improved Top-1 acc. (%) by 0.00 (") and ": undecided" in second
    (premises,) = lines(text, "Premises of the paper's statements: ")
    assert "larger networks are better in this truth: is not known" in premises
    (power,) = lines(text, "Power of the plan, 2 seeds, with deviations by these runs, and effects by the paper")
    assert "It finds +0.0" in power and "on Kendall's τ by Ours with probability 0." in power
    # The table is the same, and no comparison is shown.
    assert [line for line in plain.splitlines() if line.startswith("|")] == [
        line for line in text.splitlines() if line.startswith("|")
    ]
    assert text.index("| Method") < text.index(first)


def test_a_pilot_tells_the_power_that_the_plan_had(store: Path) -> None:
    """Whatever the runs themselves vary by."""
    report: Any = component("reports.report")
    (study,) = find_studies("nb201_main")
    piloted = replace(study, pilots={"tiny": Pilot(0.05, 0.04, "8 seeds of two rows")})
    asked = report.Asked(get_preset("tiny"), verdicts=True)
    (section,) = report.judged([report.section(piloted, DirectoryStore(store), asked)])
    (power,) = [note for note in section.table.notes if note.startswith("Power of the plan")]
    # Six rows with weights of 1/3, two primary contrasts that share 4 %.
    known = t_power(0.05 / (0.04 * (6 / 9) ** 0.5), 2, 0.04 / 2, each=6)
    assert power.startswith("Power of the plan, 2 seeds, with deviations by the pilot (8 seeds of two rows). It finds ")
    assert f"+0.050 on Kendall's τ by Ours with probability {known:.2f}" in power
    assert "Top-1" not in power  # the pilot is about the main column
    with pytest.raises(InvalidConfiguration, match="the second must be above 0"):
        Pilot(0.05, 0.0, "")


def test_a_margin_needs_verdicts(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*REPORT, "--margin", "0.01"]) == 2
    assert "give --compare or --verdicts, too" in capsys.readouterr().err
    assert main([*REPORT, "--verdicts", "--margin", "0.01"]) == 0
