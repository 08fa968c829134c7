"""Momentum separation: one torch optimiser per cluster over the same parameters, made when first needed.

Weights are shared, the optimisers' state is not: a step updates only the state of its cluster (Eq. 8), whatever the
optimiser keeps. With one cluster this is the plain optimiser. Parameters without gradient, those of inactive
operations, are left unchanged, and each optimiser allocates state only for parameters that it has updated.

Every update of a training goes through `SeparatedMomentum.apply`, those of a method's own optimisers too.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from harness.components.optimiser import Optimiser
from harness.components.space import Architecture
from harness.training.observers.spread import Spread
from harness.training.precision import make_scaler, restore_scaler
from harness.training.ranks import ALONE, Ranks

Group = Mapping[str, Any]


class SeparatedMomentum:
    """The optimisers of one supernet, by cluster."""

    def __init__(
        self, parameters: Iterable[torch.nn.Parameter | Group], settings: Optimiser, ranks: Ranks = ALONE
    ) -> None:
        """`parameters` may be groups, as `Space.parameter_groups` gives them."""
        given = list(parameters)
        groups = [one for one in given if isinstance(one, Mapping)]
        self.groups: list[Group] = groups or [{"params": given}]
        self.parameters: list[torch.nn.Parameter] = [one for group in self.groups for one in group["params"]]
        self.settings = settings
        self.ranks = ranks
        self.optimisers: dict[int, torch.optim.Optimizer] = {}
        self.spread: Spread | None = None
        """Optional recorder of the spread of gradients and momenta."""
        self.scaler = make_scaler()
        """The loss scale, in float16 only; otherwise it does nothing."""

    def of(self, cluster: int) -> torch.optim.Optimizer:
        """The cluster's optimiser."""
        if cluster not in self.optimisers:
            self.optimisers[cluster] = self.settings.make(self.groups)
        return self.optimisers[cluster]

    def release(self) -> None:
        """Free all but the parameters."""
        self.optimisers.clear()
        self.spread = None
        for parameter in self.parameters:
            parameter.grad = None

    def clear_gradients(self) -> None:
        for parameter in self.parameters:
            if parameter.grad is not None:
                if self.settings.inactive == "untouched":
                    parameter.grad = None
                else:
                    parameter.grad.zero_()

    def touch(self, parameters: Iterable[Tensor]) -> None:
        """Give parameters without gradient a zero one: weight decay and momentum move them from now on."""
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)

    def observed(self, paths: Sequence[Architecture]) -> Sequence[Architecture]:
        """The paths of the update that follows, which the recorder of spread sees, too."""
        if self.spread is not None:
            self.spread.begin(paths)
        return paths

    def step(
        self, cluster: int, learning_rate: float, weight_decay: float | None = None, *, whole: bool = False
    ) -> None:
        """Clip the gradients and update weights and the cluster's state; `whole` as for `apply`."""
        settings, optimiser = self.settings, self.of(cluster)
        weight_decay = settings.weight_decay if weight_decay is None else weight_decay
        for group in optimiser.param_groups:
            group["lr"] = learning_rate * group.get("learning_rate_factor", 1.0)
            group["weight_decay"] = weight_decay * group.get("weight_decay_factor", 1.0)
        self.apply(optimiser, self.parameters, settings.clip, settings.clip_value, settings, self.spread, whole=whole)

    @torch.no_grad()
    def apply(
        self,
        optimiser: torch.optim.Optimizer,
        parameters: Iterable[Tensor],
        clip: float | None = None,
        clip_value: float | None = None,
        component: Optimiser | None = None,
        spread: Spread | None = None,
        *,
        whole: bool = False,
    ) -> None:
        """One update by the gradients that are there: ranks, scaling, measurements, clipping, the optimiser's step.

        Each rank has the gradient of its part of the batch, unless they are sums over the ranks already (`whole`).
        """
        active: list[Tensor] = []
        gradients: list[Tensor] = []
        for parameter in parameters:
            if (gradient := parameter.grad) is not None:
                active.append(parameter)
                gradients.append(gradient)
        if not whole:
            self.ranks.sum_(gradients, active)
        if active:
            self.scaler.unscale_(optimiser)
        if spread is not None:
            spread.before_update()
        if not active:
            return
        if clip_value is not None:
            torch.nn.utils.clip_grad_value_(active, clip_value)
        if clip is not None:
            clip_norm(gradients, clip)
        if component is not None and not self.scaler.is_enabled():
            component.update(optimiser, active, gradients)
        else:
            self.scaler.step(optimiser)
            self.scaler.update()
        if spread is not None:
            spread.after_update(optimiser, self.settings)

    def state(self) -> dict[str, Any]:
        """The optimisers' state, and which parameters have had a gradient (matters for "decay").

        The tensors are those in use, as in `torch.optim`: store them before the next step.
        """
        return {
            "optimisers": {cluster: optimiser.state_dict() for cluster, optimiser in self.optimisers.items()},
            "touched": [parameter.grad is not None for parameter in self.parameters],
            **({"scaler": self.scaler.state_dict()} if self.scaler.is_enabled() else {}),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.optimisers.clear()
        for cluster, stored in state["optimisers"].items():
            # A copy, because torch keeps the tensors it is given, and two supernets must not share them.
            self.of(int(cluster)).load_state_dict(copy.deepcopy(stored))
        for parameter, touched in zip(self.parameters, state["touched"], strict=True):
            parameter.grad = torch.zeros_like(parameter) if touched else None
        restore_scaler(self.scaler, state)


def clip_norm(gradients: list[Tensor], most: float) -> None:
    """Scale the gradients so that their norm is at most `most`; same bits as `torch.nn.utils.clip_grad_norm_`."""
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    factor = torch.clamp(most / (norm + 1e-6), max=1.0)
    # A factor of 1 changes nothing. The check is free only on a CPU: elsewhere it would wait for the device.
    if factor.device.type != "cpu" or factor.item() != 1.0:
        torch._foreach_mul_(gradients, factor)


def moved(value: Any, device: torch.device) -> Any:
    """The same containers, with the tensors in them on that device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: moved(item, device) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(moved(item, device) for item in value)
    return value
