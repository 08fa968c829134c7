"""A trial from its configuration to its result, and the references that train nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch

from harness.components.benchmark import benchmark_for
from harness.components.dataset import DataSet
from harness.components.registries import DATASETS, SPACES
from harness.data.loader import in_order
from harness.errors import InvalidConfiguration, UnknownName
from harness.study.configuration import RunConfig
from harness.study.edges import CLUSTERS, SPLIT, edges_of
from harness.study.judging import Prediction, selected_architectures
from harness.training import trial
from harness.training.preparation import prepare
from harness.training.stages.search import SearchProgress
from harness.training.stages.train import Progress, build_supernets
from harness.training.trial import Outcome, Watch, rank_again, run_reference, run_trial
from harness.truth.table import Table
from tests.toy import toy_config


def toy(**more: Any) -> RunConfig:
    return toy_config(**{"train": {"epochs": 10, "batch_size": 16}, **more})


def plain(value: object) -> bool:
    """Whether a value consists of JSON's own types, none of their subclasses (numpy's float is one)."""
    if type(value) is dict:
        return all(type(key) is str and plain(inner) for key, inner in value.items())
    if type(value) is list:
        return all(map(plain, value))
    return value is None or type(value) in (bool, int, float, str)


@pytest.mark.parametrize("method", ["spos", "fairnas", "fsnas"])
def test_a_trial_repeats_exactly(method: str, toy_project: Path) -> None:
    config = toy(method=method, schedule="calr", clusters="operation")
    first, second = run_trial(config), run_trial(config)
    assert first.result == second.result
    assert first.predictions == second.predictions
    assert run_trial(toy(method=method, seed=1)).predictions != first.predictions
    assert first.result["ranked"] == len(first.predictions) == 12


def check_result(outcome: Outcome) -> None:
    assert plain(outcome.result) and plain(outcome.cost)
    assert json.loads(json.dumps(outcome.result, allow_nan=False)) == outcome.result
    assert outcome.result.keys() >= {"kendall_tau", "selected", "top1", "top1_accuracy", "ranked"}
    assert -1 <= outcome.result["kendall_tau"] <= 1
    # The toy's table: 4n + 2 of 60 for the class with number n, which is 0 or the architecture's own.
    space = SPACES.get("toy")()
    number = space.index(space.network_class(tuple(outcome.result["top1"])))
    assert outcome.result["top1_accuracy"] == pytest.approx(100 * (4 * number + 2) / 60)


def test_result_and_cost_of_a_trained_trial(toy_project: Path) -> None:
    told: list[Progress] = []
    outcome = run_trial(toy(), watch=Watch(epoch=told.append))
    check_result(outcome)
    assert outcome.result["selected"] == 9
    assert outcome.cost["passes"] == 30 and outcome.cost["evaluations"] == 9
    assert [progress.epoch for progress in told] == list(range(1, 11))


def _searched(note: Callable[[tuple[int, int]], None], at: SearchProgress) -> None:
    note((at.done, at.total))


def _noted(note: Callable[[tuple[int, int]], None], done: int, total: int) -> None:
    note((done, total))


def test_a_search_reports_its_scores_apart_from_the_ranking(toy_project: Path) -> None:
    """Scores are counted for each request of the search: first all on one batch, then two finalists on two."""
    scored: list[tuple[int, int]] = []
    ranked: dict[str, list[tuple[int, int]]] = {"with": [], "without": []}
    for name, search in {"without": None, "with": {"name": "exhaustive", "batches": 1, "finalists": 2}}.items():
        config = toy(search=search, rank={"candidates": 2, "batch_size": 8})
        note = ranked[name].append
        run_trial(config, watch=Watch(ranking=partial(_noted, note), searching=partial(_searched, scored.append)))
    assert ranked["with"] == ranked["without"] != []
    totals = list(dict.fromkeys(total for _, total in scored))
    assert len(totals) == 2 and totals[1] == 2
    assert scored == sorted(scored, key=lambda one: (totals.index(one[1]), one[0]))
    assert {(total, total) for total in totals} <= set(scored)


@pytest.mark.parametrize("method", ["spos", "fsnas"])
def test_observing_changes_nothing_but_what_is_observed(method: str, toy_project: Path) -> None:
    curve: list[tuple[str, int, float]] = []
    watched = run_trial(
        toy(method=method, observe={"kendall_tau_every": 5}),
        watch=Watch(metric=lambda name, step, value: curve.append((name, step, value))),
    )
    unwatched = run_trial(toy(method=method))
    assert watched.predictions == unwatched.predictions
    assert {**watched.result, "observed": None} == {**unwatched.result, "observed": None}
    points = watched.result["observed"]["kendall_tau"]
    parts = 1 if method == "spos" else len(watched.supernets.parts) if watched.supernets else 0
    assert [step for step, _ in points] == [5 * parts, 10 * parts]
    assert points[-1][1] == watched.result["kendall_tau"]  # the last is that of the trained supernets
    assert [[step, value] for name, step, value in curve if name == "kendall_tau"] == points
    assert plain(watched.result)


@pytest.mark.parametrize("method", ["spos", "fsnas"])
def test_tau_is_averaged_over_the_last_epochs(method: str, toy_project: Path) -> None:
    every = run_trial(toy(method=method, observe={"kendall_tau_every": 1})).result["observed"]["kendall_tau"]
    averaged = run_trial(toy(method=method, observe={"average_last": 3}))
    last = [value for _, value in every[-3:]]
    assert averaged.result["observed"] == {
        "kendall_tau_averaged": [[1, last[2]], [2, fmean(last[1:])], [3, pytest.approx(fmean(last))]]
    }
    assert last[2] == averaged.result["kendall_tau"]
    longer = run_trial(toy(method=method, observe={"average_last": 1000})).result["observed"]["kendall_tau_averaged"]
    assert longer[:3] == averaged.result["observed"]["kendall_tau_averaged"] and len(longer) == len(every)


@pytest.mark.parametrize("draw", ["random", "turns"])
def test_training_splits_and_separates_at_the_edges_that_reports_read(draw: str, toy_project: Path) -> None:
    for seed in range(3):
        train = {"epochs": 1, "batch_size": 16, "draw": draw}
        config = toy_config(method="fsnas", clusters="operation", train=train, seed=seed)
        dataset = DATASETS.get(config.dataset)()
        supernets = build_supernets(config, dataset)
        _, trainings = prepare(config, supernets, 3, dataset)
        edges = edges_of(config)
        assert {tuple(part.fixed) for part in supernets.parts} == {edges[SPLIT]}
        assert {training.clustering.decisions for training in trainings} == {edges[CLUSTERS]}


def test_a_diverged_trial_says_where(toy_project: Path) -> None:
    outcome = run_trial(toy(optimiser={"learning_rate": 1e12, "clip": None}))
    assert outcome.supernets is None and outcome.predictions == {}
    assert outcome.result["kendall_tau"] is outcome.result["top1"] is None
    assert 0 < outcome.result["diverged"]["step"] < 30
    assert plain(outcome.result) and json.dumps(outcome.result, allow_nan=False)


def test_ranking_again_from_stored_weights(toy_project: Path) -> None:
    few = run_trial(toy(rank={"candidates": 1, "bins": 4}))
    whole = run_trial(toy())
    assert few.supernets is not None
    space = few.supernets.space
    known = {space.index(architecture): accuracy for architecture, accuracy in few.predictions.items()}
    weights = [network.state_dict() for network in few.supernets.networks]
    again = rank_again(toy(), lambda: weights, known)
    assert again.predictions == whole.predictions
    assert again.result.items() <= whole.result.items()
    new = {space.function_class(a) for a in whole.predictions if a not in few.predictions}
    assert again.cost["evaluations"] == len(new) and again.cost["passes"] == 0


def test_the_validation_loss_is_the_mean_over_the_selected_and_falls(toy_project: Path) -> None:
    asked = {"bins": 4, "batch_size": 20, "valid_loss": True}
    outcome = run_trial(toy(rank=asked))
    assert outcome.supernets is not None and "valid_loss" not in run_trial(toy()).result
    dataset, benchmark = DATASETS.get("toy")(), benchmark_for("toy", "toy")
    [network] = outcome.supernets.networks
    losses = [
        torch.nn.functional.cross_entropy(network(images, architecture), labels, reduction="sum").item()
        for architecture in selected_architectures(benchmark, "toy", toy(rank=asked).rank)
        for images, labels in in_order(dataset.valid, dataset, 20)
    ]
    assert outcome.result["valid_loss"] == pytest.approx(sum(losses) / (outcome.result["selected"] * 50), rel=1e-5)
    untrained = run_reference(toy(rank=asked), "untrained").result
    assert untrained["valid_loss"] > outcome.result["valid_loss"]
    assert "valid_loss" not in run_reference(toy(rank=asked), "random").result
    again = rank_again(toy(rank=asked), lambda: [network.state_dict()], {})
    assert again.result["valid_loss"] == outcome.result["valid_loss"]


def test_candidates_limit_what_is_ranked_but_the_selected_always_are(toy_project: Path) -> None:
    outcome = run_trial(toy(rank={"candidates": 1, "bins": 4}))
    selected = outcome.result["selected"]
    assert selected <= 4 and selected <= outcome.result["ranked"] == len(outcome.predictions) <= selected + 1


@pytest.mark.parametrize("reference", ["untrained", "parameters", "random", "flops", "ceiling"])
def test_references_train_nothing_and_repeat(reference: str, toy_project: Path) -> None:
    outcome = run_reference(toy(), reference)
    check_result(outcome)
    assert set(outcome.cost) == {"seconds"}
    again = run_reference(toy(), reference)
    assert (again.result, again.predictions) == (outcome.result, outcome.predictions)
    other = run_reference(toy(seed=1), reference)
    assert (other.predictions == outcome.predictions) == (reference in ("parameters", "flops"))


def test_parameters_as_prediction(toy_project: Path) -> None:
    space = SPACES.get("toy")()
    outcome = run_reference(toy(), "parameters")
    assert outcome.predictions == {one: Prediction(float(space.complexity(one))) for one in space}
    assert outcome.result["top1"] == [2, 1, 0]


def test_an_unknown_reference_is_refused(toy_project: Path) -> None:
    with pytest.raises(UnknownName, match="no proxy is named 'flop'; did you mean 'flops'"):
        run_reference(toy(), "flop")


def test_tau_that_does_not_exist_is_null(toy_project: Path, toy_table: Table) -> None:
    """All architectures equally good: one is selected, and one is no ranking."""
    constant = np.full_like(toy_table.test, 30)
    Table(toy_table.classes, constant, constant, toy_table.provenance).write(toy_project / "toy.npz")
    try:
        outcome = run_reference(toy(), "random")
    finally:
        toy_table.write(toy_project / "toy.npz")
    assert outcome.result["kendall_tau"] is None
    assert plain(outcome.result) and json.dumps(outcome.result, allow_nan=False)


@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        ({"space": "nasbench201"}, InvalidConfiguration, "benchmark 'toy' is for toy, the configuration is for nasbe"),
        ({"dataset": "digits"}, UnknownName, "no data set of benchmark toy is named 'digits'"),
        ({"rank": {"selection": "equal-count"}}, InvalidConfiguration, "12 architectures cannot be split into 400"),
    ],
)
def test_what_does_not_fit_the_benchmark_is_refused_before_training(
    more: dict[str, Any], error: type[Exception], message: str, toy_project: Path
) -> None:
    told: list[Progress] = []
    with pytest.raises(error, match=message):
        run_trial(toy(**more), watch=Watch(epoch=told.append))
    assert not told


@pytest.mark.parametrize("joined", [False, True])
def test_supernets_may_train_on_the_validation_images_and_test_images_then_rank(
    joined: bool, toy_project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, seen = DATASETS.get("toy")(), {}
    for name in ("train", "predict"):
        plain: Any = getattr(trial, name)

        def watched(*given: Any, plain: Any = plain, name: str = name, **more: Any) -> Any:
            seen[name] = next(one for one in given if isinstance(one, DataSet))
            return plain(*given, **more)

        monkeypatch.setattr(trial, name, watched)
    config = toy(train={"epochs": 1, "batch_size": 16, "with_valid": joined}, rank={"images": None})
    outcome = run_trial(config)
    assert outcome.cost["passes"] == -(-(len(data.train) + joined * len(data.valid)) // 16)
    assert len(seen["train"].train) == len(data.train) + joined * len(data.valid)
    judges = data.test if joined else data.valid
    assert all(np.array_equal(one.valid.images, judges.images) for one in seen.values())
    text = config.json()["train"]
    assert text.get("with_valid", False) == joined and ("with_valid" in text) == joined  # stored keys stay
