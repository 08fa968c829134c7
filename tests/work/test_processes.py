"""The local executor with real processes: answers, crashes, stops, and every order of dying."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.work.jobs import Event, Job, Stopping
from harness.work.processes import GRACE, Processes, ServerFailed
from harness.work.slots import Slots
from tests.long.campaign.commands import limited
from tests.processes import all_gone, all_stopped

REPOSITORY = Path(__file__).resolve().parents[3]

# Targets such as harness.work.compute:run_job, in a module that imports in no time.
TARGETS = """
import os, signal, subprocess, sys, time

def act(job, progress):
    def begun(more={}):
        progress({"begun": os.getpid(), "server": os.getppid(), **more})

    progress({"pid": os.getpid(), "server": os.getppid(), "directory": os.getcwd(),
              "colour": os.environ.get("HARNESS_COLOUR")})
    if job["act"] == "print":
        print("Kendall's τ")
    if job["act"] == "raise":
        raise ValueError("two\\nlines")
    if job["act"] == "exit":
        sys.exit("enough")
    if job["act"] == "vanish":
        os._exit(3)
    if job["act"] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if job["act"] == "talk":
        for step in range(2000):
            progress({"step": step, "text": "x" * 1000})
    if job["act"] == "wait":
        while not os.path.exists(job["for"]):
            time.sleep(0.01)
    if job["act"] == "hang":
        try:
            begun({"hanging": True})
            time.sleep(60)
        except KeyboardInterrupt:
            return {"status": "interrupted", "stored": True}
    if job["act"] == "parent":
        # A program, and a fork that holds all descriptors: a daemon of multiprocessing, a worker of a data loader.
        program = subprocess.Popen(["sleep", "60"])
        fork = os.fork()
        if not fork:
            time.sleep(60)
        progress({"grandchildren": [program.pid, fork], "group": os.getpgid(program.pid)})
        if job["end"] == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if job["end"] == "hang":
            time.sleep(60)
        while job["end"] == "wait" and not os.path.exists(job["for"]):
            time.sleep(0.01)
    if job["act"] == "stuck":  # in code that holds the interpreter lock: no thread of this process runs
        import ctypes

        begun({"stuck": True})
        ctypes.PyDLL(None).sleep(600)
    if job["act"] == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        begun({"deaf": True})
        time.sleep(60)
    return {"status": "done", "echo": job}
