"""Options of the commands that run trials: on which devices, how, and what to do when something does not answer."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

    jobs: int | None = option(
        "--jobs",
        type=COUNT,
        metavar="N",
        heading=HOW,
        help="Trials in parallel.  [default: one per GPU, or core]",
    )
    threads: int = option("--threads", default=1, type=COUNT, metavar="N", heading=HOW, help="Threads per trial.")
    device: str | None = option(
        "--device", metavar="NAME", heading=HOW, help="Such as cpu or cuda:1.  [default: all GPUs, else cpu]"
    )
    per_device: int = option(
        "--per-device",
        default=1,
        type=COUNT,
        metavar="N",
        heading=HOW,
        more=True,
        help="Trials in parallel on each GPU; no effect without GPUs.",
    )
    ranks: int = option(
        "--ranks",
        default=1,
        type=COUNT,
        metavar="N",
        heading=HOW,
        more=True,
        help="Processes that train one trial together, each on its own GPU, or on --threads cores.",
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

    retry: str | None = option(
        "--retry",
        type=click.Choice(["failed", "lost", "all"]),
        heading=HOW,
        help="Retry trials that failed, or were lost too often.",
    )
    timeout: float | None = option(
        "--timeout", type=Duration(), metavar="TIME", heading=HOW, help="Time after which a trial fails (90m, 2h)."
    )
    compile: bool = option(
        "--compile",
        is_flag=True,
        heading=HOW,
        more=True,
        help="Compile operations on GPUs with torch; needs a C compiler.",
    )
    no_wait: bool = option(
        "--no-wait", is_flag=True, heading=HOW, more=True, help="Do not wait for trials claimed by other processes."
    )
    work: Path | None = shared(work_option)
    checkpoint_every: float = option(
        "--checkpoint-every",
        type=Duration(),
        default=60.0,
        heading=CLAIMS,
        more=True,
        help="Seconds between checkpoints.",
    )
    lease: float = option(
        "--lease",
        type=Duration(),
        default=60.0,
        heading=CLAIMS,
        more=True,
        help="Seconds without renewal after which a claim expires.",
    )
    offline: bool = option(
        "--offline",
        is_flag=True,
        heading=PLACES,
        more=True,
        help="Do not use the database; `harness store sync` updates it later.",
    )
    outage_wait: float = option(
        "--outage-wait",
        type=Duration(),
        default=600.0,
        heading=PLACES,
        more=True,
        help="Seconds to wait for an unreachable database before giving up.",
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

    executor: str = option(
        "--executor",
        type=click.Choice(["local", "ray"]),
        default="local",
        heading=HOW,
        help="On this machine, or on a Ray cluster.",
    )
    ray_address: str | None = option(
        "--ray-address",
        metavar="HOST:PORT",
        heading=RAY,
        more=True,
        help="The Ray cluster, or auto.  [default: RAY_ADDRESS, else a Ray on this machine alone]",
    )
    cpus_per_trial: float | None = option(
        "--cpus-per-trial",
        type=click.FloatRange(0, min_open=True),
        metavar="X",
        heading=RAY,
        more=True,
        help="CPUs of a trial.  [default: --threads times --ranks]",
    )
    gpus_per_trial: float | None = option(
        "--gpus-per-trial",
        type=click.FloatRange(0),
        metavar="X",
        heading=RAY,
        more=True,
        help="GPUs of a trial; 0.5 runs two on each.  [default: --ranks if the cluster has any]",
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
