"""The ranking stage: the accuracies that supernets predict for architectures, and how good the predictions are.

Architectures that are the same function of the supernet's weights are evaluated once, by their
representative, so a prediction does not depend on which other architectures were requested.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import torch

from harness.components.benchmark import Benchmark
from harness.components.dataset import DataSet
from harness.components.registries import METRICS
from harness.components.selection import RULES
from harness.components.space import Architecture, Space
from harness.components.supernet import SharedEvaluation
from harness.data.loading import EvaluationBatches
from harness.errors import InvalidConfiguration
from harness.metrics import complexity_bias, complexity_convergence, kendall_tau, neutral_complexity_bias
from harness.seeds import derive
from harness.study.configuration import Ranking
from harness.training.calibration import calibrated
from harness.training.cost import Meter
from harness.training.profiling import during
from harness.training.ranks import ALONE, Ranks
from harness.training.stages.train import Supernets

Predictions = dict[Architecture, float]
"""Predicted accuracy in percent."""


Found = Callable[[], Predictions]
"""Returns the predictions made so far. Waits for the device, so it is called only when they are needed."""


Logits = Callable[[int, Architecture], torch.Tensor]
"""(batch number, architecture) → logits."""


def evaluation(network: torch.nn.Module, batches: Sequence[torch.Tensor], shared: bool = True) -> Logits:
    """Logits on these batches; a network that can share work between architectures does so if it may."""
    if shared and isinstance(network, SharedEvaluation):
        return network.evaluation(batches)
    return lambda number, architecture: network(batches[number], architecture)


@dataclass(frozen=True)
class RankingImages:
    """The images that architectures are evaluated on, and those that calibrate them; read on first use, then held."""

    dataset: DataSet
    ranking: Ranking
    device: torch.device

    @cached_property
    def batches(self) -> EvaluationBatches:
        split = self.dataset.valid.head(self.ranking.images)
        return EvaluationBatches(self.dataset, split, self.ranking.batch_size, self.device)

    @cached_property
    def calibrating(self) -> Sequence[torch.Tensor]:
        """The first training images, without augmentation; empty where nothing is calibrated."""
        size = self.ranking.batch_size
        if not self.ranking.calibration:
            return ()
        split = self.dataset.train.head(self.ranking.calibration * size)
        return EvaluationBatches(self.dataset, split, size, self.device).images


@torch.no_grad()
@during("evaluate")
def predict(
    supernets: Supernets,
    architectures: Iterable[Architecture],
    dataset: DataSet,
    ranking: Ranking,
    meter: Meter,
    report: Callable[[int, int], None] = lambda done, total: None,
    stage: str = "rank",
    known: Mapping[Architecture, float] = MappingProxyType({}),
    keep: Callable[[Found], None] | None = None,
    ranks: Ranks = ALONE,
    images: RankingImages | None = None,
) -> Predictions:
    """The accuracy of each architecture on the validation images, with its supernet's weights; or its method's score.

    The time is booked on `stage`. Accuracies in `known` (same weights, same images) are not computed again.
    After each evaluation `keep` may request the predictions so far. `images` are those of the ranking, if they are at
    hand already.
    """
    for network in supernets.networks:
        network.eval()
    if supernets.own_score is not None:
        return _own_scores(supernets.own_score, architectures, meter, report, stage, known, keep)
    images = images or RankingImages(dataset, ranking, meter.device)
    groups: dict[tuple[int, Architecture], list[Architecture]] = {}
    for architecture in architectures:
        key = supernets.part_of(architecture), supernets.space.function_class(architecture)
        groups.setdefault(key, []).append(architecture)
    accuracies = {key: known[one] for key, members in groups.items() for one in members if one in known}
    correct: dict[tuple[int, Architecture], torch.Tensor] = {}
    logits: dict[int, Logits] = {}  # of one supernet at a time, because shared work takes memory

    def found() -> Predictions:
        if correct:
            total = sum(map(len, images.batches.labels))  # images that cannot be read are left out
            counts = torch.stack(list(correct.values())).cpu().double()
            accuracies.update(zip(correct, (counts * (100 / total)).tolist(), strict=True))
            correct.clear()
        meter.stage(stage)
        return {one: accuracies[key] for key, members in groups.items() if key in accuracies for one in members}

    for key in sorted(groups, key=lambda key: key[0]):  # a supernet's architectures one after the other
        if key in accuracies:
            continue
        number, representative = key
        batches, places = images.batches, ranks.share(range(len(images.batches)))
        if number not in logits:
            # Calibration changes the network for each architecture: nothing can be shared.
            logits = {number: evaluation(supernets.networks[number], batches.images, shared=not ranking.calibration)}
        with calibrated(supernets.networks[number], representative, images.calibrating):
            guesses = {place: logits[number](place, representative).argmax(1) for place in places}
        correct[key] = torch.stack([(guess == batches.labels[place]).sum() for place, guess in guesses.items()]).sum()
        ranks.sum_([correct[key]])
        meter.evaluations += 1
        report(len(accuracies) + len(correct), len(groups))
        if keep is not None:
            keep(found)
    return found()


@torch.no_grad()
@during("evaluate")
def validation_loss(
    supernets: Supernets, architectures: Sequence[Architecture], dataset: DataSet, ranking: Ranking, meter: Meter
) -> float:
    """The cross-entropy on the ranking's images with the supernets' weights, averaged over the architectures."""
    images, total = RankingImages(dataset, ranking, meter.device), 0.0
    count = sum(map(len, images.batches.labels))
    for number, network in enumerate(supernets.networks):
        network.eval()
        logits = evaluation(network, images.batches.images, shared=not ranking.calibration)
        for architecture in (one for one in architectures if supernets.part_of(one) == number):
            with calibrated(network, architecture, images.calibrating):
                for place, labels in enumerate(images.batches.labels):
                    answers = logits(place, architecture).float()
                    total += float(torch.nn.functional.cross_entropy(answers, labels, reduction="sum"))
    meter.stage("rank")
    return total / (count * len(architectures))


def _own_scores(
    score: Callable[[Architecture], float | None],
    architectures: Iterable[Architecture],
    meter: Meter,
    report: Callable[[int, int], None],
    stage: str,
    known: Mapping[Architecture, float],
    keep: Callable[[Found], None] | None,
) -> Predictions:
    """The method's own scores in place of accuracies. Raises `InvalidConfiguration` for one that is not a number."""
    wanted = list(dict.fromkeys(architectures))
    scores = {one: known[one] for one in wanted if one in known}

    def found() -> Predictions:
        meter.stage(stage)
        return dict(scores)

    for architecture in wanted:
        if architecture in scores:
            continue
        value = score(architecture)
        if value is None or not math.isfinite(value):
            raise InvalidConfiguration(f"the method's score of {architecture} is {value}; it must be a finite number")
        scores[architecture] = float(value)
        meter.evaluations += 1
        report(len(scores), len(wanted))
        if keep is not None:
            keep(found)
    return found()


