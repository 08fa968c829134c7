"""How many jobs run side by side, and on which device: with GPUs that the tests list."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path

import pytest

from harness import environment
from harness.errors import UserError
from harness.work.jobs import Job, Stopping
from harness.work.processes import Processes
from harness.work.slots import VISIBLE, Machine, Placed, Slots
from tests.listed_gpus import listed_gpus
from tests.stub_driver import MANAGEMENT, compiled

TWO = Machine(cores=16, gpus=("0", "1"))


def test_without_gpus_there_is_a_slot_per_core() -> None:
    machine = Machine(cores=3)
    for device in (None, "cpu"):
        assert Slots.of(device, machine=machine) == Slots(jobs=3, device=device)
    for device in ("cuda", "cuda:1"):
        with pytest.raises(UserError, match=f"--device {device}: there is no GPU here that can be used"):
            Slots.of(device, machine=machine)
    assert Slots.of(None, 7, per_device=4, machine=machine) == Slots.cpu(7)
    assert filled(Slots.cpu(2)) == [(None,), (None,)]
    (place,) = filled(Slots.cpu(1))
    assert Placed(place).environment(0) == {}


def test_a_gpu_has_one_job_unless_told_otherwise() -> None:
    assert filled(Slots.of(machine=TWO)) == [("0",), ("1",)]
    assert filled(Slots.of(per_device=2, machine=TWO)) == [("0",), ("1",), ("0",), ("1",)]
    assert filled(Slots.of(None, 3, per_device=2, machine=TWO)) == [("0",), ("1",), ("0",)]
    assert filled(Slots.of(None, 8, machine=TWO)) == [("0",), ("1",)]  # --jobs does not put two on one
    assert Slots.of("cpu", machine=TWO) == Slots(jobs=16, device="cpu")
    assert Slots.of("cuda", machine=TWO) == Slots(("0", "1"), device="cuda")
    # The process sees this GPU alone, and counts from 0.
    assert Slots.of("cuda:1", per_device=2, machine=TWO) == Slots(("1",), device="cuda", per_device=2)
    assert Placed(("0", "1")).environment(1) == {VISIBLE: "1"}
    with pytest.raises(UserError, match="--device cuda:2: there are 2 GPUs here, numbered from 0"):
        Slots.of("cuda:2", machine=TWO)


def test_a_job_may_need_a_part_of_a_gpu_or_several() -> None:
    one, shared = Slots.of(machine=TWO), Slots.of(per_device=4, machine=TWO)
    assert filled(one, devices=0.5) == [("0",), ("1",), ("0",), ("1",)]
    assert filled(shared, devices=1) == [("0",), ("1",)]  # it needs the whole one, whatever others do
    assert filled(one, devices=2) == [("0", "1")]
    quarter, half = Placed(("0",), Fraction(1, 4)), Placed(("1",), Fraction(1, 2))
    assert shared.place(1, 0.6, [quarter, half]) == Placed(("0",), Fraction(3, 5))
    assert shared.place(1, 0.8, [quarter, half]) is None
    with pytest.raises(UserError, match="mine: each of 3 ranks needs a GPU of its own, and 2 can be used here"):
        one.check(1, 3, "mine")
    one.check(1, 2, "mine")
    Slots.cpu(1).check(1, 3, "mine")  # without GPUs nothing is said about them


def test_ranks_have_a_gpu_each_or_a_core() -> None:
    three = Machine(cores=16, gpus=("0", "1", "2"))
    assert filled(Slots.of(ranks=2, machine=three), 2) == [("0", "1")]
    assert filled(Slots.of(ranks=2, per_device=2, machine=three), 2) == [("0", "1"), ("2", "0"), ("1", "2")]
    assert len(Slots.of(ranks=2, machine=Machine(5))) == 2
    assert filled(Slots.of(None, 3, ranks=2, machine=Machine(1)), 2) == [(None, None)] * 3
    with pytest.raises(UserError, match="--ranks 4: each of 4 ranks needs a GPU of its own, and 3 can be used here"):
        Slots.of(ranks=4, machine=three)


def filled(slots: Slots, ranks: int = 1, devices: float | None = None) -> list[tuple[str | None, ...]]:
    """The GPUs of the jobs that run in parallel, if all need as much."""
    placed: list[Placed] = []
    while (place := slots.place(ranks, devices, placed)) is not None:
        placed.append(place)
    if devices is None:
        assert len(placed) == len(slots)
    return [one.gpus for one in placed]


@pytest.mark.parametrize(
    ("visible", "gpus"),
    [(None, ("0", "1", "2")), ("2,0", ("2", "0")), ("GPU-89, 1", ("GPU-89", "1")), ("", ()), ("1,-1,2", ("1",))],
)
def test_only_gpus_that_may_be_seen_count(
    visible: str | None, gpus: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "DRIVER", listed_gpus(tmp_path, 3))
    given = {} if visible is None else {VISIBLE: visible}
    assert Machine.here(given, "2.14.0").gpus == gpus == Machine.here(given, "2.14.0+cu130").gpus
    assert Machine.here(given, "2.14.0+cpu").gpus == ()


def test_gpus_are_counted_without_the_drivers_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in WSL2, by the management library, and in a container without it, by the files of devices."""
    monkeypatch.setattr(environment, "DRIVER", tmp_path / "nothing")
    monkeypatch.setattr(environment, "MANAGEMENT", str(compiled(MANAGEMENT, tmp_path / "libraries" / "managed.so")))
    assert environment.gpu_names() == ["NVIDIA Managed 0", "NVIDIA Managed 1"]
    assert Machine.here({VISIBLE: "1"}, "2.14.0").gpus == ("1",)
    monkeypatch.setattr(environment, "MANAGEMENT", "no-such-library.so")
    monkeypatch.setattr(environment, "NODES", tmp_path)
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert Machine.here({}, "2.14.0").gpus == ("0",)


