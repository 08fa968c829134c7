"""`harness plan --power` on a made-up store."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.cli import main
from harness.components.preset import get_preset
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from tests.stored_runs import store_run

PLAN = ["plan", "nb201_main", "--preset", "tiny", "--power", "0.8"]
OURS = "Ours (Kendall's τ, digits)"
TAUS = [0.50, 0.52, 0.51]
"""Of every row: a deviation of 0.01."""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for request in expand(find_studies("nb201_main")[0], get_preset("tiny"), 3):
        store_run(tmp_path, request, TAUS[request.seed] + request.row / 7, cost={"wall_seconds": 1800.0})
    monkeypatch.setenv("HARNESS_STORE", str(tmp_path))
    return tmp_path


def line(text: str, which: str = OURS) -> list[str]:
    """The numbers of a comparison: effect, more seeds, seeds, hours, deviation, seeds stored."""
    (found,) = [one for one in text.splitlines() if one.endswith(which)]
    return re.split(r"\s{2,}", found.strip())[:-1]


def test_seeds_and_hours_follow_from_the_named_effect_and_stored_deviations(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*PLAN, "--effect", "0.008"]) == 0
    effect, more, seeds, hours, deviation, stored = line(capsys.readouterr().out)
    # The rows of FSNAS move alike. Of SPOS and FairNAS, rows with MS draw one edge and may move together, others do
    # not: 0.01 · √((2/3)² + 2 · (1/3)²).
    assert (effect, deviation, stored) == ("+0.008", "0.0082", "3")
    assert 3 < int(seeds) < 20
    assert int(more) == int(seeds) - 3
    assert float(hours) == int(more) * 6 * 0.5  # six rows, half an hour each
    assert main([*PLAN, "--effect", "0.004"]) == 0
    assert int(line(capsys.readouterr().out)[2]) > int(seeds)


def test_a_budget_may_be_given(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PLAN, "--effect", "0.008", "--max-seeds", "3"]) == 0
    assert "0 can be decided within 3 seeds" in capsys.readouterr().out
    assert main([*PLAN, "--effect", "0.008", "--hours", "0.1"]) == 0
    assert "within 30 seeds and 0.1 hours" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*PLAN[:-2], "--effect", "0.1"], "give --power 0.8"),
        ([*PLAN, "--effect", "kendal=0.1"], "did you mean 'kendall_tau'"),
        (PLAN, "name the effect to find"),
        ([*PLAN, "--effect", "stage_seconds.train=0.1"], "no effect is named for the columns"),
        ([*PLAN[:-1], "1.5"], "1.5 is not in the range 0<x<1"),
        (["plan", "clustering", "--preset", "tiny", "--power", "0.8", "--effect", "0.1"], "has two seeds stored"),
    ],
)
def test_a_mistake_is_answered(
    arguments: list[str], message: str, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert message in capsys.readouterr().err
