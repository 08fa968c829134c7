"""Jobs of several processes: the first answers, and one that fails or dies ends all. Targets without torch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.work.jobs import Event, Job, Stopping
from harness.work.processes import Processes
from harness.work.slots import VISIBLE, Machine, Slots
from tests.processes import all_gone

REPOSITORY = Path(__file__).resolve().parents[3]

TARGET = """
import os, time
from pathlib import Path

def act(job, progress):
    group = job["group"]
    rank, folder = group["index"], Path(job["folder"])
    assert Path(group["meeting"]).exists() and group["size"] == job["ranks"]
    (folder / f".{rank}").write_text(f"{os.getpid()} {os.environ.get('CUDA_VISIBLE_DEVICES')}")
    (folder / f".{rank}").rename(folder / str(rank))
    while len([one for one in folder.iterdir() if one.name.isdigit()]) < job["ranks"]:
        time.sleep(0.005)
    try:
        progress({"rank": rank, "meeting": group["meeting"]})
        if job["act"] == f"raise in {rank}":
            raise ValueError("no part of mine")
        if job["act"] != "fine":
            time.sleep(60)
    except KeyboardInterrupt:
        return {"status": "interrupted", "rank": rank}
    return {"status": "done", "rank": rank}
"""


@pytest.fixture(autouse=True)
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "together.py").write_text(TARGET)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv(VISIBLE, raising=False)


def job(tmp_path: Path, act: str, ranks: int = 2, number: int = 0) -> Job:
    folder = tmp_path / f"job {number}"
    folder.mkdir()
    return Job(number, {"act": act, "folder": str(folder), "ranks": ranks}, ranks=ranks)


def execute(*jobs: Job, slots: Slots | None = None, stopping: Stopping | None = None) -> Iterator[Event]:
    return Processes(slots or Slots.cpu(1), target="together:act").execute(jobs, stopping or Stopping())


def processes(one: Job) -> dict[int, int]:
    """The process of each rank."""
    places = [place for place in Path(one.document["folder"]).iterdir() if place.name.isdigit()]
    return {int(place.name): int(place.read_text().split()[0]) for place in places}


def last(events: Iterator[Event]) -> dict[str, Any]:
    """The answer of the only job."""
    *before, event = events
    assert event.kind == "finished" and all(one.kind != "finished" for one in before)
    return dict(event.data)


def test_the_first_process_speaks_for_the_job_and_each_has_a_gpu_of_its_own(tmp_path: Path) -> None:
    jobs = [job(tmp_path, "fine", number=number) for number in range(3)]
    events = list(execute(*jobs, slots=Slots.of(ranks=2, machine=Machine(4, ("0", "GPU-7", "2")))))
    assert [event.kind for event in events] == ["started", "progress", "finished"] * 3  # two GPUs of three: one by one
    meetings = {event.data["meeting"] for event in events if event.kind == "progress"}
    assert len(meetings) == 3 and not any(map(os.path.exists, meetings))
    assert all(event.data["rank"] == 0 for event in events if event.kind != "started")
    for one in jobs:
        assert all_gone(processes(one).values())
        seen = {place.read_text().split()[1] for place in Path(one.document["folder"]).iterdir()}
        assert len(seen) == 2


@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_that_fails_ends_all_with_its_traceback(tmp_path: Path, rank: int) -> None:
    one = job(tmp_path, f"raise in {rank}", ranks=3)
    answer = last(execute(one))
    assert (
        answer["status"] == "failed"
        and answer.get("rank", 0) == rank
        and answer["error"].endswith("ValueError: no part of mine")
    )
    assert answer["error"].startswith(f"rank {rank}: ") == bool(rank) and "in act" in answer["traceback"]
    assert all_gone(processes(one).values())  # it finished after they ended


@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_that_is_killed_ends_all(tmp_path: Path, rank: int) -> None:
    one = job(tmp_path, "sleep", ranks=2)
    answer: dict[str, Any] = {}
    for event in execute(one):
        if event.kind == "progress":
            os.kill(processes(one)[rank], signal.SIGKILL)
        answer = dict(event.data)
    assert answer["status"] == "lost" and answer.get("rank", 0) == rank
    assert "killed by signal 9 (SIGKILL)" in answer["error"] and all_gone(processes(one).values())


def test_a_stop_is_told_to_the_first_and_ends_all(tmp_path: Path) -> None:
    one, stopping = job(tmp_path, "sleep"), Stopping()
    answer: dict[str, Any] = {}
    for event in execute(one, job(tmp_path, "fine", number=1), stopping=stopping):
        assert event.job is one
        if event.kind == "progress":
            stopping.ask()
        answer = dict(event.data)
    assert answer == {"status": "interrupted", "rank": 0} and all_gone(processes(one).values())


def test_nothing_is_left_of_a_job_whose_starter_is_killed(tmp_path: Path) -> None:
    one = job(tmp_path, "sleep")
    script = (
        "from harness.work.jobs import Job, Stopping\n"
        "from harness.work.processes import Processes\n"
        "from harness.work.slots import Slots\n"
        f"job = Job(0, {dict(one.document)!r}, ranks=2)\n"
        "for event in Processes(Slots.cpu(1), target='together:act').execute([job], Stopping()):\n"
        "    print(event.kind, flush=True)\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{tmp_path}"}
    with subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdout and [engine.stdout.readline() for _ in range(2)] == ["started\n", "progress\n"]
        engine.kill()
    assert all_gone(processes(one).values())
