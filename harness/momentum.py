"""Momentum separation: one `torch.optim.SGD` per cluster over the same parameters, made when first needed.

Weights are shared, momentum buffers are not: a step updates only the buffer of its cluster (Eq. 8).
With one cluster this is plain SGD. SGD itself skips parameters without gradient, so parameters of
inactive operations are left alone, and each optimiser allocates buffers only for what it has touched.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch

from harness.config import Optimiser as Optimiser
from harness.spread import Spread


class SeparatedMomentum:
    """The optimisers of one supernet, by cluster."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter], settings: Optimiser) -> None:
        self.parameters = list(parameters)
        self.settings = settings
        self.optimisers: dict[int, torch.optim.SGD] = {}
        self.spread: Spread | None = None
        """Whoever measures how gradients and momenta vary, if anybody does."""

    def of(self, cluster: int) -> torch.optim.SGD:
        """The cluster's optimiser."""
        if cluster not in self.optimisers:
            settings = self.settings
            self.optimisers[cluster] = torch.optim.SGD(
                self.parameters,
                lr=settings.learning_rate,
                momentum=settings.momentum,
                # Without momentum there is nothing to look ahead along, and torch refuses the pair.
                nesterov=settings.nesterov and settings.momentum > 0,
                weight_decay=settings.weight_decay,
                foreach=True,
            )
        return self.optimisers[cluster]

    def clear_gradients(self) -> None:
        for parameter in self.parameters:
            if parameter.grad is not None:
                if self.settings.inactive == "untouched":
                    parameter.grad = None
                else:
                    parameter.grad.zero_()

    def step(self, cluster: int, learning_rate: float, weight_decay: float | None = None) -> None:
        """Clip the gradients and update weights and the cluster's momentum."""
        if self.spread is not None:
            self.spread.before_update()
        if self.settings.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.settings.clip, foreach=True)
        optimiser = self.of(cluster)
        (group,) = optimiser.param_groups
        group["lr"] = learning_rate
        group["weight_decay"] = self.settings.weight_decay if weight_decay is None else weight_decay
        optimiser.step()
        if self.spread is not None:
            self.spread.after_update(optimiser)

    def state(self) -> dict[str, Any]:
        """All momentum buffers, and which parameters have had a gradient (matters for "decay").

        The buffers are those in use, as in `torch.optim`: store them before the next step.
        """
        return {
            "optimisers": {cluster: optimiser.state_dict() for cluster, optimiser in self.optimisers.items()},
            "touched": [parameter.grad is not None for parameter in self.parameters],
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.optimisers.clear()
        for cluster, stored in state["optimisers"].items():
            # A copy: torch takes buffers over as they are, and two supernets must not share them.
            self.of(int(cluster)).load_state_dict(copy.deepcopy(stored))
        for parameter, touched in zip(self.parameters, state["touched"], strict=True):
            parameter.grad = torch.zeros_like(parameter) if touched else None
