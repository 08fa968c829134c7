"""The ranking stage: predictions against a direct evaluation, and how a ranking is judged."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch

from harness.components.dataset import DataSet
from harness.components.method import Part
from harness.components.registries import BENCHMARKS, DATASETS, SPACES
from harness.components.space import Architecture
from harness.data.loader import in_order
from harness.errors import UnknownName
from harness.metrics import complexity_bias, complexity_convergence, matched_null
from harness.seeds import derive
from harness.study.configuration import Ranking, RunConfig
from harness.study.judging import (
    Judgement,
    Prediction,
    Predictions,
    Whole,
    candidate_architectures,
    judge,
    selected_architectures,
    top_architectures,
)
from harness.training.cost import Meter
from harness.training.stages.rank import Found, predict, validation_loss
from harness.training.stages.train import Supernets, train
from harness.truth.table import Table, TableBenchmark
from tests.toy import toy_config


def toy(method: object = "spos", **more: Any) -> RunConfig:
    return toy_config(**{"method": method, "train": {"epochs": 12, "batch_size": 16}, **more})


def meter() -> Meter:
    return Meter(torch.device("cpu"))


@pytest.fixture(scope="module")
def images(toy_project: Path) -> DataSet:
    return DATASETS.get("toy")()  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def trained(images: DataSet) -> Supernets:
    return train(toy(), images, meter())


@pytest.fixture(scope="module")
def few_shot(images: DataSet) -> Supernets:
    return train(toy({"name": "fsnas", "split": 1}), images, meter())


def directly(network: torch.nn.Module, architecture: Architecture, dataset: DataSet, count: int) -> Prediction:
    """One image after the other."""
    hits, loss = 0, 0.0
    network.eval()
    with torch.no_grad():
        for image, label in in_order(dataset.valid.head(count), dataset, 1):
            chances = network(image, architecture).double().softmax(1)[0]
            hits += int(chances.argmax() == label)
            loss -= math.log(float(chances[int(label)]))
    return Prediction(100 * hits / count, loss / count)


def equal(found: Mapping[Architecture, Prediction], expected: Mapping[Architecture, Prediction]) -> bool:
    """Whether accuracies and losses are the same, up to what is rounded away."""
    assert list(found) == list(expected)
    pairs = zip(found.values(), expected.values(), strict=True)
    return all(one == pytest.approx(other, abs=2e-6, rel=1e-5) for one, other in pairs)


def ranked(supernets: Supernets, dataset: DataSet, which: Iterable[Architecture], **ranking: Any) -> Predictions:
    return predict(supernets, which, dataset, Ranking(**ranking), meter())


@pytest.mark.parametrize(("ranking", "count"), [({}, 50), ({"images": 13, "batch_size": 4}, 13), ({"images": 999}, 50)])
def test_predictions_equal_a_direct_evaluation(
    trained: Supernets, images: DataSet, ranking: dict[str, Any], count: int
) -> None:
    found = ranked(trained, images, trained.space, **ranking)
    assert equal(found, {a: directly(trained.networks[0], a, images, count) for a in trained.space})
    assert len(set(found.values())) > 3  # a ranking to speak of


def test_a_network_with_running_statistics_is_ranked_in_evaluation_mode(few_digits: DataSet) -> None:
    network = {"width": 2, "depth": 1, "batch_norm": "tracked"}
    supernets = train(RunConfig.from_json({"network": network, "train": {"epochs": 1}}), few_digits, meter())
    supernets.networks[0].train()
    some = [(3, 3, 3, 3, 3, 3), (2, 3, 1, 3, 2, 3), (3, 2, 2, 1, 3, 2), (1, 3, 3, 2, 1, 3)]
    found = ranked(supernets, few_digits, some, batch_size=3)
    assert equal(found, {a: directly(supernets.networks[0], a, few_digits, 40) for a in some})
    losses = []
    for size in (3, 8):  # statistics of a batch would depend on its size
        supernets.networks[0].train()
        losses.append(validation_loss(supernets, some, few_digits, Ranking(images=8, batch_size=size), meter()))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_few_shot_takes_each_architecture_from_its_own_supernet(few_shot: Supernets, images: DataSet) -> None:
    assert [part.fixed for part in few_shot.parts] == [{1: 0}, {1: 1}]
    found = ranked(few_shot, images, few_shot.space)
    assert equal(found, {a: directly(few_shot.networks[a[1]], a, images, 50) for a in few_shot.space})
    assert not equal(found, {a: directly(few_shot.networks[1 - a[1]], a, images, 50) for a in few_shot.space})


def test_a_prediction_does_not_depend_on_the_others(trained: Supernets, images: DataSet) -> None:
    together = ranked(trained, images, trained.space)
    for architecture, accuracy in together.items():
        assert ranked(trained, images, [architecture]) == {architecture: accuracy}
    assert ranked(trained, images, reversed(list(trained.space))) == together
    assert ranked(trained, images, []) == {}


def test_equal_functions_are_evaluated_once_and_equal(few_digits: DataSet) -> None:
    """On NAS-Bench-201, where equal functions sum their terms in different orders."""
    config = RunConfig.from_json({"network": {"width": 2, "depth": 1}, "train": {"epochs": 1}})
    supernets = train(config, few_digits, meter())
    space = supernets.space
    members: dict[Architecture, list[Architecture]] = {}
    for architecture in space:
        members.setdefault(space.function_class(architecture), []).append(architecture)
    shared = [group[-3:] for group in members.values() if len(group) > 2][::60]
    counts = meter()
    asked = [a for group in shared for a in group]
    found = predict(supernets, asked, few_digits, Ranking(), counts)
    assert len(shared) > 5 and counts.evaluations == len(shared)
    assert list(counts.stages) == ["rank"]
    for group in shared:
        assert len({found[architecture] for architecture in group}) == 1
        assert ranked(supernets, few_digits, [group[-1]]) == {group[-1]: found[group[0]]}


def test_the_same_function_of_two_supernets_is_evaluated_twice(few_shot: Supernets, images: DataSet) -> None:
    counts = meter()
    predict(few_shot, [(0, 0, 0), (0, 0, 1), (0, 1, 0)], images, Ranking(), counts)
    assert counts.evaluations == 2


def test_progress_counts_up_to_the_number_of_classes(trained: Supernets, images: DataSet) -> None:
    told: list[tuple[int, int]] = []
    predict(trained, trained.space, images, Ranking(), meter(), lambda done, total: told.append((done, total)))
    assert told == [(done, 9) for done in range(1, 10)]


def test_what_is_known_is_not_evaluated_again(trained: Supernets, images: DataSet) -> None:
    """Equal functions share what is known of one of them; the rest comes out as if nothing had been known."""
    whole = ranked(trained, images, trained.space)
    known: Predictions = {architecture: whole[architecture] for architecture in [(0, 1, 1), (1, 0, 0), (2, 1, 1)]}
    counts, told = meter(), list[tuple[int, int]]()
    found = predict(
        trained,
        trained.space,
        images,
        Ranking(),
        counts,
        lambda done, total: told.append((done, total)),
        known=known,
    )
    assert list(found.items()) == list(whole.items())
    assert counts.evaluations == 6 and told == [(done, 9) for done in range(4, 10)]
    # Believed, not checked.
    twins, believed = ((0, 0, 0), (0, 1, 0)), Prediction(3.5, 1.5)
    assert predict(trained, twins, images, Ranking(), meter(), known={twins[1]: believed}) == dict.fromkeys(
        twins, believed
    )


@pytest.mark.parametrize("every", [1, 4])
def test_what_was_found_so_far_can_be_kept(every: int, trained: Supernets, images: DataSet) -> None:
    whole = ranked(trained, images, trained.space)
    kept: list[Predictions] = []
    asked = 0

    def keep(found: Found) -> None:
        nonlocal asked
        asked += 1
        if asked % every == 0:
            kept.append(found())

    assert list(predict(trained, trained.space, images, Ranking(), meter(), keep=keep).items()) == list(whole.items())
    assert asked == 9 and len(kept) == 9 // every
    for part, classes in zip(kept, range(every, 10, every), strict=True):
        assert part.items() <= whole.items()
        assert len({trained.space.function_class(architecture) for architecture in part}) == classes
        resumed = predict(trained, trained.space, images, Ranking(), meter(), known=part)
        assert list(resumed.items()) == list(whole.items())


def test_candidates_are_a_fixed_sample(toy_project: Path) -> None:
    space = SPACES.get("toy")()
    assert candidate_architectures(space, Ranking()) == candidate_architectures(space, Ranking(candidates=12))
    assert candidate_architectures(space, Ranking()) == list(space)
    some = candidate_architectures(space, Ranking(candidates=5))
    assert some == sorted(set(some)) and len(some) == 5
    assert some == candidate_architectures(space, Ranking(candidates=5, bins=7, selection="equal-count", images=3))


def benchmark(truth: list[float]) -> TableBenchmark:
    """The toy's table with that many correct answers of 60 for each of its nine networks."""
    known: TableBenchmark = BENCHMARKS.get("toy")()
    correct = np.array(truth, np.uint16)[:, None]
    return TableBenchmark("made up", known.space, Table(known.table.classes, correct, correct, known.table.provenance))


