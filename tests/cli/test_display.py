"""What `run` shows: lines where nobody watches, a live table on a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from harness.cli._display import Display, duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (60, "1 min 00 s"),
        (3599.6, "1 h 00 min"),
        (7500, "2 h 05 min"),
    ],
)
def test_durations_for_readers(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def follow(display: Display) -> None:
    """Three trials: one done, one failed, one that runs."""
    display.started(0, "SPOS seed 0")
    display.progress(0, {"event": "start", "run_id": "x-1"})
    display.started(1, "SPOS CaLR seed 0")
    display.finished(0, {"status": "done", "result": {"kendall_tau": 0.12345}})
    display.finished(1, {"status": "failed", "error": "[it] broke"})
    display.started(2, "SPOS MS seed 0")
    display.progress(2, {"event": "epoch", "step": 1, "steps": 5, "loss": 2.25, "tau": None})
    display.progress(2, {"event": "epoch", "step": 2, "steps": 5, "loss": 2.125, "tau": 0.5})


def test_plain_lines_when_nobody_watches() -> None:
    out = io.StringIO()
    with Display(4, Console(file=out, highlight=False, width=40)) as display:
        follow(display)
    assert out.getvalue().splitlines() == [
        "SPOS seed 0: started",
        "SPOS CaLR seed 0: started",
        "[1/4] SPOS seed 0: done after 0.0 s, τ 0.123",
        "[2/4] SPOS CaLR seed 0: failed after 0.0 s, [it] broke",
        "SPOS MS seed 0: started",
    ]


def test_a_table_of_what_runs_on_a_terminal() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100)
    with Display(4, console) as display:
        follow(display)
        plain = Console(file=io.StringIO(), width=100)
        with plain.capture() as captured:
            plain.print(display.table())
    heading, trial, counts = (line.strip() for line in captured.get().splitlines())
    assert heading.split() == ["trial", "stage", "step", "loss", "τ", "time", "left"]
    assert " ".join(trial.split()).startswith("SPOS MS seed 0 epoch 2/5 2.125 0.500 ")
    assert counts == "1 done, 1 running, 1 waiting, 1 failed"
    assert "failed after" in out.getvalue()


def test_ranking_keeps_what_training_said() -> None:
    with Display(1, Console(file=io.StringIO())) as display:
        display.started(0, "SPOS seed 0")
        display.progress(0, {"event": "epoch", "step": 5, "steps": 5, "loss": 2.0, "tau": 0.5})
        display.progress(0, {"event": "rank", "step": 3, "steps": 25})
        trial = display.running[0]
        shown = (trial.stage, trial.step, trial.steps, trial.loss, trial.tau, trial.left)
        assert shown == ("ranking", 3, 25, 2.0, 0.5, None)
