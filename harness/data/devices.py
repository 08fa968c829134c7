"""Everything that depends on the kind of a device: the only module that uses `torch.cuda`, or torch's module of another
kind of accelerator. Checks and tests register the emulated device (`harness.training.emulated_device`) as one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any, TypeVar, cast

import torch

from harness.errors import HarnessError

KIND = "cuda"
"""The kind of device that jobs on a GPU use."""


class UnusableDevice(HarnessError):
    """Torch cannot use the GPU that a job was given."""


def accelerated(device: torch.device | str) -> bool:
    """Whether the device works by itself while the CPU continues."""
    return torch.device(device).type != "cpu"


def chosen(device: str | None) -> str:
    """The device of a job: "cpu" for None. Starts CUDA if it is a GPU: for processes of jobs only.

    Raises `UnusableDevice` if torch cannot use it: training on the CPU instead would take weeks, unnoticed.
    """
    if device is None or not device.startswith("cuda"):
        return device or "cpu"
    device = device.replace("cuda", KIND)
    if accelerated(device):
        try:
            module(device)
        except (RuntimeError, AssertionError) as error:  # a driver that is too old or missing; a torch for CPUs
            reason, visible = str(error).splitlines()[0].rstrip("."), os.environ.get("CUDA_VISIBLE_DEVICES")
            seen = "" if visible is None else f" (CUDA_VISIBLE_DEVICES={visible})"
            raise UnusableDevice(
                f"torch cannot use the GPU of this job{seen}: {reason}. `harness doctor` says more; "
                "--device cpu runs trials on the CPU"
            ) from error
    return device


def module(device: torch.device | str) -> Any:
    """Torch's functions for the kind of device: random numbers, memory, waiting. The first use starts CUDA."""
    functions: Any = torch.get_device_module(torch.device(device).type)
    if not functions.is_initialized():
        functions.init()  # functions that are given the number of a device do not start it themselves
    return functions


def wait(device: torch.device | str) -> None:
    """Wait until the device has done its work."""
    if accelerated(device):
        module(device).synchronize(device)


_LAYOUT: dict[str, Any] = {"precision": "float32", "forced": None}
"""What decides how images are laid out in this process."""


def fix_layout(precision: str) -> None:
    """Lay images out for trainings in that precision, from now on and in the whole process."""
    _LAYOUT["precision"] = precision


def memory_format(device: torch.device | str) -> torch.memory_format:
    """How images and convolutions' weights are laid out on the device.

    Channel by channel for float32 on a GPU: without tensor cores, cuDNN's kernels for the other order are slower by
    what users have measured (`harness doctor --gpu` compares both). Pixel by pixel for tensor cores, and on CPUs.
    """
    if _LAYOUT["forced"] is not None:
        return cast(torch.memory_format, _LAYOUT["forced"])
    exact = accelerated(device) and _LAYOUT["precision"] == "float32"
    return torch.contiguous_format if exact else torch.channels_last


def laid_out(images: torch.Tensor) -> torch.Tensor:
    """The images, or weights of convolutions, in the layout of their device."""
    layout = memory_format(images.device)
    if layout is torch.contiguous_format:
        _, channels, height, width = images.shape
        # Strides say which order convolutions take, and those of one channel or one pixel may be of both.
        if images.stride() != (channels * height * width, height * width, width, 1):
            return images.clone(memory_format=layout)
    return images.contiguous(memory_format=layout)


Placed = TypeVar("Placed", bound=torch.nn.Module)


def placed(network: Placed, device: torch.device | str) -> Placed:
    """The network on that device. Networks are made as they like it on CPUs; channel by channel, they are turned."""
    if memory_format(device) is torch.contiguous_format:
        # A clone, because the weights of 1×1 kernels are in both orders, and strides say which one convolutions take.
        apply: Any = network._apply
        apply(lambda one: one.clone(memory_format=torch.contiguous_format) if one.dim() == 4 else one)
    return network.to(device)


@contextlib.contextmanager
def forced_layout(layout: torch.memory_format) -> Iterator[None]:
    """Context in which that layout is used everywhere: for comparisons."""
    before, _LAYOUT["forced"] = _LAYOUT["forced"], layout
    try:
        yield
    finally:
        _LAYOUT["forced"] = before


def free_bytes(device: torch.device | str) -> int:
    """The memory of the device that no process uses."""
    return int(module(device).mem_get_info(device)[0])


def name(device: torch.device | str) -> str:
    """The model of the device, as its driver names it; "cpu" for a CPU."""
    return str(module(device).get_device_name(device)) if accelerated(device) else "cpu"


def with_model(device: torch.device | str) -> str:
    """The kind of the device and its model, as checkpoints name it: "cpu", "cuda (NVIDIA A100)"."""
    return f"{torch.device(device).type} ({name(device)})" if accelerated(device) else "cpu"
