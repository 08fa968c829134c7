"""Optimisers: SGD, the paper's, with a fast update; and AdamW."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from harness.components.optimiser import Groups, Optimiser
from harness.components.registries import OPTIMISERS
from harness.errors import require

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@OPTIMISERS.register("sgd")
@dataclass(frozen=True)
class SGD(Optimiser):
    """Stochastic gradient descent with momentum."""

    momentum: float = 0.9
    """The share of the momentum buffer that a step keeps."""
    nesterov: bool = True
    """Nesterov's momentum; off where momentum is 0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.momentum < 1, f"optimiser.momentum must be in [0, 1), not {self.momentum}")

    def make(self, groups: Groups) -> torch.optim.Optimizer:
        made: torch.optim.Optimizer = _holder("SGD")(
            [dict(group) for group in groups],
            lr=self.learning_rate,
            momentum=self.momentum,
            # Nesterov's method needs momentum: torch refuses it without.
            nesterov=self.nesterov and self.momentum > 0,
            weight_decay=self.weight_decay,
            foreach=True,
        )
        return made

    def update(self, optimiser: torch.optim.Optimizer, active: list[Tensor], gradients: list[Tensor]) -> None:
        """The same operations in the same order as torch's own step, over the parameters that have a gradient.

        Torch's step loops over all parameters several times, which with a small network takes longer than the
        arithmetic.
        """
        if len(optimiser.param_groups) == 1:
            _descend(optimiser.state, optimiser.param_groups[0], active, gradients)
            return
        for group in optimiser.param_groups:
            own = [parameter for parameter in group["params"] if parameter.grad is not None]
            if own:
                _descend(optimiser.state, group, own, [parameter.grad for parameter in own])


@cache
def _holder(name: str) -> Any:
    """Torch's optimiser of that name as the holder of buffers and settings.

    Torch decorates these three methods so that its compiler skips them. For that, their first call imports the
    compiler: two seconds before the first step.
    """
    import torch

    def undecorated(method: Any) -> Any:
        return getattr(method, "__wrapped__", method)

    names = ("add_param_group", "state_dict", "load_state_dict")
    own = {one: undecorated(getattr(torch.optim.Optimizer, one)) for one in names}
    return type(name, (getattr(torch.optim, name),), own)


def _descend(state: Any, group: dict[str, Any], active: list[Tensor], gradients: list[Tensor]) -> None:
    import torch

    if group["weight_decay"]:
        gradients = list(torch._foreach_add(gradients, active, alpha=group["weight_decay"]))
    if momentum := group["momentum"]:
        buffers = _advanced(state, active, gradients, momentum)
        gradients = list(torch._foreach_add(gradients, buffers, alpha=momentum)) if group["nesterov"] else buffers
    torch._foreach_add_(active, gradients, alpha=-group["lr"])


def _advanced(state: Any, active: list[Tensor], gradients: list[Tensor], momentum: float) -> list[Tensor]:
    """The buffers, updated by the gradients; a parameter's first gradient is its first buffer."""
    import torch

    buffers: list[Tensor | None] = [own["momentum_buffer"] if (own := state.get(p)) else None for p in active]
    known = [buffer for buffer in buffers if buffer is not None]
    if known:
        torch._foreach_mul_(known, momentum)
        of_known = [gradient for gradient, buffer in zip(gradients, buffers, strict=True) if buffer is not None]
        torch._foreach_add_(known, of_known)
    whole = []
    for parameter, buffer, gradient in zip(active, buffers, gradients, strict=True):
        if buffer is None:
            buffer = torch.clone(gradient)
            state[parameter] = {"momentum_buffer": buffer}
        whole.append(buffer)
    return whole


@OPTIMISERS.register("adamw")
@dataclass(frozen=True)
class AdamW(Optimiser):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019)."""

    learning_rate: float = 5e-4
    weight_decay: float = 0.05
    betas: tuple[float, ...] = (0.9, 0.999)
    """The decay of the running means of gradients and of their squares."""
    epsilon: float = 1e-8
    """Added to the divisor."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            len(self.betas) == 2 and all(0 <= beta < 1 for beta in self.betas),
            f"optimiser.betas must be two numbers in [0, 1), not {list(self.betas)}",
        )
        require(self.epsilon > 0, f"optimiser.epsilon must be above 0, not {self.epsilon}")

    def make(self, groups: Groups) -> torch.optim.Optimizer:
        import torch

        return torch.optim.AdamW(
            [dict(group) for group in groups],
            lr=self.learning_rate,
            betas=(self.betas[0], self.betas[1]),
            eps=self.epsilon,
            weight_decay=self.weight_decay,
            foreach=True,
        )
