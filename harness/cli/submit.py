"""`harness submit`: have SLURM start workers of studies."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click

from harness.cli._options import COUNT, SLURM, Size, files_option, option, store_option, takes
from harness.cli._request import Request, WithUpdates
from harness.cli._working import Machine, Working
from harness.stores.places import MONGO, Places

if TYPE_CHECKING:
    from harness.work.submission import Array

_EXAMPLE = 'harness submit mine --preset paper --slurm "partition=gpu gres=gpu:1 time=4:00:00" --workers 20'


@dataclass(frozen=True)
class Jobs:
    """What SLURM starts."""

    HEADING: ClassVar[str] = SLURM

    given: str = option(
        "--slurm",
        'Options of sbatch, by their long names: "partition=gpu gres=gpu:1 time=4:00:00".',
        None,
        "OPTIONS",
        required=True,
    )
    workers: int = option("--workers", "The most workers at the same time.", COUNT, "N", required=True)
    dry_run: bool = option("--dry-run", "Print the script, and submit nothing.", is_flag=True)


@click.command("submit", cls=WithUpdates, example=_EXAMPLE)
@takes(request=Request, machine=Machine, working=Working, jobs=Jobs)
@files_option
@store_option
@click.pass_context
def command(
    context: click.Context,
    request: Request,
    machine: Machine,
    working: Working,
    jobs: Jobs,
    new_files: bool,
    store: Places,
) -> None:
    """Submit an array of workers to SLURM that run the missing trials of the studies.

    Each task of the array is a `harness worker`: it starts no trial that cannot reach its next checkpoint before the
    end of its time, saves on SLURM's warning, and is requeued while trials are left. There are never more workers than
    trials, or than the cluster allows in an array. Rows with `memory` or `devices` get a separate array. Other options
    are passed on to the workers. `harness status` shows the jobs, `harness cancel` cancels them. Images are decoded
    before the array starts, once.
    """
    from harness.stores.board import JOBS
    from harness.work import slurm, submission
    from harness.work.agreement import Agreement
    from harness.work.database import reach
    from harness.work.jobs import Stopping

    asked, settings = request.asked(store), working.settings(store, machine.threads)
    options = {"cpus-per-task": str(machine.ranks * machine.threads), **submission.parse_options(jobs.given)}
    submission.check_ranks(options, machine.ranks)
    place = settings.open()
    silence = reach(place, settings.outage_wait, Stopping(), lambda line: click.echo(line, err=True))
    if silence is not None:
        raise slurm.SlurmFailed(f"nothing was submitted: {silence}")
    plan = asked.plan(place.reader.runs())
    left = [work for work in plan.work if work.kind(settings.retry)]
    if not left:
        click.echo(f"nothing is left to run: {len(plan.work)} trials are done, running or failed")
        return
    plan.require_images(settings.retry)  # decodes images, and opens tables
    arrays = submission.arrays(left, asked.studies, jobs.workers, _limit(jobs.dry_run))
    folder = (settings.work or store.directory.absolute() / "work") / "slurm"
    name = "-".join(["harness", *(study.name for study in asked.studies[:3])])
    scripts = []
    for array in arrays:
        command = [sys.executable, "-m", "harness", "worker", *_passed_on(context, store, options, array)]
        command += ["--needs", str(array.needs)] if len(arrays) > 1 else []
        words = request.updates
        command += ["--until-deadline", "slurm", "--requeue", *(["with", *words] if words else [])]
        scripts.append(submission.script(array, name, options, command, Path.cwd(), folder))
    if jobs.dry_run:
        click.echo("\n".join(scripts).rstrip())
        return
    agreement = Agreement.of(asked, place.board)
    if new_files:
        agreement.tell()
    agreement.check()
    folder.mkdir(parents=True, exist_ok=True)
    variables = {} if settings.places.mongo is None else {MONGO: settings.places.mongo}
    for array, text in zip(arrays, scripts, strict=True):
        file = folder / f"{name}-{array.needs}.sh"
        file.write_text(text)
        job = slurm.submit(file, variables)
        studies = [study.name for study in asked.studies]
        note = {"studies": studies, "preset": asked.preset, "workers": array.workers, "script": str(file)}
        place.board.replace(JOBS, job, note)
        needs = "" if len(arrays) == 1 else f" (needs: {array.needs})"
        click.echo(f"job {job}: {array.workers} workers for {array.trials} trials{needs}, by {file}")


def _limit(dry_run: bool) -> int | None:
    """The most tasks of an array; None where SLURM is not at hand and nothing is submitted."""
    from harness.work.slurm import SlurmFailed, max_array_size

    try:
        return max_array_size()
    except SlurmFailed as error:
        if not dry_run:
            raise
        click.echo(f"the most tasks of an array are not known: {error}", err=True)
        return None


OWN = ("given", "workers", "dry_run", "new_files", "store", "mongo")
"""Parameters that are not passed on to workers as they were given."""


def _passed_on(context: click.Context, store: Places, options: dict[str, str], array: Array) -> Iterator[str]:
    """The arguments of a worker: what was given here, but neither a database's address nor what is SLURM's."""
    from click.core import ParameterSource

    asked_for_gpus = any(name.startswith("gpus") or name == "gres" for name in array.needs.options(options))
    for parameter in context.command.params:
        name = str(parameter.name)
        given = context.get_parameter_source(name) not in (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP, None)
        value: Any = context.params.get(name)
        if isinstance(parameter, click.Argument):
            yield from value
        elif name not in OWN and isinstance(parameter, click.Option) and given:
            if parameter.is_flag:
                yield parameter.opts[0]
            else:
                for one in value if parameter.multiple else [value]:
                    yield from (
                        parameter.opts[0],
                        f"{one / 1024:.0f}kB" if isinstance(parameter.type, Size) else str(one),
                    )
        elif name == "jobs" and not asked_for_gpus:
            yield from (parameter.opts[0], "1")  # the cores of the machine are not those of the job
    yield from ("--store", str(store.directory.absolute()))
