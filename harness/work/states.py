"""States of trials: requests compared with stored runs. Does not import torch; runs and writes nothing.

Used by the plan for all trials of some studies, and by a job for its own trial, under its claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import takewhile

from harness.documents import Word
from harness.schema import Naming
from harness.stores.stored import Status, StoredRun
from harness.study.configuration import Observe
from harness.study.reader import read
from harness.study.study import Request
from harness.study.trial import Trial


class State(Word):
    """How a trial stands, compared with what is requested of it."""

    DONE = "done", "stored, with all that is requested"
    RANK = "rank", "stored, but another ranking is requested: its weights are ranked again"
    AGAIN = "again", "stored, but more observations of its training are requested: it is trained again"
    WAITING = "waiting", "not run yet"
    INTERRUPTED = "interrupted", "stopped before its end"
    LOST = "lost", "its process died; after ten losses in a row retried only with --retry lost"
    FAILED = "failed", "ended with an error; retried only with --retry failed"
    RUNNING = "running", "running in another process"


class Kind(Word):
    """What a job does."""

    TRAIN = "train", "makes a new run of the trial"
    RANK = "rank", "adds the ranking that the trial asks for to its done run"
    REFERENCE = "reference", "makes references of a trial's configuration, without training it"


LOSSES = 10
"""Consecutive losses after which a trial is retried only on request."""


def lost_too_often(losses: int, retry: str | None) -> bool:
    """Whether a trial that died so many times in a row waits for a request to retry it."""
    return losses >= LOSSES and retry not in ("lost", "all")


@dataclass(frozen=True)
class Work:
    """One trial, the requests for it, and its state."""

    trial: Trial
    """The trial as it would be run: with all requested observations."""
    label: str
    """Its name for readers: study, row and seed of `named`, "+2" if two further rows request it."""
    requests: tuple[Request, ...]
    state: State
    run: StoredRun | None
    """The run that determines the state."""
    losses: int = 0
    """Number of consecutive losses up to the last attempt."""
    attempts: tuple[StoredRun, ...] = ()
    """All runs of the trial, in order."""
    row: Request | None = None
    """The request that the label names; None for the first."""
    names: Mapping[str, str] = field(default_factory=dict)
    """By ranking, the label of a request for it."""
    naming: Naming | None = None
    """What the studies call a run of the trial; None without a study."""

    @property
    def named(self) -> Request:
        """The request that the label names."""
        return self.row or self.requests[0]

    def kind(self, retry: str | None = None) -> Kind | None:
        """The kind of job to do next; None for nothing.

        `retry` names the states to retry that are not retried by default: "failed", "lost" (a trial that dies
        repeatedly may take others with it), or "all".
        """
        if self.state in (State.DONE, State.RUNNING) or (self.state is State.FAILED and retry not in ("failed", "all")):
            return None
        if self.state is State.LOST and lost_too_often(self.losses, retry):
            return None
        return Kind.RANK if self.state is State.RANK else Kind.TRAIN

    @property
    def devices(self) -> float | None:
        """The GPUs that the trial needs: the most that a row which requests it says."""
        return max((one.devices for one in self.requests if one.devices is not None), default=None)

    @property
    def rankings(self) -> dict[str, Trial]:
        """The rankings and searches that are requested of the trained weights, by their keys; one trial for each."""
        return {request.trial.ranking_key: request.trial for request in self.requests}

    @property
    def unranked(self) -> list[Work]:
        """The same work once per ranking that the run lacks: each is a job of its own, and they may run in parallel."""
        stored = self.run.rankings if self.run else {}
        return [
            replace(self, trial=_plain(trial), label=self.names.get(key, self.label))
            for key, trial in self.rankings.items()
            if key not in stored
        ]


def left(work: Work, runs: Sequence[StoredRun], retry: str | None = None) -> Kind | None:
    """What there is to do for some work now, given the runs of its trial; None for nothing."""
    state = state_of(work.trial, runs)
    # Its process may exist, but without a claim it is suspended or hangs, and is replaced.
    return Kind.TRAIN if state is State.RUNNING else replace(work, state=state, losses=0).kind(retry)


def claim_key(trial: Trial, kind: Kind) -> str:
    """The key that a job of that kind claims: of the trial, or of one ranking of its weights."""
    return trial.key if kind is Kind.TRAIN else f"{trial.key}-{trial.ranking_key}"


def union(wishes: Iterable[Observe]) -> Observe:
    """The smallest set that contains all these observations."""
    return reduce(Observe.union, wishes)


def state_of(trial: Trial, attempts: Sequence[StoredRun]) -> State:
    """The state of one trial, given its runs in order."""
    request = Request("", 0, trial.config.dataset, trial.config.seed, trial, False)
    return stand("", [request], list(attempts)).state


def stand(label: str, requests: list[Request], attempts: list[StoredRun], named: Request | None = None) -> Work:
    """The work of the requests for one trial, given its runs in order; the label names one of the requests."""
    wanted = union(request.trial.config.observe for request in requests)
    valid = [run for run in attempts if run.invalid is None]
    counting = [run for run in valid if run.counts]
    last = valid[-1] if valid else None
    losses = len(list(takewhile(lambda run: run.status is Status.LOST, reversed(valid))))
    curves = [r.trial for r in requests if r.trial.config.observe.judges]
    # During training a trial is judged by the ranking that its curves request.
    chosen = curves[0] if curves else requests[0].trial
    state = State(last.status) if last else State.WAITING
    if last and state is State.FAILED and not any(_ranks_the_same(last, request.trial) for request in requests):
        state = State.WAITING  # it may have failed in a measurement that is no longer requested
    if counting:
        last = counting[-1]
        stored = read(Observe, last.trial["config"]["observe"], "observe")
        unranked = [r.trial for r in requests if r.trial.ranking_key not in last.rankings]
        # A curve measured by another ranking is another observation.
        foreign = bool(curves) and all(trial.ranking_key != last.own_ranking for trial in curves)
        if foreign or union([stored, wanted]) != stored:
            # A newer attempt that is not done determines the state.
            state = State.AGAIN if state is State.DONE else state
            wanted = union([stored, wanted])
        elif unranked:
            plain = _plain(unranked[0])
            return Work(plain, label, tuple(requests), State.RANK, last, losses, tuple(attempts), named)
        else:
            state = State.DONE
    same = wanted == chosen.config.observe  # checking a configuration takes most of the time that this function takes
    trial = chosen if same else replace(chosen, config=replace(chosen.config, observe=wanted))
    return Work(trial, label, tuple(requests), state, last, losses, tuple(attempts), named)


def _plain(trial: Trial) -> Trial:
    """The trial without curves: those that others request are stored, and measured by their own ranking."""
    return replace(trial, config=replace(trial.config, observe=Observe()))


def _ranks_the_same(run: StoredRun, trial: Trial) -> bool:
    """Whether a run was to be ranked as the trial requests now."""
    now = trial.config.json()
    return all(run.trial["config"].get(key) == now.get(key) for key in ("rank", "benchmark", "search"))
