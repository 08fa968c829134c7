"""What is given out next, when others have it, and when something goes wrong: with real claims and a real store."""

from __future__ import annotations

import json
import time
from collections.abc import Collection
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from harness.components.preset import get_preset
from harness.documents import utc_text
from harness.errors import Unreachable, UserError
from harness.stores.claims import Claims
from harness.stores.directory.records import DirectoryRecords
from harness.stores.directory.store import DirectoryStore
from harness.stores.store import Store
from harness.stores.stored import Problem, StoredRun
from harness.study.layout import Column, Row
from harness.study.study import Study
from harness.study.trial import Trial
from harness.truth.table import Table
from harness.work.jobs import Job, Later
from harness.work.plan import make_plan
from harness.work.states import Kind, Work, claim_key
from harness.work.worker import Round
from tests.jobs import Silent as Screen
from tests.jobs import over, round_of
from tests.stored_runs import store_run
from tests.training.stages.test_retrain import CHILD

STUDY = Study(
    "two",
    "Two",
    [Row({"m": name}, {"method.name": name}) for name in ("spos", "fairnas")],
    [Column("τ", "kendall_tau")],
)


def todo(store: Store) -> list[Work]:
    return list(make_plan([STUDY], get_preset("tiny"), store.runs(), seeds=1).work)


def a_round(folder: Path, store: Store | None = None, **more: Any) -> tuple[Round, Claims]:
    claims = Claims(DirectoryRecords(folder))
    opened = store or DirectoryStore(folder)
    return round_of(todo(DirectoryStore(folder)), opened, claims, **more), claims


def test_free_trials_are_given_out_and_those_of_others_later(tmp_path: Path) -> None:
    one, claims = a_round(tmp_path)
    first, second = one.todo
    held = claims.acquire(first.trial.key)
    jobs = one.jobs()
    job = next(jobs)
    assert isinstance(job, Job) and job.number == 1 and job.document["kind"] == "train"
    assert isinstance(next(jobs), Later)
    assert held is not None
    held.release()
    job = next(jobs)
    assert isinstance(job, Job) and job.number == 0
    store_run(tmp_path, second.requests[0], 0.5)
    for number in (0, 1):
        over(one, number, "done")
    assert list(jobs) == []


def test_a_trial_that_was_found_taken_comes_again_but_not_at_once(tmp_path: Path) -> None:
    one, _ = a_round(tmp_path)
    jobs = one.jobs()
    job = next(jobs)
    assert isinstance(job, Job)
    assert isinstance(next(jobs), Job)
    over(one, job.number, "elsewhere")
    assert isinstance(next(jobs), Later)  # no race for it


def test_what_another_process_did_is_not_done_again(tmp_path: Path) -> None:
    screen = Screen()
    one, _ = a_round(tmp_path, screen=screen)
    for work in one.todo:
        store_run(tmp_path, work.requests[0], 0.5)
    assert list(one.jobs()) == [] and len(screen.done) == 2


def test_a_trial_that_a_process_with_another_place_for_claims_runs_is_left_to_it(tmp_path: Path) -> None:
    """As a `run` with a database does, next to one without, in the same directory."""
    one, _ = a_round(tmp_path, waits=False)
    running = store_run(tmp_path, one.todo[0].requests[0], status="running")
    file = tmp_path / running.id / "run.json"
    document = json.loads(file.read_text())
    file.write_text(json.dumps(document | {"heartbeat": utc_text()}))
    assert [job.number for job in islice(one.jobs(), 1) if isinstance(job, Job)] == [1]
    file.write_text(json.dumps(document | {"heartbeat": utc_text(time.time() - 61.0)}))  # suspended, or it hangs
    one, _ = a_round(tmp_path, waits=False)
    assert [job.number for job in islice(one.jobs(), 1) if isinstance(job, Job)] == [0]


