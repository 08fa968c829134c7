"""All stages on a user's space of 10^30 architectures without a table of truth, each killed with SIGKILL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness import results
from harness.cli import main
from harness.components.preset import get_preset
from harness.components.registries import SPACES
from harness.errors import InvalidConfiguration
from harness.stores.directory.store import DirectoryStore
from harness.stores.stored import StoredRun
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from harness.work.plan import make_plan
from tests.huge import FILES
from tests.jobs import died, job, outcome, trials
from tests.toy import user_folder

RUN = ["run", "three", "--preset", "tiny", "--seeds", "1", "--jobs", "1", "--checkpoint-every", "0"]
DEATHS = (("train", 3), ("rank", 17), ("search", 17 + 24 + 5), ("retrain", 2))
"""The stages that are killed, and at which pass. The ranking has 40: 16 that stay, 24 after its death."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A user's folder with the space, the study, and a store of all three stages that were left alone."""
    with user_folder(tmp_path_factory.mktemp("huge"), FILES) as folder:
        for trial in trials("three"):
            assert job(trial, "whole")["status"] == "done"
        yield folder


def done(store: str) -> dict[tuple[bool, int], StoredRun]:
    """The runs that count, by whether they retrain, and which."""
    runs = [run for run in DirectoryStore(Path(store)).runs() if run.counts]
    stages = [run.trial["config"].get("retrain") for run in runs]
    return {(one is not None, (one or {}).get("which", 0)): run for one, run in zip(stages, runs, strict=True)}


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
    assert resumed == {(False, 0): 3, (True, 0): 1, (True, 1): 0}


def test_every_stage_resumes_to_the_same_bytes(project: Path) -> None:
    kill_later()
    supernet, first, second = trials("three")
    assert [died(supernet, "killed") for _ in range(4)] == [True, True, True, False]  # train, rank, search, the end
    assert [died(one, "killed") for one in (first, first, second)] == [True, False, False]
    assert_same("killed")


@pytest.mark.long
def test_the_same_by_the_command_line(project: Path) -> None:
    kill_later()
    again = [*RUN, "--store", "commanded", "--retry", "failed"]
    for left in (3, 2, 1, 0):  # each time one more stage ends by SIGKILL
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
    assert "better retrained: of 2 retrained architectures per seed the one with the best accuracy on the test" in text
    for kind in ("html", "latex", "csv"):
        assert main(["report", "--format", kind, "--out", "out", *RUN[1:6], "--store", "whole"]) == 0


def test_all_that_were_found_are_retrained_by_the_trials_of_the_single_rows(project: Path) -> None:
    (study,) = find_studies("three")
    requests = expand(study, get_preset("tiny", "huge"), 1)
    by_row = {row: [one.trial.key for one in requests if one.row == row] for row in range(4)}
    assert by_row[3] == by_row[1] + by_row[2] and len(by_row[3]) == 2


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("al", "retrain.which must be"),
        ([], "retrain.which must be a number from 0 on, a list of different ones, or 'all'"),
        ([0, 0], "a list of different ones"),
        ([0, -1], "must not be negative"),
        ([0, 2], "retrain.which is 2, but the search keeps 2"),
    ],
)
def test_numbers_that_cannot_be_retrained_are_refused(which: Any, message: str, project: Path) -> None:
    (study,) = find_studies("three")
    row = replace(study.rows[1], settings={**study.rows[1].settings, "retrain.which": which})
    with pytest.raises(InvalidConfiguration, match=message):
        make_plan([replace(study, rows=[row])], "tiny", [], seeds=1)


def test_another_search_is_made_with_the_stored_weights(project: Path) -> None:
    supernet, first, _ = trials("three", **{"search.finalists": 5})
    before = done("whole")[False, 0]
    assert before.key == supernet.key and supernet.ranking_key not in before.rankings
    assert job(first, "whole")["status"] == "elsewhere"  # it waits for its search
    assert job(supernet, "whole", "rank")["status"] == "done"
    searched = done("whole")[False, 0]
    assert searched.id == before.id
    assert [one["scored"] for one in searched.rankings.values()] == [{"0": 2, "16": 12}, {"0": 5, "16": 12}]
    assert first.key not in {run.key for run in done("whole").values()} and job(first, "whole")["status"] == "done"
