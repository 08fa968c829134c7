"""`harness worker`: pull trials from a store that any number of workers share."""

from __future__ import annotations

import contextlib
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import click

from harness.cli._conclusion import conclude, tell_given_up, unreached
from harness.cli._options import SLURM, Duration, files_option, option, quiet_option, store_option, takes
from harness.cli._request import Request, WithUpdates
from harness.cli._signals import on_signals
from harness.cli._working import Machine, Working
from harness.stores.places import Places

if TYPE_CHECKING:
    from harness.work.deadline import Deadline
    from harness.work.states import Work

END_OF_JOB = "slurm"


class Until(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic from click 8.4 on
    """A time, or a duration from now: a `Deadline`. The word for the end of the job's time in SLURM stays as it is."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Deadline | str:
        from harness.work.deadline import Deadline, moment

        if value == END_OF_JOB:
            return END_OF_JOB
        if (named := moment(value)) is not None:
            if named <= time.time():
                self.fail(f"{value!r} is over", param, ctx)
            return Deadline(named)
        try:
            return Deadline(time.time() + Duration().convert(value, param, ctx))
        except click.BadParameter:
            self.fail(f"{value!r} is neither a time (14:30, 2026-11-17T14:30), nor a duration (90m, 4h)", param, ctx)


@dataclass(frozen=True)
class Task:
    """The part of a worker that SLURM started."""

    HEADING: ClassVar[str] = SLURM

    deadline: Deadline | str | None = option(
        "--until-deadline",
        "Exit by this time (14:30), within this duration (4h), or before the job's time ends (slurm).",
        Until(),
        "TIME",
    )
    requeue: bool = option("--requeue", "Requeue the SLURM job if its time ends while trials are left.", is_flag=True)
    needs: str | None = option(
        "--needs", "Only trials whose rows have these needs: gpus=2, memory=32G, or none.", None, "NEEDS", more=True
    )


@click.command("worker", cls=WithUpdates, example="harness worker mine --preset small --mongo mongodb://lab/nas")
@takes(request=Request, machine=Machine, working=Working, task=Task)
@files_option
@store_option
@quiet_option
def command(
    request: Request,
    machine: Machine,
    working: Working,
    task: Task,
    new_files: bool,
    store: Places,
    quiet: bool,
) -> int:
    """Pull trials of the studies from the store until none is left.

    Any number of workers, on any number of machines, share the work: each trial runs once, and trials of dead workers
    are taken over. Workers need the same store: a directory that all machines see, or a database. A worker waits for
    trials that its own start from. All workers must have the same study file and components: a worker with other files
    stops. With --until-deadline a worker starts no trial that cannot reach its next checkpoint in time; running trials
    are saved, and continued by the next worker. SIGUSR2 has the same effect. `harness run STUDY --references-only`
    computes the references of reports afterwards.
    """
    from rich.console import Console

    from harness.cli._display import Display
    from harness.work.jobs import Stopping
    from harness.work.processes import Processes
    from harness.work.slurm import requeue as start_again
    from harness.work.slurm import require_job
    from harness.work.submission import Needs
    from harness.work.unattended import work

    asked, slots, settings = request.asked(store), machine.slots(), working.settings(store, machine.threads)
    if task.requeue:
        require_job()
    end = _end_of_job() if isinstance(task.deadline, str) else task.deadline
    wanted = None if task.needs is None else Needs.parse(task.needs)

    def mine(one: Work) -> bool:
        return wanted is None or Needs.of(one, asked.studies) == wanted

    stopping = Stopping()
    display = Display(asked.studies, Console(highlight=False, stderr=quiet), quiet, lambda: stopping.asked)
    warnings = {int(signal.SIGUSR2): stopping.warn}
    with on_signals(stopping.ask, shown=lambda: display.is_live, also=warnings) as received:
        with contextlib.closing(Processes(slots)) as executor, display:
            executor.prepare()
            worked = work(
                asked,
                settings,
                executor,
                stopping,
                display.show,
                display.say,
                deadline=end,
                mine=mine,
                new_files=new_files,
            )
        # At the end of its time SLURM ends a job as it does when somebody cancels it: that is no reason to stay away.
        in_time = end is None or time.time() < end.end
        asked_to_stop = [number for number in received if number not in warnings and in_time]
        if worked.worker is None:
            return unreached(asked_to_stop, settings.outage_wait)
        status = conclude(worked.worker, asked_to_stop, store, mine)
        if worked.unreachable:
            tell_given_up(settings.outage_wait)
            return status or 1
        if worked.too_long:
            click.echo(f"error: {worked.too_long}", err=True)
            return 1
        if asked_to_stop or not stopping.asked or not worked.left:
            return status
        click.echo(f"the time is over; {len(worked.left)} trials are left to other workers")
        if task.requeue:
            click.echo(f"job {start_again()} starts again")
        return int(bool(worked.worker.errors))


def _end_of_job() -> Deadline | None:
    """The end of the job's time in SLURM; None if it has no limit."""
    from harness.work.deadline import Deadline
    from harness.work.slurm import end_time

    return None if (end := end_time()) is None else Deadline(end)
