"""What the cost of a supernet's training buys otherwise, and what no method can exceed: searches, oracles.

A search trains architectures one by one and keeps the best on validation images. Its cost is that of the
configuration's training, in epochs of single paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import ClassVar

import numpy as np

from harness.components.proxy import Finder, NotApplicable, Outcome, Proxy, Scene, Scores
from harness.components.registries import PROXIES
from harness.components.space import Architecture
from harness.seeds import derive, make_rng

DRAWS = 1000
"""Searches whose outcomes are averaged."""

TRAINED = 10
"""Architectures that share the cost, each trained as long as that allows; fewer where an epoch each is too much."""


@PROXIES.register("random-search")
class RandomSearch(Finder):
    """Random search in the table: as many random architectures as the cost allows to train as the table was.

    The best by validation accuracy is kept. The accuracy is the mean over 1,000 such searches.
    """

    label: ClassVar[str] = "Random search, equal cost"
    order: ClassVar[int] = 30

    def find(self, scene: Scene) -> Outcome:
        epochs = scene.benchmark.training_epochs(scene.truth)
        if epochs is None:
            raise NotApplicable("the table does not say what one of its accuracies costs")
        count = min(scene.space.size, max(1, int(scene.budget / epochs)))
        valid, test = (scene.benchmark.accuracies(scene.truth, split) for split in ("valid", "test"))
        rng = np.random.default_rng(derive(scene.seed, "random search"))
        drawn = [rng.choice(scene.space.size, count, replace=False) for _ in range(DRAWS)]
        return Outcome(None, fmean(float(test[one[valid[one].argmax()]]) for one in drawn), count)


@PROXIES.register("trained-alone")
class TrainedAlone(Finder):
    """Ten random architectures, each trained as a stand-alone network for a tenth of the cost; the best is kept."""

    label: ClassVar[str] = "Trained alone, equal cost"
    order: ClassVar[int] = 31
    on_request: ClassVar[bool] = True

    def find(self, scene: Scene) -> Outcome:
        count = max(1, min(TRAINED, int(scene.budget), scene.space.size))
        drawn = scene.space.distinct(count, make_rng(scene.seed, "trained alone"))
        reached = {one: scene.trained(one, max(1, int(scene.budget / count))) for one in drawn}
        best = max(reached, key=lambda one: reached[one])
        return Outcome(best, scene.benchmark.accuracy(best, scene.truth), count)


@PROXIES.register("table-best")
class TableBest(Finder):
    """The best of the table by the accuracies that judge: no search finds a better one."""

    label: ClassVar[str] = "Best of the table"
    order: ClassVar[int] = 40

    def find(self, scene: Scene) -> Outcome:
        truth = scene.benchmark.accuracies(scene.truth)
        return Outcome(scene.space.architecture(int(truth.argmax())), float(truth.max()), scene.space.size)


@PROXIES.register("ceiling")
class Ceiling(Proxy):
    """The accuracies that judge, with the noise of another such table: no predictor can expect more."""

    label: ClassVar[str] = "Ceiling: the table's own noise"
    order: ClassVar[int] = 41
    accuracies: ClassVar[bool] = True

    def predict(self, scene: Scene, architectures: Sequence[Architecture]) -> Scores:
        errors = scene.benchmark.standard_errors(scene.truth)
        if errors is None:
            raise NotApplicable("the table does not say how exact its accuracies are")
        truth = scene.benchmark.accuracies(scene.truth)
        noisy = truth + errors * np.random.default_rng(derive(scene.seed, "ceiling")).standard_normal(len(truth))
        return {one: float(noisy[scene.space.index(one)]) for one in architectures}
