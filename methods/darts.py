"""DARTS (Liu et al., 2019): a mixture of all operations, weighted by a softmax of architecture parameters α.

A step updates α by the loss of a validation batch, then the weights by that of a training batch, as in the paper's
Algorithm 1; scripts of NAS-Bench-201 update the weights first (`first_update`). First order takes the present weights
as they are. Second order takes the validation loss after one step of the weights, w′ = w − ξ·∇L_train, and its whole
gradient in α: ∂L_valid(w′, α)/∂α − ξ·∂²L_train/∂α∂w·∂L_valid/∂w′. The published code approximates the last product by
finite differences; here it is exact, by differentiating the training gradient once more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from harness.components.registries import METHODS
from harness.components.space import Space
from harness.components.supernet import Mixture, TwiceDifferentiable, offered
from harness.errors import InvalidConfiguration, require

from ._differentiable import Differentiable, alphas_of, every_decision, passes_of_a_mixture

if TYPE_CHECKING:
    from torch import Tensor

    from harness.data.loader import Batch
    from harness.training.supernet import SupernetTraining

MIXTURES = {1: 2, 2: 4}
"""Passes of the mixture per step, by order: one for α and one for the weights; second order has the training gradient
before its step, and the derivative of that gradient, too."""


@METHODS.register("darts")
@dataclass(frozen=True)
class DARTS(Differentiable):
    """Differentiable: a softmax mixture of all operations, its weights learned on validation images."""

    ranks_reason: ClassVar[str | None] = None

    order: int = 1
    """1: the validation loss of the present weights. 2: that after one step of the weights, differentiated through."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.order in MIXTURES, f"method.order must be 1 or 2, not {self.order}")

    def passes(self, space: Space) -> tuple[int, int]:
        half = MIXTURES[self.order] * passes_of_a_mixture(space) // 2
        return half, half

    def begin(self, training: SupernetTraining) -> None:
        super().begin(training)
        offered(training.network, Mixture, "DARTS")
        if self.order == 2 and training.precision == "float16":
            raise InvalidConfiguration(
                "DARTS of second order cannot use train.precision=float16: gradients of gradients are not scaled and "
                "would vanish; use float32 or bfloat16"
            )

    def learn(self, training: SupernetTraining, batch: Batch, valid: Batch, step: int) -> None:
        alphas = alphas_of(training)
        if self.order == 1:
            training.backward(training.mixed_loss(valid, mixture(training)), inputs=alphas, batch=valid)
        else:
            for alpha, gradient in zip(alphas, unrolled_gradient(training, batch, valid, step), strict=True):
                alpha.grad = gradient
        training.update_own("optimiser")

    def train_weights(self, training: SupernetTraining, batch: Batch, step: int) -> Tensor:
        loss = training.mixed_loss(batch, [weights.detach() for weights in mixture(training)])
        training.backward(loss)
        training.update_mixture(step)
        return loss.detach()[None]


def mixture(training: SupernetTraining) -> list[Tensor]:
    """The weights of all choices."""
    return every_decision(training, [alpha.softmax(0) for alpha in alphas_of(training)])


def unrolled_gradient(training: SupernetTraining, batch: Batch, valid: Batch, step: int) -> list[Tensor]:
    """The gradient in α of the validation loss after one step of the weights on the training batch.

    With several ranks each has the term of its parts of both batches; their sum is the gradient.
    """
    import torch

    network = offered(training.network, TwiceDifferentiable, "DARTS of second order")
    alphas = alphas_of(training)
    names, own = zip(*training.network.named_parameters(), strict=True)
    with network.twice_differentiable():
        loss = training.mixed_loss(batch, mixture(training)) * training.weight(batch)
        gradients = torch.autograd.grad(loss, own, create_graph=True, materialize_grads=True)
        whole = [one.detach().clone() for one in gradients]
        training.ranks.sum_(whole, own)
        stepped, rates = one_step(training, own, whole, step)
        loss = training.mixed_loss(valid, mixture(training), dict(zip(names, stepped, strict=True)))
        found = torch.autograd.grad(loss * training.weight(valid), [*alphas, *stepped], materialize_grads=True)
        direct, along = found[: len(alphas)], found[len(alphas) :]
        training.ranks.sum_(along, own)
        pull = [rate * gradient for rate, gradient in zip(rates, along, strict=True)]
        through = torch.autograd.grad(gradients, alphas, pull, materialize_grads=True)
    return [one - other for one, other in zip(direct, through, strict=True)]


def one_step(
    training: SupernetTraining, parameters: tuple[Tensor, ...], gradients: list[Tensor], step: int
) -> tuple[list[Tensor], list[float]]:
    """The weights after a step of gradient descent at the present rate, with momentum and decay; and their rates."""
    momentum = training.momentum
    settings, optimiser = momentum.settings, momentum.of(0)
    rate, kept = settings.learning_rate * training.rate_factors([()], step)[0], getattr(settings, "momentum", 0.0)
    groups = {id(parameter): group for group in momentum.groups for parameter in group["params"]}
    stepped, rates = [], []
    for parameter, gradient in zip(parameters, gradients, strict=True):
        group, buffer = groups[id(parameter)], settings.momentum_of(optimiser, parameter)
        decay = settings.weight_decay * group.get("weight_decay_factor", 1.0)
        direction = gradient + decay * parameter.detach()
        if buffer is not None and kept:
            direction = direction + kept * buffer
        rates.append(rate * group.get("learning_rate_factor", 1.0))
        stepped.append((parameter.detach() - rates[-1] * direction).requires_grad_())
    return stepped, rates
