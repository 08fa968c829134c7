"""Rankings made anew from what a run stored: of predictions alone, and of weights if they are needed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.execution.job import run_job
from harness.schema import PANEL
from harness.stores.directory.run_directory import (
    COMPLETION,
    WEIGHTS,
    declare_absent,
    predictions_document,
    write_ranking,
)
from harness.stores.directory.store import DirectoryStore, StoredRun
from harness.stores.upkeep.comparison import Side, compare
from harness.study.configuration import RunConfig
from harness.study.study import Request
from harness.study.trial import Trial
from tests.stored_runs import forget_losses, forget_panel, judged, store_run
from tests.toy import toy_config

Factory = pytest.TempPathFactory
RANK = {"images": 50, "candidates": 4, "bins": 3}


def trial(**rank: Any) -> Trial:
    return Trial(toy_config(train={"epochs": 1, "batch_size": 20}, rank=RANK | rank))


def do(one: Trial, store: Path, kind: str, told: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
    job = {"kind": kind, "trial": one.json(), "store": str(store), "preset": "tiny", "overrides": {}, "threads": 1}
    return run_job(job | more, (lambda report: None) if told is None else told.append)


def only_run(store: Path) -> StoredRun:
    (run,) = DirectoryStore(store).runs()
    return run


@pytest.fixture
def store(toy_project: Path, tmp_path: Path) -> Iterator[Path]:
    assert do(trial(), tmp_path, "train")["status"] == "done"
    yield tmp_path


def judge(store: Path, run: StoredRun, result: dict[str, Any]) -> None:
    """Give the run's own ranking another result."""
    config = run.trial["config"]
    write_ranking(store / run.id, run.own_ranking or "", config, result, {}, predictions_document(config, {}))


def leave_out_weights(run: Path) -> None:
    declare_absent(run, {WEIGHTS: json.loads((run / COMPLETION).read_text())["files"][WEIGHTS]})
    (run / WEIGHTS).unlink()


def test_a_metric_whose_computation_changed_is_computed_anew_only_when_asked(store: Path) -> None:
    before = only_run(store)
    assert before.own_ranking and before.result
    # As an older version judged it: wrongly.
    wrong = judged(-1.0) | {PANEL: {}, "partial_tau": None, "top1_accuracy_predicted": None}
    judge(store, before, wrong)
    assert only_run(store).rankings[before.own_ranking] == wrong
    assert do(trial(), store, "rank")["already"] is True
    assert only_run(store).rankings[before.own_ranking] == wrong
    answer = do(trial(), store, "rank", again=True)
    assert (answer["status"], answer["already"]) == ("done", False)
    after = only_run(store)
    assert after.rankings == before.rankings and after.own_ranking == before.own_ranking
    assert do(trial(), store, "rank", again=True)["already"] is True


def test_a_ranking_of_stored_weights_tells_how_far_it_is(store: Path) -> None:
    told: list[dict[str, Any]] = []
    assert do(trial(candidates=12), store, "rank", told)["status"] == "done"
    (*_, last) = [report for report in told if report.get("event") == "rank"]
    assert last["step"] == last["steps"] > 0


def test_predictions_are_enough_where_all_are_stored(store: Path) -> None:
    before = only_run(store)
    assert before.own_ranking
    leave_out_weights(store / before.id)
    judge(store, before, judged(None))
    answer = do(trial(), store, "rank", again=True)
    assert (answer["status"], answer["already"]) == ("done", False)
    assert only_run(store).rankings == before.rankings


def test_a_ranking_by_loss_needs_no_weights_where_losses_are_stored(store: Path) -> None:
    run = only_run(store)
    leave_out_weights(store / run.id)
    answer = do(trial(by="loss"), store, "rank")
    assert answer["status"] == "done" and len(only_run(store).rankings) == 2
    result = answer["result"]
    assert result["kendall_tau"] == result["kendall_tau_by_loss"] == (run.result or {})["kendall_tau_by_loss"]
    files = (store / run.id / "predictions.json", *(store / run.id / "rankings").glob("*.predictions.json"))
    assert len(files) == 2 and all(json.loads(file.read_text())["losses"] for file in files)