"""


@pytest.fixture(autouse=True)
def targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "targets.py").write_text(TARGETS)
    (tmp_path / "broken.py").write_text("import no_such_module_at_all\n")
    (tmp_path / "ended.py").write_text("import os\nos._exit(3)\n")
    monkeypatch.syspath_prepend(str(tmp_path))


def execute(
    jobs: Iterable[Job],
    workers: int,
    target: str = "targets:act",
    stopping: Stopping | None = None,
    grace: float = GRACE,
) -> Iterator[Event]:
    executor = Processes(Slots.cpu(workers), target=target, grace=grace)
    return executor.execute(jobs, stopping or Stopping())


def run(acts: list[str], workers: int = 2, **options: object) -> Iterator[Event]:
    jobs = (Job(number, {"act": act}) for number, act in enumerate(acts))
    return execute(jobs, workers, **options)  # type: ignore[arg-type]


def gone(process: int) -> bool:
    return all_gone([process])


def test_every_job_is_answered_once_and_failures_are_their_own() -> None:
    acts = ["fine", "raise", "die", "fine", "exit", "vanish", "fine"]
    events = list(run(acts))
    answers = {event.job.number: event.data for event in events if event.kind == "finished"}
    assert len([event for event in events if event.kind == "finished"]) == len(acts)
    assert [answers[n]["status"] for n in range(7)] == ["done", "failed", "lost", "done", "failed", "lost", "done"]
    assert answers[0]["echo"] == {"act": "fine"}
    assert answers[1]["error"] == "ValueError: two lines"
    assert answers[2]["error"] == "killed by signal 9 (SIGKILL): out of memory?"
    assert answers[4]["error"] == "SystemExit: enough"
    assert answers[5]["error"] == "its process ended with exit code 3 before it answered"
    for number in range(7):
        assert [event.kind for event in events if event.job.number == number] == ["started", "progress", "finished"]


def test_each_job_has_a_fresh_process_of_one_server_in_the_callers_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reports = [event.data for event in run(["fine"] * 4) if event.kind == "progress"]
    assert len({report["pid"] for report in reports}) == 4
    assert len({report["server"] for report in reports}) == 1
    assert {report["directory"] for report in reports} == {str(tmp_path)}
    assert all(gone(report["pid"]) for report in reports)


def reported(acts: list[str]) -> list[dict[str, Any]]:
    return [dict(event.data) for event in run(acts) if event.kind == "progress"]


def test_the_next_executor_goes_on_with_a_server_whose_jobs_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [first] = reported(["raise"])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("HARNESS_COLOUR", "blue")
    [second] = reported(["fine"])
    assert second["server"] == first["server"] and second["pid"] != first["pid"]
    assert (second["directory"], second["colour"]) == (str(tmp_path / "elsewhere"), "blue")
    monkeypatch.delenv("HARNESS_COLOUR")
    assert reported(["fine"])[0]["colour"] is None
    os.kill(first["server"], signal.SIGKILL)
    assert gone(first["server"])
    [third] = reported(["fine"])
    monkeypatch.setenv("OMP_NUM_THREADS", "3")  # read when torch is imported
    [fourth] = reported(["fine"])
    assert len({report["server"] for report in (first, third, fourth)}) == 3 and gone(third["server"])


def test_a_server_with_a_job_that_may_still_run_is_not_kept() -> None:
    events = run(["hang", "fine"])
    servers = [next(event for event in events if event.kind == "progress").data["server"]]
    events.close()  # type: ignore[attr-defined]
    assert gone(servers[0]) and reported(["fine"])[0]["server"] != servers[0]


def test_no_more_than_the_workers_run_side_by_side_and_jobs_are_drawn_when_there_is_room() -> None:
    drawn: list[int] = []

    def jobs() -> Iterator[Job]:
        for number in range(6):
            drawn.append(number)
            yield Job(number, {"act": "fine"})

    running, most = 0, 0
    for event in execute(jobs(), 2):
        running += {"started": 1, "finished": -1}.get(event.kind, 0)
        most = max(most, running)
        assert len(drawn) <= 6
    assert most <= 2


def test_a_job_may_print_what_the_terminal_cannot_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    assert [event.data["status"] for event in run(["print"]) if event.kind == "finished"] == ["done"]


def test_progress_arrives_whole_and_in_order_and_what_is_not_taken_is_dropped() -> None:
    events, busy = [], 0
    for event in run(["talk"]):
        events.append(event)
        if "step" in event.data and not busy:
            busy = 1
            time.sleep(0.5)  # the job goes on: it does not wait for this process
    steps = [event.data["step"] for event in events if "step" in event.data]
    assert steps == sorted(set(steps)) and steps[0] == 0 and len(steps) < 2000
    assert all(event.data["text"] == "x" * 1000 for event in events if "step" in event.data)
    assert events[-1].data["status"] == "done"


def test_one_request_to_stop_lets_jobs_answer_and_starts_nothing_new() -> None:
    stopping = Stopping()
    answers = []
    for event in run(["hang", "hang", "fine", "fine"], stopping=stopping):
        if "hanging" in event.data and not stopping.asked:
            stopping.ask()
        if event.kind == "finished":
            answers.append((event.job.number, dict(event.data)))
    assert {"status": "interrupted", "stored": True} in [answer for _, answer in answers]
    assert {number for number, _ in answers} <= {0, 1}


def test_a_second_request_or_the_end_of_the_grace_ends_jobs_that_do_not_listen() -> None:
    for grace, requests in ((600.0, 2), (0.1, 1)):
        stopping = Stopping()
        process = None
        before = time.monotonic()
        for event in run(["deaf"], stopping=stopping, grace=grace):
            process = event.data.get("pid", process)
            if "deaf" in event.data:
                for _ in range(requests):
                    stopping.ask()
        assert event.data == {"status": "interrupted"}
        assert time.monotonic() - before < 300
        assert process is not None and gone(process)


def test_closing_the_iterator_ends_all_processes() -> None:
    events = run(["hang", "hang"])
    reports = [event.data for event in (next(events) for _ in range(4)) if "pid" in event.data]
    events.close()  # type: ignore[attr-defined]
    assert all(gone(report["pid"]) and gone(report["server"]) for report in reports)


def test_closing_the_iterator_ends_a_job_whose_threads_cannot_run() -> None:
    events = run(["stuck"])
    process = next(event.data["begun"] for event in events if "begun" in event.data)
    time.sleep(0.5)  # a slow machine is not there yet, and the job ends more easily
    events.close()  # type: ignore[attr-defined]
    assert gone(process)


def test_the_death_of_the_server_loses_neither_the_running_nor_the_waiting(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    documents = [{"act": "wait", "for": str(flag)}, {"act": "fine"}]
    servers, answers = set(), {}
    for event in execute([Job(n, d) for n, d in enumerate(documents)], 1):
        if event.kind == "progress":
            servers.add(event.data["server"])
            if event.job.number == 0:
                os.kill(event.data["server"], signal.SIGKILL)
                assert gone(event.data["server"])
                flag.touch()
        if event.kind == "finished":
            answers[event.job.number] = event.data["status"]
    assert answers == {0: "done", 1: "done"}
    assert len(servers) == 2


def test_a_job_of_a_dead_server_finishes_beside_the_jobs_of_the_next(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    documents = [{"act": "wait", "for": str(flag)}, *[{"act": "fine"}] * 3]
    answers: dict[int, str] = {}
    with limited(120):  # else it would wait for ever
        for event in execute([Job(n, d) for n, d in enumerate(documents)], 2):
            if event.kind == "progress" and event.job.number == 0:
                os.kill(event.data["server"], signal.SIGKILL)
                assert gone(event.data["server"])
            if event.kind == "finished":
                answers[event.job.number] = event.data["status"]
                if len(answers) == 3:
                    flag.touch()
    assert list(answers)[-1] == 0 and answers[0] == answers[3] == "done"


@pytest.mark.parametrize(("end", "status"), [("answer", "done"), ("die", "lost"), ("hang", None)])
def test_what_a_job_has_started_ends_with_it(end: str, status: str | None) -> None:
    events, ended = execute([Job(0, {"act": "parent", "end": end})], 1), None
    started: list[int] = []
    for event in events:
        started = event.data.get("grandchildren", started)
        ended = event.data.get("status")
        if "grandchildren" in event.data:
            assert os.getpgrp() != event.data["group"]
            if end == "hang":
                events.close()  # type: ignore[attr-defined]
    assert started and ended == status and all_gone(started)


def test_what_a_job_has_started_ends_with_it_when_the_server_is_dead(tmp_path: Path) -> None:
    flag, started, status = tmp_path / "flag", [], None
    for event in execute([Job(0, {"act": "parent", "end": "wait", "for": str(flag)})], 1):
        if "server" in event.data:
            server = event.data["server"]
        if "grandchildren" in event.data:
            started = event.data["grandchildren"]
            os.kill(server, signal.SIGKILL)
            assert gone(server)
            flag.touch()
        status = event.data.get("status", status)
    assert started and status == "done" and all_gone(started)


def test_stopping_the_server_as_a_terminal_does_stops_its_jobs_until_it_continues(tmp_path: Path) -> None:
    flag, processes, status = tmp_path / "flag", [], None
    for event in execute([Job(0, {"act": "wait", "for": str(flag)})], 1):
        if "pid" in event.data:
            processes = [event.data["server"], event.data["pid"]]
            os.kill(event.data["server"], signal.SIGTSTP)
            assert all_stopped(processes)
            flag.touch()
            os.kill(event.data["server"], signal.SIGCONT)
        status = event.data.get("status", status)
    assert processes and status == "done"


def test_a_target_that_does_not_import_is_reported_with_its_reason() -> None:
    with pytest.raises(ServerFailed, match="ModuleNotFoundError: No module named 'no_such_module_at_all'"):
        list(execute([Job(0, {})], 1, target="broken:act"))
    with pytest.raises(ServerFailed, match="trial processes cannot start: "):
        list(execute([Job(0, {})], 1, target="ended:act"))


def killed(tmp_path: Path, *jobs: dict[str, str], target: str = "targets:act") -> set[int]:
    """Kill a process that runs these jobs when all have begun; the processes that it has started."""
    script = (
        "from harness.work.jobs import Job, Stopping\n"
        "from harness.work.processes import Processes\n"
        "from harness.work.slots import Slots\n"
        f"jobs = [Job(n, document) for n, document in enumerate({list(jobs)})]\n"
        f"for event in Processes(Slots.cpu({len(jobs)}), target='{target}').execute(jobs, Stopping()):\n"
        "    if 'begun' in event.data:\n"
        "        print(event.data['begun'], event.data['server'], flush=True)\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{tmp_path}"}
    with subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdout
        processes: set[int] = set()
        while len(processes) < 1 + len(jobs):
            assert (line := engine.stdout.readline())
            processes |= {int(number) for number in line.split()}
        engine.kill()
    return processes


def test_killing_the_process_that_runs_jobs_leaves_nothing_behind(tmp_path: Path) -> None:
    processes = killed(tmp_path, {"act": "hang"}, {"act": "deaf"})
    assert all(gone(process) for process in processes)
