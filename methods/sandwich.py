"""The sandwich rule with in-place distillation, as AlphaNet has it (Wang et al., 2021).

A step trains the largest subnet with the labels, and random ones and the smallest with the answers of the largest. The
distance of a student is an adaptive α-divergence: per image the larger of two, one that punishes what the student
misses and one that punishes what it makes up. Gradients are clipped by value: presets set `optimiser.clip_value` and
label smoothing for this method. CaLR weights each path's gradient by its rate, as in any step of several paths.

Largest and smallest are those of the space by parameters. A smallest subnet that does not connect input and output, as
NAS-Bench-201's without any operation, learns nothing but a bias: the smallest connected one takes its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from harness.components.clustering import Clustering, refuse_clusters
from harness.components.method import Method
from harness.components.registries import METHODS
from harness.components.sampler import Sampler
from harness.components.space import Architecture, Space
from harness.errors import InvalidConfiguration

if TYPE_CHECKING:
    from torch import Tensor

    from harness.data.loader import Batch
    from harness.training.supernet import SupernetTraining


@METHODS.register("sandwich")
@dataclass(frozen=True)
class Sandwich(Method):
    """The largest, random and the smallest subnet per step; the largest teaches the others (AlphaNet)."""

    ranks_reason: ClassVar[str | None] = None

    random: int = 2
    """How many random subnets a step trains."""
    alpha_min: float = -1.0
    """The α of the divergence that punishes what a student makes up."""
    alpha_max: float = 1.0
    """The α of the divergence that punishes what a student misses; 1 is the Kullback-Leibler divergence."""
    clip_ratio: float = 5.0
    """The largest (teacher's over student's probability)^α. Divergences with α = 1 have bounded gradients without."""

    def __post_init__(self) -> None:
        if self.random < 0:
            raise InvalidConfiguration(f"method.random must be at least 0, not {self.random}")
        if self.clip_ratio <= 0:
            raise InvalidConfiguration(f"method.clip_ratio must be above 0, not {self.clip_ratio}")
        for name in ("alpha_min", "alpha_max"):
            if getattr(self, name) == 0:
                raise InvalidConfiguration(f"method.{name} must not be 0, where the divergence has another form")

    def check(self, space: Space, clustering: Clustering, sampler: Sampler) -> None:
        refuse_clusters(clustering, "the sandwich rule", "every step trains the largest and the smallest subnet")
        ends(space)

    def paths_per_step(self, space: Space) -> int:
        return 2 + self.random

    def begin(self, training: SupernetTraining) -> None:
        training.memory["ends"] = ends(training.space)

    def train_step(self, training: SupernetTraining, batch: Batch, step: int) -> Tensor:
        import torch

        smallest, largest = map(tuple, training.memory["ends"])
        paths = [largest, *(training.draw(self.random) if self.random else []), smallest]
        factors = training.rate_factors(paths, step)
        training.clear_gradients()
        losses, teacher = [], None
        for path, scale in zip(paths, training.scales(factors), strict=True):
            answers = training.logits(batch, path).float()
            if teacher is None:
                loss, teacher = training.loss_of(answers, batch.labels), answers.detach()
            else:
                loss = self.divergence(answers, teacher)
            training.backward(loss * scale)
            losses.append(loss.detach())
        training.update(paths, step, factors)
        return torch.stack(losses)

    def divergence(self, student: Tensor, teacher: Tensor) -> Tensor:
        """A loss with the gradient of the adaptive α-divergence, averaged over the images."""
        import torch

        low, high = (alpha_divergence(student, teacher, a, self.clip_ratio) for a in (self.alpha_min, self.alpha_max))
        return torch.where(low[0] > high[0], low[1], high[1]).mean()


def alpha_divergence(student: Tensor, teacher: Tensor, alpha: float, clip: float) -> tuple[Tensor, Tensor]:
    """Per image, the divergence Σ q·f(p/q) of two answers in logits, and a loss with its gradient for the student's.

    p is the teacher, q the student, f(u) = (u^α − 1)/(α(α − 1)), or u·ln u for α = 1. The gradient is
    −Σ q·ρ(p/q)·∇ln q with ρ(u) = u·f′(u) − f(u) = u^α/α and a constant, which has no part in it, because Σ∇q = 0. For α
    other than 1, u^α is clipped in both.
    """
    log_q, log_p = student.log_softmax(1), teacher.log_softmax(1)
    q, log_ratio = log_q.detach().exp(), (log_p - log_q).detach()
    if alpha == 1:
        slope = log_ratio.exp()
        value = slope * log_ratio
    else:
        power = (alpha * log_ratio).exp().clamp(max=clip)
        value, slope = (power - 1) / (alpha * (alpha - 1)), power / alpha
    return (q * value).sum(1), -(q * slope * log_q).sum(1)


def ends(space: Space) -> tuple[Architecture, Architecture]:
    """The smallest connected and the largest architecture, by parameters."""
    _, smallest, _, largest = space.extremes()
    if not space.is_connected(smallest):
        smallest = min(filter(space.is_connected, space), key=space.complexity)
    return smallest, largest
