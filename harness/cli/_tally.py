"""Counts of what a command runs: which trials have ended and how, how far it is, and how long the rest takes.

A trial counts once, when its last job has ended: it may be trained and then ranked in further ways. The whole is
weighted by the images that training processes, so that a long trial counts for more than a short one.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from harness.study.layout import Column
from harness.study.study import Study
from harness.work.jobs import Answered
from harness.work.references import Missing
from harness.work.states import State, Work

RANKING = 0.1
"""The weight of a ranking, relative to the training of the same trial."""

TRAINING = 0.9
"""The share of a trial that is training, until trials that ended tell."""

SOME_IMAGES = {"train": 1000, "valid": 1000, "test": 1000}
"""Stands for a data set whose size is not at hand; weights of its own trials still agree."""


@dataclass(frozen=True)
class Item:
    """Something that a command runs and counts: a trial, or the references of one."""

    key: str
    label: str
    jobs: tuple[float, ...] = (1.0,)
    """The weights of its jobs, in order."""
    columns: Sequence[Column] = ()
    """The columns of its study, the first first: what is shown when it ends."""
    retrains: bool = False
    references: int = 0
    """How many references it is; 0 for a trial."""
    searches: bool = False
    """Whether its jobs after the training are searches."""


def items_of(work: Iterable[Work], studies: Sequence[Study]) -> list[Item]:
    """The items of some work, whose labels name a row of one of the studies."""
    from harness.data.inspection import counts_at_hand
    from harness.work.effort import effort

    found: list[Item] = []
    weights: dict[tuple[str, int, str, bool], float] = {}
    by_name, counts = {study.name: study for study in studies}, cache(counts_at_hand)
    for one in work:
        request, config = one.requests[0], one.trial.config
        place = (request.study, request.row, request.dataset, config.retrain is None)
        if place not in weights:  # the same for all seeds
            known = effort(config, lambda name: counts(name) or SOME_IMAGES)
            weights[place] = float(known.images) if known else 1.0
        training, rankings = weights[place], {request.trial.ranking_key for request in one.requests}
        ranking = (RANKING * training,)
        if one.state is State.RANK and one.run is not None:
            jobs = ranking * max(1, len(rankings - set(one.run.rankings)))
        else:
            jobs = (training, *ranking * (len(rankings) - 1 if config.retrain is None else 0))
        columns = by_name[one.named.study].columns_of(one.named.row) if one.named.study in by_name else []
        retrains, searches = config.retrain is not None, config.search is not None
        found.append(Item(one.trial.key, one.label, jobs, columns, retrains, searches=searches))
    return found


def reference_items(missing: Missing, weight: float = RANKING) -> list[Item]:
    """The items of references, one per job."""
    return [
        Item(missing.key(number), missing.label(number), (weight,), references=missing.count(number))
        for number in range(len(missing))
    ]


@dataclass
class Running:
    """Latest known progress of a running job."""

    item: Item
    weight: float = 1.0
    began: float = field(default_factory=lambda: time.monotonic())
    stage: str = "starting"
    step: int = 0
    steps: int = 0
    loss: float | None = None
    tau: float | None = None
    generation: str = ""
    """Which generation of how many a search is in, if it has any."""
    fraction: float = 0.0
    """How much of the job is done."""
    resumed: float | None = None
    """How much of it was done when it began: it may continue from a checkpoint."""
    reports: tuple[tuple[float, float], ...] = ()
    """Time and fraction of the first and of the last report of a step."""

    def take(self, report: Mapping[str, Any], training: float = TRAINING) -> None:
        """Update from a progress report of the job's process; `training` is the share of training in a trial."""
        event = report["event"]
        self.stage = {"start": "starting", "epoch": "retrain" if self.item.retrains else "train"}.get(event, event)
        self.step, self.steps = report.get("step") or 0, report.get("steps") or 0
        if event == "search":
            self.step += report.get("scored") or 0
            known = report.get("generation") and report.get("generations")
            self.generation = f"gen {report['generation']}/{report['generations']}" if known else ""
        self.loss = report.get("loss") if report.get("loss") is not None else self.loss
        self.tau = report.get("tau") if report.get("tau") is not None else self.tau
        share = 1.0 if self.item.retrains else training
        part = self.step / self.steps if self.steps else 0.0
        if event == "epoch":
            if self.resumed is None:
                self.resumed = share * max(0, self.step - 1) / max(1, self.steps)
            self.fraction = max(self.fraction, share * part)
        elif event == "rank":
            trained = share if self.resumed is not None else 0.0  # None: stored weights are ranked, nothing is trained
            self.fraction = max(self.fraction, trained + (1 - trained) * part)
        if event in ("epoch", "rank"):
            self.reports = (*self.reports[:1], (time.monotonic(), self.fraction))

    @property
    def worked(self) -> float:
        """The share of the job that was done since it began."""
        return max(0.0, self.fraction - (self.resumed or 0.0))

    @property
    def measured(self) -> tuple[float, float]:
        """Seconds and share of the job between its first report and its last: without the start of its process."""
        if len(self.reports) < 2:
            return 0.0, 0.0
        (begin, before), (end, after) = self.reports
        return end - begin, after - before

    @property
    def left(self) -> float | None:
        """Estimated seconds until the end of the job, at the speed so far."""
        seconds, share = self.measured
        if share <= 0 or self.fraction >= 1:  # what comes after the last step is not known
            return None
        since = time.monotonic() - self.reports[-1][0]
        return max(0.0, seconds * (1 - self.fraction) / share - since)


