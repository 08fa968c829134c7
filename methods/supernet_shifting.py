"""Supernet Shifting (Zhang et al., 2024): an evolution at the end of training, whose candidates train, too.

The supernet first trains as SPOS, with the schedule over this part. Then architectures come from an evolution: a
candidate makes some SGD steps at a small constant rate, one path per step, and is scored on validation images. The best
so far are the parents of the next candidates and come again, so the weights shift towards them. Architectures are
ranked with the shifted weights; the best of the evolution is what the method has found.

The abstract: "apart from evaluating, the training loss is also accumulated in searching and the supernet is updated
every iteration". The public code (beichenzbc/Supernet-shifting) makes 20 steps of its own for each candidate, at a rate
of 1e-4 where the supernet began with 0.5, and scores it afterwards: that is what is done here. Inferred: the share of
the training, from 20 generations of 50 candidates after 150,000 steps. Momentum goes on from the training, where the
code begins a new optimiser. Transfer to another data set, with a new classifier, is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from harness.components.method import Step
from harness.components.registries import METHODS
from harness.components.search import Limits
from harness.components.space import Architecture
from harness.errors import require

from .evolution import Evolution
from .spos import SPOS

if TYPE_CHECKING:
    from torch import Tensor

    from harness.data.loader import Batch
    from harness.training.supernet import SupernetTraining

STATE = "evolution"


@METHODS.register("supernet-shifting")
@dataclass(frozen=True)
class SupernetShifting(SPOS):
    """Uniform paths; at the end those of an evolution, which trains each candidate a little and scores it."""

    ranks_reason: ClassVar[str | None] = "each process would score candidates on its own part of the images"

    share: float = 20_000 / 170_000
    """The share of training that the evolution has."""
    rate: float = 2e-4
    """The constant rate of its steps, relative to the initial rate."""
    steps: int = 20
    """Steps of each candidate before it is scored."""
    batches: int = 25
    """Batches of validation images that score it."""
    population: int = 50
    """Candidates per generation."""
    parents: int = 10
    """How many of the best so far have children."""
    mutations: int = 25
    """Candidates per generation that are mutated parents."""
    crossovers: int = 25
    """Candidates per generation that are crossed from two parents."""
    probability: float = 0.1
    """Of each decision of a mutated parent, to be drawn."""

    def __post_init__(self) -> None:
        require(0 < self.share < 1, f"method.share must be above 0 and below 1, not {self.share}")
        require(self.rate >= 0, f"method.rate must not be negative, not {self.rate}")
        for name, least in (("steps", 1), ("batches", 1), ("population", 1), ("parents", 1)):
            require(getattr(self, name) >= least, f"method.{name} must be at least {least}, not {getattr(self, name)}")
        children = self.mutations + self.crossovers
        require(
            min(self.mutations, self.crossovers) >= 0 and children <= self.population,
            f"method.mutations and method.crossovers must not be negative, and at most method.population together, "
            f"which is {self.population}, not {self.mutations} and {self.crossovers}",
        )
        require(0 < self.probability <= 1, f"method.probability must be above 0 and at most 1, not {self.probability}")

    def shifts_from(self, training: SupernetTraining) -> int:
        """The first step of the evolution, counted from 0."""
        return max(1, round((1 - self.share) * training.total_steps))

    def train_step(self, training: SupernetTraining, batch: Batch, step: int) -> Step:
        first = self.shifts_from(training)
        if step < first:
            [path] = self.paths(training)
            factor = training.factor(path, (step + training.first_step) / first)
            return _step(training, batch, path, step, factor)
        state = training.memory.setdefault(STATE, {"waiting": [], "made": 0, "scored": []})
        if not state["waiting"]:
            state["waiting"] = self.generation(training, state["scored"])
        path = tuple(state["waiting"][0])
        done = _step(training, batch, path, step, self.rate)
        state["made"] += 1
        if state["made"] == self.steps:
            others = [one for one in state["scored"] if tuple(one["path"]) != path]  # the last score of a path counts
            state["scored"] = [*others, {"path": path, "accuracy": self.accuracy(training, path)}]
            state["waiting"], state["made"] = state["waiting"][1:], 0
        return done

    def generation(self, training: SupernetTraining, scored: list[dict[str, Any]]) -> list[Architecture]:
        """Different candidates; those of earlier generations may come again."""
        breeding = Evolution(
            keep=1,
            population=self.population,
            parents=self.parents,
            mutations=self.mutations,
            crossovers=self.crossovers,
            probability=self.probability,
            mutation="resample",
        )
        best = sorted(scored, key=lambda one: -one["accuracy"])[: self.parents]
        parents = [tuple(one["path"]) for one in best]
        return breeding.children(parents, training.space, training.rng, Limits(training.space, {}), set())

    def accuracy(self, training: SupernetTraining, path: Architecture) -> float:
        """In percent, on validation images, by statistics of these where the supernet tracks any."""
        import torch

        from harness.training.calibration import calibrated

        network, mode = training.network, training.network.training
        batches = [training.validation.batch(number) for number in range(self.batches)]
        images = sum(len(one.labels) for one in batches)
        tracked = any(getattr(module, "running_mean", None) is not None for module in network.modules())
        times = 2 if tracked else 1
        with training.sampling(passes=times * len(batches), images=times * images), torch.no_grad():
            network.eval()
            with calibrated(network, path, [one.images for one in batches] if tracked else ()):
                correct = [(network(one.images, path).argmax(1) == one.labels).sum() for one in batches]
            network.train(mode)
            return 100 * float(torch.stack(correct).sum()) / images

    def found(self, training: SupernetTraining) -> list[Architecture]:
        scored = training.memory.get(STATE, {"scored": []})["scored"]
        return [tuple(one["path"]) for one in sorted(scored, key=lambda one: -one["accuracy"])[:1]]


def _step(training: SupernetTraining, batch: Batch, path: Architecture, step: int, factor: float) -> Step:
    """One path, one update at so many times the initial rate."""
    training.clear_gradients()
    loss: Tensor = training.loss(batch, path)
    training.backward(loss)
    training.update([path], step, [factor])
    return Step(loss.detach().reshape(1), 1, len(batch.labels))
