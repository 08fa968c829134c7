"""GDAS (Dong and Yang, 2019): one path per step, drawn by Gumbel noise from the learned distribution.

For each decision p = softmax((log-softmax(α) + g)/τ) with g = −ln Exp(1); its largest entry is the choice. The sample
is hard and its gradient that of p: h = one-hot − p.detach() + p, where τ falls linearly from 10 to 0.1. A step trains
the weights of a drawn path by a training batch, and learns α through h by a validation batch and a newly drawn path:
after the weights in presets, as published; before them by default, as stored runs have it.

In the forward pass h is one-hot, so the chosen operations alone give the exact result. For the gradient,
∂L/∂h_o = ⟨∂L/∂output, f_o(x)⟩ would need the output of every operation o. `operations` says what replaces it:

- `chosen`: the paper's text. Only the chosen operation k has a term: ∂L/∂α = ⟨∂L/∂output, f_k(x)⟩·∂p_k/∂α.
- `released`: the code that gave the values of NAS-Bench-201. It adds h_o to the output for every other operation o: 0
  in the forward pass, but ∂L/∂h_o = Σ ∂L/∂output, as if f_o(x) were 1 everywhere.
- `all`: the exact sum, at the cost of DARTS's mixture.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from harness.components.option import added
from harness.components.registries import METHODS
from harness.components.space import Architecture, Space
from harness.components.supernet import Gated, Mixture, Shifted, offered
from harness.errors import require

from ._differentiable import Differentiable, alphas_of, every_decision, passes_of_a_mixture

if TYPE_CHECKING:
    from torch import Tensor

    from harness.data.loader import Batch
    from harness.training.supernet import SupernetTraining

OPERATIONS = ("chosen", "released", "all")
FALLS = ("step", "epoch")
UNNEEDED = ("left", "decay")


@METHODS.register("gdas")
@dataclass(frozen=True)
class GDAS(Differentiable):
    """Differentiable: single paths drawn by Gumbel noise, with the gradient of the softmax."""

    ranks_reason: ClassVar[str | None] = None

    temperature: float = 10.0
    """τ at the beginning."""
    final_temperature: float = 0.1
    """τ at the end."""
    temperature_falls: str = added("step")
    """When τ falls: from step to step, or from epoch to epoch as in the released code and in presets. The paper says
    only that it falls linearly."""
    unneeded: str = added("left")
    """What happens to architecture parameters of edges that a path does not need: they are `left` as they are, or
    `decay` and follow their momentum, as in the released code and in presets."""
    operations: str = "chosen"
    """Whose outputs the gradient of the architecture parameters takes: those of the chosen operations, these and ones
    for all others (released), or those of all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("temperature", "final_temperature"):
            require(getattr(self, name) > 0, f"method.{name} must be above 0, not {getattr(self, name)}")
        for name, allowed in (
            ("operations", OPERATIONS),
            ("temperature_falls", FALLS),
            ("unneeded", UNNEEDED),
        ):
            value = getattr(self, name)
            require(value in allowed, f"method.{name} is {value!r}; allowed: {', '.join(allowed)}")

    def passes(self, space: Space) -> tuple[int, int]:
        return 1, passes_of_a_mixture(space) if self.operations == "all" else 1

    def begin(self, training: SupernetTraining) -> None:
        super().begin(training)
        ability: type[Any] = {"chosen": Gated, "released": Shifted, "all": Mixture}[self.operations]
        offered(training.network, ability, f"GDAS with method.operations={self.operations}")

    def temperature_at(self, training: SupernetTraining, step: int) -> float:
        """τ at that step, counted from 0."""
        length = training.steps_per_epoch if self.temperature_falls == "epoch" else 1
        progress = (step // length) / max(1, training.total_steps // length - 1)
        return self.temperature + (self.final_temperature - self.temperature) * progress

    def learn(self, training: SupernetTraining, batch: Batch, valid: Batch, step: int) -> None:
        path, weights = sample(training, self.temperature_at(training, step))
        if self.operations == "all":
            loss = training.mixed_loss(valid, weights)
        else:
            gates = [own[choice] for own, choice in zip(weights, path, strict=True)]
            others = [own.sum() - gate for own, gate in zip(weights, gates, strict=True)]
            loss = training.gated_loss(valid, path, gates, others if self.operations == "released" else None)
        alphas = alphas_of(training)
        training.backward(loss, inputs=alphas, batch=valid)
        if self.unneeded == "decay":
            for alpha in alphas:
                alpha.grad = alpha.new_zeros(len(alpha)) if alpha.grad is None else alpha.grad
        training.update_own("optimiser")

    def train_weights(self, training: SupernetTraining, batch: Batch, step: int) -> Tensor:
        """A path with decisions that are not drawn (on inputs) runs all its operations."""
        path, _ = sample(training, self.temperature_at(training, step))
        if len(training.space.operation_decisions) == len(path):
            return training.descend(batch, [path], step)
        training.clear_gradients()
        loss = training.gated_loss(batch, path, list(batch.images.new_ones(len(path))))
        training.backward(loss)
        training.update([path], step)
        return loss.detach()[None]


def sample(training: SupernetTraining, temperature: float) -> tuple[Architecture, list[Tensor]]:
    """A path, and the weights of all choices: one-hot, with the gradient of the softmax under the same noise."""
    import torch

    alphas = alphas_of(training)
    # A GPU gets all noise by one copy, and is waited for once.
    noise = alphas[0].new_tensor([one for alpha in alphas for one in gumbel(training, len(alpha))])
    parts = torch.split(noise, [len(alpha) for alpha in alphas])
    learned = [hard_sample(alpha, part, temperature) for alpha, part in zip(alphas, parts, strict=True)]
    weights = every_decision(training, learned)
    return tuple(torch.stack([own.detach().argmax() for own in weights]).tolist()), weights


def gumbel(training: SupernetTraining, count: int) -> list[float]:
    """−ln Exp(1), from the training's rng."""
    return [-math.log(max(training.rng.expovariate(1.0), 1e-300)) for _ in range(count)]


def hard_sample(alpha: Tensor, noise: Tensor, temperature: float) -> Tensor:
    """One-hot at the largest entry of p = softmax((log-softmax(α) + noise)/τ), with the gradient of p."""
    import torch

    p = ((alpha.log_softmax(0) + noise) / temperature).softmax(0)
    one_hot = (torch.arange(len(p), device=p.device) == p.argmax()).to(p.dtype)
    return one_hot + (p - p.detach())