@dataclass
class Tally:
    """Counts items. `stored` is how many trials of the request were done before."""

    items: dict[str, Item] = field(default_factory=dict)
    stored: int = 0
    running: dict[int, Running] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    """How items ended, by key."""
    began: float = field(default_factory=lambda: time.monotonic())

    def __post_init__(self) -> None:
        self._jobs_done: Counter[str] = Counter()
        self._over: list[tuple[Running, float]] = []
        """The jobs that are over, and the seconds that each took."""
        self._parallel = 0
        self._shares: list[float] = []

    def add(self, items: Iterable[Item]) -> None:
        """Count these, too."""
        for item in items:
            self.items.setdefault(item.key, item)

    def start(self, number: int, item: Item) -> None:
        self.items.setdefault(item.key, item)
        self.ended.pop(item.key, None)
        jobs, done = item.jobs, self._jobs_done[item.key]
        self.running[number] = Running(item, jobs[min(done, len(jobs) - 1)])
        self._parallel = max(self._parallel, len(self.running))

    def progress(self, number: int, report: Mapping[str, Any]) -> None:
        share = sum(self._shares) / len(self._shares) if self._shares else TRAINING
        self.running[number].take(report, share)

    def finish(self, number: int, answer: Mapping[str, Any]) -> tuple[Running, int] | None:
        """Count the end of a job: what ran, and how many jobs its item still has. None if it is queued again."""
        job = self.running.pop(number)
        status = answer["status"]
        if answer.get("again") or status == Answered.ELSEWHERE:
            return None
        left = 0
        if status == Answered.DONE:
            self._jobs_done[job.item.key] += 1
            # Of the item as it was first counted: a later round knows only the jobs that it has itself.
            left = max(0, len(self.items[job.item.key].jobs) - self._jobs_done[job.item.key])
            job.fraction = 1.0
            self._learn(job, answer)
        self._over.append((job, time.monotonic() - job.began))
        if not left:
            self.ended[job.item.key] = status
        return job, left

    def elsewhere(self, item: Item) -> None:
        """Count an item that another process has done meanwhile."""
        self.items.setdefault(item.key, item)
        self.ended[item.key] = Answered.DONE

    def _learn(self, job: Running, answer: Mapping[str, Any]) -> None:
        """Learn from a trial that ended which share of it was training."""
        stages = (answer.get("cost") or {}).get("stage_seconds") or {}
        if "rank" in stages and not job.item.retrains and (total := sum(stages.values())) > 0:
            self._shares.append((total - stages["rank"] - stages.get("search", 0.0)) / total)

    def count(self, status: str) -> int:
        """How many trials have ended so."""
        return sum(how == status and not self.items[key].references for key, how in self.ended.items())

    @property
    def trials(self) -> tuple[int, int]:
        """How many trials have ended, in whatever way, and how many there are to run."""
        ended = sum(not self.items[key].references for key in self.ended)
        return ended, sum(not item.references for item in self.items.values())

    @property
    def references(self) -> tuple[int, int]:
        """The same of references."""
        return sum(self.items[key].references for key in self.ended), sum(i.references for i in self.items.values())

    @property
    def waiting(self) -> int:
        """Trials that have neither begun nor ended."""
        busy = {job.item.key for job in self.running.values()}
        begun = busy | self.ended.keys()
        return sum(not item.references and key not in begun for key, item in self.items.items())

    @property
    def has_begun(self) -> bool:
        """Whether any job has started."""
        return self._parallel > 0

    @property
    def _weights(self) -> tuple[float, float]:
        """The weight of what is done, running jobs in part, and of everything."""
        done = sum(job.weight * job.fraction for job in self.running.values())
        for key, item in self.items.items():
            over = self.ended.get(key, Answered.INTERRUPTED) not in (Answered.INTERRUPTED, Answered.LOST)
            done += sum(item.jobs) if over else sum(item.jobs[: self._jobs_done[key]])
        return done, sum(sum(item.jobs) for item in self.items.values())

    @property
    def fraction(self) -> float:
        """How much of everything is done, from 0 to 1."""
        done, whole = self._weights
        return min(1.0, done / whole) if whole else 0.0

    @property
    def left(self) -> float | None:
        """Estimated seconds until everything is done; None before anything is known.

        A job takes time in proportion to its weight, and some time more, for its start and its end.
        """
        per_weight, start = self._speed
        if per_weight is None:
            return None
        running = list(self.running.values())
        busy = {job.item.key for job in running}
        total = sum(job.weight * (1 - job.fraction) * per_weight for job in running)
        for key, item in self.items.items():
            if key not in self.ended:
                pending = item.jobs[self._jobs_done[key] + (key in busy) :]
                total += sum(weight * per_weight + start for weight in pending)
        return max([total / max(1, self._parallel), *(job.left for job in running if job.left is not None)])

    @property
    def _speed(self) -> tuple[float | None, float]:
        """Seconds per weight, and seconds that every job takes besides."""
        jobs = [*(job for job, _ in self._over), *self.running.values()]
        seconds = sum(job.measured[0] for job in jobs)
        weight = sum(job.measured[1] * job.weight for job in jobs)
        if weight <= 0:  # jobs of a single step: their whole time counts
            took, done = sum(took for _, took in self._over), sum(job.worked * job.weight for job, _ in self._over)
            return (took / done if done else None), 0.0
        per_weight = seconds / weight
        starts = [took - job.worked * job.weight * per_weight for job, took in self._over]
        if not starts:
            begun = [job for job in self.running.values() if job.reports]
            starts = [one.reports[0][0] - one.began for one in begun]
        return per_weight, max(0.0, sum(starts) / len(starts)) if starts else 0.0