def selected_architectures(benchmark: Benchmark, dataset: str, ranking: Ranking) -> list[Architecture]:
    """The architectures that Kendall's τ is computed over, for supernets that were trained on `dataset`."""
    numbers = RULES[ranking.selection](benchmark.accuracies(ranking.selects_on(dataset)), ranking.bins)
    return [benchmark.space.architecture(int(number)) for number in numbers]


def candidate_architectures(space: Space, ranking: Ranking) -> list[Architecture]:
    """The architectures that compete for top-1: all, or a fixed random sample drawn without the ground truth."""
    if ranking.candidates is None and not ranking.top1 and not space.enumerable:
        return []
    if ranking.candidates is None or ranking.candidates >= space.size:
        return list(space)
    return space.distinct(ranking.candidates, random.Random(derive(0, "top-1 candidates", space.name)))


def top_architectures(benchmark: Benchmark, dataset: str, ranking: Ranking) -> list[Architecture]:
    """The architectures that CB and C³ are computed over: the best by truth, or a fixed random sample of these.

    Ties at the threshold go to the lowest numbers. Empty if CB and C³ are not requested.
    """
    if ranking.top_share is None:
        return []
    truth = benchmark.accuracies(ranking.truth_of(dataset))
    count = math.ceil(len(truth) * ranking.top_share)
    numbers = np.argsort(-truth, kind="stable")[:count].tolist()
    if ranking.top_sample is not None and ranking.top_sample < count:
        numbers = random.Random(derive(0, "top sample", benchmark.space.name)).sample(numbers, ranking.top_sample)
    return [benchmark.space.architecture(number) for number in sorted(numbers)]


