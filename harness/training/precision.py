"""Training in half precision, an option for GPUs: which operations use it, and how gradients stay in its range.

Weights, momentum and batch statistics stay in float32. bfloat16 has float32's range and needs nothing more.
In float16 small gradients would vanish, so losses are multiplied by the scale of torch's `GradScaler`: it doubles
after 2,000 good steps; a step whose gradients are not finite is skipped and halves it.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch

TYPES = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Context in which convolutions and matrix products are computed in that precision."""
    kind = TYPES[precision]
    return contextlib.nullcontext() if kind is None else torch.autocast(device.type, kind)


def make_scaler(precision: str = "float32", device: torch.device | str = "cpu") -> torch.amp.GradScaler:
    """The scaler of losses and gradients; one that does nothing except in float16."""
    return torch.amp.GradScaler(torch.device(device).type, enabled=precision == "float16")


def restore_scaler(scaler: torch.amp.GradScaler, state: dict[str, Any]) -> None:
    """Restore the scaler from the state of an optimiser's checkpoint."""
    if not scaler.is_enabled():
        return
    if "scaling" in state:  # of version 0.1, before torch's scaler was used
        earlier = {"scale": float(state["scaling"]["scale"]), "_growth_tracker": int(state["scaling"]["good"])}
        scaler.load_state_dict(scaler.state_dict() | earlier)
    else:
        scaler.load_state_dict(state["scaler"])
