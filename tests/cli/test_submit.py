"""`harness submit` and `harness cancel` on a pretended SLURM: real scripts, variables and signals."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cli import main
from harness.errors import UserError
from harness.stores.claims import Claims
from harness.stores.directory.records import DirectoryRecords
from harness.study.catalogue import find_studies
from harness.truth.table import Table
from harness.work.plan import make_plan
from harness.work.submission import WARNING, Needs, warning
from tests.many_trials import REPOSITORY, SLOW, STUDY, finish, make_project, standing, start
from tests.processes import await_that
from tests.slurm import Cluster, cluster
from tests.toy import user_folder

MANY = ("many", "--preset", "tiny", "--seeds", "1")
SLURM = ("--slurm", "partition=cpu time=1:00:00")


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path, limit=3) as one:
        yield one


@pytest.fixture
def here(tmp_path: Path, toy_table: Table, slurm: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's folder as the current directory, on a machine that has SLURM's commands."""
    folder = make_project(tmp_path / "project", toy_table, milliseconds=0, epochs=1)
    with user_folder(folder):
        monkeypatch.setenv("PATH", slurm.path)
        yield folder


def options(script: str) -> dict[str, str]:
    lines = [line.removeprefix("#SBATCH --") for line in script.splitlines() if line.startswith("#SBATCH")]
    return dict(line.partition("=")[::2] for line in lines)


