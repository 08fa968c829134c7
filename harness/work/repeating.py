"""Workers for what is stored already: rankings of stored weights, and a stored run once more. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.stores.opened import Opened
from harness.stores.stored import StoredRun
from harness.study.judging import lacks
from harness.study.study import Request
from harness.study.trial import Trial
from harness.work.jobs import Stopping
from harness.work.plan import Asked, Plan, require_inputs
from harness.work.processes import Processes
from harness.work.states import Kind, State, Work, stand
from harness.work.worker import Settings, Show, Worker


@dataclass
class Recomputing(Worker):
    """The worker of `store recompute`: the rankings that need no training, the missing ones or all."""

    again: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.attempts.again = self.again

    def choose(self, plan: Plan) -> list[Work]:
        return rankings(plan, self.again)

    def kind(self, work: Work, runs: Sequence[StoredRun]) -> Kind | None:
        done = next((run for run in runs if run.counts), None)
        stored = None if done is None else done.rankings.get(work.trial.ranking_key)
        return Kind.RANK if self.again or lacks(work.trial.config, stored) else None


def repeating(
    place: Opened,
    run: StoredRun,
    trial: Trial,
    label: str,
    settings: Settings,
    executor: Processes,
    stopping: Stopping,
    show: Show,
) -> Worker:
    """The worker of `rerun`: the trial of a run, without a study, until it is done once in this place.

    Only this run is repeated, not the search that it started from.
    """

    def planned(runs: list[StoredRun]) -> Plan:
        request = Request("", 0, trial.config.dataset, trial.config.seed, trial, False)
        return Plan((stand(label, [request], [run for run in runs if run.key == trial.key]),), ())

    starts = {} if trial.start is None else {trial.start.key: {"top1": (run.result or {}).get("top1")}}
    asked = Asked((), run.preset, overrides=run.overrides)
    return Worker(place, settings, asked, executor, stopping, show, planned, starts=starts)


def rankings(plan: Plan, again: bool) -> list[Work]:
    """One piece of work per ranking of a plan that can be computed without training: missing, or without its panel.

    Raises `DataError` when images or ground truth are missing.
    """
    found, ranked = [], []
    for work in plan.work:
        if work.run is None or work.state not in (State.RANK, State.DONE, State.AGAIN) or work.trial.start is not None:
            continue  # a retrained trial has no ranking
        stored = work.run.rankings
        for key, trial in work.rankings.items():
            if again or lacks(trial.config, stored.get(key)):
                found.append(replace(work, trial=trial))
                # A panel alone needs no images.
                ranked += [trial] if again or key not in stored else []
    require_inputs(ranked)
    return found
