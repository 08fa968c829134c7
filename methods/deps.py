"""DεpS (Annavajjala et al., 2024): the largest subnet trains alone first, then smaller ones join at rising rates.

For a share of training (`delay`) each step trains the largest subnet alone, with the labels. Then a step trains the
smallest and random subnets as well, with the largest one's answers. Their rate begins at 0 and rises linearly to the
schedule's over a further share (`rise`): that is the paper's ε. A step sums the gradients; that of a subnet with the
rate η_k is weighted by η_k/η, η the largest one's.

The abstract has the idea: "starts the process of shrinking the full model when it is partially trained (∼50%)" and
"heuristics that dynamically adjust subnet learning rates incrementally". How rates rise is from the public code
(gatech-sysml/DepS), as are the four subnets of a step, the sum, and `rise`, 5 of 270 epochs. Inferred: `delay` is the
abstract's half, where the code's command begins after 145 of 270 epochs. The code also sorts channels by importance
once before smaller subnets join. Operations of the spaces here share no channels, so nothing is sorted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from harness.components.clustering import Clustering, refuse_clusters
from harness.components.method import Method, Step
from harness.components.registries import METHODS
from harness.components.sampler import Sampler
from harness.components.space import Architecture, Space
from harness.errors import require

from .sandwich import ends

if TYPE_CHECKING:
    from torch import Tensor

    from harness.data.loader import Batch
    from harness.training.supernet import SupernetTraining


@METHODS.register("deps")
@dataclass(frozen=True)
class DepS(Method):
    """The largest subnet first; then the smallest and random ones, too, at rates that rise from 0."""

    ranks_reason: ClassVar[str | None] = None
    paths_vary: ClassVar[bool] = True

    random: int = 2
    """How many random subnets a step trains, after the delay."""
    delay: float = 0.5
    """The share of training that the largest subnet has for itself."""
    rise: float = 5 / 270
    """The share of training over which the rate of the other subnets rises from 0 to the schedule's."""
    temperature: float = 1.0
    """What the logits of teacher and students are divided by; the loss is multiplied by its square."""

    def __post_init__(self) -> None:
        require(self.random >= 0, f"method.random must be at least 0, not {self.random}")
        require(0 <= self.delay < 1, f"method.delay must be from 0 to below 1, not {self.delay}")
        require(
            0 <= self.rise <= 1 - self.delay,
            f"method.rise must be from 0 to what method.delay leaves, {1 - self.delay:g}, not {self.rise}",
        )
        require(self.temperature > 0, f"method.temperature must be above 0, not {self.temperature}")

    def check(self, space: Space, clustering: Clustering, sampler: Sampler) -> None:
        refuse_clusters(clustering, "DεpS", "after the delay every step trains the largest and the smallest subnet")
        ends(space)

    def paths_per_step(self, space: Space) -> int:
        return 2 + self.random

    def supernets_per_epoch(self, parts: int) -> float:
        """Less than the parts: steps of the delay make one of the passes that `paths_per_step` says."""
        alone = self.delay / (2 + self.random)
        return parts * (alone + 1 - self.delay)

    def begin(self, training: SupernetTraining) -> None:
        training.memory["ends"] = ends(training.space)

    def risen(self, training: SupernetTraining, step: int) -> float:
        """The share of the schedule's rate that smaller subnets have at that step, counted from 0."""
        done, length = step + 1 - self.delay * training.total_steps, self.rise * training.total_steps
        return 0.0 if done <= 0 else min(1.0, done / length) if length else 1.0

    def rates(self, training: SupernetTraining, paths: Sequence[Architecture], step: int) -> list[float]:
        """Each path's rate relative to the initial one. While rates rise, to those of the schedule at the end of it."""
        factors, risen = training.rate_factors(paths, step), self.risen(training, step)
        if risen < 1:
            end = training.rate_factors(paths, round((self.delay + self.rise) * training.total_steps))
            factors[1:] = [risen * factor for factor in end[1:]]
        return factors

    def train_step(self, training: SupernetTraining, batch: Batch, step: int) -> Step:
        import torch
        from torch.nn import functional

        smallest, largest = map(tuple, training.memory["ends"])
        joined = self.risen(training, step) > 0
        others = [smallest, *(training.draw(self.random) if self.random else [])] if joined else []
        paths = [largest, *others]
        factors = self.rates(training, paths, step)
        # With CaLR the rates weight the gradients (Algorithm 2); otherwise the update has the rate of the largest.
        whole = 1.0 if training.factor_depends_on_path and joined else factors[0]
        training.clear_gradients()
        losses: list[Tensor] = []
        target: Tensor | None = None
        for path, factor in zip(paths, factors, strict=True):
            answers = training.logits(batch, path).float()
            if target is None:
                loss = training.loss_of(answers, batch.labels)
                target = (answers.detach() / self.temperature).softmax(1)
            else:
                loss = self.temperature**2 * functional.cross_entropy(answers / self.temperature, target)
            training.backward(loss * (factor / whole if whole else 0.0))
            losses.append(loss.detach())
        training.update(paths, step, factors)
        return Step(torch.stack(losses), len(paths), len(paths) * len(batch.labels))
