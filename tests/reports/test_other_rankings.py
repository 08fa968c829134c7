"""What was observed or judged by one ranking is not shown for another, and captions tell of what is shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from harness.components.discovery import component
from harness.components.preset import get_preset
from harness.results import record
from harness.stores.directory.store import DirectoryStore
from harness.study.expansion import expand
from harness.study.layout import Column, Row
from harness.study.study import Study
from harness.work.plan import make_plan
from harness.work.repeating import rankings
from tests.stored_runs import store_run
from tests.training.stages.test_retrain import CHILD

TINY = get_preset("tiny")
STUDY = Study(
    "two",
    "Two",
    [Row({"m": name}, {"method.name": name}) for name in ("spos", "fairnas")],
    [Column("τ", "kendall_tau")],
)
CURVES = {"kendall_tau": [[1, 0.5]], "valid_loss_small": [[1, 2.0]], "gradient_spread": [[1, 0.1]]}


def test_curves_of_another_ranking_are_not_shown(tmp_path: Path) -> None:
    store_run(tmp_path, expand(STUDY, TINY, 1)[0], 0.5)
    (run,) = DirectoryStore(tmp_path).runs()
    assert run.own_ranking is not None and run.result is not None
    observed = replace(run, result={**run.result, "observed": CURVES})
    curves = component("reports.evidence").curves
    assert curves(observed, run.own_ranking) == CURVES
    assert set(curves(observed, "another")) == {"gradient_spread"}


def test_a_ranking_that_was_not_made_has_no_values_of_the_runs_own(tmp_path: Path) -> None:
    store_run(tmp_path, expand(STUDY, TINY, 1)[0], 0.5)
    (run,) = DirectoryStore(tmp_path).runs()
    assert run.result is not None
    judged = replace(run, result={**run.result, "complexity_bias": 0.7})
    assert record(judged)["complexity_bias"] == 0.7
    asked = record(judged, "not made")
    assert asked["complexity_bias"] is None and asked["kendall_tau"] is None and asked["diverged"] is False


def test_captions_tell_the_epochs_of_the_rows_that_are_shown(tmp_path: Path) -> None:
    tables = component("reports.tables")
    store = DirectoryStore(tmp_path)
    whole = tables.build(STUDY, TINY, store)
    part = tables.build(STUDY, TINY, store, where="method.name == 'fairnas'")
    assert "1 to 5 epochs" in whole.scale and "1 epoch," in part.scale


def test_what_is_retrained_is_not_ranked_again(tmp_path: Path) -> None:
    for request in expand(CHILD, TINY, 1):
        assert request.trial.start is not None
        store_run(tmp_path, replace(request, trial=request.trial.start), 0.5)
        store_run(tmp_path, request, None, 60.0)
    plan = make_plan([CHILD], TINY, DirectoryStore(tmp_path).runs(), seeds=1)
    assert {work.state for work in plan.work} == {"done"} and len(plan.work) == 3
    assert [work.trial.start for work in rankings(plan, again=True)] == [None]
