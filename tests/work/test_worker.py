"""The loop of all commands: plan, execute, plan again; with an executor of a user's own in the place of ours."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from harness.components.preset import get_preset
from harness.errors import UserError
from harness.stores.directory.store import DirectoryStore
from harness.stores.places import Places
from harness.stores.stored import StoredRun
from harness.study.layout import Column, Row
from harness.study.study import Study
from harness.work.jobs import Answered, Event, Job, Later, Stopping
from harness.work.plan import Plan, make_plan
from harness.work.repeating import repeating
from harness.work.slots import Slots
from harness.work.states import State, Work
from harness.work.worker import Settings, Worker
from tests.jobs import Inline
from tests.stored_runs import store_run


@dataclass
class Noted:
    """A screen that notes what is shown."""

    notes: list[str]
    stopping: bool = False

    def say(self, line: str) -> None:
        self.notes.append(line)

    def started(self, number: int, label: str) -> None:
        self.notes.append(f"started {label}")

    def progress(self, number: int, report: Mapping[str, Any]) -> None:
        pass

    def finished(self, number: int, answer: Mapping[str, Any]) -> None:
        self.notes.append(f"finished {answer['status']}")

    def elsewhere(self, work: Work) -> None:
        self.notes.append(f"elsewhere {work.label}")


@dataclass(frozen=True)
class Bins:
    """Two studies of one trial: the second ranks it otherwise."""

    bins: Sequence[int]
    preset: str = "tiny"
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def plan(self, runs: list[StoredRun], check: bool = True) -> Plan:
        toy = {"space": "toy", "dataset": "toy", "benchmark": "toy", "network.width": 4, "train.epochs": 2}
        toy |= {"train.batch_size": 16, "rank.images": 40, "rank.candidates": 4}
        column = [Column("τ", "kendall_tau")]
        studies = [Study(f"with{n}", "", [Row({"bins": f"{n}"}, {**toy, "rank.bins": n})], column) for n in self.bins]
        return make_plan(studies, replace(get_preset("tiny"), datasets=("toy",)), runs, seeds=1, check=check)


def session(
    store: Path, executor: Any, notes: list[str], bins: Sequence[int] = (3, 4), outage_wait: float = 600.0
) -> Worker:
    @contextlib.contextmanager
    def show(todo: Sequence[Work], parallel: int) -> Iterator[Noted]:
        notes.append(f"round of {len(todo)}, {parallel} in parallel")
        yield Noted(notes)

    settings = Settings(Places(store), outage_wait=outage_wait)
    asked: Any = Bins(bins)
    return Worker(settings.open(), settings, asked, executor, Stopping(), show)


def test_it_plans_again_after_every_round_until_nothing_is_left(toy_project: Path, tmp_path: Path) -> None:
    notes: list[str] = []
    executor = Inline(Slots.cpu(5))
    one = session(tmp_path, executor, notes)
    assert [work.state for work in one.plan.work] == [State.WAITING]
    one.run()
    # One trial, trained once; the ranking that it does not make itself comes in a second round.
    assert len(executor.done) == 2
    assert [work.state for work in one.plan.work] == [State.DONE] and one.errors == {} and len(one.attempted) == 2
    round_of_one = ["round of 1, 1 in parallel", "started with3/3 seed 0 +1", "finished done"]
    assert notes == round_of_one * 2
    again = session(tmp_path, executor, notes)
    again.run()
    assert again.answers == [] and len(executor.done) == 2


def test_what_failed_is_tried_once_and_its_error_kept(toy_project: Path, tmp_path: Path) -> None:
    executor: Any = Inline(Slots.cpu(1))
    one = session(tmp_path, executor, [], bins=[3])
    (work,) = one.plan.work
    store_run(tmp_path, work.requests[0], status="interrupted", preset="tiny")
    broken = tmp_path / "work"
    broken.write_text("a file where the folder of checkpoints should be")
    one.run()
    assert len(executor.done) == 1
    (error,) = one.errors.values()
    assert "work" in error and [work.state for work in one.plan.work] == [State.FAILED]


def test_the_store_must_be_writable() -> None:
    with pytest.raises(UserError, match="cannot write to the store /proc: "):
        DirectoryStore(Path("/proc")).check_writable()


def test_a_stop_ends_the_loop(toy_project: Path, tmp_path: Path) -> None:
    one = session(tmp_path, Inline(Slots.cpu(1), stop_after=1), [])
    one.run()
    assert [answer["status"] for _, answer in one.answers] == [Answered.DONE]
    assert [work.state for work in one.plan.work] == [State.RANK]


def test_a_trial_without_a_study_is_done_once_per_place(toy_project: Path, tmp_path: Path) -> None:
    (work,) = Bins([3]).plan([]).work
    first: Any = Inline(Slots.cpu(1))
    session(tmp_path / "first", first, [], bins=[3]).run()
    (run,) = DirectoryStore(tmp_path / "first").runs()
    executor: Any = Inline(Slots.cpu(1))
    settings = Settings(Places(tmp_path / "again"), retry="all")
    for _ in range(2):
        show = lambda todo, parallel: contextlib.nullcontext(Noted([]))  # noqa: E731
        place = settings.open()
        one = repeating(place, run, work.trial, "again", settings, executor, Stopping(), show)
        one.run()
        assert [work.label for work in one.plan.work if work.state is State.DONE] == ["again"]
    assert len(executor.done) == 1 == len(DirectoryStore(tmp_path / "again").runs())


def test_notes_are_said_and_the_failure_of_another_rank_is_stored(toy_project: Path, tmp_path: Path) -> None:
    @dataclass
    class Failing(Inline):
        """A job whose second rank fails: the first is ended, and cannot store it."""

        def execute(self, jobs: Iterable[Job | Later], stopping: Stopping) -> Iterator[Event]:
            job = next(iter(jobs))
            assert isinstance(job, Job)
            yield Event("started", job, {})
            yield Event("progress", job, {"event": "note", "note": "training starts again"})
            failed = {"status": "failed", "rank": 1, "error": "rank 1: ValueError: no"}
            yield Event("finished", job, failed | {"traceback": "Trace\nValueError: no\n"})

    notes: list[str] = []
    one = session(tmp_path, Failing(Slots.cpu(1)), notes, bins=(3,))
    one.run()
    assert any(note.endswith("seed 0: training starts again") for note in notes)
    assert list(one.errors.values()) == ["rank 1: ValueError: no"]
    (run,) = DirectoryStore(tmp_path).runs()
    assert run.status == "failed" and run.fail_trace == ["Trace\n", "ValueError: no\n"]
