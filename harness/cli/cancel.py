"""`harness cancel`: cancel the jobs that run a study in SLURM."""

from __future__ import annotations

import click

from harness.cli._completion import studies
from harness.cli._help import Command
from harness.cli._options import store_option
from harness.cli._request import chosen_studies
from harness.stores.places import Places


@click.command("cancel", cls=Command, example="harness cancel mine")
@click.argument("names", metavar="STUDY...", nargs=-1, required=True, shell_complete=studies)
@store_option
def command(names: tuple[str, ...], store: Places) -> int:
    """Cancel the SLURM jobs that `harness submit` has submitted for the studies.

    Their workers save and exit; stored runs are kept. `harness submit` continues with the remaining trials. Other
    workers are not affected. Exits 1 if SLURM reports an error.
    """
    from harness.stores.board import JOBS
    from harness.stores.opened import Opened
    from harness.work.slurm import SlurmFailed, cancel

    asked = {study.name for study in chosen_studies(names, everything=False)}
    board = Opened(store).board
    jobs = {job: note for job, note in board.all(JOBS).items() if asked & {*note["studies"]}}
    if not jobs:
        click.echo(f"no job of {', '.join(sorted(asked))} is known here: nothing was cancelled")
    status = 0
    for job, note in jobs.items():
        try:
            known = cancel(job)
        except SlurmFailed as error:
            click.echo(f"job {job} is not cancelled: {error}", err=True)
            status = 1
            continue
        board.remove(JOBS, job)
        others = sorted({*note["studies"]} - asked)
        also = f", which also ran {', '.join(others)}" if others else ""
        click.echo(f"job {job} is cancelled{also}" if known else f"job {job} was over already")
    return status
