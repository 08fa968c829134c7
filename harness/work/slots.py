"""How many jobs run in parallel on a machine, and which device each has. Does not import torch.

On a machine with GPUs a job has one of them, or one per rank: its process sees no other (`CUDA_VISIBLE_DEVICES`).
Elsewhere there is one slot per core. Counting GPUs must not start CUDA, because jobs are forked.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
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
    """The places for jobs: how many run in parallel, and on which GPUs.

    A GPU is shared by shares: a job takes one `per_device`-th of it, or what the job itself says that it needs.
    """

    gpus: tuple[str, ...] = ()
    """The GPUs for jobs; without any, jobs have no GPU of their own."""
    jobs: int | None = None
    """The most jobs in parallel; None for as many as the GPUs hold."""
    device: str | None = None
    """The device as jobs name it; None for the CPU."""
    per_device: int = 1
    """Jobs on one GPU, of jobs that do not say what they need."""
    ranks: int = 1
    """Processes of a usual job, each on a GPU of its own."""

    def __len__(self) -> int:
        """How many usual jobs run in parallel."""
        if not self.gpus:
            return self.jobs or 1
        held = len(self.gpus) * self.per_device // self.ranks
        return held if self.jobs is None else min(held, self.jobs)

    @classmethod
    def cpu(cls, count: int) -> Slots:
        """Slots without GPUs."""
        return cls(jobs=count)

    @classmethod
    def of(
        cls,
        device: str | None = None,
        jobs: int | None = None,
        per_device: int = 1,
        ranks: int = 1,
        machine: Machine | None = None,
    ) -> Slots:
        """The slots for trials on a device ("cpu", "cuda", "cuda:NUMBER", or None for GPUs if there are any).

        With GPUs there are `per_device` slots on each, elsewhere one per core; a trial of several ranks takes one per
        rank. `jobs` limits the trials, and sets their number where there are no GPUs. Raises `UserError` for GPUs that
        are not there.
        """
        machine = machine or Machine.here()
        if not machine.gpus and (device or "cpu") != "cpu":
            raise UserError(
                f"--device {device}: there is no GPU here that can be used. `harness doctor` says more; without "
                "--device trials run on the CPU"
            )
        if device == "cpu" or not machine.gpus:
            return cls((), jobs or max(1, machine.cores // ranks), device, ranks=ranks)
        gpus = machine.gpus
        _, _, number = (device or "cuda").partition(":")
        if number:
            if int(number) >= len(gpus):
                raise UserError(f"--device {device}: there are {len(gpus)} GPUs here, numbered from 0")
            gpus = (gpus[int(number)],)
        # The process sees one GPU: for it that is number 0.
        slots = cls(gpus, jobs, "cuda", per_device, ranks)
        slots.check(ranks, None, f"--ranks {ranks}")
        return slots

    def size(self, ranks: int, devices: float | None) -> int:
        """How many processes a job has that asks for so many ranks, and needs so many GPUs."""
        return max(ranks, math.ceil(devices or 0)) if self.gpus else ranks

    def check(self, ranks: int, devices: float | None, whose: str) -> None:
        """Raise `UserError` if such a job could never start here."""
        if self.gpus and (size := self.size(ranks, devices)) > len(self.gpus):
            raise UserError(
                f"{whose}: each of {size} ranks needs a GPU of its own, and {len(self.gpus)} can be used here"
            )

    def is_full(self, taken: Sequence[Placed]) -> bool:
        """Whether nothing more can run beside these, however little it needs."""
        if self.jobs is not None and len(taken) >= self.jobs:
            return True
        return bool(self.gpus) and all(share >= 1 for share in self._used(taken).values())

    def _used(self, taken: Sequence[Placed]) -> dict[str, Fraction]:
        """How much of each GPU is taken."""
        return {gpu: sum((one.share for one in taken if gpu in one.gpus), Fraction()) for gpu in self.gpus}

    def place(self, ranks: int, devices: float | None, taken: Sequence[Placed]) -> Placed | None:
        """A place for such a job beside those that run; None while there is no room."""
        if self.is_full(taken):
            return None
        size, used = self.size(ranks, devices), self._used(taken)
        if not self.gpus:
            return Placed((None,) * size)
        share = Fraction(1, self.per_device) if devices is None else min(Fraction(1), Fraction(str(devices)))
        # The GPUs with the most room first: the first jobs are spread over all.
        free = sorted((gpu for gpu in self.gpus if used[gpu] + share <= 1), key=lambda gpu: used[gpu])
        return Placed(tuple(free[:size]), share) if len(free) >= size else None


@dataclass(frozen=True)
class Placed:
    """The place of a job: per process its GPU (None for none of its own), and the share of it that the job takes."""

    gpus: tuple[str | None, ...]
    share: Fraction = Fraction(1)

    def environment(self, rank: int) -> dict[str, str]:
        """The environment variables of one of its processes."""
        gpu = self.gpus[rank]
        return {} if gpu is None else {VISIBLE: gpu}