# Classes in order: (0, *, *), then (1, 0, 0) to (2, 1, 1).
RISING = [10.0, 20, 30, 40, 50, 51, 52, 53, 54]


def judged(
    accuracies: Mapping[Architecture, float],
    truth: list[float],
    parts: tuple[Part, ...] = (Part({}),),
    losses: Mapping[Architecture, float] = MappingProxyType({}),
    **ranking: Any,
) -> Any:
    space = SPACES.get("toy")()
    predictions = {one: Prediction(value, losses.get(one)) for one, value in accuracies.items()}
    return judge(predictions, Supernets(space, parts, ()), benchmark(truth), "toy", Ranking(**ranking))


def test_ties_go_to_the_lowest_number_whatever_the_truth_says(toy_project: Path) -> None:
    space = SPACES.get("toy")()
    predictions = dict.fromkeys(space, 5.0) | {(1, 0, 1): 9.0, (2, 1, 1): 9.0}
    judgement = judged(predictions, RISING)
    assert judgement.top1 == (1, 0, 1)
    assert judgement.top1_accuracy == pytest.approx(100 * 30 / 60)
    # In the order of their numbers, not in that in which they were asked for.
    assert judged(dict(reversed(predictions.items())), RISING).top1 == (1, 0, 1)


def test_of_several_supernets_the_winner_with_the_best_truth_counts(toy_project: Path) -> None:
    space = SPACES.get("toy")()
    parts = tuple(Part({0: choice}) for choice in range(3))
    predictions = dict.fromkeys(space, 1.0)
    predictions |= {(0, 1, 1): 90.0, (1, 1, 1): 60.0, (2, 0, 1): 3.0, (2, 1, 1): 2.0}
    assert judged(predictions, RISING, parts).top1 == (2, 0, 1)
    falling = RISING[::-1]
    assert judged(predictions, falling, parts).top1 == (0, 1, 1)
    # With one supernet the prediction alone decides.
    assert judged(predictions, RISING).top1 == (0, 1, 1)


