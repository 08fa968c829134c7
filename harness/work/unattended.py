"""A worker that nobody watches: it has the same files as the other workers of the study, and ends before a deadline.

Every way of running studies at scale starts such workers, by hand, by a scheduler or by another program. They are
workers like that of `run`. Imports no torch.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.documents import canonical
from harness.errors import Unreachable
from harness.owner import slurm_job
from harness.stores.checkpoints import stored_checkpoints
from harness.stores.stored import Status, StoredRun
from harness.work.agreement import Agreement
from harness.work.database import bring_up_to_date, reach
from harness.work.deadline import Deadline
from harness.work.jobs import Stopping
from harness.work.plan import Asked, Plan, require_inputs, require_ranks
from harness.work.processes import Processes
from harness.work.states import State, Work
from harness.work.worker import Settings, Show, Worker

TIMES = 5
"""So many attempts in a row, without another state saved, are enough."""


@dataclass(frozen=True)
class Worked:
    """What a worker has done, and what it leaves to others."""

    worker: Worker | None
    """None if the database was never reached."""
    too_long: str | None = None
    """Why no worker with as much time can run what is left; None if one can."""
    unreachable: str | None = None
    """Why the database was given up, if it was."""

    @property
    def left(self) -> list[Work]:
        """What such a worker could still run, or others are running."""
        if self.worker is None:
            return []
        left = {work.trial.key: work for work in self.worker.choose(self.worker.plan)}  # once, whatever its rankings
        return [work for key, work in left.items() if key not in self.worker.errors]

    def json(self) -> dict[str, Any]:
        """A few figures as plain JSON types."""
        work = () if self.worker is None else self.worker.plan.work
        own = set() if self.worker is None else self.worker.done_here
        return {
            "trials": len(work),
            "done": sum(one.state is State.DONE for one in work),
            "now": sum(one.state is State.DONE and one.trial.key in own for one in work),
            "left": len(self.left),
            "failed": {} if self.worker is None else self.worker.errors,
            "too_long": self.too_long,
            "unreachable": self.unreachable,
        }


def work(
    asked: Asked,
    settings: Settings,
    executor: Processes,
    stopping: Stopping,
    show: Show,
    say: Callable[[str], object] = print,
    *,
    deadline: Deadline | None = None,
    mine: Callable[[Work], bool] = lambda work: True,
    new_files: bool = False,
) -> Worked:
    """Run trials until none is left, a stop is asked for, or the deadline is near; `show` gets the progress.

    `mine` chooses the trials that this worker may run: it waits for others only where a trial of its own starts from
    them. `new_files` tells the store the files of this worker in the place of those that it was told. Raises
    `OtherFiles` if other workers have begun with other files, `DataError` if images are missing, `UserError`.
    """
    place = settings.open()
    if (silence := reach(place, settings.outage_wait, stopping, say)) is not None:
        return Worked(None, unreachable=silence)
    agreement = Agreement.of(asked, place.board)
    if new_files:
        agreement.tell()
    agreement.check()
    gate = _Gate(agreement, settings.computing.checkpoint_every, deadline, settings.work or place.directory.work)
    worker = Worker(place, settings, asked, executor, stopping, show, gate.planned, mine, gate.admits)
    todo = [work for work in worker.choose(worker.plan) if work.kind(settings.retry)]
    require_ranks(todo, executor.slots)
    require_inputs(work.trial for work in todo)
    with _stopped_at(deadline, stopping):
        worker.run()
    left = None if worker.gave_up else bring_up_to_date(place, stopping, say, worker.plan.naming)
    if left:
        say(left)
    return Worked(worker, gate.too_long, "it does not answer" if worker.gave_up else None)


@dataclass
class _Gate:
    """Asked before each trial: are the files still the same, and is there enough time?"""

    agreement: Agreement
    checkpoint_every: float
    deadline: Deadline | None
    work: Path
    """The folder of checkpoints."""
    too_long: str | None = None
    """Why a trial cannot be run by any worker with as much time, if there is such a trial."""
    took: dict[str, float] = field(default_factory=dict)
    """Seconds that done trials took, by what they share with those of other seeds."""
    stuck: set[str] = field(default_factory=set)
    """Keys of trials that other tasks of this job could not bring further."""

    def planned(self, runs: list[StoredRun]) -> Plan:
        """The plan of what is asked for; remembers how long stored runs took."""
        if self.deadline is not None:
            self.took = {_alike(run.trial["config"]): run.cost["wall_seconds"] for run in runs if run.cost}
            self.stuck = stuck(runs, self.work)
        return self.agreement.asked.plan(runs)

    def admits(self, work: Work) -> bool:
        """Whether the trial ends, or reaches its next checkpoint, before the deadline."""
        with suppress(Unreachable):  # the claim decides: without the database there is none
            self.agreement.check()
        if self.deadline is None:
            return True
        if work.trial.key in self.stuck:
            self.too_long = (
                f"{work.label} was interrupted {TIMES} times in a row by its job's end, without progress: "
                "submit it with more time, because training continues from its checkpoint, but a ranking restarts"
            )
            return False
        needed = min(self.checkpoint_every, self.took.get(_alike(work.trial.config.json()), self.checkpoint_every))
        if self.deadline.allows(needed):
            return True
        if not self.deadline.ever_allowed(needed):
            have = self.deadline.stop - self.deadline.begun
            self.too_long = (
                f"{work.label} needs {needed:.0f} s until its state is saved, and a worker has {have:.0f} s: "
                "give workers more time, or a smaller --checkpoint-every"
            )
        return False


def stuck(runs: Iterable[StoredRun], folder: Path, job: Mapping[str, str] | None = None) -> set[str]:
    """Keys of the trials whose last attempts were all made and interrupted by tasks of this job, and saved nothing.

    `folder` has the checkpoints. Another job has other times, and may try them again.
    """
    job = slurm_job() if job is None else job
    if not job:
        return set()
    saved: dict[str, float] = defaultdict(float)
    for one in stored_checkpoints(folder):
        saved[one.key16] = max(saved[one.key16], one.mtime)
    attempts: dict[str, list[StoredRun]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.order):
        attempts[run.key].append(run)
    return {
        key
        for key, own in attempts.items()
        if len(own) >= TIMES
        and all(
            run.status is Status.INTERRUPTED
            and _submitted(run.owner.get("slurm") or {}) == _submitted(job)
            and _began(run) > saved[key[:16]]
            for run in own[-TIMES:]
        )
    }


def _submitted(job: Mapping[str, str]) -> str | None:
    """The number that SLURM gave when it was submitted: all tasks of an array have the same."""
    return job.get("array", job.get("job"))


def _began(run: StoredRun) -> float:
    text = run.start_time or run.stop_time
    return 0.0 if text is None else datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def _alike(config: Mapping[str, Any]) -> str:
    """What trials share that take equally long: all but the seed."""
    return canonical({key: value for key, value in config.items() if key != "seed"})


@contextmanager
def _stopped_at(deadline: Deadline | None, stopping: Stopping) -> Iterator[None]:
    """Within, a stop is asked for when the deadline is near."""
    if deadline is None:
        yield
        return
    timer = threading.Timer(deadline.left, stopping.warn)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
