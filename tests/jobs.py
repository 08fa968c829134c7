"""What a training process does, done in this process or in one that may die; and what must be equal afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from harness.schema import Naming
from harness.stores.claims import LEASE, Claim, Claims
from harness.stores.directory.store import DirectoryStore
from harness.stores.mongo.snapshot import WEIGHTS_MAX
from harness.stores.places import Places
from harness.stores.store import Store
from harness.stores.stored import StoredRun
from harness.study.catalogue import find_studies
from harness.study.study import Request
from harness.study.trial import Trial
from harness.work import compute
from harness.work.assignment import Computing
from harness.work.attempts import Attempts
from harness.work.jobs import Event, Job, Later, Stopping
from harness.work.plan import Asked, Plan, make_plan
from harness.work.references import Missing
from harness.work.repeating import Recomputing
from harness.work.slots import Slots
from harness.work.states import Kind, Work, stand
from harness.work.worker import Round, Settings, Worker, follow


def trials(study: str, **overrides: Any) -> list[Trial]:
    """The trials of the study, parents first."""
    plan = make_plan(find_studies(study), "tiny", [], seeds=1, overrides=overrides)
    return [work.trial for work in plan.work]


@dataclass
class Inline:
    """Has jobs done in this process, one after the other, in the place of `Processes`."""

    slots: Slots = field(default_factory=lambda: Slots.cpu(1))
    done: list[Job] = field(default_factory=list)
    stop_after: int = 99
    act: Callable[[Mapping[str, Any], Callable[[dict[str, Any]], None]], dict[str, Any]] = compute.run_job

    def prepare(self) -> None:
        pass

    def execute(self, jobs: Iterable[Job | Later], stopping: Stopping) -> Iterator[Event]:
        for job in jobs:
            if isinstance(job, Later):
                continue
            said: list[Mapping[str, Any]] = []
            yield Event("started", job, {})
            answer = self.act(job.document, said.append)
            yield from (Event("progress", job, report) for report in said)
            self.done.append(job)
            if len(self.done) >= self.stop_after:
                stopping.ask()
            yield Event("finished", job, answer)
            if stopping.asked:
                return

    def end(self, number: int, stopping: Stopping) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass
class Silent:
    """A screen that shows nothing, but notes lines, reports and what others have done."""

    said: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    reports: list[Mapping[str, Any]] = field(default_factory=list)
    stopping: bool = False

    def say(self, line: str) -> None:
        self.said.append(line)

    def started(self, number: int, label: str) -> None:
        pass

    def progress(self, number: int, report: Mapping[str, Any]) -> None:
        self.reports.append(report)

    def finished(self, number: int, answer: Mapping[str, Any]) -> None:
        pass

    def elsewhere(self, work: Work) -> None:
        self.done.append(work.label)


def attempt(
    trial: Trial,
    store: str | Path,
    kind: str = "train",
    *,
    mongo: str | None = None,
    screen: Silent | None = None,
    again: bool = False,
    starts: Mapping[str, Mapping[str, Any]] | None = None,
    lease: float = LEASE,
    work: Path | None = None,
    profile: bool = False,
    naming: Naming | None = None,
    weights_max: int = WEIGHTS_MAX,
    device: str | None = "cpu",
    preset: str = "tiny",
    overrides: Mapping[str, Any] | None = None,
    progress: Callable[[dict[str, Any]], object] = lambda report: None,
    **computing: Any,
) -> dict[str, Any]:
    """One attempt at a trial, or at a ranking of its weights, by a worker in this process; returns the final answer.

    "already" says that there was nothing to do; the status is "elsewhere" if another worker has the trial.
    """
    settings = Settings(
        Places(Path(store), mongo),
        Computing(**{"threads": 1, **computing}),
        lease,
        work,
        weights_max,
        retry="all",
        waits=False,
        profile=profile,
    )
    place, shown = settings.open(), screen or Silent()

    def planned(runs: list[StoredRun]) -> Plan:
        request = Request("", 0, trial.config.dataset, trial.config.seed, trial, False)
        own = stand("job", [request], [run for run in runs if run.key == trial.key])
        return Plan((replace(own, naming=naming),), ())

    def act(document: Mapping[str, Any], note: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        def report(event: dict[str, Any]) -> None:
            progress(event)
            note(event)

        return compute.run_job(document, report)

    executor: Any = Inline(Slots(jobs=1, device=device), act=act)
    more: dict[str, Any] = {"starts": starts or {}}
    loop: Any = Worker
    if kind == "rank":
        loop = partial(Recomputing, again=again)
    show = lambda todo, parallel: contextlib.nullcontext(shown)  # noqa: E731
    asked = Asked((), preset, overrides=overrides or {})
    worker = loop(place, settings, asked, executor, Stopping(), show, planned, **more)
    worker.run()
    noted = [report["note"] for report in shown.reports if "note" in report]
    for line in shown.said:
        if (note := line.removeprefix("job: ")) not in noted:
            progress({"event": "note", "note": note})
    if worker.answers:
        return dict(worker.answers[-1][1])
    run = place.reader.done(trial.key)
    if run is None or trial.ranking_key not in run.rankings and trial.start is None:
        return {"status": "elsewhere"}
    result = run.rankings.get(trial.ranking_key, run.result) if kind == "rank" else run.result
    return {"status": "done", "already": True, "run_id": run.id, "result": result, "cost": run.cost}


def run_job(document: Mapping[str, Any], progress: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """The same for a document of plain types."""
    own = dict(document)
    found, work = own.pop("found", None), own.pop("work", None)
    one = Trial.from_json(own.pop("trial"))
    starts = None if found is None or one.start is None else {one.start.key: {"top1": list(found)}}
    return attempt(
        one, own.pop("store"), own.pop("kind"), starts=starts, work=work and Path(work), progress=progress, **own
    )


def make_references(missing: Missing, store: Path, screen: Silent | None = None) -> list[Mapping[str, Any]]:
    """Make missing references in this process; returns the answers."""
    settings, answers = Settings(Places(store)), list[Mapping[str, Any]]()
    attempts = Attempts(settings.open(), settings.computing, "tiny", {})
    executor: Any = Inline()
    jobs, shown = missing.jobs(attempts), screen or Silent()
    follow(executor, missing, jobs, Stopping(), shown, lambda number, answer: answers.append(answer))
    return answers


@dataclass
class Begun:
    """An attempt that nobody makes."""

    kind: Kind
    claim: Claim

    def job(self, number: int) -> Job:
        return Job(number, {"kind": self.kind.value})


class Beginning:
    """Begins such attempts."""

    def begin(self, work: Work, kind: Kind, claim: Claim, runs: Sequence[StoredRun]) -> Any:
        return Begun(kind, claim)


@dataclass
class Place:
    """A place with such runs and claims."""

    reader: Store
    claims: Claims
    has_database: bool = False


def round_of(
    todo: Sequence[Work],
    store: Store,
    claims: Claims,
    screen: Silent | None = None,
    *,
    others: Sequence[Work] = (),
    admits: Callable[[Work], bool] = lambda work: True,
    **settings: Any,
) -> Round:
    """A round whose attempts nobody makes. `others` is for other workers."""
    place: Any = Place(DirectoryStore(Path("nothing")), claims)
    own = {work.trial.key for work in todo}
    worker = Worker(
        place,
        Settings(Places(Path("nothing")), **settings),
        Asked((), "tiny"),
        cast(Any, Inline()),
        Stopping(),
        lambda todo, parallel: contextlib.nullcontext(screen or Silent()),
        lambda runs: Plan((*todo, *others), ()),
        lambda work: work.trial.key in own,
        admits,
    )
    worker.attempts, place.reader = cast(Any, Beginning()), store
    return Round(worker, todo, screen or Silent())


def over(one: Round, number: int, status: str) -> bool:
    """The attempt of that number ends so; whether its work is queued again."""
    claim = one.running.pop(number).claim
    assert claim is not None
    claim.release()
    return one.over(number, {"status": status, "error": "as the test wants it"})


def job(trial: Trial, store: str, kind: str = "train") -> dict[str, Any]:
    """What a worker and its child do, in this process."""
    return attempt(trial, store, kind, checkpoint_every=0.0)


def died(trial: Trial, store: str, kind: str = "train") -> bool:
    """Whether the job ended by SIGKILL, in a process of its own."""
    child = os.fork()
    if not child:
        os._exit(0 if job(trial, store, kind)["status"] == "done" else 1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def outcome(store: str, run: StoredRun) -> dict[str, Any]:
    """What must be the same however a run was made."""
    folder = Path(store) / run.id
    result = json.loads((folder / "result.json").read_text())["result"]
    curves = json.loads((folder / "metrics.json").read_text())
    points = {name: [curve["steps"], curve["values"]] for name, curve in curves.items()}
    return {"result": result, "points": points} | {
        name: (folder / name).read_bytes() for name in ("predictions.json", "weights.pt")
    }