def test_top1_has_an_honest_number_and_that_of_random_candidates_beside_it(toy_project: Path) -> None:
    """The best of three winners by truth: no better than the best of three random ones may mean nothing."""
    space = SPACES.get("toy")()
    parts = tuple(Part({0: choice}) for choice in range(3))
    predictions = dict.fromkeys(space, 1.0)
    predictions |= {(0, 1, 1): 90.0, (1, 1, 1): 60.0, (2, 0, 1): 3.0, (2, 1, 1): 2.0}
    found = judged(predictions, RISING, parts)
    true = {one: benchmark(RISING).accuracy(one, "toy") for one in space}
    assert (found.top1_accuracy, found.top1_accuracy_predicted) == (true[2, 0, 1], true[0, 1, 1])
    draws = [max(drawn) for drawn in itertools.combinations(true.values(), 3)]
    assert (found.top1_of, found.top1_accuracy_random) == (3, pytest.approx(statistics.fmean(draws)))
    alone = judged(predictions, RISING)
    assert alone.top1_accuracy == alone.top1_accuracy_predicted == true[0, 1, 1]
    assert (alone.top1_of, alone.top1_accuracy_random) == (1, pytest.approx(statistics.fmean(true.values())))


def test_only_candidates_compete_for_top1(toy_project: Path) -> None:
    space = SPACES.get("toy")()
    candidates = candidate_architectures(space, Ranking(candidates=3))
    outsider = next(a for a in space if a not in candidates)
    predictions = {architecture: float(space.index(architecture)) for architecture in space} | {outsider: 99.0}
    assert judged(predictions, RISING, candidates=3).top1 == candidates[-1]
    assert judged(predictions, RISING).top1 == outsider


