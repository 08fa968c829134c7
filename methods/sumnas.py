"""SUMNAS (Ha et al., 2022): FairNAS's paths as tasks of a meta-learner, so that training one forgets the others less.

Every path of a step starts from the same weights w0 and makes a few SGD steps of its own on the batch. Their momentum
is that of one inner optimiser, which goes on from path to path and from step to step, as in PA&DA's public code, the
only one there is; the paper does not say. The displacement of a path is r_k = w0 − w_k. The supernet then makes one
step along the mean displacement (Reptile): this mean is the gradient that the configured optimiser gets, the outer one.

The schedule sets the outer rate, CaLR too: the displacement of a path is weighted by its own rate, as Algorithm 2
weights gradients. The inner rate stays as it is. It says how far a path may look for weights of its own; it is the
same for all tasks throughout training, and the outer rate alone is published as decaying. MS separates the outer
momentum. Presets give the outer optimiser none, since none is published: there MS has nothing to separate, and only
keeps the paths of a step in one cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from harness.components.option import added
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
    """Their momentum."""
    inner_momentum_kept: bool = added(False)
    """Whether one momentum serves all paths and steps, as presets say; otherwise it begins at zero for each path."""
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
        training.memory["inner momenta"] = {}

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
        momenta: dict[int, Tensor] = training.memory["inner momenta"] if self.inner_momentum_kept else {}
        for _ in range(self.inner_steps):
            training.clear_gradients()
            loss = training.loss(batch, path)
            losses.append(loss.detach())
            training.backward(loss)
            numbered: list[tuple[int, Tensor]] = [
                (number, one) for number, one in enumerate(training.momentum.parameters) if one.grad is not None
            ]
            if not numbered:  # a path that is zero throughout may train nothing
                continue
            active = [one for _, one in numbered]
            gradients = [one.grad for one in active if one.grad is not None]
            training.ranks.sum_(gradients, active)
            clip_norm(gradients, self.inner_clip)
            with torch.no_grad():
                pairs = [(number, gradient) for (number, _), gradient in zip(numbered, gradients, strict=True)]
                if again := [(momenta[number], gradient) for number, gradient in pairs if number in momenta]:
                    torch._foreach_mul_([momentum for momentum, _ in again], self.inner_momentum)
                    torch._foreach_add_([momentum for momentum, _ in again], [gradient for _, gradient in again])
                momenta.update((number, gradient.clone()) for number, gradient in pairs if number not in momenta)
                if first := [one for one in active if one not in before]:
                    before.update(zip(first, torch._foreach_mul(first, 1.0), strict=True))  # copies
                torch._foreach_add_(active, [momenta[number] for number, _ in numbered], alpha=-self.inner_rate)
        if not before:
            return {}
        with torch.no_grad():
            moved = torch._foreach_sub(list(before.values()), list(before))
            torch._foreach_copy_(list(before), list(before.values()))
        return dict(zip(before, moved, strict=True))