def test_a_ranking_is_claimed_by_a_key_of_its_own(tmp_path: Path) -> None:
    request = todo(DirectoryStore(tmp_path))[0].requests[0]
    store_run(tmp_path, request, 0.5)
    plan = make_plan([STUDY], get_preset("tiny"), DirectoryStore(tmp_path).runs(), seeds=1, overrides={"rank.bins": 10})
    claims = Claims(DirectoryRecords(tmp_path))
    (work,) = (one for one in plan.work if one.state == "rank")
    one = round_of([work], DirectoryStore(tmp_path), claims, waits=False)
    assert claims.acquire(work.trial.key) is not None  # somebody trains it for more observations
    held = claims.acquire(claim_key(work.trial, Kind.RANK))
    assert held is not None and list(one.jobs()) == []  # and does not wait
    held.release()
    again = round_of([work], DirectoryStore(tmp_path), claims)
    job = next(again.jobs())
    assert isinstance(job, Job) and job.document["kind"] == "rank"


def test_an_error_gives_out_nothing_more_and_is_kept(tmp_path: Path) -> None:
    class Refusing(DirectoryStore):
        def ids(self) -> list[str]:
            raise UserError("no longer yours")

    one, _ = a_round(tmp_path, Refusing(tmp_path))
    assert list(one.jobs()) == [] and str(one.error) == "no longer yours"


class Silent(DirectoryStore):
    """A database that does not answer for a while."""

    silences = 0

    def ids(self) -> list[str]:
        if self.silences:
            self.silences -= 1
            raise Unreachable("it does not answer")
        return super().ids()


def test_an_outage_is_waited_for_and_its_end_is_told(tmp_path: Path) -> None:
    screen = Screen()
    store = Silent(tmp_path)
    store.silences = 2
    one, _ = a_round(tmp_path, store, outage_wait=3600.0, screen=screen)
    jobs = one.jobs()
    assert isinstance(next(jobs), Later) and isinstance(next(jobs), Later)
    assert screen.said == ["it does not answer; running trials continue, new ones wait up to 3600 s for it"]
    assert isinstance(next(jobs), Job) and not one.gave_up
    assert screen.said[1:] == ["the database answers again"]


def test_an_outage_that_takes_too_long_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, now = Silent(tmp_path), 1000.0
    store.silences = 10
    monkeypatch.setattr("harness.work.worker.time.monotonic", lambda: now)
    one, _ = a_round(tmp_path, store, outage_wait=60.0)
    jobs = one.jobs()
    assert isinstance(next(jobs), Later)
    now += 59.0
    assert isinstance(next(jobs), Later) and not one.gave_up
    now += 1.0
    assert next(jobs, None) is None and one.gave_up


def test_without_waiting_only_what_runs_here_is_awaited(tmp_path: Path) -> None:
    one, claims = a_round(tmp_path, waits=False)
    assert claims.acquire(one.todo[0].trial.key) is not None
    jobs = one.jobs()
    job = next(jobs)
    assert isinstance(job, Job) and job.number == 1
    assert isinstance(next(jobs), Later)  # it may be queued again
    store_run(tmp_path, one.todo[1].requests[0], 0.5)
    over(one, job.number, "done")
    assert list(jobs) == []
    waiting, _ = a_round(tmp_path)
    assert isinstance(next(waiting.jobs()), Later)


@pytest.mark.parametrize(("retry", "tries"), [(None, 2), ("failed", 2), ("lost", 10), ("all", 10)])
def test_a_trial_whose_process_died_is_tried_again_up_to_the_limit(
    tmp_path: Path, retry: str | None, tries: int
) -> None:
    request = todo(DirectoryStore(tmp_path))[0].requests[0]
    for _ in range(8):
        store_run(tmp_path, request, status="lost")
    one, claims = a_round(tmp_path, retry=retry)
    assert claims.acquire(one.todo[1].trial.key) is not None  # the other is somebody else's
    jobs = one.jobs()
    for number in range(tries):
        job = next(jobs)
        assert isinstance(job, Job) and job.number == 0
        again = over(one, job.number, "lost")
        assert again == (number + 1 < tries)
    assert isinstance(next(jobs), Later)


class Counting(DirectoryStore):
    """Counts how often it is read, and how often as a whole."""

    reads = whole = 0

    def load(self, trials: Collection[str] | None, problems: list[Problem]) -> list[StoredRun]:
        self.reads += 1
        self.whole += trials is None
        return super().load(trials, problems)


def many(folder: Path, claims: Claims, seeds: int = 100, **more: Any) -> tuple[Round, Counting]:
    """A round of two trials per seed."""
    store = Counting(folder)
    work = make_plan([STUDY], get_preset("tiny"), [], seeds=seeds).work
    return round_of(work, store, claims, **more), store


