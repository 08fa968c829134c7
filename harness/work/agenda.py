"""Which trial a worker runs next, claimed. Does not import torch.

Any number of workers may work on the same trials. A trial is claimed, and then the stored runs are read again:
another worker may have done it just now. A trial that another worker has claimed is waited for, because that worker may
die. A worker that finds trials taken looks further ahead, so that many workers do not all walk the same way; which
worker runs a trial changes no result. While the database is unreachable no trial begins; running ones continue.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from harness.documents import seconds_since
from harness.errors import HarnessError, NotReadable, Unreachable
from harness.stores.claims import Claim, Claims
from harness.stores.store import Store, supersede
from harness.stores.stored import Problem, Status, StoredRun
from harness.study.trial import Trial
from harness.work.attempts import Attempt
from harness.work.jobs import Answered, Job, Later
from harness.work.states import Kind, State, Work, claim_key, lost_too_often, state_of

POLL, LONGEST = 1.0, 30.0
"""Least and most seconds between polls of the claims of others; the least also for an unreachable database."""

PAUSE = 10.0
"""A pause is so many times as long as the look before it: however many processes wait, they load a store little."""

MANY = 8
"""Trials that others have, one after the other, before the runs of some are read together."""

SOME = 8
"""The number of those, drawn at random; the next time twice as many. All at once would keep a large store busy."""

ALL = 2000
"""Of so many trials the runs are read by reading all runs."""


@dataclass
class Agenda:
    """The work of one round. `jobs` is the input of the processes, and `heard` takes what became of the jobs."""

    todo: Sequence[Work]
    store: Store
    claims: Claims
    begin: Callable[[Work, Kind, Claim, Sequence[StoredRun]], Attempt]
    """Begins an attempt under its claim."""
    kind: Callable[[Work, Sequence[StoredRun]], Kind | None]
    """What there is to do for some work, given the runs of its trial; None for nothing."""
    given: Collection[str] = ()
    """Keys of searches that need not be stored: what starts from them has what it needs."""
    retry: str | None = None
    waits: bool = True
    """Whether to wait for trials claimed by other processes."""
    outage_wait: float = 600.0
    say: Callable[[str], None] = lambda line: None
    elsewhere: Callable[[Work], None] = lambda work: None
    """Callback for each trial that another process has done."""
    refuse: Callable[[int, BaseException], None] = lambda number, error: None
    """Callback for work whose attempt could not begin, by its number."""
    admits: Callable[[Work], bool] = lambda work: True
    """Whether a trial may begin now; one that may not is left to others. A `HarnessError` stops the handing out."""
    others: Collection[str] = ()
    """Keys of trials that other workers are to run: what starts from them waits, unless they have failed."""
    recovered: Callable[[], object] = lambda: None
    """Callback for when the database answers again."""
    gave_up: bool = field(default=False, init=False)
    """Whether the database was unreachable for too long."""

    def __post_init__(self) -> None:
        self._pending = list(range(len(self.todo)))
        self._taken = 0  # trials that others were found to have or to have done, one after the other
        self._many, self._some = MANY, SOME
        self._shared = False  # whether others are known to work here: then one trial that they have suffices
        self._open: list[int] = []  # trials that nobody had done or claimed when some were read
        self._rng = random.Random()
        counted = {} if self.retry in ("lost", "all") else {n: work.losses for n, work in enumerate(self.todo)}
        self._losses = Counter(counted)
        self.running: dict[int, Attempt] = {}
        """The attempts under way, by the number of their work."""
        self._silent_since: float | None = None
        self._told_of_others = False
        self._not_before: dict[int, float] = {}
        self.given_up: list[Work] = []
        """Work that stays waiting, because the search that it starts from is not there."""
        self.refused: list[Work] = []
        """Work that was not admitted."""
        self.error: HarnessError | None = None
        """The error that stopped the handing out of jobs, if any."""

    def jobs(self) -> Iterator[Job | Later]:
        """Yield the next job, or `Later` while none is available but one may become so."""
        looked: set[int] = set()  # without success, since the last job or pause
        began = time.monotonic()
        while self._pending or self.running:
            if not self._pending:  # a running job may be queued again
                yield Later(POLL)
                continue
            try:
                looked |= self._look_at_some()
                number = self._choose(looked)
                job = None if number is None else self._next(number)
            except Unreachable as error:
                if self._silent_too_long(str(error)):
                    return
                yield Later(POLL)
                continue
            except HarnessError as error:  # running jobs continue; the caller raises it afterwards
                self.error = error
                return
            self._answers()
            if not self._pending:  # others have done the rest
                continue
            if number is None:
                if not self.waits and not self.running:
                    return
                self._tell_of_others()
                looked.clear()
                yield Later(min(LONGEST, max(POLL, PAUSE * (time.monotonic() - began))))
                began = time.monotonic()
                continue
            if job is None:
                looked.add(number)
                continue
            self._pending.remove(number)
            if isinstance(job, Job):
                looked.clear()
                yield job
                began = time.monotonic()

    def label(self, number: int) -> str:
        """The name of that work, for readers."""
        return self.todo[number].label

    def heard(self, number: int, status: str) -> bool:
        """Take the end of a job; return whether its work is queued again: another worker has it, or its child died."""
        if status == Answered.ELSEWHERE:
            self._taken += 1
            self._pending.append(number)
            self._not_before[number] = time.monotonic() + POLL
            return True
        self._taken, self._some = 0, SOME
        self._many = 1 if self._shared else MANY
        if again := status == Answered.LOST and _may_try_again(self._losses, number):
            self._pending.append(number)
        return again

    def _choose(self, looked: Collection[int]) -> int | None:
        """The trial to look at next, of those that were not looked at; None if there is none.

        It is the first, unless others have those: then one of the first two, four, eight and so on, at random, or one
        that was free when some were read.
        """
        fresh = [number for number in self._pending if number not in looked]
        if self._open:
            known = {*fresh}
            self._open = [number for number in self._open if number in known]
        if self._open:
            return self._rng.choice(self._open)
        return fresh[self._rng.randrange(min(len(fresh), 2 ** min(self._taken, 32)))] if fresh else None

    def _look_at_some(self) -> set[int]:
        """Where others have one trial after the other: read the runs and claims of some, until one of these is free.

        Leaves out what is done, and gives what others have claimed.
        """
        if self._taken < self._many:
            return set()
        self._open = []
        taken: set[int] = set()
        while not self._open and (left := [number for number in self._pending if number not in taken]):
            some = self._rng.sample(left, min(self._some, len(left)))
            self._some *= 2
            done = self._done(some)
            for number in done:
                self.elsewhere(self.todo[number])
            self._pending = [number for number in self._pending if number not in done]
            keys = {number: claim_key(self.todo[number].trial, Kind.TRAIN) for number in some if number not in done}
            held = self.claims.held(keys.values())
            taken |= {number for number, key in keys.items() if key in held}
            self._open = [number for number in keys if number not in taken]
        self._shared, self._many = True, self._taken + 1
        return taken

    def _done(self, numbers: Collection[int]) -> set[int]:
        """Which of these trials are done."""
        wanted = {number: self.todo[number].trial for number in numbers}
        read = None if len(wanted) > ALL else {trial.key[:16] for trial in wanted.values()}
        runs = defaultdict(list)
        for run in supersede(self.store.load(read, []), []):
            runs[run.key].append(run)
        return {
            number
            for number, trial in wanted.items()
            if (own := runs.get(trial.key)) and state_of(trial, own) is State.DONE
        }

    def _next(self, number: int) -> Job | None | bool:
        """The job of that work; None when it must wait, False when there is nothing left to do."""
        work = self.todo[number]
        if time.monotonic() < self._not_before.get(number, 0.0):
            return None
        try:
            runs = self._readable_runs(work.trial)
        except NotReadable as error:
            return self._refused(number, error)
        if (kind := self.kind(work, runs)) is None:
            if state_of(work.trial, runs) is State.DONE:
                self._taken += 1
                self.elsewhere(work)
            return False
        start = work.trial.start
        if kind is Kind.TRAIN and start is not None and not self._has_started(start):
            # It may have been stored between the two looks.
            return None if self._may_come(start) or self._has_started(start) else self._give_up(work)
        if self.claims.holder(claim_key(work.trial, kind)) is not None or self._is_at_work(runs):
            self._taken += 1
            return None
        if not self.admits(work):
            self.refused.append(work)
            return False
        try:
            attempt = self._begin(work, kind, max((run.attempt for run in runs), default=0))
        except Unreachable:
            raise
        except (HarnessError, OSError) as error:
            return self._refused(number, error)
        if attempt is None:
            self._taken += 1
            return None
        self.running[number] = attempt
        return attempt.job(number)

    def _begin(self, work: Work, kind: Kind, attempts: int) -> Attempt | None:
        """Claim the trial and begin an attempt; None if another worker was faster."""
        if (claim := self.claims.acquire(claim_key(work.trial, kind), at_least=attempts)) is None:
            return None
        try:
            runs = self._readable_runs(work.trial)
            if self.kind(work, runs) is kind:
                return self.begin(work, kind, claim, runs)
        except BaseException:
            with contextlib.suppress(HarnessError):
                claim.release()
            raise
        claim.release()
        return None

    def _refused(self, number: int, error: BaseException) -> bool:
        """An attempt at that work could not begin."""
        self.refuse(number, error)
        return False

    def _readable_runs(self, trial: Trial) -> list[StoredRun]:
        """The trial's runs. Raises `NotReadable` if none counts, but an unreadable one might."""
        problems: list[Problem] = []
        found = supersede(self.store.load({trial.key[:16]}, problems), [])
        runs = [run for run in found if run.key == trial.key]
        unreadable = next((one for one in problems if one.unreadable), None)
        if unreadable is not None and not any(run.counts for run in runs):
            raise NotReadable(f"{unreadable.place}: {unreadable.reason}; the trial may be done, and is not run again")
        return runs

    def _state(self, trial: Trial) -> State:
        return state_of(trial, self._runs(trial))

    def _runs(self, trial: Trial) -> list[StoredRun]:
        return [run for run in supersede(self.store.load({trial.key[:16]}, []), []) if run.key == trial.key]

    def _is_at_work(self, runs: Sequence[StoredRun]) -> bool:
        """Whether a process runs the trial whose claim is elsewhere: of two that share a directory, one may use a
        database. It has written to its run within a lease, which a suspended process, or one that hangs, has not."""
        beats = [run.heartbeat or run.start_time for run in runs if run.status is Status.RUNNING]
        return any(seconds_since(beat) < self.claims.lease for beat in beats)

    def _has_started(self, start: Trial) -> bool:
        """Whether the search that a trial starts from is stored, with its ranking, or given."""
        if start.key in self.given:
            return True
        found = supersede(self.store.load({start.key[:16]}, []), [])
        return any(run.key == start.key and run.counts and start.ranking_key in run.rankings for run in found)

    def _may_come(self, start: Trial) -> bool:
        """Whether that search is running or pending here, or claimed or to be claimed by another process."""
        here = {self.todo[number].trial.key for number in (*self._pending, *self.running)}
        claimed = any(self.claims.holder(claim_key(start, kind)) is not None for kind in Kind)
        claimed = claimed or self._is_at_work(self._runs(start))
        return start.key in here or claimed or (start.key in self.others and self._state(start) is not State.FAILED)

    def _give_up(self, work: Work) -> bool:
        self.given_up.append(work)
        start = work.trial.start
        # Another search of a trial that was trained here comes in the next round.
        if start is None or all(one.trial.key != start.key for one in self.todo):
            self.say(f"{work.label} stays waiting: the search that it starts from is not there")
        return False

    def _tell_of_others(self) -> None:
        if not self._told_of_others and not self.running:
            self._told_of_others = True
            self.say(f"waiting for {len(self._pending)} trials claimed by other processes (Ctrl-C stops)")

    def _silent_too_long(self, reason: str) -> bool:
        if self._silent_since is None:
            self._silent_since = time.monotonic()
            self.say(f"{reason}; running trials continue, new ones wait up to {self.outage_wait:g} s for it")
        self.gave_up = time.monotonic() - self._silent_since >= self.outage_wait
        return self.gave_up

    def _answers(self) -> None:
        if self._silent_since is not None:
            self._silent_since = None
            self.say("the database answers again")
            self.recovered()


def _may_try_again(losses: Counter[int], number: int) -> bool:
    """Count one more loss of a job; return whether another try is allowed."""
    losses[number] += 1
    return not lost_too_often(losses[number], None)
