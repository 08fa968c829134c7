"""How many jobs run in parallel on a machine, and which device each has. Does not import torch.

On a machine with GPUs a job has one of them: its process sees no other (`CUDA_VISIBLE_DEVICES`). Elsewhere there
is one slot per core. Counting GPUs must not start CUDA, because jobs are forked.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version

from harness.environment import gpu_names
from harness.errors import UserError

VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Machine:
    """What a machine has to compute on."""

    cores: int
    gpus: tuple[str, ...] = ()
    """The GPUs that may be used, as `CUDA_VISIBLE_DEVICES` names them."""

    @classmethod
    def here(cls, environment: Mapping[str, str] = os.environ, torch: str | None = None) -> Machine:
        """This machine. GPUs that `CUDA_VISIBLE_DEVICES` hides are not used, and none by a torch built for CPUs.

        `torch` is the version of the installed one unless given.
        """
        for_cpus = (torch or version("torch")).endswith("+cpu")
        gpus = () if for_cpus else tuple(str(number) for number in range(len(gpu_names())))
        if gpus and (given := environment.get(VISIBLE)) is not None:
            gpus = tuple(_named(given))
        return cls(os.cpu_count() or 1, gpus)


def _named(visible: str) -> list[str]:
    """The GPUs of a value of `CUDA_VISIBLE_DEVICES`. Like CUDA, reads up to the first invalid one."""
    names = []
    for name in (one.strip() for one in visible.split(",")):
        if not name or name.startswith("-"):
            break
        names.append(name)
    return names


@dataclass(frozen=True)
class Slots:
    """The places for jobs: as many run in parallel as there are slots."""

    gpus: tuple[str | None, ...]
    """Per slot the GPU that its job sees; None for a slot without a GPU of its own."""
    device: str | None = None
    """The device as jobs name it; None for the best that they find."""

    def __len__(self) -> int:
        return len(self.gpus)

    @classmethod
    def cpu(cls, count: int) -> Slots:
        """Slots without GPUs."""
        return cls((None,) * count)

    @classmethod
    def of(
        cls,
        device: str | None = None,
        jobs: int | None = None,
        per_device: int = 1,
        machine: Machine | None = None,
    ) -> Slots:
        """The slots for trials on a device ("cpu", "cuda", "cuda:NUMBER", or None for GPUs if there are any).

        With GPUs there are `per_device` slots on each, elsewhere one per core; `jobs` limits them, and sets their
        number where there are no GPUs. Raises `UserError` for a GPU that is not there.
        """
        machine = machine or Machine.here()
        if device == "cpu" or not machine.gpus:
            return cls((None,) * (jobs or machine.cores), device)
        gpus = machine.gpus
        _, _, number = (device or "cuda").partition(":")
        if number:
            if int(number) >= len(gpus):
                raise UserError(f"--device {device}: there are {len(gpus)} GPUs here, numbered from 0")
            gpus = (gpus[int(number)],)
        # The first jobs are spread over all GPUs.
        slots = gpus * per_device
        # The process sees one GPU: for it that is number 0.
        return cls(slots[:jobs], device and "cuda")

    def environment(self, slot: int) -> dict[str, str]:
        """The environment variables of a job in that slot."""
        gpu = self.gpus[slot]
        return {} if gpu is None else {VISIBLE: gpu}