@dataclass(frozen=True)
class Judgement:
    """How good a ranking is."""

    kendall_tau: float | None
    """None without a table of truth."""
    selected: int
    top1: Architecture | None
    """The best-ranked architecture; None if not requested."""
    top1_accuracy: float | None
    """Its stand-alone accuracy, looked up; None without a table of truth."""
    complexity_bias: float | None = None
    """CB; this and the next two are None if not requested."""
    neutral_complexity_bias: float | None = None
    """The CB of errors that are independent of size."""
    complexity_convergence: float | None = None
    """C³."""
    own: Mapping[str, float] = field(default_factory=dict)
    """Registered metrics, by name."""


def judge(
    predictions: Mapping[Architecture, float],
    supernets: Supernets,
    benchmark: Benchmark | None,
    dataset: str,
    ranking: Ranking,
) -> Judgement:
    """Compare predictions of supernets that were trained on `dataset` with the ground truth.

    Top-1: the best-ranked of each supernet's candidates (ties to the lowest number), of these the one
    with the best looked-up accuracy, as the paper does for several sub-supernets. Without a table of truth, it is the
    one with the best predicted accuracy.
    """
    if benchmark is None:
        best = _winners(predictions, supernets, ranking) if ranking.top1 else []
        return Judgement(None, 0, max(best, key=lambda one: predictions[one]) if best else None, None)
    space = benchmark.space
    selected = selected_architectures(benchmark, dataset, ranking)
    truth = benchmark.accuracies(ranking.truth_of(dataset))
    tau = kendall_tau([predictions[a] for a in selected], np.array([truth[space.index(a)] for a in selected]))
    own = _measured(selected, predictions, benchmark, truth, ranking) if ranking.metrics else {}
    judgement = Judgement(tau, len(selected), None, None, own=own)
    if top := top_architectures(benchmark, dataset, ranking):
        guessed, true = [predictions[a] for a in top], [float(truth[space.index(a)]) for a in top]
        complexity = [float(space.complexity(a, ranking.complexity)) for a in top]
        judgement = replace(
            judgement,
            complexity_bias=complexity_bias(guessed, true, complexity),
            neutral_complexity_bias=neutral_complexity_bias(true, complexity),
            complexity_convergence=complexity_convergence(guessed, true, complexity),
        )
    if not ranking.top1:
        return judgement
    winner = max(_winners(predictions, supernets, ranking), key=lambda one: truth[space.index(one)])
    return replace(judgement, top1=winner, top1_accuracy=float(truth[space.index(winner)]))


def _measured(
    selected: Sequence[Architecture],
    predictions: Mapping[Architecture, float],
    benchmark: Benchmark,
    truth: npt.NDArray[np.float64],
    ranking: Ranking,
) -> dict[str, float]:
    """The registered metrics that are requested."""
    space = benchmark.space
    guessed = np.array([predictions[a] for a in selected])
    true = np.array([truth[space.index(a)] for a in selected])
    complexity = np.array([float(space.complexity(a, ranking.complexity)) for a in selected])
    return {name: float(METRICS.get(name)(guessed, true, complexity)) for name in ranking.metrics}


def _winners(
    predictions: Mapping[Architecture, float], supernets: Supernets, ranking: Ranking
) -> list[Architecture]:
    """The best-ranked of each supernet's candidates; ties go to the lowest number."""
    winners: dict[int, Architecture] = {}
    for architecture in candidate_architectures(supernets.space, ranking):
        part = supernets.part_of(architecture)
        if part not in winners or predictions[architecture] > predictions[winners[part]]:
            winners[part] = architecture
    return list(winners.values())