def test_an_older_run_without_losses_is_evaluated_again_to_be_ranked_by_loss(toy_project: Path, tmp_path: Path) -> None:
    one = trial()
    assert do(one, tmp_path, "train")["status"] == "done"
    run = only_run(tmp_path)
    forget_losses(tmp_path / run.id)
    assert DirectoryStore(tmp_path).losses(only_run(tmp_path)) == {}
    assert do(trial(by="loss"), tmp_path, "rank")["result"]["kendall_tau_by_loss"] is not None
    opened = DirectoryStore(tmp_path)
    assert opened.losses(only_run(tmp_path)).keys() == opened.predictions(run).keys()


def test_an_older_run_gets_its_panel_from_its_predictions_alone(store: Path) -> None:
    before = only_run(store)
    assert before.own_ranking and before.result
    made = before.result[PANEL]
    assert made["all"]["count"] == before.result["ranked"]
    # As an older version left it: without a panel; and copied without its weights.
    leave_out_weights(store / before.id)
    forget_panel(store / before.id)
    older = only_run(store)
    assert older.result and PANEL not in older.result
    answer = do(trial(), store, "rank")
    assert (answer["status"], answer["already"]) == ("done", False)
    after = only_run(store)
    assert after.result == before.result and after.rankings == before.rankings
    assert [path.name for path in (store / after.id / "rankings").iterdir()] == [f"{before.own_ranking}.json"]
    assert do(trial(), store, "rank")["already"] is True


def test_a_panel_needs_no_images(toy_project: Path, tmp_path: Path) -> None:
    """Only another ranking does: the run was made on images that are not here."""
    foreign = replace(trial(candidates=None, bins=9), given="elsewhere")
    request = Request("", 0, "toy", 0, foreign, False)
    store_run(tmp_path, request, 0.5, predictions={number: float(number) for number in range(12)})
    assert do(foreign, tmp_path, "rank")["status"] == "done"
    ((found,),) = [run.rankings.values() for run in DirectoryStore(tmp_path).runs()]
    assert found[PANEL]["all"]["count"] == 12 and found["kendall_tau"] == 0.5
    answer = do(foreign, tmp_path, "rank", again=True)
    assert answer["status"] == "failed" and "the trial was planned with elsewhere" in answer["error"]


def test_what_needs_weights_that_were_left_out_says_so(store: Path) -> None:
    run = only_run(store)
    leave_out_weights(store / run.id)
    answer = do(trial(candidates=12), store, "rank")
    assert answer["status"] == "failed"
    assert answer["error"] == f"{store / run.id / WEIGHTS}: was left out when the run was copied here"
    assert only_run(store) == run


def test_a_panel_that_one_run_lacks_is_not_a_contradiction(store: Path, tmp_path_factory: Factory) -> None:
    other = tmp_path_factory.mktemp("other")
    shutil.copytree(store, other, dirs_exist_ok=True)
    forget_panel(other / only_run(other).id)
    sides = [Side(DirectoryStore(place), only_run(place)) for place in (store, other)]
    found = compare(*sides)
    assert [(one.name, one.other) for one in found.sections["result"]] == [(PANEL, "—")] and not found.contradicting


def test_an_older_run_of_several_supernets_gets_the_numbers_beside_top1(toy_project: Path, tmp_path: Path) -> None:
    """From its predictions and its seed: the parts of few-shot supernets are drawn again."""
    config = RunConfig.from_json(
        {
            "method": "fsnas",
            "network": {"width": 2, "depth": 1},
            "train": {"epochs": 1, "batch_size": 512},
            "rank": {"images": 16, "candidates": 40, "bins": 20},
        }
    )
    one = Trial(config)
    assert do(one, tmp_path, "train")["status"] == "done"
    run = only_run(tmp_path)
    assert run.result and run.own_ranking
    added = ("top1_accuracy_predicted", "top1_accuracy_random", "top1_of")
    older = {key: value for key, value in run.rankings[run.own_ranking].items() if key not in added}
    judge(tmp_path, run, older)
    leave_out_weights(tmp_path / run.id)
    answer = do(one, tmp_path, "rank")
    assert (answer["status"], answer["already"]) == ("done", False)
    assert answer["result"]["top1_of"] == 5 and {key: answer["result"][key] for key in added} == {
        key: run.result[key] for key in added
    }
