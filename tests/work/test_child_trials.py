"""What studies whose trials start from others need of plans, readers and overrides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.components.preset import get_preset
from harness.components.registries import BENCHMARKS
from harness.errors import DataError, InvalidConfiguration
from harness.stores.directory.store import DirectoryStore
from harness.study.catalogue import find_studies
from harness.study.configuration import RunConfig
from harness.study.expansion import expand, expand_stored
from harness.study.layout import Column, Row
from harness.study.study import Study
from harness.study.trial import Trial
from harness.training.stages import train as stage
from harness.training.state import TrialState
from harness.training.trial import run_trial
from harness.truth.table import TableBenchmark
from harness.work.plan import make_plan
from tests.jobs import run_job
from tests.stored_runs import store_run
from tests.toy import toy_config
from tests.training.stages.test_retrain import CHILD, RETRAIN

TINY = get_preset("tiny")


def test_a_reader_without_the_ground_truth_finds_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = expand(CHILD, TINY, 1)
    for one in requests:
        assert one.trial.start is not None
        store_run(tmp_path, replace(one, trial=one.trial.start), 0.5)
        store_run(tmp_path, one, None, 60.0)
    entry = BENCHMARKS.entries["digits"]

    def gone() -> TableBenchmark:
        raise DataError("the table is not there")

    monkeypatch.setitem(BENCHMARKS.entries, "digits", replace(entry, thing=gone))
    found = expand_stored(CHILD, TINY, DirectoryStore(tmp_path).runs, 1)
    assert [one.trial.key for one in found] == [one.trial.key for one in requests]


def test_official_retrains_what_it_trained_on_and_finds_a_best_for_it() -> None:
    (study,) = find_studies("retrain_scheduler")
    requests = expand(study, get_preset("official"), 1)
    assert {request.dataset for request in requests} == {"cifar10"}
    assert all(request.trial.config.rank.top1 for request in requests)
    with pytest.raises(InvalidConfiguration, match="cannot be retrained where rank.top1 is false"):
        make_plan([CHILD], TINY, [], overrides={"rank.top1": False})


def test_cs_is_cosine_in_every_preset() -> None:
    (study,) = find_studies("nonuniform_sampling")
    for preset in ("official", "paper", "demo"):
        rows = {request.row: request.trial.config for request in expand(study, get_preset(preset), 1)}
        said = {number: row.labels["Schedule"] for number, row in enumerate(study.rows)}
        assert {number: config.schedule.name for number, config in rows.items()} == {
            number: {"CS": "cosine", "CaLR": "calr"}[str(name)] for number, name in said.items()
        }


def test_a_condition_on_children_keeps_their_searches() -> None:
    plan = make_plan([CHILD], TINY, [], seeds=1, only={"retrain.schedule.name": ["calr"]})
    assert [work.label for work in plan.work] == ["child/calr search seed 0", "child/calr retraining seed 0"]


def test_an_option_of_one_schedule_is_for_the_rows_that_have_it() -> None:
    requests = expand(CHILD, TINY, 1, {"retrain.schedule.gamma_prime": 3.0})
    options = [request.trial.config.retrain.schedule.options for request in requests if request.trial.config.retrain]
    assert options[0] == {"final": 0.0} and options[1]["gamma_prime"] == 3.0


def test_what_is_asked_for_by_hand_stands_over_a_rows_curves() -> None:
    study = Study("c", "C", [Row({"": ""}, points={"observe.kendall_tau_every": 10})], [])
    (request,) = expand(study, get_preset("demo"), 1, {"observe.kendall_tau_every": 1})
    assert request.trial.config.observe.kendall_tau_every == 1


def test_an_unknown_complexity_is_refused_before_training() -> None:
    study = Study("c", "C", [Row({"": ""})], [Column("CB", "complexity_bias")])
    with pytest.raises(InvalidConfiguration, match="rank.complexity is 'flop'; allowed: parameters"):
        make_plan([study], TINY, [], overrides={"rank.complexity": "flop"})


def test_a_search_that_diverged_makes_a_child_that_failed_and_says_so(toy_project: Path, tmp_path: Path) -> None:
    diverging: dict[str, Any] = {"optimiser": {"learning_rate": 1e30, "clip": None}}
    child = Trial.of(toy_config(retrain=RETRAIN, **diverging))
    assert child.start is not None
    for trial, status in ((child.start, "done"), (child, "failed")):
        job = {"kind": "train", "trial": trial.json(), "store": str(tmp_path), "preset": "tiny", "overrides": {}}
        assert run_job({**job, "threads": 1, "device": "cpu"}, lambda report: None)["status"] == status
    (failed,) = [run for run in DirectoryStore(tmp_path).runs() if run.key == child.key]
    assert failed.status == "failed" and "found nothing to retrain" in "".join(failed.fail_trace or ())


def test_supernets_that_are_trained_hold_nothing_but_their_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[stage.Course] = []

    class Keeper(TrialState):
        def __init__(self) -> None: ...

        def start(self, course: Any) -> None:
            kept.append(course)

        def between_steps(self) -> None:
            (course,) = kept
            for training in course.trainings[: course.part]:
                assert not training.momentum.optimisers and training.momentum.spread is None
                assert all(parameter.grad is None for parameter in training.momentum.parameters)

        def part_done(self) -> None: ...

    config = RunConfig.from_json(
        {
            "method": "fsnas",
            "clusters": "operation",
            "network": {"width": 4, "depth": 1},
            "train": {"epochs": 1, "batch_size": 512},
            "rank": {"images": 8, "candidates": 1, "bins": 2},
            "observe": {"spread": True},
        }
    )
    from harness.components.registries import DATASETS
    from harness.training.cost import Meter

    stage.train(config, DATASETS.get("digits")(), Meter(torch.device("cpu")), keeper=Keeper())
    (course,) = kept
    assert course.part == 5 and not any(training.momentum.optimisers for training in course.trainings)
    assert run_trial(config).result["observed"]["gradient_spread"]
