"""The arithmetic of a trial: how exact products of float32 are, half precision, and how gradients stay in its range.

What changes results is fixed for every process, and only `precision` of the configuration changes it: torch's own
defaults round products on GPUs to TF32 in convolutions but not in matrix products, and let cuDNN choose algorithms by
their speed at the moment.

Weights, momentum and batch statistics stay in float32. bfloat16 has float32's range and needs nothing more.
In float16 small gradients would vanish, so losses are multiplied by the scale of torch's `GradScaler`: it doubles
after 2,000 good steps; a step whose gradients are not finite is skipped and halves it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from harness.data.devices import accelerated, fix_layout, memory_format

TYPES = {"float32": None, "tf32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}

LAYOUTS = {torch.contiguous_format: "channel by channel", torch.channels_last: "pixel by pixel"}


def fix_arithmetic(precision: str = "float32") -> None:
    """Fix, for this process, all settings of torch that change results. Does not touch a GPU."""
    # One of torch's two interfaces: after a use of the newer one, code that reads the older one raises.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    fix_layout(precision)


def arithmetic(device: torch.device | str = "cpu") -> str:
    """These settings as they are, in words, to be stored with a run; of a GPU also the layout of images."""
    kinds = (torch.backends.cuda.matmul, torch.backends.cudnn)
    products, convolutions = ("tf32" if kind.allow_tf32 else "ieee" for kind in kinds)
    fixed = torch.backends.cudnn.deterministic and not torch.backends.cudnn.benchmark
    said = f"products {products}, convolutions {convolutions}, cuDNN {'deterministic' if fixed else 'by speed'}"
    return f"{said}, images {LAYOUTS[memory_format(device)]}" if accelerated(device) else said


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Context in which convolutions and matrix products are computed in that precision."""
    kind = TYPES[precision]
    return contextlib.nullcontext() if kind is None else torch.autocast(device.type, kind)


@contextlib.contextmanager
def evaluating(precision: str, device: torch.device) -> Iterator[None]:
    """Context of evaluations in that precision (`rank.precision`), whatever the training's is."""
    kinds: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [kind.allow_tf32 for kind in kinds]
    try:
        for kind in kinds if precision == "tf32" else ():
            kind.allow_tf32 = True
        with autocast(precision, device):
            yield
    finally:
        for kind, allowed in zip(kinds, before, strict=True):
            kind.allow_tf32 = allowed


def make_scaler(precision: str = "float32", device: torch.device | str = "cpu") -> torch.amp.GradScaler:
    """The scaler of losses and gradients; one that does nothing except in float16."""
    return torch.amp.GradScaler(torch.device(device).type, enabled=precision == "float16")


def restore_scaler(scaler: torch.amp.GradScaler, state: dict[str, Any]) -> None:
    """Restore the scaler from the state of an optimiser's checkpoint."""
    if scaler.is_enabled():
        scaler.load_state_dict(state["scaler"])
