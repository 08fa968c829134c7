"""The ranking stage: the accuracies that supernets predict for architectures (`harness.study.judging` judges them).

Architectures that are the same function of the supernet's weights are evaluated once, by their
representative, so a prediction does not depend on which other architectures were requested.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, TypeVar

import torch

from harness.components.augmentation import Augmentation
from harness.components.dataset import DataSet
from harness.components.space import Architecture
from harness.components.supernet import SharedEvaluation
from harness.data.loading import EvaluationBatches, loader_for
from harness.errors import InvalidConfiguration
from harness.seeds import derive
from harness.study.configuration import Ranking
from harness.study.judging import Prediction, Predictions
from harness.training.calibration import calibrated
from harness.training.cost import Meter
from harness.training.precision import evaluating
from harness.training.profiling import during
from harness.training.ranks import ALONE, Ranks
from harness.training.stages.train import Supernets

Found = Callable[[], Predictions]
"""Returns the predictions made so far. Waits for the device, so it is called only when they are needed."""


Logits = Callable[[int, Architecture], torch.Tensor]
"""(batch number, architecture) → logits."""

T = TypeVar("T")

DIGITS = 6
"""Decimals of a loss that are kept: enough to tell architectures apart, and files stay small."""

ROUND = 10.0
"""Seconds after which ranks tell each other what they have found."""

RUN = 32
"""Neighbours that one rank evaluates: they share work."""


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
    augment: tuple[Augmentation, ...] = ()

    @cached_property
    def batches(self) -> EvaluationBatches:
        split = self.dataset.valid.head(self.ranking.images)
        return EvaluationBatches(self.dataset, split, self.ranking.batch_size, self.device)

    @cached_property
    def calibrating(self) -> Sequence[torch.Tensor]:
        """The first training images, or the first augmented batches of a training; empty where nothing is calibrated.

        They are the same for every architecture, trial and process.
        """
        size = self.ranking.batch_size
        if not self.ranking.calibration:
            return ()
        if self.ranking.calibration_images == "augmented":
            return AugmentedImages(self)
        split = self.dataset.train.head(self.ranking.calibration * size)
        return EvaluationBatches(self.dataset, split, size, self.device).images


class AugmentedImages(Sequence[torch.Tensor]):
    """Augmented batches of training images, made when they are asked for: those of ImageNet do not fit in memory."""

    def __init__(self, images: RankingImages) -> None:
        self.length = images.ranking.calibration
        size, seed = images.ranking.batch_size, derive(0, "calibration images")
        self.loader = loader_for(images.dataset, "train", size, seed, images.device, augment=images.augment)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, number: Any) -> Any:
        if not 0 <= number < self.length:
            raise IndexError(number)
        return self.loader.batch(number).images


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
    known: Mapping[Architecture, Prediction] = MappingProxyType({}),
    keep: Callable[[Found], None] | None = None,
    ranks: Ranks = ALONE,
    images: RankingImages | None = None,
) -> Predictions:
    """Accuracy and loss of each architecture on the validation images, with its supernet's weights, from one pass.

    A method with scores of its own has these in place of accuracies, and no losses.
    The time is booked on `stage`. Predictions in `known` (same weights, same images) are not computed again.
    After each evaluation `keep` may request the predictions so far. `images` are those of the ranking, if they are at
    hand already.
    """
    for network in supernets.networks:
        network.eval()
    if supernets.own_score is not None:
        return _own_scores(supernets.own_score, architectures, meter, report, stage, known, keep)
    images = images or RankingImages(dataset, ranking, meter.device, supernets.augment)
    groups: dict[tuple[int, Architecture], list[Architecture]] = {}
    for architecture in architectures:
        key = supernets.part_of(architecture), supernets.space.function_class(architecture)
        groups.setdefault(key, []).append(architecture)
    predictions = {key: known[one] for key, members in groups.items() for one in members if one in known}
    measured: dict[tuple[int, Architecture], torch.Tensor] = {}
    precision = partial(evaluating, ranking.precision, meter.device)
    logits: dict[int, Logits] = {}  # of one supernet at a time, because shared work takes memory

    def found() -> Predictions:
        if measured:
            total = sum(map(len, images.batches.labels))  # images that cannot be read are left out
            correct, loss = torch.stack(list(measured.values())).cpu().double().unbind(1)
            losses = (round(one / total, DIGITS) for one in loss.tolist())
            made = map(Prediction, (correct * (100 / total)).tolist(), losses)
            predictions.update(zip(measured, made, strict=True))
            measured.clear()
        meter.stage(stage)
        return {one: predictions[key] for key, members in groups.items() if key in predictions for one in members}

    def measure(key: tuple[int, Architecture]) -> torch.Tensor:
        """How many images are classified correctly, and the sum of their losses."""
        nonlocal logits
        number, representative = key
        batches = images.batches
        if number not in logits:
            with precision():
                # Calibration changes the network for each architecture: nothing can be shared.
                shared = not ranking.calibration
                logits = {number: evaluation(supernets.networks[number], batches.images, shared)}
        with precision(), calibrated(supernets.networks[number], representative, images.calibrating):
            answers = [logits[number](place, representative) for place in range(len(batches))]
        return torch.stack([counted(*pair) for pair in zip(answers, batches.labels, strict=True)]).double().sum(0)

    # A supernet's architectures one after the other.
    missing = sorted((key for key in groups if key not in predictions), key=lambda key: key[0])
    for done in in_rounds(ranks, missing, measure):
        measured.update(done)
        meter.evaluations += len(done)
        report(len(predictions) + len(measured), len(groups))
        if keep is not None:
            keep(found)
    return found()


def counted(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Of a batch: the number of correct answers, and the sum of the losses."""
    loss = torch.nn.functional.cross_entropy(logits.float(), labels, reduction="sum")
    return torch.stack([(logits.argmax(1) == labels).sum(dtype=loss.dtype), loss])


