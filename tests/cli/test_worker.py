"""`harness worker`: its files are those of the other workers, its claim outlives what stalls it, it is gone in time."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from harness.cli import main
from harness.truth.table import Table
from tests.many_trials import finish, make_project, standing, start
from tests.processes import await_that
from tests.toy import user_folder

WORKER = ("worker", "many", "--preset", "tiny", "--jobs", "1", "--seeds", "1")
ONE = (*WORKER, "--only", "schedule.name=calr")

STALLING = """
import ctypes, os
from dataclasses import dataclass
from harness.components.method import Method
from harness.components.registries import METHODS

LIBRARY = ctypes.PyDLL(None)  # its functions are called with the interpreter lock held

@METHODS.register("slow")
@dataclass(frozen=True)
class Stalling(Method):
    '''As SPOS, with a pause before its first step in which no other thread of the process runs.'''

    def paths(self, training):
        if os.path.exists("pause"):
            os.rename("pause", "paused")
            LIBRARY.read(os.open("paused", os.O_RDONLY), ctypes.create_string_buffer(1), 1)
        return [training.source.draw(training.rng)]
"""


@pytest.fixture
def project(tmp_path: Path, toy_table: Table) -> Path:
    return make_project(tmp_path / "project", toy_table, milliseconds=0, epochs=1)


def writable(path: Path, opened: list[int]) -> bool:
    """Open a pipe to write, once a process opens it to read; False before."""
    with contextlib.suppress(OSError):
        opened.append(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    return bool(opened)


def test_a_claim_is_renewed_while_its_owner_holds_the_interpreter_lock(project: Path) -> None:
    (project / "methods" / "slow.py").write_text(STALLING)
    os.mkfifo(project / "pause")
    worker = start(project, *ONE, "--lease", "1.5")
    try:
        await_that((project / "paused").exists)
        pipe: list[int] = []
        await_that(lambda: writable(project / "paused", pipe))  # from now on it stalls
        (claim,) = (project / "runs" / "claims").glob("*/1")
        times = {claim.stat().st_mtime_ns}
        while len(times) < 5:  # its own thread could have begun one renewal before
            await_that(lambda: claim.stat().st_mtime_ns not in times)
            times.add(claim.stat().st_mtime_ns)
        os.write(pipe[0], b"!")
        said = finish(worker)
    finally:
        worker.kill()
    assert "1 of 1 trials done, 1 of them now" in said
    runs, counts = standing(project / "runs")
    assert counts == {"counts": 1} and len(runs) == 1


def test_a_worker_with_another_version_of_a_component_is_refused_by_name(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tell = (*ONE, "--until-deadline", "30")  # too short for a trial: it only tells the store
    with user_folder(project):
        assert main(tell) == 1
    capsys.readouterr()
    method = project / "methods" / "slow.py"
    method.write_text(method.read_text() + "# another version")
    with user_folder(project):
        assert main(ONE) == 2
        said = capsys.readouterr().err
        assert "study many was begun with other files" in said and "--new-files" in said
        assert "methods/slow.py: " in said and "studies/many.py" not in said
        assert main([*tell, "--new-files"]) == 1  # the time is short again, but it was admitted
        assert "begun with other files" not in capsys.readouterr().err
    assert not list((project / "runs").glob("*-1-*"))


def test_a_worker_begins_nothing_that_it_could_not_save(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with user_folder(project):
        assert main([*ONE, "--until-deadline", "30"]) == 1
        said = capsys.readouterr()
    assert "needs 60 s until its state is saved, and a worker has 27 s" in said.err and "--checkpoint-every" in said.err
    assert "0 of 1 trials done" in said.out and not list((project / "runs").glob("*-1-*"))


@pytest.mark.parametrize(
    ("text", "told"),
    [("never", "neither a time"), ("2020-01-01T10:00", "is over"), ("slurm", "SLURM_JOB_ID is not set")],
)
def test_a_deadline_that_is_none_is_refused(
    text: str, told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert main(["worker", "ablation_calr_ms", "--until-deadline", text]) == 2
    assert told in capsys.readouterr().err
