"""Options of the commands that run trials: on which devices, how, and what to do when something does not answer."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click

from harness.cli._options import CLAIMS, COUNT, HOW, PLACES, RAY, Duration, option, shared, weights_option, work_option
from harness.errors import UserError
from harness.stores.places import Places

if TYPE_CHECKING:
    from harness.work.remote.ray_crew import Wanted
    from harness.work.slots import Slots
    from harness.work.worker import Settings


@dataclass(frozen=True)
class Machine:
    """What trials use of this machine, or of others."""

    HEADING: ClassVar[str] = HOW

    jobs: int | None = option("--jobs", "Trials in parallel.  [default: one per GPU, or core]", COUNT, "N")
    threads: int = option("--threads", "Threads per trial.", COUNT, "N", default=1)
    device: str | None = option("--device", "Such as cpu or cuda:1.  [default: all GPUs, else cpu]", None, "NAME")
    per_device: int = option(
        "--per-device", "Trials in parallel on each GPU; no effect without GPUs.", COUNT, "N", default=1, more=True
    )
    ranks: int = option(
        "--ranks",
        "Processes that train one trial together, each on its own GPU, or on --threads cores.",
        COUNT,
        "N",
        default=1,
        more=True,
    )

    def slots(self) -> Slots:
        """The slots for trials on this machine. Raises `UserError` for a device that cannot be one."""
        return slots_of(self.device, self.jobs, self.per_device, self.ranks)


def slots_of(device: str | None, jobs: int | None, per_device: int = 1, ranks: int = 1) -> Slots:
    """The slots for these values. Raises `UserError` for a device that cannot be one."""
    from harness.work.slots import Slots

    if device is not None and not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise UserError(f"--device {device}: allowed are cpu, cuda and cuda:NUMBER")
    slots = Slots.of(device, jobs, per_device, ranks)
    if jobs is not None and len(slots) < jobs:
        advice = f"--per-device {-(-jobs * ranks // len(slots.gpus))}"
        of_ranks = f" of {ranks} ranks" if ranks > 1 else ""
        click.echo(
            f"--jobs {jobs}: only {len(slots)} in parallel{of_ranks}, {per_device} per GPU; {advice} allows it",
            err=True,
        )
    return slots


@dataclass(frozen=True)
class Working:
    """How a worker runs trials, whatever they are; `harness.work.worker.Settings`, as options."""

    HEADING: ClassVar[str] = HOW

    retry: str | None = option(
        "--retry", "Retry trials that failed, or were lost too often.", click.Choice(["failed", "lost", "all"])
    )
    timeout: float | None = option("--timeout", "Time after which a trial fails (90m, 2h).", Duration(), "TIME")
    compile: bool = option(
        "--compile", "Compile operations on GPUs with torch; needs a C compiler.", is_flag=True, more=True
    )
    no_wait: bool = option("--no-wait", "Do not wait for trials claimed by other processes.", is_flag=True, more=True)
    work: Path | None = shared(work_option)
    checkpoint_every: float = option(
        "--checkpoint-every", "Seconds between checkpoints.", Duration(), heading=CLAIMS, default=60.0, more=True
    )
    lease: float = option(
        "--lease",
        "Seconds without renewal after which a claim expires.",
        Duration(),
        heading=CLAIMS,
        default=60.0,
        more=True,
    )
    offline: bool = option(
        "--offline",
        "Do not use the database; `harness store sync` updates it later.",
        heading=PLACES,
        is_flag=True,
        more=True,
    )
    outage_wait: float = option(
        "--outage-wait",
        "Seconds to wait for an unreachable database before giving up.",
        Duration(),
        heading=PLACES,
        default=600.0,
        more=True,
    )
    mirror_weights_max: int = shared(weights_option)

    def settings(self, places: Places, threads: int) -> Settings:
        """The settings of a worker with that many threads per trial."""
        from harness.work.assignment import Computing
        from harness.work.worker import Settings

        return Settings(
            places=replace(places, mongo=None) if self.offline else places,
            computing=Computing(
                threads, checkpoint_every=self.checkpoint_every, compile=self.compile, timeout=self.timeout
            ),
            lease=self.lease,
            work=self.work.absolute() if self.work else None,
            weights_max=self.mirror_weights_max,
            retry=self.retry,
            waits=not self.no_wait,
            outage_wait=self.outage_wait,
        )


@dataclass(frozen=True)
class Cluster:
    """Which engine starts workers, and what each of them gets."""

    HEADING: ClassVar[str] = RAY

    executor: str = option(
        "--executor",
        "On this machine, or on a Ray cluster.",
        click.Choice(["local", "ray"]),
        heading=HOW,
        default="local",
    )
    ray_address: str | None = option(
        "--ray-address",
        "The Ray cluster, or auto.  [default: RAY_ADDRESS, else a Ray on this machine alone]",
        None,
        "HOST:PORT",
        more=True,
    )
    cpus_per_trial: float | None = option(
        "--cpus-per-trial",
        "CPUs of a trial.  [default: --threads times --ranks]",
        click.FloatRange(0, min_open=True),
        "X",
        more=True,
    )
    gpus_per_trial: float | None = option(
        "--gpus-per-trial",
        "GPUs of a trial; 0.5 runs two on each.  [default: --ranks if the cluster has any]",
        click.FloatRange(0),
        "X",
        more=True,
    )

    def wanted(self, machine: Machine, excluded: dict[str, Any]) -> Wanted | None:
        """The workers to start; None where this machine runs the trials.

        Raises `UserError` with an excluded option, by its name, that is given.
        """
        if self.executor != "ray":
            if any(one is not None for one in (self.ray_address, self.cpus_per_trial, self.gpus_per_trial)):
                raise UserError("--ray-address, --cpus-per-trial and --gpus-per-trial are for --executor ray")
            return None
        from harness.work.remote.ray_crew import Wanted, require_ray

        for name, value in excluded.items():
            if value:
                raise UserError(f"{name} and --executor ray exclude each other")
        require_ray()
        cpus = self.cpus_per_trial or float(machine.threads * machine.ranks)
        return Wanted(self.ray_address, machine.jobs, cpus, self.gpus_per_trial, machine.device, machine.ranks)
