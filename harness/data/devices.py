"""Everything that depends on the kind of a device: the only module that uses `torch.cuda`, or torch's module of another
kind of accelerator. Checks and tests register the emulated device (`harness.training.emulated_device`) as one.
"""

from __future__ import annotations

import os
from typing import Any

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


def free_bytes(device: torch.device | str) -> int:
    """The memory of the device that no process uses."""
    return int(module(device).mem_get_info(device)[0])


def name(device: torch.device | str) -> str:
    """The model of the device, as its driver names it; "cpu" for a CPU."""
    return str(module(device).get_device_name(device)) if accelerated(device) else "cpu"


def with_model(device: torch.device | str) -> str:
    """The kind of the device and its model, as checkpoints name it: "cpu", "cuda (NVIDIA A100)"."""
    return f"{torch.device(device).type} ({name(device)})" if accelerated(device) else "cpu"
