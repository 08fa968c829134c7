"""The ranking stage: what accuracy the supernets predict for architectures, and how good that is.

Architectures that are the same function of the supernet's weights are evaluated once, by their
representative, so a prediction does not depend on which other architectures were asked for.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from harness.benchmarks import Benchmark
from harness.benchmarks.selection import RULES
from harness.config import Ranking
from harness.cost import Meter
from harness.data import DataSet
from harness.data.loader import in_order
from harness.metrics import kendall_tau
from harness.seeds import derive
from harness.space import Architecture, Space
from harness.stages.train import Supernets

Predictions = dict[Architecture, float]
"""Predicted accuracy in percent."""


@torch.no_grad()
def predict(
    supernets: Supernets,
    architectures: Iterable[Architecture],
    dataset: DataSet,
    ranking: Ranking,
    meter: Meter,
    report: Callable[[int, int], None] = lambda done, total: None,
    stage: str = "rank",
) -> Predictions:
    """The accuracy of each architecture on the validation images, with its supernet's weights.

    Its time is booked on `stage`.
    """
    split = dataset.valid.head(ranking.images)
    batches = list(in_order(split, dataset, ranking.batch_size, meter.device))
    groups: dict[tuple[int, Architecture], list[Architecture]] = {}
    for architecture in architectures:
        key = supernets.part_of(architecture), supernets.space.function_class(architecture)
        groups.setdefault(key, []).append(architecture)
    for network in supernets.networks:
        network.eval()
    correct = []
    for done, (number, representative) in enumerate(groups):
        network = supernets.networks[number]
        hits = [(network(images, representative).argmax(1) == labels).sum() for images, labels in batches]
        correct.append(torch.stack(hits).sum())
        report(done + 1, len(groups))
    meter.evaluations += len(groups)
    accuracies = (torch.stack(correct).cpu().double() * (100 / len(split))).tolist() if correct else []
    meter.stage(stage)
    return {
        architecture: accuracy
        for members, accuracy in zip(groups.values(), accuracies, strict=True)
        for architecture in members
    }


def selected_architectures(benchmark: Benchmark, dataset: str, ranking: Ranking) -> list[Architecture]:
    """The architectures that Kendall's τ is taken over."""
    numbers = RULES[ranking.selection](benchmark.accuracies(dataset), ranking.bins)
    return [benchmark.space.architecture(int(number)) for number in numbers]


def candidate_architectures(space: Space, ranking: Ranking) -> list[Architecture]:
    """The architectures that compete for top-1: all, or a fixed random sample that no truth had a part in."""
    if ranking.candidates is None or ranking.candidates >= space.size:
        return list(space)
    chosen = random.Random(derive(0, "top-1 candidates", space.name)).sample(range(space.size), ranking.candidates)
    return [space.architecture(number) for number in sorted(chosen)]


@dataclass(frozen=True)
class Judgement:
    """How good a ranking is."""

    kendall_tau: float
    selected: int
    top1: Architecture
    top1_accuracy: float
    """The best-ranked architecture's stand-alone accuracy, looked up."""


def judge(
    predictions: Mapping[Architecture, float],
    supernets: Supernets,
    benchmark: Benchmark,
    dataset: str,
    ranking: Ranking,
) -> Judgement:
    """Compare predictions with the ground truth.

    Top-1: the best-ranked of each supernet's candidates (ties to the lowest number), of these the one
    with the best looked-up accuracy, as the paper does for several sub-supernets.
    """
    space = benchmark.space
    selected = selected_architectures(benchmark, dataset, ranking)
    truth = benchmark.accuracies(dataset)
    tau = kendall_tau([predictions[a] for a in selected], np.array([truth[space.index(a)] for a in selected]))
    winners: dict[int, Architecture] = {}
    for architecture in candidate_architectures(space, ranking):
        part = supernets.part_of(architecture)
        if part not in winners or predictions[architecture] > predictions[winners[part]]:
            winners[part] = architecture
    best = max(winners.values(), key=lambda architecture: truth[space.index(architecture)])
    return Judgement(tau, len(selected), best, float(truth[space.index(best)]))