def test_the_script_is_shown_and_nothing_is_submitted(
    here: Path, slurm: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ("--checkpoint-every", "5m", "--threads", "2", "--ranks", "3", "--mirror-weights-max", "2MB")
    words = [
        "submit",
        "--mongo",
        "mongodb://u:secret@lab/nas",
        *MANY,
        *SLURM,
        "--workers",
        "20",
        "--dry-run",
        "--offline",
        *more,
    ]
    assert main([*words, "with", "optimiser.learning_rate=0.2"]) == 0
    script = capsys.readouterr().out
    found = options(script)
    assert found["partition"] == "cpu" and found["time"] == "1:00:00" and found["cpus-per-task"] == "6"
    assert found["array"] == "0-1"  # no more workers than trials
    assert found["signal"] == "B:USR2@300" and found["open-mode"] == "append" and found["requeue"] == ""
    command = script.splitlines()[-1]
    assert command.startswith("exec ") and "secret" not in script
    assert command.endswith(" --until-deadline slurm --requeue with optimiser.learning_rate=0.2")
    for part in (
        "worker many",
        "--preset tiny",
        "--seeds 1",
        "--checkpoint-every 300.0",
        "--mirror-weights-max 2048kB",
        "--ranks 3",
        "--jobs 1",
    ):
        assert f" {part} " in command
    assert f"--store {here / 'runs'} " in command and f"cd {here} " in script
    assert not slurm.calls("sbatch") and not (here / "runs").exists()


def test_there_are_no_more_workers_than_the_cluster_allows(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", "many", "--preset", "tiny", "--seeds", "4", *SLURM, "--workers", "20", "--dry-run"]) == 0
    assert options(capsys.readouterr().out)["array"] == "0-2"


def test_rows_with_needs_of_their_own_get_an_array_of_their_own(
    here: Path, slurm: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    study = STUDY.format(milliseconds=0, epochs=1).replace(
        '{"schedule.name": name})', '{"schedule.name": name}, memory="64G" if name == "calr" else None)'
    )
    (here / "studies" / "many.py").write_text(study)
    assert main(["submit", *MANY, "--slurm", "mem=2G", "--workers", "2"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(",")[0] for line in said] == [
        "job 1000: 1 workers for 1 trials (needs: memory=64G)",
        "job 1001: 1 workers for 1 trials (needs: none)",
    ]
    slurm.step()
    memory = {task.option("mem"): task.script.splitlines()[-1] for task in slurm.tasks}
    assert "--needs memory=64G" in memory["64G"] and "--needs none" in memory["2G"]
    capsys.readouterr()
    working = (slurm.bin / "scancel").read_text()
    (slurm.bin / "scancel").write_text("#!/bin/sh\necho 'scancel: error: no controller' >&2; exit 1\n")
    assert main(["cancel", "many"]) == 1
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in said] == ["job 1000 is not cancelled", "job 1001 is not cancelled"]
    assert all("no controller" in line for line in said)
    (slurm.bin / "scancel").write_text(working)
    assert main(["cancel", "many"]) == 0
    assert capsys.readouterr().out == "job 1000 is cancelled\njob 1001 is cancelled\n"
    assert main(["cancel", "many"]) == 0
    assert "no job of many is known here" in capsys.readouterr().out
    assert slurm.calls("scancel") == [["1000"], ["1001"]]


@pytest.mark.parametrize(
    ("time", "seconds"),
    [("4:00:00", 300), ("10", 60), ("0:40", 4), ("10:00", 60), ("0-1", 300), ("2-00:00:00", 300), ("0-0:20", 120)],
)
def test_a_worker_is_warned_a_tenth_of_its_time_before_the_end(time: str, seconds: int) -> None:
    assert warning({"time": time}) == seconds and warning({}) == WARNING


def test_what_trials_need_is_asked_of_slurm() -> None:
    given = {"gres": "gpu:a100:1", "mem": "8G", "time": "1:00"}
    assert Needs.parse("gpus=4,memory=64G").options(given) == given | {"gres": "gpu:a100:4", "mem": "64G"}
    assert Needs.parse("none").options(given) == given and Needs(gpus=2).options({}) == {"gres": "gpu:2"}
    assert Needs.parse(str(Needs(2, "8G"))) == Needs(2, "8G") and str(Needs()) == "none"
    with pytest.raises(UserError, match="not what trials need"):
        Needs.parse("cores=2")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("array=0-9", "array is set by the harness"),
        ("-p gpu", "'-p' is not a long option of sbatch"),
        ("gres=gpu:a100:1", "ask for gres=gpu:2"),
    ],
)
def test_options_that_cannot_be_are_refused(given: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", "ablation_calr_ms", "--slurm", given, "--workers", "2", "--ranks", "2"]) == 2
    assert told in capsys.readouterr().err


def test_a_machine_without_slurm_is_told(here: Path, capsys: pytest.CaptureFixture[str], slurm: Cluster) -> None:
    for command in slurm.bin.iterdir():
        command.unlink()
    assert main(["submit", *MANY, *SLURM, "--workers", "2"]) == 1
    assert "SLURM is not available: scontrol is not on the PATH" in capsys.readouterr().err
    assert main(["submit", *MANY, *SLURM, "--workers", "2", "--dry-run"]) == 0  # the script can be had anywhere
    assert "harness worker" in capsys.readouterr().out


def test_a_preempted_worker_saves_and_goes_on_when_slurm_starts_it_again(
    here: Path, slurm: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Slow until it may end: however long all else takes, the trial is under way.
    rest = 'time.sleep(0 if __import__("os").path.exists("go") else 1)'
    (here / "methods" / "slow.py").write_text(SLOW.replace("time.sleep({seconds})", rest))
    (here / "studies" / "many.py").write_text(STUDY.format(milliseconds=1000, epochs=40))
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    assert main(["submit", *MANY, *SLURM, "--workers", "1"]) == 0
    assert "job 1000: 1 workers for 2 trials" in capsys.readouterr().out
    slurm.run(lambda: any((here / "runs").glob("*-1-*/metrics.jsonl")))
    assert main(["status", "many"]) == 0
    said = capsys.readouterr().out
    assert "running in SLURM: 1 trials, by 1000_0 on node0" in said
    assert "submitted to SLURM: job 1000, 1 workers, preset tiny; `harness cancel many` cancels it" in said
    (task,) = slurm.tasks
    slurm.preempt(task)
    slurm.run(lambda: task.starts == 2)
    (here / "go").touch()
    slurm.run(slurm.is_idle)
    assert task.codes == [128 + signal.SIGTERM, 0] and not slurm.calls("scontrol")[1:]  # SLURM's own affair
    runs, counts = standing(here / "runs")
    assert counts == {"interrupted": 1, "counts": 2}
    assert all(run.owner["slurm"] == {"job": "100000", "array": "1000", "task": "0", "node": "node0"} for run in runs)
    (log,) = (here / "runs" / "work" / "slurm").glob("*.log")
    assert "0 of 2 trials done" in log.read_text() and "2 of 2 trials done" in log.read_text()
    assert main(["cancel", "many"]) == 0 and "job 1000 was over already" in capsys.readouterr().out


def test_a_worker_that_is_warned_has_slurm_start_it_again_while_work_is_left(here: Path, slurm: Cluster) -> None:
    """Another process has the only trial: the worker waits until SLURM warns it."""
    (trial,) = [work.trial for work in make_plan(find_studies("many"), "tiny", [], seeds=1).work][:1]
    claim = Claims(DirectoryRecords(here / "runs"), lease=600.0).acquire(trial.key)
    assert claim is not None
    only = ("--only", f"schedule.name={trial.config.schedule.name}", "--jobs", "1", "--requeue")
    job = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3", "SLURM_JOB_ID": "10"}
    worker = start(here, "worker", *MANY, *only, path=slurm.path, **job)
    said: Path = worker.said  # type: ignore[attr-defined]
    await_that(lambda: "waiting for 1 trials claimed by other processes" in said.read_text())
    worker.send_signal(signal.SIGUSR2)
    told = finish(worker)
    assert worker.returncode == 0 and "1 trials are left to other workers\njob 7_3 starts again" in told
    assert slurm.calls("scontrol") == [["requeue", "7_3"]]
