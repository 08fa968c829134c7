"""Three stages on a user's space of 10^30 architectures without a table of truth, each killed with SIGKILL."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import results
from harness.cli import main
from harness.components.registries import SPACES
from harness.execution.job import run_job
from harness.execution.plan import make_plan
from harness.stores.directory.store import DirectoryStore
from harness.stores.stored import StoredRun
from harness.study.catalogue import find_studies
from harness.study.trial import Trial
from tests.huge import FILES
from tests.toy import user_folder

RUN = ["run", "three", "--preset", "tiny", "--seeds", "1", "--jobs", "1", "--checkpoint-every", "0"]
DEATHS = (("train", 3), ("search", 17), ("retrain", 2))
"""The stages that are killed, and at which evaluation of a network."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A user's folder with the space, the study, and a store of all three stages that were left alone."""
    with user_folder(tmp_path_factory.mktemp("huge"), FILES) as folder:
        for trial in trials():
            assert job(trial, "whole")["status"] == "done"
        yield folder


def trials(**overrides: Any) -> list[Trial]:
    """The trials of the study, parents first."""
    plan = make_plan(find_studies("three"), "tiny", [], seeds=1, overrides=overrides)
    return [work.trial for work in plan.work]


def job(trial: Trial, store: str, kind: str = "train") -> dict[str, Any]:
    """What a training process does, in this one."""
    asked = {"kind": kind, "trial": trial.json(), "store": store, "preset": "tiny", "overrides": {}, "threads": 1}
    return run_job({**asked, "device": "cpu", "checkpoint_every": 0.0}, lambda report: None)


def died(trial: Trial, store: str, kind: str = "train") -> bool:
    """Whether the job ended by SIGKILL, in a process of its own."""
    child = os.fork()
    if not child:
        os._exit(0 if job(trial, store, kind)["status"] == "done" else 1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def done(store: str) -> dict[tuple[bool, int], StoredRun]:
    """The runs that count, by whether they retrain, and which."""
    runs = [run for run in DirectoryStore(Path(store)).runs() if run.counts]
    stages = [run.trial["config"].get("retrain") for run in runs]
    return {(one is not None, (one or {}).get("which", 0)): run for one, run in zip(stages, runs, strict=True)}


def outcome(store: str, run: StoredRun) -> dict[str, Any]:
    """What must be the same however a run was made."""
    folder = Path(store) / run.id
    result = json.loads((folder / "result.json").read_text())["result"]
    curves = json.loads((folder / "metrics.json").read_text())
    points = {name: [curve["steps"], curve["values"]] for name, curve in curves.items()}
    return {"result": result, "points": points} | {
        name: (folder / name).read_bytes() for name in ("predictions.json", "weights.pt")
    }


def kill_later() -> None:
    for stage, calls in DEATHS:
        Path(f"die-{stage}").write_text(str(calls))


def assert_same(store: str) -> None:
    """The store holds the bytes of the one that was left alone, and what was killed was resumed."""
    whole, killed = done("whole"), done(store)
    assert whole.keys() == killed.keys() == {(False, 0), (True, 0), (True, 1)}
    for which, run in whole.items():
        assert outcome(store, killed[which]) == outcome("whole", run), which
    resumed = {which: (run.cost or {})["resumed"] for which, run in killed.items()}
    assert resumed == {(False, 0): 2, (True, 0): 1, (True, 1): 0}


def test_every_stage_resumes_to_the_same_bytes(project: Path) -> None:
    kill_later()
    supernet, first, second = trials()
    deaths = [died(supernet, "killed"), died(supernet, "killed"), died(supernet, "killed")]  # train, search, the end
    assert deaths + [died(one, "killed") for one in (first, first, second)] == [True, True, False, True, False, False]
    assert_same("killed")


@pytest.mark.long
def test_the_same_by_the_command_line(project: Path) -> None:
    kill_later()
    again = [*RUN, "--store", "commanded", "--retry", "failed"]
    for left in (2, 1, 0):  # each time one more stage ends by SIGKILL
        assert main(again) == 1
        assert len(list(project.glob("die-*"))) == left
    assert main(again) == 0
    assert_same("commanded")


def test_what_was_found_keeps_the_limits_and_each_is_retrained(project: Path) -> None:
    runs, space = done("whole"), SPACES.get("huge")()
    result = runs[False, 0].result
    assert result is not None
    found = [tuple(one["architecture"]) for one in result["found"]]
    counted = [space.complexity(one) * 6 // 4 for one in found]  # the network has 6 channels, its default is 4
    assert len(set(found)) == 2 and all(200 <= parameters <= 230 for parameters in counted)
    assert [one["score"] for one in result["found"]] == sorted((o["score"] for o in result["found"]), reverse=True)
    retrained = [runs[True, which].result or {} for which in (0, 1)]
    assert [tuple(one["top1"]) for one in retrained] == found
    assert all(0 <= one["retrained_accuracy"] <= 100 for one in retrained)
    assert result["kendall_tau"] is None and result["top1_accuracy"] is None and result["ranked"] == 10


def test_every_scored_architecture_is_stored_by_its_number(project: Path) -> None:
    run, space = done("whole")[False, 0], SPACES.get("huge")()
    result = run.result or {}
    assert result["scored"] == {"0": 2, "16": 12}
    document = json.loads((Path("whole") / run.id / "predictions.json").read_text())
    rough = {space.architecture(int(number)) for number in document["rough"]["16"]}
    known = DirectoryStore(Path("whole")).predictions(run)
    assert len(rough) == 12 and len(known) == 10 + 2 and max(known) > 2**63
    finalists = rough & {space.architecture(number) for number in known}
    assert {tuple(one["architecture"]) for one in result["found"]} <= finalists
    table = results.predictions(results.runs(store="whole", where="ranked > 0"))
    assert set(table.architecture) == {space.format(space.architecture(number)) for number in known}


def test_networks_have_the_settings_of_their_stage(project: Path) -> None:
    import torch

    runs = done("whole")
    for which, channels in {(False, 0): 6, (True, 0): 8}.items():
        (weights,) = torch.load(Path("whole") / runs[which].id / "weights.pt", weights_only=True)
        assert len(weights["stem.weight"]) == channels
    assert runs[False, 0].trial["config"]["network"] == {"channels": 6, "slope": 0.1}


def test_the_report_shows_what_there_is(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "three", "--preset", "tiny", "--seeds", "1", "--store", "whole"]) == 0
    text = capfd.readouterr().out
    assert "channels 6, retrained for 2 epochs" in text
    assert "τ, Top-1 have no value, because there is no table of truth" in text
    for kind in ("html", "latex", "csv"):
        assert main(["report", "--format", kind, "--out", "out", *RUN[1:6], "--store", "whole"]) == 0


def test_another_search_is_made_with_the_stored_weights(project: Path) -> None:
    supernet, first, _ = trials(**{"search.finalists": 5})
    before = done("whole")[False, 0]
    assert before.key == supernet.key and supernet.ranking_key not in before.rankings
    assert "no done search" in job(first, "whole")["error"]
    assert job(supernet, "whole", "rank")["status"] == "done"
    searched = done("whole")[False, 0]
    assert searched.id == before.id
    assert [one["scored"] for one in searched.rankings.values()] == [{"0": 2, "16": 12}, {"0": 5, "16": 12}]
    assert first.key not in {run.key for run in done("whole").values()} and job(first, "whole")["status"] == "done"