def test_tau_is_taken_over_the_selected(toy_project: Path) -> None:
    """Four bins of accuracy: the best of each are the architectures 4, 5, 6 and 11."""
    space = SPACES.get("toy")()
    chosen = selected_architectures(benchmark(RISING), "toy", Ranking(bins=4))
    assert [space.index(a) for a in chosen] == [4, 5, 6, 11]
    numbers = {space.architecture(index): float(index) for index in range(12)}
    assert judged(numbers, RISING, bins=4).kendall_tau == pytest.approx(1)
    assert judged({a: -value for a, value in numbers.items()}, RISING, bins=4).kendall_tau == pytest.approx(-1)
    # One of six pairs the wrong way round; what is not selected does not count.
    swapped = numbers | {(1, 0, 0): 5.5, (2, 0, 0): -7.0}
    judgement = judged(swapped, RISING, bins=4)
    assert (judgement.kendall_tau, judgement.selected) == (pytest.approx(4 / 6), 4)


def test_architectures_are_ranked_by_loss_where_that_is_asked_for(toy_project: Path) -> None:
    """The lowest loss is best. C³ is about accuracies, whatever ranks."""
    space = SPACES.get("toy")()
    rising = {space.architecture(index): float(index) for index in range(12)}
    falling = {one: 100 - value for one, value in rising.items()}
    by_loss = judged(falling, RISING, losses=falling, bins=4, by="loss", top_share=1.0)
    by_accuracy = judged(falling, RISING, losses=falling, bins=4, top_share=1.0)
    assert (by_loss.kendall_tau, by_accuracy.kendall_tau) == (pytest.approx(1), pytest.approx(-1))
    assert by_loss.tau_by == by_accuracy.tau_by == pytest.approx({"accuracy": -1, "loss": 1})
    assert by_loss.top1 == space.architecture(11) and by_accuracy.top1 == space.architecture(0)
    assert by_loss.complexity_convergence == by_accuracy.complexity_convergence
    assert by_loss.complexity_bias != by_accuracy.complexity_bias
    # Scores of another origin have no loss, and rank as they are.
    assert judged(rising, RISING, bins=4, by="loss").tau_by == pytest.approx({"accuracy": 1})


def test_another_data_set_than_the_benchmarks_is_refused(toy_project: Path) -> None:
    with pytest.raises(UnknownName, match="no data set of benchmark made up is named 'digits'"):
        selected_architectures(benchmark(RISING), "digits", Ranking())