def in_rounds(
    ranks: Ranks, items: Sequence[T], compute: Callable[[T], torch.Tensor]
) -> Iterator[dict[T, torch.Tensor]]:
    """Numbers for each item, computed by the rank whose turn it is; after a round all ranks know its numbers.

    One process has rounds of one item. The first of several ranks says how many items the next round has, by the time
    of this one: ranks with slow items wait less in long rounds, and an interruption loses less in short ones.
    """
    begun, size = 0, 1
    while begun < len(items):
        started = time.perf_counter()
        now = items[begun : begun + size * ranks.size]
        begun += len(now)
        turns = (place // min(RUN, size) % ranks.size for place in range(len(now)))
        own = {item: compute(item) for item, turn in zip(now, turns, strict=True) if turn == ranks.index}
        if ranks.size > 1:
            nothing = torch.zeros(2, dtype=torch.double)
            numbers = torch.stack([*(own[item].cpu() if item in own else nothing for item in now), nothing])
            if ranks.first:
                numbers[-1, 0] = min(16 * size, max(1, int(size * ROUND / (time.perf_counter() - started))))
            ranks.sum_([numbers])
            size = int(numbers[-1, 0])
            own = dict(zip(now, numbers, strict=False))
        yield own


@torch.no_grad()
@during("evaluate")
def validation_loss(
    supernets: Supernets, architectures: Sequence[Architecture], dataset: DataSet, ranking: Ranking, meter: Meter
) -> float:
    """The cross-entropy on the ranking's images with the supernets' weights, averaged over the architectures."""
    images, total = RankingImages(dataset, ranking, meter.device, supernets.augment), 0.0
    count = sum(map(len, images.batches.labels))
    for number, network in enumerate(supernets.networks):
        network.eval()
        with evaluating(ranking.precision, meter.device):
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
    known: Mapping[Architecture, Prediction],
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
        scores[architecture] = Prediction(float(value))
        meter.evaluations += 1
        report(len(scores), len(wanted))
        if keep is not None:
            keep(found)
    return found()
