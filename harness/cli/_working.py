"""Options of commands that run the trials of studies: how, where, and what to do when something does not answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import click

from harness.cli._store_places import weights_option, work_option
from harness.cli._values import Duration
from harness.stores.places import Places


def working_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of the session; the command receives `settings`, besides `store`."""

    @wraps(command)
    def with_settings(
        store: Places,
        threads: int,
        retry: str | None,
        timeout: float | None,
        compiled: bool,
        no_wait: bool,
        work: str | None,
        checkpoint_every: float,
        lease: float,
        offline: bool,
        outage_wait: float,
        mirror_weights_max: float,
        **others: Any,
    ) -> Any:
        from harness.work.assignment import Computing
        from harness.work.settings import Settings

        settings = Settings(
            places=replace(store, mongo=None) if offline else store,
            computing=Computing(threads, checkpoint_every=checkpoint_every, compile=compiled, timeout=timeout),
            lease=lease,
            work=Path(work).absolute() if work else None,
            weights_max=int(mirror_weights_max),
            retry=retry,
            waits=not no_wait,
            outage_wait=outage_wait,
        )
        return command(store=store, settings=settings, **others)

    for option in (
        weights_option,
        click.option(
            "--outage-wait",
            type=Duration(),
            default=600.0,
            show_default=True,
            help="Seconds to wait for an unreachable database before giving up.",
        ),
        click.option("--offline", is_flag=True, help="Do not use the database; `harness store sync` updates it later."),
        click.option(
            "--lease",
            type=Duration(),
            default=60.0,
            show_default=True,
            help="Seconds without renewal after which a claim expires.",
        ),
        click.option(
            "--checkpoint-every", type=Duration(), default=60.0, show_default=True, help="Seconds between checkpoints."
        ),
        work_option,
        click.option("--no-wait", is_flag=True, help="Do not wait for trials claimed by other processes."),
        click.option(
            "--compile", "compiled", is_flag=True, help="Have torch compile operations on GPUs; needs a C compiler."
        ),
        click.option("--timeout", type=Duration(), help="Time after which a trial fails (seconds, or 90m, 2h)."),
        click.option(
            "--retry",
            type=click.Choice(["failed", "lost", "all"]),
            help="Retry trials that failed, or that were lost too often to be retried by default.",
        ),
    ):
        with_settings = option(with_settings)
    return with_settings