def test_a_machine_without_a_driver_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "DRIVER", tmp_path / "nothing")
    monkeypatch.setattr(environment, "MANAGEMENT", "no-such-library.so")
    monkeypatch.setattr(environment, "NODES", tmp_path)
    assert Machine.here({VISIBLE: "0,1"}) == Machine(os.cpu_count() or 1)


TARGET = """
import os, time
from pathlib import Path

def act(job, progress):
    mine = os.environ.get("CUDA_VISIBLE_DEVICES")
    Path(job["folder"], str(job["number"])).touch()
    until = time.monotonic() + 120
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
    for event in Processes(slots, target="seeing:act").execute(jobs, Stopping()):
        if event.kind == "started":
            running[event.job.number] = None
            assert len(running) <= 2
        elif event.kind == "finished":
            del running[event.job.number]
            seen[event.job.number] = event.data["gpu"]
            assert event.data["server"] is False
    assert len(seen) == 5 and {seen[0], seen[1]} == {"0", "GPU-7"} >= set(seen.values())


def test_jobs_that_need_little_of_a_gpu_run_beside_each_other_and_a_large_one_waits_for_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "seeing.py").write_text(TARGET)
    (tmp_path / "there").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    slots = Slots.of(machine=Machine(2, ("0",)))
    document = {"folder": str(tmp_path / "there"), "together": 3}
    jobs = [Job(n, {**document, "number": n}, devices=0.25) for n in range(3)]  # each waits for the others
    jobs += [Job(3, {**document, "number": 3}), Job(4, {**document, "number": 4}, devices=0.25)]
    kinds = [
        (event.kind, event.job.number) for event in Processes(slots, target="seeing:act").execute(jobs, Stopping())
    ]
    assert {number for kind, number in kinds if kind == "finished"} == set(range(5))
    assert set(kinds[kinds.index(("started", 3)) - 6 : kinds.index(("started", 3))]) == {
        (kind, number) for kind in ("started", "finished") for number in range(3)
    }
    assert kinds.index(("started", 4)) > kinds.index(("finished", 3))
