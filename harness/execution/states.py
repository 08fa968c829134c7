"""How trials stand: what is requested of one against its stored runs. Imports no torch, runs and writes nothing.

The plan asks it for all trials of some studies, a job for its own, under its claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import takewhile

from harness.stores.stored import StoredRun
from harness.study.configuration import Observe
from harness.study.reader import read
from harness.study.study import Request
from harness.study.trial import Trial

STATES = {
    "done": "stored, with all that is asked for",
    "rank": "stored, but other architectures are asked for: its weights are ranked again",
    "again": "stored, but more is to be observed while it trains: it is trained again",
    "waiting": "not run yet",
    "interrupted": "stopped before its end",
    "lost": "its process died; after ten times tried again only with --retry lost",
    "failed": "ended with an error; tried again with --retry failed",
    "running": "another process is at it",
}


LOSSES = 10
"""How often in a row a trial may be lost before it is tried again only when asked for."""


@dataclass(frozen=True)
class Work:
    """One trial, who asks for it, and how it stands (one of `STATES`)."""

    trial: Trial
    """As it would be run: with everything observed that anybody asks for."""
    label: str
    requests: tuple[Request, ...]
    state: str
    run: StoredRun | None
    """The run behind the state."""
    losses: int = 0
    """How many of its last attempts were lost, one after the other."""
    attempts: tuple[StoredRun, ...] = ()
    """All runs of the trial, in order."""

    def kind(self, retry: str | None = None) -> str | None:
        """The kind of job that brings it further: "train", "rank", or None for nothing.

        `retry` names what is tried again that would not be by itself: "failed", "lost" (what dies again
        and again may take others with it), or "all".
        """
        if self.state in ("done", "running") or (self.state == "failed" and retry not in ("failed", "all")):
            return None
        if self.state == "lost" and self.losses >= LOSSES and retry not in ("lost", "all"):
            return None
        return "rank" if self.state == "rank" else "train"


def union(wishes: Iterable[Observe]) -> Observe:
    """The least that holds all these observations."""
    return reduce(Observe.union, wishes)


def state_of(trial: Trial, attempts: Sequence[StoredRun]) -> str:
    """How one trial stands (one of `STATES`), given its runs in order."""
    request = Request("", 0, trial.config.dataset, trial.config.seed, trial, False)
    return stand("", [request], list(attempts)).state


def stand(label: str, requests: list[Request], attempts: list[StoredRun]) -> Work:
    """How the requests for one trial stand, given its runs in order."""
    wanted = union(request.trial.config.observe for request in requests)
    valid = [run for run in attempts if run.invalid is None]
    counting = [run for run in valid if run.counts]
    last = valid[-1] if valid else None
    losses = len(list(takewhile(lambda run: run.status == "lost", reversed(valid))))
    curves = [r.trial for r in requests if r.trial.config.observe.judges]
    # What is trained is judged on the way by the ranking that its curves ask for.
    chosen, state = curves[0] if curves else requests[0].trial, last.status if last else "waiting"
    if last and state == "failed" and not any(_ranks_the_same(last, request.trial) for request in requests):
        state = "waiting"  # it may have failed in measuring what nobody asks for now
    if counting:
        last = counting[-1]
        stored = read(Observe, last.trial["config"]["observe"], "observe")
        unranked = [r.trial for r in requests if r.trial.ranking_key not in last.rankings]
        # A curve that was measured by another ranking is another observation.
        foreign = bool(curves) and all(trial.ranking_key != last.own_ranking for trial in curves)
        if foreign or union([stored, wanted]) != stored:
            # A newer attempt that is not done says how it stands with that.
            state = "again" if state == "done" else state
            wanted = union([stored, wanted])
        elif unranked:
            # As it is asked for: curves that others want are there, and measured by their own ranking.
            plain = replace(unranked[0], config=replace(unranked[0].config, observe=Observe()))
            return Work(plain, label, tuple(requests), "rank", last, losses, tuple(attempts))
        else:
            state = "done"
    trial = replace(chosen, config=replace(chosen.config, observe=wanted))
    return Work(trial, label, tuple(requests), state, last, losses, tuple(attempts))


def _ranks_the_same(run: StoredRun, trial: Trial) -> bool:
    """Whether a run was to be ranked as is asked for now."""
    now = trial.config.json()
    return all(run.trial["config"][key] == now[key] for key in ("rank", "benchmark"))
