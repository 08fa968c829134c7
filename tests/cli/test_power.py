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
SPOS = "SPOS: Ours against no Ours (Kendall's τ, digits)"
TAUS = {0: [0.50, 0.52, 0.51], 1: [0.51, 0.53, 0.53]}
"""SPOS without and with: differences of 0.01, 0.01 and 0.02, so a mean of 0.0133 and a deviation of 0.0058."""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for request in expand(find_studies("nb201_main")[0], get_preset("tiny"), 3):
        if request.row in TAUS:
            store_run(tmp_path, request, TAUS[request.row][request.seed], cost={"wall_seconds": 1800.0})
    monkeypatch.setenv("HARNESS_STORE", str(tmp_path))
    return tmp_path


def line(text: str, which: str = SPOS) -> list[str]:
    """The numbers of a comparison: seeds alone and among all, hours, effect, deviation, seeds stored."""
    (found,) = [one for one in text.splitlines() if one.endswith(which)]
    return re.split(r"\s{2,}", found.strip())[:-1]


def test_seeds_and_hours_follow_from_stored_deviations(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(PLAN) == 0
    alone, among, hours, *rest = line(capsys.readouterr().out)
    assert (int(alone), rest) == (4, ["+0.0133", "0.0058", "3"])  # d = 2.3
    assert int(among) > int(alone)
    assert float(hours) == (int(among) - 3) * 2 * 0.5  # two rows, half an hour each


def test_an_effect_may_be_given_and_a_budget(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PLAN, "--effect", "0.0058"]) == 0
    assert line(capsys.readouterr().out)[0] == "10"  # d = 1
    assert main([*PLAN, "--effect", "0.0058", "--max-seeds", "3"]) == 0
    assert "0 can be decided within 3 seeds" in capsys.readouterr().out
    assert main([*PLAN, "--effect", "0.0058", "--hours", "0.1"]) == 0
    assert "within 30 seeds and 0.1 hours" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*PLAN[:-2], "--effect", "0.1"], "give --power 0.8"),
        ([*PLAN, "--effect", "kendal=0.1"], "did you mean 'kendall_tau'"),
        ([*PLAN[:-1], "1.5"], "1.5 is not in the range 0<x<1"),
        (["plan", "clustering", "--preset", "tiny", "--power", "0.8"], "has two seeds stored"),
    ],
)
def test_a_mistake_is_answered(
    arguments: list[str], message: str, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert message in capsys.readouterr().err
