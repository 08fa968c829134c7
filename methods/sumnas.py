"""SUMNAS (Ha et al., 2022): FairNAS's paths as tasks of a meta-learner, so that training one forgets the others less.

Every path of a step starts from the same weights w0 and makes a few SGD steps of its own on the batch, with momentum
that begins at zero. Its displacement is r_k = w0 − w_k. The supernet then makes one step along the mean displacement
(Reptile): this mean is the gradient that the configured optimiser gets, the outer one.

The schedule sets the outer rate, CaLR too: the displacement of a path is weighted by its own rate, as Algorithm 2
weights gradients. The inner rate stays as it is. It says how far a path may look for weights of its own; it is the
same for all tasks throughout training, and the outer rate alone is published as decaying. MS separates the outer
momentum. Presets give the outer optimiser none, since none is published: there MS has nothing to separate, and only
keeps the paths of a step in one cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from harness.components.registries import METHODS
from harness.components.space import Architecture, Space
from harness.errors import InvalidConfiguration, require

from .fairnas import FairNAS

if TYPE_CHECKING:
    from torch import Tensor

    from harness.data.loader import Batch
    from harness.training.supernet import SupernetTraining

RENEWED = ("step", "epoch")


@METHODS.register("sumnas")
@dataclass(frozen=True)
class SUMNAS(FairNAS):
    """Fair paths, a few inner steps of each, one outer step along their mean displacement."""

    ranks_reason: ClassVar[str | None] = None

    inner_steps: int = 2
    """SGD steps of each path, all on the batch of the step."""
    inner_rate: float = 0.05
    """The learning rate of these steps; constant."""
    inner_momentum: float = 0.9
    """Their momentum, which begins at zero for each path."""
    inner_clip: float = 5.0
    """The greatest norm of their gradients."""
    paths_renewed: str = "step"
    """When fair paths are drawn: for each step, as the paper defines it, or once per epoch. PA&DA's public code, which
    trains SUMNAS too, never clears its list of paths: an epoch repeats its first ones. Which published values come from
    that code is not known."""

    def __post_init__(self) -> None:
        require(self.inner_steps >= 1, f"method.inner_steps must be at least 1, not {self.inner_steps}")
        require(self.inner_rate > 0, f"method.inner_rate must be above 0, not {self.inner_rate}")
        require(0 <= self.inner_momentum < 1, f"method.inner_momentum must be in [0, 1), not {self.inner_momentum}")
        require(self.inner_clip > 0, f"method.inner_clip must be above 0, not {self.inner_clip}")
        require(
            self.paths_renewed in RENEWED,
            f"method.paths_renewed is {self.paths_renewed!r}; allowed: {', '.join(RENEWED)}",
        )

    def paths_per_step(self, space: Space) -> int:
        return self.inner_steps * super().paths_per_step(space)

    def begin(self, training: SupernetTraining) -> None:
        if training.momentum.scaler.is_enabled():
            raise InvalidConfiguration(
                "SUMNAS makes inner steps whose gradients are not scaled; use train.precision=float32 or bfloat16"
            )

    def paths(self, training: SupernetTraining) -> list[Architecture]:
        if self.paths_renewed == "step":
            return super().paths(training)
        epoch = training.step // training.steps_per_epoch
        if training.memory.get("epoch") != epoch:
            training.memory.update(epoch=epoch, paths=super().paths(training))
        return list(map(tuple, training.memory["paths"]))

    def train_step(self, training: SupernetTraining, batch: Batch, step: int) -> Tensor:
        import torch

        paths = self.paths(training)
        factors = training.rate_factors(paths, step)
        total: dict[Tensor, Tensor] = {}
        losses: list[Tensor] = []
        for path, scale in zip(paths, training.scales(factors), strict=True):
            shares = self.displacement(training, batch, path, losses)
            if shares:
                torch._foreach_mul_(list(shares.values()), scale / len(paths))
            if again := [parameter for parameter in shares if parameter in total]:
                torch._foreach_add_([total[one] for one in again], [shares[one] for one in again])
            total = {**shares, **total}
        training.clear_gradients()
        for parameter, mean in total.items():
            parameter.grad = mean
        training.update(paths, step, factors, whole=True)  # the displacements are those of whole batches
        return torch.stack(losses)

    def displacement(
        self, training: SupernetTraining, batch: Batch, path: Architecture, losses: list[Tensor]
    ) -> dict[Tensor, Tensor]:
        """w0 − w_k of the parameters that the path trains; the weights are w0 again afterwards."""
        import torch

        from harness.training.separation import clip_norm

        before: dict[Tensor, Tensor] = {}
        momenta: dict[Tensor, Tensor] = {}
        for _ in range(self.inner_steps):
            training.clear_gradients()
            loss = training.loss(batch, path)
            losses.append(loss.detach())
            training.backward(loss)
            active: list[Tensor] = [one for one in training.momentum.parameters if one.grad is not None]
            if not active:  # a path that is zero throughout may train nothing
                continue
            gradients = [one.grad for one in active if one.grad is not None]
            training.ranks.sum_(gradients, active)
            clip_norm(gradients, self.inner_clip)
            with torch.no_grad():
                pairs = list(zip(active, gradients, strict=True))
                if again := [(momenta[one], gradient) for one, gradient in pairs if one in momenta]:
                    torch._foreach_mul_([momentum for momentum, _ in again], self.inner_momentum)
                    torch._foreach_add_([momentum for momentum, _ in again], [gradient for _, gradient in again])
                if new := [(one, gradient) for one, gradient in pairs if one not in momenta]:
                    first = [one for one, _ in new]
                    before.update(zip(first, torch._foreach_mul(first, 1.0), strict=True))  # copies
                    momenta.update(zip(first, torch._foreach_mul([one for _, one in new], 1.0), strict=True))
                torch._foreach_add_(active, [momenta[one] for one in active], alpha=-self.inner_rate)
        if not before:
            return {}
        with torch.no_grad():
            moved = torch._foreach_sub(list(before.values()), list(before))
            torch._foreach_copy_(list(before), list(before.values()))
        return dict(zip(before, moved, strict=True))
