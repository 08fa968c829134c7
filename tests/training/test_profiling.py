"""`run --profile`: a breakdown whose parts add up, a trace that can be opened, and the same result as without."""

from __future__ import annotations

import gzip
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.cli import main
from harness.stores.directory.store import DirectoryStore
from harness.study.configuration import RunConfig
from harness.study.trial import Trial
from harness.training.profiling import PHASES, TRACED, Phases, phase, profiled
from tests.jobs import run_job


@pytest.fixture(scope="module")
def trial() -> Trial:
    return Trial(
        RunConfig.from_json(
            {
                "network": {"width": 2, "depth": 1},
                "train": {"epochs": 2, "batch_size": 128},
                "rank": {"images": 32, "candidates": 3, "bins": 5},
            }
        )
    )


def run(trial: Trial, store: Path, profile: bool) -> dict[str, Any]:
    shared = {"store": str(store), "preset": "tiny", "overrides": {}, "threads": 1, "device": "cpu"}
    return run_job({"kind": "train", "trial": trial.json(), "profile": profile, **shared}, lambda report: None)


def test_a_profiled_trial_gives_the_same_result_and_says_where_its_time_went(trial: Trial, tmp_path: Path) -> None:
    begin = time.perf_counter()
    answer = run(trial, tmp_path / "profiled", True)
    took = time.perf_counter() - begin
    assert answer["status"] == "done"
    assert answer["result"] == run(trial, tmp_path / "plain", False)["result"]
    assert not (tmp_path / "plain" / "profiles").exists()
    folder = tmp_path / "profiled" / "profiles" / answer["run_id"]
    lines = (folder / "breakdown.txt").read_text().splitlines()
    seconds = {line.split()[0]: float(line.split()[1]) for line in lines[3 : 3 + len(PHASES) + 2]}
    assert set(seconds) == {*PHASES, "other", "all"}
    whole = seconds.pop("all")
    assert sum(seconds.values()) == pytest.approx(whole, abs=0.01)
    assert 0 < whole < took
    assert all(seconds[phase] > 0 for phase in ("forward", "backward", "evaluate"))
    # 1,536 images in batches of 128, two epochs.
    assert next(line for line in lines if line.startswith("forward")).split()[3] == "24"
    with gzip.open(folder / "trace.json.gz") as file:
        events = json.load(file)["traceEvents"]
    assert sum(event.get("name") == "harness: forward" and event.get("ph") == "X" for event in events) == TRACED


def test_outside_of_a_profile_a_phase_does_nothing_and_an_error_ends_it(tmp_path: Path) -> None:
    nothing = phase("forward")
    with pytest.raises(ZeroDivisionError), profiled(tmp_path, "title", torch.device("cpu")):
        assert phase("forward") is not nothing
        with phase("forward"):
            raise ZeroDivisionError
    assert phase("forward") is nothing
    text = (tmp_path / "breakdown.txt").read_text()
    assert text.startswith("title\n") and "no trace" in text
    assert next(line for line in text.splitlines() if line.startswith("forward")).split()[3] == "1"


def test_passes_that_only_choose_are_time_of_sampling() -> None:
    phases = Phases()
    phases.enter("sampling")
    phases.enter("forward")
    phases.leave()
    phases.leave()
    phases.enter("forward")
    phases.leave()
    assert (phases.calls["sampling"], phases.calls["forward"]) == (2, 1)


def test_an_inner_phase_counts_once() -> None:
    phases = Phases()
    phases.enter("evaluate")
    phases.enter("logging")
    time.sleep(0.02)
    phases.leave()
    phases.leave()
    assert phases.seconds["logging"] >= 0.02 > phases.seconds["evaluate"]


def test_the_command_profiles_one_trial(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(tmp_path / "runs")
    arguments = ["run", "ablation_calr_ms", "--preset", "tiny", "--only", "method.name=spos", "--seeds", "1"]
    arguments += ["--only", "schedule.name=cosine", "--store", store, "--profile", "--no-references"]
    more = ["with", "train.epochs=1", "rank.bins=3", "rank.candidates=1"]
    assert main([*arguments, *more]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^backward +\d", shown, re.MULTILINE)
    assert len(list(Path(store).glob("profiles/*/breakdown.txt"))) == 1
    assert len(DirectoryStore(Path(store)).ids()) == 2
    assert main([*arguments, *more]) == 0
    assert "nothing to profile" in capsys.readouterr().err