def test_alone_trials_are_given_out_in_order(tmp_path: Path) -> None:
    jobs = many(tmp_path, Claims(DirectoryRecords(tmp_path)))[0].jobs()
    assert [job.number for job in (next(jobs) for _ in range(20)) if isinstance(job, Job)] == list(range(20))


def test_among_many_workers_a_free_trial_is_found_without_asking_for_all_that_are_taken(tmp_path: Path) -> None:
    claims = Claims(DirectoryRecords(tmp_path))
    one, store = many(tmp_path, claims)
    for work in one.todo[:100]:
        assert claims.acquire(work.trial.key) is not None
    job = next(one.jobs())
    assert isinstance(job, Job) and job.number >= 100
    assert store.reads < 60  # about 9; one by one it would be 101


def test_what_many_others_have_done_is_left_out_at_once(tmp_path: Path) -> None:
    screen = Screen()
    claims = Claims(DirectoryRecords(tmp_path))
    one, store = many(tmp_path, claims, seeds=30, screen=screen)
    for work in one.todo:
        store_run(tmp_path, work.requests[0], 0.5)
    assert list(one.jobs()) == [] and sorted(screen.done) == sorted(work.label for work in one.todo)
    assert store.reads < 20


def test_a_trial_that_is_left_among_many_done_ones_is_found_without_reading_all(tmp_path: Path) -> None:
    claims = Claims(DirectoryRecords(tmp_path))
    one, store = many(tmp_path, claims, seeds=100)
    for work in one.todo[:160]:
        store_run(tmp_path, work.requests[0], 0.5)
    job = next(one.jobs())
    assert isinstance(job, Job) and job.number >= 160
    assert store.reads < 20 and not store.whole  # 8 trials one by one, then 8, 16 and so on together


def test_what_is_not_admitted_is_left_to_others(tmp_path: Path) -> None:
    one, _ = a_round(tmp_path, admits=lambda work: "fairnas" in work.label)
    (job,) = [one for one in _few(one) if isinstance(one, Job)]
    assert job.number == 1


def _few(one: Round) -> list[Job | Later]:
    """What is given out until everything waits for jobs that run."""
    found: list[Job | Later] = []
    for job in one.jobs():
        found.append(job)
        if isinstance(job, Later):
            break
    return found


def child(folder: Path, others: bool = False) -> tuple[Round, Claims, Trial]:
    """The round of a trial whose parent is not in it, and the parent, which may be for other workers."""
    parent, work = make_plan([CHILD], get_preset("tiny"), [], seeds=1, only={"retrain.schedule.name": ["calr"]}).work
    assert work.trial.start is not None
    claims = Claims(DirectoryRecords(folder))
    one = round_of([work], DirectoryStore(folder), claims, others=[parent] if others else [])
    return one, claims, work.trial.start


def test_a_child_waits_for_a_parent_that_others_train_or_rank(tmp_path: Path) -> None:
    for kind in (Kind.TRAIN, Kind.RANK):
        one, claims, parent = child(tmp_path)
        held = claims.acquire(claim_key(parent, kind))
        assert held is not None and isinstance(next(one.jobs()), Later)
        held.release()
    one, _, _ = child(tmp_path)
    assert list(one.jobs()) == [] and len(one.given_up) == 1  # nobody will make it


def test_a_child_waits_for_a_parent_that_other_workers_are_to_run_unless_it_has_failed(tmp_path: Path) -> None:
    one, _, parent = child(tmp_path, others=True)
    jobs = one.jobs()
    assert isinstance(next(jobs), Later)
    request = replace(one.todo[0].requests[0], trial=parent)
    store_run(tmp_path, request, 0.5)
    assert isinstance(next(jobs), Job)
    store_run(other := tmp_path / "other", request, None, status="failed")
    one, _, _ = child(other, others=True)
    assert list(one.jobs()) == [] and len(one.given_up) == 1


@pytest.fixture(autouse=True)
def nothing_of_the_environment(monkeypatch: pytest.MonkeyPatch, toy_table: Table) -> None:
    for name in ("HARNESS_STORE", "HARNESS_MONGO"):
        monkeypatch.delenv(name, raising=False)
