"""Rankings made anew from what a run stored: of predictions alone, and of weights if they are needed."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.schema import PANEL
from harness.stores.directory.run_directory import (
    COMPLETION,
    WEIGHTS,
    complete_ranking,
    declare_absent,
    predictions_document,
    write_ranking,
)
from harness.stores.directory.store import DirectoryStore, StoredRun
from harness.stores.upkeep.archive import export_runs
from harness.stores.upkeep.comparison import Side, compare
from harness.stores.upkeep.importing import import_into_directory
from harness.study.configuration import RunConfig
from harness.study.study import Request
from harness.study.trial import Trial
from tests.jobs import run_job
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


def test_another_precision_is_another_ranking_of_the_same_trial(store: Path) -> None:
    half, run = trial(precision="bfloat16"), only_run(store)
    assert half.key == trial().key and half.ranking_key != trial().ranking_key
    assert trial(precision="float32").ranking_key == trial().ranking_key
    assert do(half, store, "rank")["status"] == "done"
    here, full = DirectoryStore(store), only_run(store)
    assert len(full.rankings) == 2
    found = here.losses(full, half.config.json()["rank"])
    assert here.losses(full) == here.losses(run) != found
    assert list(found.values()) == pytest.approx(list(here.losses(full).values()), rel=0.05)
    leave_out_weights(store / run.id)
    assert do(trial(precision="bfloat16", by="loss"), store, "rank")["status"] == "done"  # by the stored predictions


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


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_files_of_a_done_run_never_change_and_the_highest_number_counts(store: Path) -> None:
    run = only_run(store)
    key, folder = str(run.own_ranking), store / run.id
    before = contents(folder)
    for tau in [0.125, *(number / 100 for number in range(1, 12))]:  # 10 counts more than 9
        judge(store, run, judged(tau))
        after = contents(folder)
        assert {name: after[name] for name in before} == before
        before = after
        assert only_run(store).rankings[key]["kendall_tau"] == tau
    names = {name for name in before if name.startswith("rankings/") and not name.endswith("predictions.json")}
    assert names == {f"rankings/{key}.json", *(f"rankings/{key}.{number}.json" for number in range(1, 12))}
    answer = do(trial(), store, "rank", again=True)  # and `store recompute --again` is no exception
    assert answer["status"] == "done" and (folder / "rankings" / f"{key}.12.json").exists()
    after = contents(folder)
    assert {name: after[name] for name in before} == before
    assert only_run(store).rankings == run.rankings


def test_a_ranking_that_gets_more_measures_is_a_new_file_with_the_same_predictions(store: Path) -> None:
    run = only_run(store)
    key, folder = str(run.own_ranking), store / run.id
    (store / run.id / "rankings").mkdir(exist_ok=True)
    other = trial(candidates=6)
    assert do(other, store, "rank")["status"] == "done"
    stored = folder / "rankings" / f"{other.ranking_key}.json"
    complete_ranking(folder, other.ranking_key, other.config.json(), judged(0.5))
    complete_ranking(folder, key, trial().config.json(), judged(0.25))
    first, second = json.loads(stored.read_text()), json.loads(stored.with_name(f"{stored.stem}.1.json").read_text())
    assert second["files"] == first["files"] and second["result"]["kendall_tau"] == 0.5
    found = only_run(store).rankings
    assert (found[key]["kendall_tau"], found[other.ranking_key]["kendall_tau"]) == (0.25, 0.5)


def test_a_damaged_recomputed_ranking_is_named_and_the_one_before_it_counts(store: Path) -> None:
    run = only_run(store)
    key = str(run.own_ranking)
    judge(store, run, judged(0.5))
    judge(store, run, judged(0.25))
    opened = DirectoryStore(store)
    known = opened.predictions(run)
    (store / run.id / "rankings" / f"{key}.1.predictions.json").write_text("{}")
    opened = DirectoryStore(store)
    (left,) = opened.runs()
    assert left.rankings[key]["kendall_tau"] == 0.5 and opened.predictions(left) == known
    assert [Path(one.place).name for one in opened.problems] == [f"{key}.1.predictions.json"]
    archive = store / "archive.tar.gz"
    export_runs(opened, [left], archive)
    with tarfile.open(archive) as file:
        names = {Path(name).name for name in file.getnames()}
    assert f"{key}.json" in names and f"{key}.1.json" not in names


def test_recomputed_rankings_of_two_copies_merge_by_union(store: Path, tmp_path_factory: Factory) -> None:
    run = only_run(store)
    key = str(run.own_ranking)
    judge(store, run, judged(0.5))
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    shutil.copytree(store / run.id, elsewhere / run.id)
    judge(elsewhere, run, judged(0.25))
    archive = elsewhere / "archive.tar.gz"
    export_runs(DirectoryStore(elsewhere), DirectoryStore(elsewhere).runs(), archive)
    before = contents(store / run.id)
    import_into_directory(archive, store)
    after = contents(store / run.id)
    assert {name: after[name] for name in before} == before
    assert after.keys() - before.keys() == {f"rankings/{key}.1.json", f"rankings/{key}.1.predictions.json"}
    assert only_run(store).rankings[key]["kendall_tau"] == 0.25
