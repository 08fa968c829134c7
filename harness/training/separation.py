"""Momentum separation: one `torch.optim.SGD` per cluster over the same parameters, made when first needed.

Weights are shared, momentum buffers are not: a step updates only the buffer of its cluster (Eq. 8).
With one cluster this is plain SGD. Parameters without gradient, those of inactive operations, are left
unchanged, and each optimiser allocates buffers only for parameters that it has updated.

The optimisers hold the buffers and their settings. The update is made here, by the same operations in the
same order as theirs, over the parameters that have a gradient: torch's own step loops over all parameters
several times, which with a small network takes longer than the arithmetic.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from harness.study.configuration import Optimiser as Optimiser
from harness.training.observers.spread import Spread
from harness.training.precision import Scaling


def _undecorated(method: Any) -> Any:
    return getattr(method, "__wrapped__", method)


class Buffers(torch.optim.SGD):
    """The SGD of one cluster, as the holder of its buffers and settings.

    Torch decorates these three methods so that its compiler skips them. For that, their first call imports the
    compiler: two seconds before the first step.
    """

    add_param_group = _undecorated(torch.optim.Optimizer.add_param_group)
    state_dict = _undecorated(torch.optim.Optimizer.state_dict)
    load_state_dict = _undecorated(torch.optim.Optimizer.load_state_dict)


class SeparatedMomentum:
    """The optimisers of one supernet, by cluster."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter], settings: Optimiser) -> None:
        self.parameters = list(parameters)
        self.settings = settings
        self.optimisers: dict[int, torch.optim.SGD] = {}
        self.spread: Spread | None = None
        """Optional recorder of the spread of gradients and momenta."""
        self.scaling: Scaling | None = None
        """The loss scale, in float16 only."""

    def of(self, cluster: int) -> torch.optim.SGD:
        """The cluster's optimiser."""
        if cluster not in self.optimisers:
            settings = self.settings
            self.optimisers[cluster] = Buffers(
                self.parameters,
                lr=settings.learning_rate,
                momentum=settings.momentum,
                # Nesterov's method needs momentum: torch refuses it without.
                nesterov=settings.nesterov and settings.momentum > 0,
                weight_decay=settings.weight_decay,
                foreach=True,
            )
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

    @torch.no_grad()
    def step(self, cluster: int, learning_rate: float, weight_decay: float | None = None) -> None:
        """Clip the gradients and update weights and the cluster's momentum."""
        optimiser = self.of(cluster)
        (group,) = optimiser.param_groups
        group["lr"] = learning_rate
        group["weight_decay"] = self.settings.weight_decay if weight_decay is None else weight_decay
        active: list[Tensor] = []
        gradients: list[Tensor] = []
        for parameter in self.parameters:
            if (gradient := parameter.grad) is not None:
                active.append(parameter)
                gradients.append(gradient)
        if active and self.scaling is not None:
            self.scaling.unscale(gradients)
        if self.spread is not None:
            self.spread.before_update()
        if not active:
            return
        if self.settings.clip is not None:
            clip_norm(gradients, self.settings.clip)
        if self.scaling is not None:
            names = ("weight_decay", "momentum", "nesterov")
            buffers = self._zeroed(optimiser.state, active) if group["momentum"] else []
            options = {name: group[name] for name in names}
            self.scaling.update(active, gradients, buffers, learning_rate=learning_rate, **options)
        else:
            self._update(optimiser.state, group, active, gradients)
        if self.spread is not None:
            self.spread.after_update(optimiser)

    def _update(
        self, state: dict[Any, Any], group: dict[str, Any], active: list[Tensor], gradients: list[Tensor]
    ) -> None:
        if group["weight_decay"]:
            gradients = list(torch._foreach_add(gradients, active, alpha=group["weight_decay"]))
        if momentum := group["momentum"]:
            buffers = self._advanced(state, active, gradients, momentum)
            gradients = list(torch._foreach_add(gradients, buffers, alpha=momentum)) if group["nesterov"] else buffers
        torch._foreach_add_(active, gradients, alpha=-group["lr"])

    @staticmethod
    def _zeroed(state: dict[Any, Any], active: list[Tensor]) -> list[Tensor]:
        """The cluster's buffers; new ones are zeros."""
        for parameter in active:
            if not state.get(parameter):
                state[parameter] = {"momentum_buffer": torch.zeros_like(parameter)}
        return [state[parameter]["momentum_buffer"] for parameter in active]

    @staticmethod
    def _advanced(
        state: dict[Any, Any], active: list[Tensor], gradients: list[Tensor], momentum: float
    ) -> list[Tensor]:
        """The cluster's buffers, updated by the gradients; a parameter's first gradient is its first buffer."""
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

    def state(self) -> dict[str, Any]:
        """All momentum buffers, and which parameters have had a gradient (matters for "decay").

        The buffers are those in use, as in `torch.optim`: store them before the next step.
        """
        return {
            "optimisers": {cluster: optimiser.state_dict() for cluster, optimiser in self.optimisers.items()},
            "touched": [parameter.grad is not None for parameter in self.parameters],
            **({"scaling": self.scaling.state()} if self.scaling is not None else {}),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.optimisers.clear()
        for cluster, stored in state["optimisers"].items():
            # A copy, because torch keeps the tensors it is given, and two supernets must not share them.
            self.of(int(cluster)).load_state_dict(copy.deepcopy(stored))
        for parameter, touched in zip(self.parameters, state["touched"], strict=True):
            parameter.grad = torch.zeros_like(parameter) if touched else None
        if self.scaling is not None:
            self.scaling.restore(state["scaling"])


def clip_norm(gradients: list[Tensor], most: float) -> None:
    """Scale the gradients so that their norm is at most `most`; same bits as `torch.nn.utils.clip_grad_norm_`."""
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    factor = torch.clamp(most / (norm + 1e-6), max=1.0)
    # A factor of 1 changes nothing. The check is free only on a CPU: elsewhere it would wait for the device.
    if factor.device.type != "cpu" or factor.item() != 1.0:
        torch._foreach_mul_(gradients, factor)
