"""GDAS (Dong and Yang, 2019): one path per step, drawn by Gumbel noise from the learned distribution.

For each decision p = softmax((log-softmax(α) + g)/τ) with g = −ln Exp(1); its largest entry is the choice. The sample
is hard and its gradient that of p: h = one-hot − p.detach() + p, where τ falls linearly from 10 to 0.1. A step learns α
through h by a validation batch, then trains the weights of a newly drawn path by a training batch.

In the forward pass h is one-hot, so the chosen operations alone give the exact result. For the gradient,
∂L/∂h_o = ⟨∂L/∂output, f_o(x)⟩ would need the output of every operation o. GDAS, as published, keeps the chosen one's:
∂L/∂α = ⟨∂L/∂output, f_k(x)⟩·∂p_k/∂α, and runs single paths only. With `operations=all` the sum has all terms, at the
cost of DARTS's mixture.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from harness.components.method import Step
from harness.components.registries import METHODS
from harness.components.space import Architecture, Space
from harness.components.supernet import Gated, Mixture, offered
from harness.errors import require

from ._differentiable import Differentiable, alphas_of, every_decision, passes_of_a_mixture

if TYPE_CHECKING:
    from torch import Tensor

    from harness.data.loader import Batch
    from harness.training.supernet import SupernetTraining

OPERATIONS = ("chosen", "all")


@METHODS.register("gdas")
@dataclass(frozen=True)
class GDAS(Differentiable):
    """Differentiable: single paths drawn by Gumbel noise, with the gradient of the softmax."""

    ranks_reason: ClassVar[str | None] = None

    temperature: float = 10.0
    """τ at the first step."""
    final_temperature: float = 0.1
    """τ at the last step."""
    operations: str = "chosen"
    """Whose outputs the gradient of the architecture parameters takes: those of the chosen operations, or of all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("temperature", "final_temperature"):
            require(getattr(self, name) > 0, f"method.{name} must be above 0, not {getattr(self, name)}")
        require(
            self.operations in OPERATIONS,
            f"method.operations is {self.operations!r}; allowed: {', '.join(OPERATIONS)}",
        )

    def paths_per_step(self, space: Space) -> int:
        return 1 + self._passes_for_alphas(space)

    def _passes_for_alphas(self, space: Space) -> int:
        return 1 if self.operations == "chosen" else passes_of_a_mixture(space)

    def begin(self, training: SupernetTraining) -> None:
        super().begin(training)
        ability: type[Any] = Gated if self.operations == "chosen" else Mixture
        offered(training.network, ability, "GDAS")

    def temperature_at(self, training: SupernetTraining, step: int) -> float:
        """τ at that step, counted from 0."""
        progress = step / max(1, training.total_steps - 1)
        return self.temperature + (self.final_temperature - self.temperature) * progress

    def train_step(self, training: SupernetTraining, batch: Batch, step: int) -> Step:
        valid, temperature = training.validation.batch(step), self.temperature_at(training, step)
        training.clear_gradients()
        path, weights = sample(training, temperature)
        if self.operations == "chosen":
            loss = training.gated_loss(valid, path, [own[choice] for own, choice in zip(weights, path, strict=True)])
        else:
            loss = training.mixed_loss(valid, weights)
        training.backward(loss, inputs=alphas_of(training), batch=valid)
        training.update_own("optimiser")
        path, _ = sample(training, temperature)
        losses = self.descend(training, batch, path, step)
        first = self._passes_for_alphas(training.space)
        return Step(losses, 1 + first, len(batch.labels) + first * len(valid.labels))

    def descend(self, training: SupernetTraining, batch: Batch, path: Architecture, step: int) -> Tensor:
        """Train the weights of a path. One with decisions that are not drawn (on inputs) runs all its operations."""
        if len(training.space.operation_decisions) == len(path):
            return training.descend(batch, [path], step)
        training.clear_gradients()
        loss = training.gated_loss(batch, path, list(batch.images.new_ones(len(path))))
        training.backward(loss)
        training.update([path], step)
        return loss.detach()[None]


def sample(training: SupernetTraining, temperature: float) -> tuple[Architecture, list[Tensor]]:
    """A path, and the weights of all choices: one-hot, with the gradient of the softmax under the same noise."""
    learned = [hard_sample(alpha, gumbel(training, len(alpha)), temperature) for alpha in alphas_of(training)]
    weights = every_decision(training, learned)
    return tuple(int(own.argmax()) for own in weights), weights


def gumbel(training: SupernetTraining, count: int) -> list[float]:
    """−ln Exp(1), from the training's rng."""
    return [-math.log(max(training.rng.expovariate(1.0), 1e-300)) for _ in range(count)]


def hard_sample(alpha: Tensor, noise: list[float], temperature: float) -> Tensor:
    """One-hot at the largest entry of p = softmax((log-softmax(α) + noise)/τ), with the gradient of p."""
    p = ((alpha.log_softmax(0) + alpha.new_tensor(noise)) / temperature).softmax(0)
    one_hot = p.new_zeros(len(p))
    one_hot[p.argmax()] = 1.0
    return one_hot + (p - p.detach())
