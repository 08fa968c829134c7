"""How many jobs run side by side, and on which device: with pretended GPUs, described in the tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness import environment
from harness.errors import HarnessError, UserError
from harness.execution.executors.executor import Job, Stopping
from harness.execution.executors.local import LocalExecutor
from harness.execution.executors.slots import VISIBLE, Machine, Slots
from tests.pretended_gpus import pretended_gpus

TWO = Machine(cores=16, gpus=("0", "1"))


def test_without_gpus_there_is_a_slot_per_core() -> None:
    machine = Machine(cores=3)
    for device in (None, "cpu", "cuda", "cuda:1"):  # a device that is not there is the trial's own failure
        assert Slots.of(device, machine=machine) == Slots((None,) * 3, device)
    assert Slots.of(None, 7, per_device=4, machine=machine) == Slots.cpu(7)
    assert Slots.cpu(1).environment(0) == {}


def test_a_gpu_has_one_job_unless_told_otherwise() -> None:
    assert Slots.of(machine=TWO) == Slots(("0", "1"))
    assert Slots.of(per_device=2, machine=TWO).gpus == ("0", "1", "0", "1")
    assert Slots.of(None, 3, per_device=2, machine=TWO).gpus == ("0", "1", "0")
    assert Slots.of(None, 8, machine=TWO).gpus == ("0", "1")  # --jobs does not put two on one
    assert Slots.of("cpu", machine=TWO) == Slots((None,) * 16, "cpu")
    assert Slots.of("cuda", machine=TWO) == Slots(("0", "1"), "cuda")
    # The process sees this GPU alone, and counts from 0.
    assert Slots.of("cuda:1", per_device=2, machine=TWO) == Slots(("1", "1"), "cuda")
    assert Slots.of(machine=TWO).environment(1) == {VISIBLE: "1"}
    with pytest.raises(UserError, match="--device cuda:2: there are 2 GPUs here, numbered from 0"):
        Slots.of("cuda:2", machine=TWO)


@pytest.mark.parametrize(
    ("visible", "gpus"),
    [(None, ("0", "1", "2")), ("2,0", ("2", "0")), ("GPU-89, 1", ("GPU-89", "1")), ("", ()), ("1,-1,2", ("1",))],
)
def test_only_gpus_that_may_be_seen_count(
    visible: str | None, gpus: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "DRIVER", pretended_gpus(tmp_path, 3))
    given = {} if visible is None else {VISIBLE: visible}
    assert Machine.here(given, "2.14.0").gpus == gpus == Machine.here(given, "2.14.0+cu130").gpus
    assert Machine.here(given, "2.14.0+cpu").gpus == ()


def test_a_machine_without_a_driver_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "DRIVER", tmp_path / "nothing")
    assert Machine.here({VISIBLE: "0,1"}) == Machine(os.cpu_count() or 1)


TARGET = """
import os, time
from pathlib import Path

def act(job, progress):
    mine = os.environ.get("CUDA_VISIBLE_DEVICES")
    Path(job["folder"], str(job["number"])).touch()
    until = time.monotonic() + 20
    while len(os.listdir(job["folder"])) < job["together"] and time.monotonic() < until:
        time.sleep(0.005)
    theirs = Path(f"/proc/{os.getppid()}/environ").read_bytes()
    return {"status": "done", "gpu": mine, "server": b"CUDA_VISIBLE_DEVICES" in theirs}
"""


def test_each_process_sees_the_gpu_of_its_slot_and_the_server_none_in_particular(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "seeing.py").write_text(TARGET)
    (tmp_path / "there").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv(VISIBLE, raising=False)
    slots = Slots.of(machine=Machine(2, ("0", "GPU-7")))
    jobs = [Job(n, {"folder": str(tmp_path / "there"), "number": n, "together": 2}) for n in range(5)]
    running: dict[int, None] = {}
    seen: dict[int, str] = {}
    for event in LocalExecutor(slots, target="seeing:act").execute(jobs, Stopping()):
        if event.kind == "started":
            running[event.job.number] = None
            assert len(running) <= 2
        elif event.kind == "finished":
            del running[event.job.number]
            seen[event.job.number] = event.data["gpu"]
            assert event.data["server"] is False
    assert len(seen) == 5 and {seen[0], seen[1]} == {"0", "GPU-7"} >= set(seen.values())


def test_a_job_of_several_processes_is_refused_for_now() -> None:
    with pytest.raises(HarnessError, match="jobs of one process, not of 2"):
        list(LocalExecutor(Slots.cpu(1), target="seeing:act").execute([Job(0, {}, ranks=2)], Stopping()))
