"""The search stage: architectures found with trained supernets. Needs no table of truth.

A search asks for scores at several costs; each score is computed once, stored in the checkpoint, and kept with the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.components.dataset import DataSet
from harness.components.registries import SEARCHES
from harness.components.search import Found, Search
from harness.components.space import Architecture
from harness.seeds import make_rng
from harness.study.configuration import RunConfig
from harness.training.cost import Meter
from harness.training.stages.rank import Found as SoFar
from harness.training.stages.rank import Predictions, predict
from harness.training.stages.train import Supernets

WHOLE = 0
"""The cost of a score on all ranking images; other costs are numbers of images."""

Scores = dict[int, Predictions]
"""By cost, the predicted accuracies."""


@dataclass
class Scorer:
    """Scores architectures with trained supernets. A `harness.components.search.Score`."""

    config: RunConfig
    supernets: Supernets
    dataset: DataSet
    meter: Meter
    report: Callable[[int, int], None]
    """Called with the number of scores so far, and of those that the search has asked for so far."""
    scores: Scores = field(default_factory=dict)
    """All scores so far, those of an earlier process included."""
    keep: Callable[[Predictions, SoFar], None] | None = None
    """Called after each evaluation: may save the scores so far."""
    also: Mapping[Architecture, float] = field(default_factory=dict)
    """Predictions on all ranking images that are known from elsewhere."""
    asked: Scores = field(default_factory=dict)
    """The scores that the search has asked for."""

    def __call__(self, architectures: Sequence[Architecture], batches: int | None = None) -> list[float]:
        rank = self.config.rank
        whole = len(self.dataset.valid.head(rank.images))
        images = whole if batches is None else batches * rank.batch_size
        cost = WHOLE if images >= whole else images
        known = self.scores.setdefault(cost, {})
        if cost == WHOLE:
            known |= {one: self.also[one] for one in architectures if one in self.also}
        keep, before = self.keep, sum(map(len, self.asked.values()))
        found = predict(
            self.supernets,
            architectures,
            self.dataset,
            rank if cost == WHOLE else replace(rank, images=images),
            self.meter,
            lambda done, total: self.report(before + done, before + total),
            stage="search",
            known=known,
            keep=None if keep is None else lambda so_far: keep(known, so_far),
        )
        known |= found
        self.asked.setdefault(cost, {}).update(found)
        return [found[architecture] for architecture in architectures]


def search(scorer: Scorer) -> list[Found]:
    """What the configuration's search finds, best first."""
    config, space = scorer.config, scorer.supernets.space
    assert config.search is not None, "the configuration does not search"
    chosen: Search = config.search.build(SEARCHES, "search")
    limits = chosen.limits_in(space)
    found = chosen.find(scorer, space, make_rng(config.seed, "search"), limits)
    scorer.meter.stage("search")
    for one in found:
        if not limits.allow(space.check(one.architecture)):
            raise ValueError(f"search {config.search.name} found {one.architecture}, which is not within {limits}")
    return found[: chosen.keep]


def documents(found: Sequence[Found]) -> list[dict[str, Any]]:
    """What was found, as stored in a result."""
    return [{"architecture": list(one.architecture), "score": one.score} for one in found]
