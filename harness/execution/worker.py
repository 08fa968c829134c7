"""A worker: pulls trials of studies from a store until none is left, or its time is over. Imports no torch.

Every way of running studies at scale starts workers, by hand, by a scheduler or by another program. A worker is a
session like that of `run`, and adds only what a process that nobody watches needs: it has the same files as the other
workers of the study, and is gone before a deadline.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from harness.errors import Unreachable
from harness.execution.agreement import Agreement
from harness.execution.deadline import Deadline
from harness.execution.executors.executor import Answered, Executor, Stopping
from harness.execution.plan import Asked
from harness.execution.session import Session, Show, working
from harness.execution.settings import Settings
from harness.execution.states import State, Work


@dataclass(frozen=True)
class Worked:
    """What a worker has done, and what it leaves to others."""

    session: Session | None
    """None if the database was never reached."""
    retry: str | None = None
    too_long: str | None = None
    """Why no worker with as much time can run what is left; None if one can."""
    unreachable: str | None = None
    """Why the database was given up, if it was."""

    @property
    def left(self) -> list[Work]:
        """What a worker could still run, or other workers are running."""
        if self.session is None:
            return []
        failed, plan = self.session.errors, self.session.plan
        return [w for w in plan.work if w.trial.key not in failed and (w.state is State.RUNNING or w.kind(self.retry))]

    def json(self) -> dict[str, Any]:
        """A few figures as plain JSON types."""
        work = () if self.session is None else self.session.plan.work
        answers = () if self.session is None else self.session.answers
        own = {one.trial.key for one, answer in answers if answer["status"] == Answered.DONE}
        return {
            "trials": len(work),
            "done": sum(one.state is State.DONE for one in work),
            "now": sum(one.state is State.DONE and one.trial.key in own for one in work),
            "left": len(self.left),
            "failed": {} if self.session is None else self.session.errors,
            "too_long": self.too_long,
            "unreachable": self.unreachable,
        }


def work(
    asked: Asked,
    settings: Settings,
    executor: Executor,
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
    place = settings.workplace(say)
    if not place.reach(settings.outage_wait, stopping):
        return Worked(None, unreachable=place.silence)
    place.check_writable()
    agreement = Agreement.of(asked, place.opened.board)
    if new_files:
        agreement.tell()
    agreement.check()
    gate = _Gate(agreement, settings.checkpoint_every, deadline)
    session = working(
        place,
        asked,
        settings.assigning(asked, executor.slots),
        executor,
        stopping,
        show,
        retry=settings.retry,
        waits=settings.waits,
        outage_wait=settings.outage_wait,
        mine=mine,
        admits=gate.admits,
    )
    session.plan.require_images(settings.retry)
    with _stopped_at(deadline, stopping):
        session.run()
    left = None if session.gave_up else place.sync(stopping)
    if left:
        say(left)
    silence = (place.silence or "it does not answer") if session.gave_up else None
    return Worked(session, settings.retry, gate.too_long, silence)


@dataclass
class _Gate:
    """Asked before each trial: are the files still the same, and is there enough time?"""

    agreement: Agreement
    checkpoint_every: float
    deadline: Deadline | None
    too_long: str | None = None

    def admits(self, work: Work) -> bool:
        """Whether the trial reaches its next checkpoint before the deadline."""
        try:
            self.agreement.check()
        except Unreachable:
            return True  # the claim decides: without the database none is got
        if self.deadline is None or self.deadline.allows(self.checkpoint_every):
            return True
        if not self.deadline.ever_allowed(self.checkpoint_every):
            have = self.deadline.stop - self.deadline.begun
            self.too_long = (
                f"{work.label} saves its state every {self.checkpoint_every:g} s, and a worker has {have:.0f} s: "
                "give workers more time, or a smaller --checkpoint-every"
            )
        return False


@contextmanager
def _stopped_at(deadline: Deadline | None, stopping: Stopping) -> Iterator[None]:
    """Within, a stop is asked for when the deadline is near."""
    if deadline is None:
        yield
        return
    timer = threading.Timer(deadline.left, stopping.ask)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