def test_the_top_are_the_best_by_truth_with_ties_to_the_lowest_numbers(toy_project: Path) -> None:
    space = SPACES.get("toy")()
    made = benchmark([60.0, 20, 30, 50, 50, 50, 40, 10, 10])  # numbers 0 to 3 are one network
    numbers = [space.index(one) for one in top_architectures(made, "toy", Ranking(top_share=0.5))]
    assert numbers == [0, 1, 2, 3, 6, 7]  # six of twelve: 8 ties with 6 and 7
    assert top_architectures(made, "toy", Ranking()) == []
    assert len(top_architectures(made, "toy", Ranking(top_share=1.0))) == 12
    some = top_architectures(made, "toy", Ranking(top_share=0.5, top_sample=3))
    assert len(some) == 3 and {space.index(one) for one in some} < set(numbers)
    assert some == top_architectures(made, "toy", Ranking(top_share=0.5, top_sample=3, images=7))
    assert len(top_architectures(made, "toy", Ranking(top_share=0.5, top_sample=100))) == 6


def test_thirty_percent_of_the_embedded_benchmark_are_4688() -> None:
    digits = BENCHMARKS.get("digits")()
    assert len(top_architectures(digits, "digits", Ranking(top_share=0.3))) == 4688


def test_cb_and_c3_are_judged_where_they_are_asked_for(toy_project: Path) -> None:
    space = SPACES.get("toy")()
    predictions = {architecture: float(-space.complexity(architecture)) for architecture in space}
    plain = judged(predictions, RISING)
    assert plain.complexity_bias is plain.complexity_convergence is plain.neutral_complexity_bias is None
    biased = judged(predictions, RISING, top_share=1.0)
    assert biased.complexity_bias == 1.0  # whoever is ranked too low is larger: the prediction is that
    assert 0.5 < biased.neutral_complexity_bias < 1.0 and biased.complexity_convergence < 0
    assert (biased.kendall_tau, biased.top1) == (plain.kendall_tau, plain.top1)


def test_z_of_cb_and_c3_is_against_the_null_of_the_run() -> None:
    """Predictors whose errors have nothing to do with size: z is about 0, and CB is not that of random numbers."""
    digits = BENCHMARKS.get("digits")()
    truth, numbers = digits.accuracies("digits"), {one: digits.space.index(one) for one in digits.space}
    ranking = Ranking(top_share=0.3, top_sample=300, candidates=1)

    def of(seed: int, drawn: int) -> Judgement:
        noisy = truth + np.random.default_rng(drawn).normal(0, 1, len(truth))
        predictions = {one: Prediction(float(noisy[number])) for one, number in numbers.items()}
        return judge(predictions, Whole(digits.space), digits, "digits", ranking, seed)

    found = [of(seed, seed) for seed in range(9)]
    for name in ("complexity_bias_z", "complexity_convergence_z"):
        assert abs(statistics.fmean(getattr(one, name) for one in found)) < 3 / math.sqrt(9), name
    neutral = found[0].neutral_complexity_bias or 0
    assert abs(statistics.fmean(one.complexity_bias or 0 for one in found) - neutral) > 0.03
    assert of(1, 0).complexity_bias == found[0].complexity_bias
    assert of(1, 0).complexity_bias_z != found[0].complexity_bias_z  # the seed draws the permutations
    top = top_architectures(digits, "digits", ranking)
    noisy = truth + np.random.default_rng(8).normal(0, 1, len(truth))
    guess, true = (values[[numbers[one] for one in top]] for values in (noisy, truth))
    sizes = [float(digits.space.complexity(one)) for one in top]
    nulls = matched_null(guess, true, np.random.default_rng(derive(8, "matched null")))
    for measure, name in ((complexity_bias, "complexity_bias"), (complexity_convergence, "complexity_convergence")):
        values = [measure(row, true, sizes) for row in nulls]
        assert getattr(found[8], f"{name}_null") == pytest.approx(statistics.fmean(values))
        z = (measure(guess, true, sizes) - statistics.fmean(values)) / statistics.stdev(values)
        assert getattr(found[8], f"{name}_z") == pytest.approx(z)
