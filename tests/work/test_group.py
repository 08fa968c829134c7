"""Trials of two ranks: one run, whatever happens to one of the processes, and what one rank continues."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harness.stores.directory.store import DirectoryStore
from harness.stores.places import Places
from harness.stores.stored import StoredRun
from harness.study.catalogue import find_studies
from harness.study.study import Request
from harness.study.trial import Trial
from harness.truth.table import Table
from harness.work.assignment import Computing
from harness.work.attempts import Attempt, Attempts
from harness.work.jobs import Job, Stopping
from harness.work.plan import make_plan
from harness.work.processes import Processes
from harness.work.slots import Slots
from harness.work.states import Kind, stand
from harness.work.worker import Settings, follow
from tests.jobs import Silent
from tests.processes import all_gone
from tests.shared_trials import processes, shared_trials


@dataclass
class Ended:
    """How a job ended."""

    store: str
    answer: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    processes: dict[int, int] = field(default_factory=dict)

    @property
    def run(self) -> StoredRun:
        return DirectoryStore(Path(self.store)).find(self.answer["run_id"])


JOBS = {
    "together": ("nothing", 2, "runs"),
    "fails in training": ("training", 2, "runs"),
    "fails in ranking": ("ranking", 2, "runs"),
    "trains again": ("training", 1, "runs"),
    "ranks on": ("ranking", 1, "runs"),
    "killed": ("nothing", 2, "killed"),
    "goes on": ("nothing", 2, "killed"),
}
"""By name: the stage that rank 1 fails in, the ranks and the store."""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory, toy_table: Table) -> Iterator[dict[str, Ended]]:
    """All jobs one after the other, by one executor."""
    with shared_trials(tmp_path_factory.mktemp("group"), toy_table):
        (study,) = find_studies("several")
        trials = {work.named.row: work.trial for work in make_plan([study], "tiny", [], seeds=1).work}
        rows = dict(zip(("nothing", "training", "ranking"), trials.values(), strict=True))
        found = {name: Ended(store) for name, (_, _, store) in JOBS.items()}
        queue = Several(rows, found)
        follow(Processes(Slots.cpu(1)), queue, queue.jobs(), Stopping(), queue, queue.over)
        yield found


class Several(Silent):
    """The attempts, one after the other, and a screen that notes how they end."""

    def __init__(self, rows: Mapping[str, Trial], found: dict[str, Ended]) -> None:
        super().__init__()
        self.rows, self.found = rows, found
        self.running: dict[int, Attempt] = {}

    def label(self, number: int) -> str:
        return list(JOBS)[number]

    def jobs(self) -> Iterator[Job]:
        for number, (stage, ranks, store) in enumerate(JOBS.values()):
            trial, place = self.rows[stage], Settings(Places(Path(store))).open()
            how = Computing(device="cpu", checkpoint_every=0.0, ranks=ranks)
            runs = [run for run in place.directory.runs() if run.key == trial.key]
            work = stand("", [Request("", 0, "", 0, trial, False)], runs)
            claim = place.claims.acquire(trial.key)
            assert claim is not None
            self.running[number] = Attempts(place, how, "tiny", {}).begin(work, Kind.TRAIN, claim, runs)
            yield self.running[number].job(number)

    def progress(self, number: int, report: Mapping[str, Any]) -> None:
        name = self.label(number)
        self.found[name].notes += [report["note"]] if "note" in report else []
        if name == "killed" and report["event"] == "epoch":  # a checkpoint is there; they wait now
            (second,) = (process for process, rank in processes().items() if rank == 1)
            os.kill(second, signal.SIGKILL)

    def over(self, number: int, answer: Mapping[str, Any]) -> None:
        ended = self.found[self.label(number)]
        ended.answer |= answer
        ended.processes = processes()
        assert all_gone(ended.processes)
        _prepare(self.label(number))


def _prepare(ended: str) -> None:
    """What changes in the folder after that job."""
    for file in Path("processes").iterdir():
        file.unlink()
    if ended == "fails in ranking":
        Path("broken").unlink()
    elif ended == "ranks on":
        Path("hold").touch()
    elif ended == "killed":
        Path("hold").unlink()


def test_a_trial_of_two_ranks_is_one_run_that_says_so(ended: dict[str, Ended]) -> None:
    run = ended["together"].run
    assert run.status == "done" and run.cost is not None and len(ended["together"].processes) == 2
    assert run.cost["ranks"] == 2 and run.cost["threads"] == 1 and "products ieee" in run.cost["arithmetic"]
    assert len(run.cost["peak_memory_per_rank"]) == 2
    assert run.cost["peak_memory_bytes"] == sum(run.cost["peak_memory_per_rank"])


@pytest.mark.parametrize("stage", ["training", "ranking"])
def test_a_rank_that_fails_is_the_failure_of_the_trial(ended: dict[str, Ended], stage: str) -> None:
    failed = ended[f"fails in {stage}"]
    assert failed.answer["status"] == "failed" and failed.answer["rank"] == 1
    assert failed.answer["error"].startswith(f"rank 1: ValueError: no {stage} in rank 1")
    assert "methods/shared.py" in failed.answer["traceback"]


def test_one_rank_continues_after_training_and_within_it_trains_again(ended: dict[str, Ended]) -> None:
    again, on = ended["trains again"], ended["ranks on"]
    (note,) = again.notes
    assert "its training was under way with --ranks 2, now it is 1" in note and "training starts again" in note
    assert again.answer["cost"]["resumed"] == 0 and "ranks" not in again.answer["cost"]
    assert on.answer["cost"]["resumed"] == 1 and not on.notes
    assert on.answer["cost"]["ranks"] == 2  # as it was trained
    assert not list(Path("runs/work").iterdir())


def test_a_killed_rank_ends_all_and_the_trial_goes_on_to_the_same_bytes(ended: dict[str, Ended]) -> None:
    killed, on, whole = ended["killed"], ended["goes on"], ended["together"]
    assert killed.answer["status"] == "lost" and killed.answer["rank"] == 1 and killed.run.status == "lost"
    assert "SIGKILL" in killed.answer["error"] and len(killed.processes) == 2
    assert on.answer["cost"]["resumed"] == 1 and json.dumps(on.run.result) == json.dumps(whole.run.result)
    assert _weights(on) == _weights(whole)


def _weights(one: Ended) -> bytes:
    return DirectoryStore(Path(one.store)).read(one.run, "weights.pt")
