"""Interface of a sampler: how single paths are drawn. No torch at import."""

from __future__ import annotations

import inspect
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from harness.components.clustering import Clustering
from harness.components.space import Architecture, Fixed, Space

if TYPE_CHECKING:
    import torch

    from harness.training.supernet import SupernetTraining


Learner = Callable[["SupernetTraining", Sequence[Architecture], "torch.Tensor"], None]


class PathSource(ABC):
    """A sampler bound to a part of a space. Samplers that learn keep their state here."""

    uniform: ClassVar[bool] = False
    """Whether all paths of the part are equally likely: then a method may draw them in its own way."""

    @abstractmethod
    def draw(self, rng: random.Random) -> Architecture:
        """The next path.

        A source that needs the training (its network, step, validation batches) takes it as a second argument:
        `draw(self, rng, training)`. One that makes forward passes to choose says so, so that the trial's cost has
        them apart: `with training.sampling(passes=10, images=10 * len(batch.labels)):`.
        """

    def learn(self, training: SupernetTraining, paths: Sequence[Architecture], losses: torch.Tensor) -> None:
        """Called after each step, with the trained paths and the step's losses. The gradients are still there.

        The signature `learn(self, paths, losses)` works, too.
        """

    def state(self) -> Any:
        """The state to store for resuming, as plain JSON types."""
        return None

    def restore(self, state: Any) -> None:
        """Resume from a stored state."""


@dataclass(frozen=True)
class Sampler(ABC):
    """How single paths are drawn."""

    def held_out(self) -> int:
        """How many training images are set aside for it, at most a tenth of them: `training.held_out` has them.

        No step trains on them, and no ranking uses them.
        """
        return 0

    @abstractmethod
    def bind(self, space: Space, fixed: Fixed) -> PathSource:
        """A source of paths for the part of the space that `fixed` leaves open."""


class Informed(PathSource):
    """A source that takes the training, as one that needs no telling: everybody can draw from it."""

    def __init__(self, source: Any, training: SupernetTraining) -> None:
        self.source, self.training = source, training
        self.uniform = source.uniform  # type: ignore[misc]

    def draw(self, rng: random.Random) -> Architecture:
        with self.training.sampling():
            path: Architecture = self.source.draw(rng, self.training)
        return path

    def state(self) -> Any:
        return self.source.state()

    def restore(self, state: Any) -> None:
        self.source.restore(state)


class Within(PathSource):
    """A source whose paths outside a part are drawn again: the part allows sets of choices that it does not know."""

    def __init__(self, source: PathSource, inside: Callable[[Architecture], bool]) -> None:
        self.source, self.inside = source, inside

    def draw(self, rng: random.Random) -> Architecture:
        while not self.inside(path := self.source.draw(rng)):
            pass
        return path

    def state(self) -> Any:
        return self.source.state()

    def restore(self, state: Any) -> None:
        self.source.restore(state)


def draw_together(source: PathSource, clustering: Clustering, rng: random.Random, count: int) -> list[Architecture]:
    """Paths of one cluster from a source: the first decides which cluster."""
    paths = [source.draw(rng)]
    while len(paths) < count:
        path = source.draw(rng)
        if clustering.count == 1 or clustering.of(path) == clustering.of(paths[0]):
            paths.append(path)
    return paths


def informed(source: PathSource, training: SupernetTraining) -> PathSource:
    """The source itself, or with the training if its `draw` takes one."""
    return Informed(source, training) if len(inspect.signature(source.draw).parameters) > 1 else source


def learner(source: PathSource) -> Learner | None:
    """The source's `learn`, whichever signature it has; None if it does not learn."""
    while isinstance(source, Informed | Within):
        source = source.source
    if type(source).learn is PathSource.learn:
        return None
    if len(inspect.signature(source.learn).parameters) == 2:
        return lambda training, paths, losses: source.learn(paths, losses)  # type: ignore[call-arg]
    return source.learn
