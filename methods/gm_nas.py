"""GM-NAS, few-shot NAS by gradient matching (Hu et al., 2022): supernets split where their choices disagree most.

A supernet is trained as SPOS trains one. At a split, for every decision that is not split yet, each of its choices i is
fixed in turn, and the gradient g_i of all weights that do not belong to that decision is taken. Choices disagree by
D_ij = 1 − cos(g_i, g_j), here the mean over batches, each with one random path for all other decisions. The choices are
partitioned into two halves (of five: two and three) with the least sum of D within; the decision with the largest sum
across is split. The two parts go on with copies of the weights; after the last split they restart, with initial weights
and the schedule from its beginning. Ranking takes each architecture from its own sub-supernet, as FSNAS does.

With momentum separation the clustered decisions are never split, as in FSNAS.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from harness.components.clustering import Clustering
from harness.components.method import Method, Part
from harness.components.registries import METHODS
from harness.components.sampler import Sampler
from harness.components.space import Architecture, Space
from harness.errors import InvalidConfiguration, require

if TYPE_CHECKING:
    import torch

    from harness.data.loader import Batch
    from harness.training.supernet import SupernetTraining

Halves = tuple[tuple[int, ...], tuple[int, ...]]


@METHODS.register("gm-nas")
@dataclass(frozen=True)
class GMNAS(Method):
    """Few-shot: supernets split twice, at the decisions whose choices have the least similar gradients."""

    ranks_reason: ClassVar[str | None] = None

    split_after: tuple[float, ...] = (20 / 90, 40 / 90)
    """When supernets split, as shares of the epochs (published: after 20 and 40 of 90). A split that would leave no
    epoch is left out."""
    batches: int = 100
    """Batches of training images that gradients are compared on."""
    restart: bool = True
    """Whether the supernets of the last split begin with initial weights and their schedule anew."""

    def __post_init__(self) -> None:
        require(self.batches >= 1, f"method.batches must be at least 1, not {self.batches}")
        rising = all(one < other for one, other in itertools.pairwise((0.0, *self.split_after, 1.0)))
        require(
            bool(self.split_after) and rising,
            f"method.split_after must be rising shares between 0 and 1, not {list(self.split_after)}",
        )

    def check(self, space: Space, clustering: Clustering, sampler: Sampler) -> None:
        if type(space).operation_parameters is Space.operation_parameters:
            raise InvalidConfiguration(
                f"GM-NAS compares gradients of the weights that do not belong to a decision, and {space.name} does not "
                "say which do: its class needs operation_parameters(network)"
            )
        if len(splittable(space, Part({}), clustering)) < len(self.split_after):
            raise InvalidConfiguration(
                f"GM-NAS splits {len(self.split_after)} decisions of several choices that are not clustered, and "
                f"{space.name} has fewer; use fewer clusters.edges or fewer entries of method.split_after"
            )

    def supernets_per_epoch(self, parts: int) -> float:
        spans = itertools.pairwise((0.0, *self.split_after, 1.0))
        return sum(parts * 2.0**level * (end - start) for level, (start, end) in enumerate(spans))

    def paths(self, training: SupernetTraining) -> list[Architecture]:
        return [training.source.draw(training.rng)]

    def restarts(self, part: Part) -> bool:
        return self.restart and len(part.allowed) == len(self.split_after)

    def divide(self, training: SupernetTraining, epochs: int) -> tuple[Part, ...] | None:
        level = len(training.part.allowed)
        if level == len(self.split_after) or epochs != self.epoch_of(level, training):
            return None
        candidates = splittable(training.space, training.part, training.clustering)
        choices = {decision: tuple(range(training.space.choices[decision])) for decision in candidates}
        disagreements = disagreement(training, choices, self.batches)
        best = {decision: halves(disagreements[decision]) for decision in candidates}
        split = max(candidates, key=lambda decision: across(disagreements[decision], best[decision]))
        return tuple(Part(training.part.fixed, {**training.part.allowed, split: half}) for half in best[split])

    def epoch_of(self, level: int, training: SupernetTraining) -> int:
        """The number of epochs after which supernets of that level split."""
        epochs, done = training.total_steps // training.steps_per_epoch, 0
        for share in self.split_after[: level + 1]:
            done = max(done + 1, round(share * epochs))
        return done


def splittable(space: Space, part: Part, clustering: Clustering) -> list[int]:
    """The decisions that can be split: of several choices, not split yet, and not clustered."""
    taken = {*part.fixed, *part.allowed, *(clustering.decisions or ())}
    return [one for one in space.operation_decisions if space.choices[one] > 1 and one not in taken]


def disagreement(
    training: SupernetTraining, choices: dict[int, tuple[int, ...]], batches: int
) -> dict[int, list[list[float]]]:
    """By decision, D over pairs of its choices: the mean of 1 − cosine of gradients over so many batches."""
    import torch

    owned = training.space.operation_parameters(training.network)
    own = {id(parameter): decision for (decision, _), parameters in owned.items() for parameter in parameters}
    others = {
        decision: [number for number, one in enumerate(training.momentum.parameters) if own.get(id(one)) != decision]
        for decision in choices
    }
    sums = {decision: torch.zeros(len(all_), len(all_)) for decision, all_ in choices.items()}
    training.clear_gradients()  # and training mode
    for number in range(batches):
        batch, path = training.unaugmented.batch(number), training.source.draw(training.rng)
        passes = 1 + sum(len(all_) - 1 for all_ in choices.values())
        with training.sampling(passes, passes * round(len(batch.labels) / training.weight(batch))):
            here = gradients(training, batch, path)  # that of one choice of every decision
            for decision, all_ in choices.items():
                changed = [(*path[:decision], choice, *path[decision + 1 :]) for choice in all_]
                found = [here if one == path else gradients(training, batch, one) for one in changed]
                rows = torch.stack([torch.cat([one[place].flatten() for place in others[decision]]) for one in found])
                rows = torch.nn.functional.normalize(rows, dim=1)
                sums[decision] += 1 - (rows @ rows.t()).cpu()
    return {decision: (sum_ / batches).tolist() for decision, sum_ in sums.items()}


def gradients(training: SupernetTraining, batch: Batch, path: Architecture) -> list[torch.Tensor]:
    """The gradient of a path's loss in every parameter, zero where the path does not use it."""
    import torch

    loss = training.momentum.scaler.scale(training.loss(batch, path) * training.weight(batch))
    found = list(torch.autograd.grad(loss, training.momentum.parameters, materialize_grads=True))
    training.ranks.sum_(found, training.momentum.parameters)
    return found


def halves(matrix: Sequence[Sequence[float]]) -> Halves:
    """The partition into two halves, as equal as can be, with the least sum of D within them."""
    every = range(len(matrix))
    firsts = itertools.combinations(every, len(matrix) // 2)
    partitions = [(first, tuple(one for one in every if one not in first)) for first in firsts]

    def within(both: Halves) -> float:
        return sum(matrix[i][j] for half in both for i, j in itertools.combinations(half, 2))

    return min(partitions, key=within)


def across(matrix: Sequence[Sequence[float]], both: Halves) -> float:
    """The sum of D over pairs of choices that a partition separates."""
    return sum(matrix[i][j] for i in both[0] for j in both[1])
