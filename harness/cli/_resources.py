"""Options of commands that run jobs: how many in parallel, with how many threads, on which devices."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from harness.errors import UserError

if TYPE_CHECKING:
    from harness.work.slots import Slots


def resource_options(command: Callable[..., Any], here: bool = True) -> Callable[..., Any]:
    """--jobs --threads --device --per-device --ranks; the command receives `slots` and `threads`.

    A command that runs its jobs on other machines, not `here`, receives `ranks` and `threads`.
    """

    @wraps(command)
    def with_slots(jobs: int | None, device: str | None, per_device: int, ranks: int, **others: Any) -> Any:
        if not here:
            return command(ranks=ranks, **others)
        if others.get("wanted") is not None and device != "cpu":
            device = None  # for workers on a cluster; this machine only makes references
        return command(slots=slots_of(device, jobs, per_device, ranks), **others)

    for option in (
        click.option(
            "--ranks",
            default=1,
            show_default=True,
            type=click.IntRange(1),
            help="Processes that train one trial together, each on a GPU of its own, or on --threads cores.",
        ),
        click.option(
            "--per-device",
            default=1,
            show_default=True,
            type=click.IntRange(1),
            help="Trials in parallel on each GPU; no effect without GPUs.",
        ),
        click.option(
            "--device", help="Device of the trials, for instance cpu or cuda:1.  [default: all GPUs if there are any]"
        ),
        click.option("--threads", default=1, show_default=True, type=click.IntRange(1), help="Threads per trial."),
        click.option(
            "--jobs",
            type=click.IntRange(1),
            help="Trials in parallel.  [default: as many as GPUs, or cores without GPUs, have room for]",
        ),
    ):
        with_slots = option(with_slots)
    return with_slots


def slots_of(device: str | None, jobs: int | None, per_device: int = 1, ranks: int = 1) -> Slots:
    """The slots that these options ask for. Raises `UserError` for a device that cannot be one."""
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
