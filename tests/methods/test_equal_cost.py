"""Searches of equal cost and bounds: what each finds, beside a computation by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from harness.components.benchmark import benchmark_for
from harness.components.proxy import NotApplicable
from harness.components.registries import SPACES
from harness.metrics import ceiling, kendall_tau
from harness.study.configuration import RunConfig
from harness.study.judging import selected_architectures
from harness.training.stages.standalone import StandaloneRecipe, train_standalone
from harness.training.trial import run_reference
from tests.toy import toy_config

DIGITS = {
    "space": "nasbench201",
    "dataset": "digits",
    "benchmark": "digits",
    "network": {"width": 4, "depth": 1},
    "rank": {"candidates": 10},
}


def config(epochs: int, **more: object) -> RunConfig:
    return RunConfig.from_json(DIGITS | {"train": {"epochs": epochs, "batch_size": 512}} | more)


@pytest.mark.parametrize(("epochs", "count"), [(1, 1), (4, 2), (20, 10)])
def test_random_search_buys_as_many_trainings_of_the_table(epochs: int, count: int) -> None:
    """The table's networks were trained for 2 epochs. The expected best of n is Σ a₍ᵢ₎·C(i−1,n−1)/C(N,n)."""
    found = run_reference(config(epochs), "random-search").result
    assert (found["ranked"], found["kendall_tau"], found["top1"]) == (count, None, None)
    benchmark = benchmark_for("digits", "nasbench201")
    valid, test = (benchmark.accuracies("digits", split) for split in ("valid", "test"))
    order = np.lexsort((np.arange(len(valid)), valid))
    weights = [math.comb(place, count - 1) / math.comb(len(test), count) for place in range(len(test))]
    expected = float(np.dot(test[order], weights))
    assert found["top1_accuracy"] == pytest.approx(expected, abs=1.0)
    five = run_reference(config(epochs, method={"name": "fairnas"}), "random-search").result
    assert five["ranked"] == max(1, epochs * 5 // 2)  # five paths per step cost five times as much


def test_architectures_are_trained_alone_for_the_same_passes(
    toy_project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[tuple[tuple[int, ...], StandaloneRecipe]] = []
    train = train_standalone

    def counted(space, architecture, dataset, recipe, *rest, **more):  # type: ignore[no-untyped-def]
        trained.append((architecture, recipe))
        return train(space, architecture, dataset, recipe, *rest, **more)

    monkeypatch.setattr("harness.training.proxies.train_standalone", counted)
    asked = toy_config(train={"epochs": 20, "batch_size": 16})
    result = run_reference(asked, "trained-alone").result
    assert len(trained) == len({one for one, _ in trained}) == result["ranked"] == 10
    assert sum(recipe.epochs for _, recipe in trained) == 20 and {recipe.batch_size for _, recipe in trained} == {16}
    assert {recipe.learning_rate for _, recipe in trained} == {0.1}
    assert tuple(result["top1"]) in {one for one, _ in trained} and result["kendall_tau"] is None
    assert result["top1_accuracy"] == benchmark_for("toy", "toy").accuracy(tuple(result["top1"]), "toy")
    trained.clear()
    assert run_reference(toy_config(train={"epochs": 3, "batch_size": 16}), "trained-alone").result["ranked"] == 3
    # The same networks and images: the best on validation images is kept.
    scores = {}
    from harness.components.registries import DATASETS
    from harness.seeds import derive

    dataset, space = DATASETS.get("toy")(), SPACES.get("toy")()
    for one, recipe in trained:
        correct = train(space, one, dataset, recipe, derive(0, "equal cost"), network=asked.network)
        scores[one] = correct.valid[0]
    again = run_reference(toy_config(train={"epochs": 3, "batch_size": 16}), "trained-alone").result
    assert scores[tuple(again["top1"])] == max(scores.values())


def test_the_best_of_the_table_is_out_of_reach_for_candidates() -> None:
    benchmark = benchmark_for("digits", "nasbench201")
    truth = benchmark.accuracies("digits")
    found = run_reference(config(1), "table-best").result
    assert found["top1_accuracy"] == truth.max() and benchmark.space.index(tuple(found["top1"])) == truth.argmax()


def test_the_ceiling_is_the_tables_own_noise() -> None:
    benchmark = benchmark_for("digits", "nasbench201")
    selected = [benchmark.space.index(one) for one in selected_architectures(benchmark, "digits", config(1).rank)]
    errors = benchmark.standard_errors("digits")
    assert errors is not None
    expected = ceiling(benchmark.accuracies("digits")[selected], errors[selected], np.random.default_rng(0))
    taus = [run_reference(config(1, seed=seed), "ceiling").result["kendall_tau"] for seed in range(3)]
    assert np.mean(taus) == pytest.approx(expected, abs=0.03) and len(set(taus)) == 3


def test_a_table_without_costs_and_errors_has_neither_row(monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = benchmark_for("digits", "nasbench201")
    for method, row in (("training_epochs", "random-search"), ("standard_errors", "ceiling")):
        with monkeypatch.context() as patch, pytest.raises(NotApplicable, match="does not say"):
            patch.setattr(type(benchmark), method, lambda self, dataset, split="test": None)
            run_reference(config(1), row)


def test_a_blend_averages_the_ranks_of_prediction_and_size(toy_project: Path) -> None:
    from scipy.stats import rankdata

    outcome = run_reference(toy_config(), "random")
    benchmark, space = benchmark_for("toy", "toy"), SPACES.get("toy")()
    selected = selected_architectures(benchmark, "toy", toy_config().rank)
    guessed = rankdata([outcome.predictions[one].accuracy for one in selected])
    sizes = rankdata([space.complexity(one) for one in selected])
    truth = [benchmark.accuracy(one, "toy") for one in selected]
    assert outcome.result["blended_tau"] == pytest.approx(kendall_tau((guessed + sizes) / 2, truth))
