"""The search stage: architectures found with trained supernets. Needs no table of truth.

A search asks for scores, accuracies whatever `rank.by` is, at several costs; each score is computed once, stored in
the checkpoint, and kept with the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch

from harness.components.dataset import DataSet
from harness.components.registries import SEARCHES
from harness.components.search import Found, Search, counted_settings
from harness.components.space import Architecture
from harness.data.loading import evaluation_batches
from harness.seeds import make_rng
from harness.study.configuration import RunConfig
from harness.study.judging import Prediction, Predictions
from harness.training.calibration import calibrated
from harness.training.cost import Meter
from harness.training.precision import evaluating
from harness.training.ranks import ALONE, Ranks
from harness.training.stages.rank import Found as SoFar
from harness.training.stages.rank import RankingImages, predict
from harness.training.stages.train import Supernets

FOUND = ("parameters", "flops")
"""Counts of the best architecture found that a result holds."""

WHOLE = 0
"""The cost of a score on all ranking images; other costs are numbers of images."""

Scores = dict[int, Predictions]
"""By cost, what was predicted."""


@dataclass(frozen=True)
class SearchProgress:
    """The progress of a search, reported after each evaluation; all are `done` once per request."""

    done: int
    """Scores that are known of those that the search asks for now."""
    total: int
    generation: int | None
    """From 0 on; None for a search without generations."""
    generations: int | None
    scored: int
    """Different architectures scored so far, those asked for now not included until all are known."""
    best: float | None
    """The best predicted accuracy among these, on as many images as are asked for now."""


@dataclass(frozen=True)
class Scored:
    """One score that a search has asked for."""

    architecture: Architecture
    generation: int | None
    images: int
    """Its cost: the number of images that were looked at."""
    accuracy: float
    """Predicted, in percent."""


@dataclass
class Scorer:
    """Scores architectures with trained supernets. A `harness.components.search.Score`."""

    config: RunConfig
    supernets: Supernets
    dataset: DataSet
    meter: Meter
    report: Callable[[SearchProgress], None] = lambda progress: None
    ranks: Ranks = ALONE
    scores: Scores = field(default_factory=dict)
    """All scores so far, those of an earlier process included."""
    keep: Callable[[Predictions, SoFar], None] | None = None
    """Called after each evaluation: may save the scores so far."""
    also: Mapping[Architecture, Prediction] = field(default_factory=dict)
    """Predictions on all ranking images that are known from elsewhere."""
    asked: Scores = field(default_factory=dict)
    """The scores that the search has asked for."""
    history: list[Scored] = field(default_factory=list)
    """The same in the order in which they were first asked for."""
    rounds: int | None = None
    """The number of generations of the search, if it has any."""
    _images: dict[int, RankingImages] = field(default_factory=dict)

    @cached_property
    def settings(self) -> Any:
        """The settings of the stand-alone networks that limits count."""
        return counted_settings(self.supernets.space, self.config.network, self.dataset.inputs)

    def __call__(
        self, architectures: Sequence[Architecture], batches: int | None = None, *, generation: int | None = None
    ) -> list[float]:
        rank = self.config.rank
        whole = len(self.dataset.valid.head(rank.images))
        images = whole if batches is None else min(whole, batches * rank.batch_size)
        cost = WHOLE if images >= whole else images
        known, asked = self.scores.setdefault(cost, {}), self.asked.setdefault(cost, {})
        if cost == WHOLE:
            known |= {one: self.also[one] for one in architectures if one in self.also}
        ranking = rank if cost == WHOLE else replace(rank, images=images)
        keep = self.keep

        shown = len(architectures)  # less where some are equal in all that matters

        def report(done: int, total: int) -> None:
            nonlocal shown
            shown = total
            best = max((one.accuracy for one in asked.values()), default=None)
            self.report(SearchProgress(done, total, generation, self.rounds, len(asked), best))

        found = predict(
            self.supernets,
            architectures,
            self.dataset,
            ranking,
            self.meter,
            lambda done, total: report(done, total) if done < total else None,  # the last one below, with its scores
            stage="search",
            known=known,
            keep=None if keep is None else lambda so_far: keep(known, so_far),
            ranks=self.ranks,
            images=self._images.setdefault(
                cost, RankingImages(self.dataset, ranking, self.meter.device, self.supernets.augment)
            ),
        )
        known |= found
        new = [one for one in dict.fromkeys(architectures) if one not in asked]
        self.history += [Scored(one, generation, images, found[one].accuracy) for one in new]
        asked |= found
        report(shown, shown)
        return [found[architecture].accuracy for architecture in architectures]


def search(scorer: Scorer) -> list[Found]:
    """What the configuration's search finds, best first."""
    config, space = scorer.config, scorer.supernets.space
    assert config.search is not None, "the configuration does not search"
    chosen: Search = config.search.build(SEARCHES, "search")
    limits = chosen.limits_in(space, scorer.settings)
    chosen.check_limits(limits)
    scorer.rounds = chosen.rounds
    found: list[Found] = []
    for number, part in enumerate(scorer.supernets.parts if chosen.each_supernet else (None,)):
        own = replace(limits, within=None if part is None else part.__contains__)
        rng = make_rng(config.seed, "search", *([] if part is None else [number]))
        best = chosen.find(scorer, space, rng, own)[: chosen.keep]
        for one in best:
            if not own.allow(space.check(one.architecture)):
                raise ValueError(f"search {config.search.name} found {one.architecture}, which is not within {own}")
        found += best
    scorer.meter.stage("search")
    return sorted(found, key=lambda one: -one.score) if chosen.each_supernet else found


def inherited(scorer: Scorer, architecture: Architecture) -> dict[str, float | int]:
    """What the architecture is worth on the test images with the weights of its supernet, and its counts."""
    supernets, dataset, ranking = scorer.supernets, scorer.dataset, scorer.config.rank
    space, device = supernets.space, scorer.meter.device
    network, one = supernets.networks[supernets.part_of(architecture)], space.function_class(architecture)
    correct = total = 0
    calibrating = RankingImages(dataset, ranking, device, supernets.augment).calibrating
    with torch.no_grad(), evaluating(ranking.precision, device), calibrated(network, one, calibrating):
        for images, labels in evaluation_batches(dataset, dataset.test, ranking.batch_size, device):
            correct += int((network(images, one).argmax(1) == labels).sum())
            total += len(labels)
    scorer.meter.stage("search")
    counts = [count for count in FOUND if count in space.complexity_counts]
    sizes = {f"found_{count}": space.counted(architecture, count, scorer.settings) for count in counts}
    return {"found_accuracy": correct * 100 / total, **sizes}


def documents(found: Sequence[Found]) -> list[dict[str, Any]]:
    """What was found, as stored in a result."""
    return [{"architecture": list(one.architecture), "score": one.score} for one in found]


def history_document(scorer: Scorer) -> dict[str, list[Any] | dict[str, list[int]]]:
    """Every score that the search asked for, in order, as columns; architectures by number, as text."""
    space, settings, history = scorer.supernets.space, scorer.settings, scorer.history
    return {
        "architectures": [str(space.index(one.architecture)) for one in history],
        "generations": [one.generation for one in history],
        "images": [one.images for one in history],
        "accuracies": [one.accuracy for one in history],
        "counts": {
            count: [space.counted(one.architecture, count, settings) for one in history]
            for count in space.complexity_counts
        },
    }
