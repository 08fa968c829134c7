"""Options of `run` for clusters: which engine starts the workers, and what each of them gets."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from harness.errors import UserError

if TYPE_CHECKING:
    from harness.work.remote.ray_crew import Wanted


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--executor --ray-address --cpus-per-trial --gpus-per-trial; the command receives `wanted`, None for no cluster.

    Above `resource_options`, whose values it reads.
    """

    @wraps(command)
    def asking(
        executor: str,
        ray_address: str | None,
        cpus_per_trial: float | None,
        gpus_per_trial: float | None,
        **others: Any,
    ) -> Any:
        wanted = None
        if executor == "ray":
            wanted = _wanted(ray_address, cpus_per_trial, gpus_per_trial)
        elif any(one is not None for one in (ray_address, cpus_per_trial, gpus_per_trial)):
            raise UserError("--ray-address, --cpus-per-trial and --gpus-per-trial are for --executor ray")
        return command(wanted=wanted, **others)

    for option in (
        click.option(
            "--gpus-per-trial",
            type=click.FloatRange(0),
            help="With Ray: GPUs of a trial; 0.5 runs two on each.  [default: --ranks if the cluster has any]",
        ),
        click.option(
            "--cpus-per-trial",
            type=click.FloatRange(0, min_open=True),
            help="With Ray: CPUs of a trial.  [default: --threads times --ranks]",
        ),
        click.option(
            "--ray-address",
            metavar="HOST:PORT",
            help="The Ray cluster, or auto.  [default: RAY_ADDRESS, else a Ray on this machine alone]",
        ),
        click.option(
            "--executor",
            type=click.Choice(["local", "ray"]),
            default="local",
            show_default=True,
            help="Where trials run: processes of this machine, or workers on a Ray cluster.",
        ),
    ):
        asking = option(asking)
    return asking


def _wanted(address: str | None, cpus: float | None, gpus: float | None) -> Wanted:
    from harness.work.remote.ray_crew import Wanted, require_ray

    params = click.get_current_context().params
    excluded = {"ending": "--until", "until": "--until", "profile": "--profile", "references_only": "--references-only"}
    for name, option in excluded.items():
        if params.get(name):
            raise UserError(f"{option} and --executor ray exclude each other")
    require_ray()
    ranks = params["ranks"]
    cpus = float(params["threads"] * ranks) if cpus is None else cpus
    return Wanted(address, params["jobs"], cpus, gpus, params["device"], ranks)
