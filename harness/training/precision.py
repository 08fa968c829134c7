"""Training in half precision, an option for GPUs: which operations use it, and how gradients stay in its range.

Weights, momentum and batch statistics stay in float32. bfloat16 has float32's range and needs nothing more.
In float16 small gradients would vanish, so losses are multiplied by an adaptive scale: it doubles after 2,000
good steps; a step whose gradients are not finite is skipped and halves it. All of this happens on the device:
no step waits for it.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor

TYPES = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}

GROWTH, BACKOFF, PATIENCE = 2.0, 0.5, 2000
FIRST_SCALE = 2.0**16


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Context in which convolutions and matrix products are computed in that precision."""
    kind = TYPES[precision]
    return contextlib.nullcontext() if kind is None else torch.autocast(device.type, kind)


class Scaling:
    """The loss scale in float16: losses are multiplied by it, their gradients divided by it."""

    def __init__(self, device: torch.device) -> None:
        self.scale = torch.full((), FIRST_SCALE, device=device)
        self.good = torch.zeros((), dtype=torch.int32, device=device)
        """Steps since the scale last changed."""
        self.overflow = torch.zeros((), device=device)
        """1 if a gradient of this step is not finite."""

    def unscale(self, gradients: list[Tensor]) -> None:
        """Divide the gradients by the scale, in place, and record whether all are finite."""
        self.overflow.zero_()
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, self.overflow, self.scale.reciprocal())

    def update(
        self,
        parameters: list[Tensor],
        gradients: list[Tensor],
        buffers: list[Tensor],
        *,
        learning_rate: float,
        weight_decay: float,
        momentum: float,
        nesterov: bool,
    ) -> None:
        """One step of SGD, skipped if a gradient was not finite; then set the scale of the next step."""
        torch._fused_sgd_(
            parameters,
            gradients,
            buffers if momentum else [],
            weight_decay=weight_decay,
            momentum=momentum,
            lr=learning_rate,
            dampening=0.0,
            nesterov=nesterov,
            maximize=False,
            is_first_step=False,  # buffers begin with zeros, to which the first gradient is added
            found_inf=self.overflow,
        )
        torch._amp_update_scale_(self.scale, self.good, self.overflow, GROWTH, BACKOFF, PATIENCE)

    def state(self) -> dict[str, Tensor]:
        return {"scale": self.scale, "good": self.good}

    def restore(self, state: dict[str, Tensor]) -> None:
        self.scale.copy_(state["scale"])
        self.good.copy_(state["good"])
