"""`run` on a machine with GPUs that the driver lists: one trial per GPU, and a page about runs made there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import environment
from harness.cli import main
from harness.components import discovery
from harness.components.preset import get_preset
from harness.data import devices
from harness.stores.directory.store import DirectoryStore
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from harness.truth.table import Table
from harness.work.plan import make_plan
from tests.conftest import TOY
from tests.jobs import attempt
from tests.listed_gpus import listed_gpus
from tests.processes import all_gone, descendants
from tests.stored_runs import store_run
from tests.stub_driver import CUDA, LOG, compiled
from tests.toy import user_folder

REPOSITORY = Path(discovery.__file__).resolve().parents[2]

ON_CPU = """
from harness.data import devices
devices.KIND = "cpu"  # torch cannot use the GPUs of the list
"""

METHOD = (
    ON_CPU
    + """
import os, time
from dataclasses import dataclass
from pathlib import Path
from harness.components.method import Method
from harness.components.registries import METHODS

@METHODS.register("seeing")
@dataclass(frozen=True)
class Seeing(Method):
    '''As SPOS. Notes which GPU its process sees; rests where there is a file that says so.'''

    def paths(self, training):
        Path("seen").mkdir(exist_ok=True)
        Path("seen", str(os.getpid())).write_text(os.environ.get("CUDA_VISIBLE_DEVICES", "all"))
        if os.path.exists("slowly"):
            time.sleep(0.1)
        return [training.source.draw(training.rng)]
"""
)

STUDY = '''
"""Quick trials."""

from harness.study import Column, Row, Study

toy = {"space": "toy", "dataset": "toy", "benchmark": "toy", "rank.images": 50, "rank.candidates": 12, "rank.bins": 5,
       "train.epochs": 10, "train.batch_size": 20, "network.width": 2, "method.name": "seeing"}
rows = [Row({"Schedule": name}, toy | {"schedule.name": name}) for name in ("cosine", "calr")]
study = Study("seeing", "Seeing", rows, [Column("τ", "kendall_tau")])
'''

SHARING = (
    ON_CPU
    + """
import os
from dataclasses import dataclass
from pathlib import Path
import torch
from harness.components.method import Method
from harness.components.registries import METHODS

@METHODS.register("sharing")
@dataclass(frozen=True)
class Sharing(Method):
    '''As SPOS. Notes how much of its GPU is taken when it begins, and runs out of memory where it is told to.'''

    share: float = 0.5
    greedy: bool = False

    def begin(self, training):
        mine, folder = os.environ["CUDA_VISIBLE_DEVICES"], Path("sharing")
        folder.mkdir(exist_ok=True)
        (folder / f".{os.getpid()}").write_text(f"{mine} {self.share}")
        (folder / f".{os.getpid()}").rename(folder / str(os.getpid()))
        alive = [one for one in folder.glob("[0-9]*") if Path("/proc", one.name).exists()]
        taken = [share for gpu, share in (one.read_text().split() for one in alive) if gpu == mine]
        with open("taken", "a") as file:
            file.write(f"{mine} {sum(map(float, taken))}\\n")

    def paths(self, training):
        if self.greedy:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has 24 GiB.")
        return [training.source.draw(training.rng)]
"""
)

NEEDS = '''
"""Trials that share GPUs: those of one row need a whole one."""

from harness.study import Column, Row, Study

toy = {"space": "toy", "dataset": "toy", "benchmark": "toy", "rank.images": 50, "rank.candidates": 12, "rank.bins": 5,
       "train.epochs": 1, "train.batch_size": 20, "network.width": 2, "method.name": "sharing"}
rows = [Row({"Row": name}, toy | {"schedule.name": name}) for name in ("cosine", "calr", "constant")]
rows += [Row({"Row": "whole"}, toy | {"method.share": 1.0}, devices=1)]
rows += [Row({"Row": "greedy"}, toy | {"method.greedy": True})]
study = Study("sharing", "Sharing", rows, [Column("τ", "kendall_tau")])
'''

WITH_LISTED_GPUS = """
import sys; from pathlib import Path; from harness import environment; from harness.cli import main
environment.DRIVER = Path('driver'); sys.exit(main(sys.argv[1:]))
"""

COMMAND = ["run", "seeing", "--preset", "tiny", "--seeds", "1"]


@pytest.fixture
def project(tmp_path: Path, toy_table: Table, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's folder on a machine with two GPUs."""
    toy_table.write(tmp_path / "toy.npz")
    files = {"spaces/toy.py": TOY, "methods/seeing.py": METHOD, "studies/seeing.py": STUDY}
    files |= {"methods/sharing.py": SHARING, "studies/sharing.py": NEEDS}
    monkeypatch.setattr(environment, "DRIVER", listed_gpus(tmp_path / "driver", 2))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(devices, "KIND", "cpu")
    with user_folder(tmp_path, files):
        yield tmp_path


def seen() -> dict[str, int]:
    """The trials by the GPU that they saw; forgotten afterwards."""
    notes = list(Path("seen").iterdir())
    found = Counter(note.read_text() for note in notes)
    for note in notes:
        note.unlink()
    return found


def results(store: str) -> dict[str, str]:
    done = [run for run in DirectoryStore(Path(store)).runs() if run.status == "done"]
    return {run.key: json.dumps(run.result) for run in done}


def test_wrong_requests_say_what_is_there(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMAND, "--device", "cuda:2"]) == 2
    assert "there are 2 GPUs here, numbered from 0" in capsys.readouterr().err
    assert main([*COMMAND, "--jobs", "5", "--only", "seed=7"]) == 2
    assert "--jobs 5: only 2 in parallel, 1 per GPU; --per-device 3 allows it" in capsys.readouterr().err


def test_a_gpu_that_torch_cannot_use_is_an_error_and_nothing_trains_on_the_cpu(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("seeing", "sharing"):
        file = Path("methods", f"{name}.py")
        file.write_text(file.read_text().replace(ON_CPU, ""))
    assert main([*COMMAND, "--no-references"]) == 1
    shown = capsys.readouterr()
    assert "0 of 2 trials done" in shown.out and not Path("seen").exists()
    assert "torch cannot use the GPU of this job (CUDA_VISIBLE_DEVICES=0): " in shown.err
    assert "--device cpu runs trials on the CPU" in shown.err
    assert {run.status for run in DirectoryStore(Path("runs")).runs()} == {"interrupted"}


@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_a_gpu_that_is_not_there_is_refused_before_anything_starts(
    project: Path, device: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "DRIVER", Path("nowhere"))
    assert main([*COMMAND, "--device", device]) == 2
    assert f"--device {device}: there is no GPU here that can be used" in capsys.readouterr().err
    assert not Path("runs").exists() and not Path("seen").exists()


def test_only_processes_of_jobs_start_cuda_each_with_one_gpu(project: Path, tmp_path: Path) -> None:
    """Forks of a process that has started CUDA cannot use it."""
    for name in ("seeing", "sharing"):
        file = Path("methods", f"{name}.py")
        file.write_text(file.read_text().replace(ON_CPU, ""))
    library = compiled(CUDA, tmp_path / "libraries" / "libcuda.so.1")
    variables = {"LD_LIBRARY_PATH": str(library.parent), LOG: str(tmp_path / "log"), "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", WITH_LISTED_GPUS, *COMMAND, "--no-references"]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True)
    assert done.returncode == 1 and "torch cannot use the GPU of this job" in done.stderr
    assert "No CUDA GPUs are available" in done.stderr  # by torch, after it has asked the driver
    starts = [line.split() for line in Path("log").read_text().splitlines()]
    assert Counter(visible for _, visible in dict(starts).items()).keys() == {"0", "1"}


def test_one_trial_per_gpu_killed_and_continued_to_the_same_bytes_as_without_gpus(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (study,) = find_studies("seeing")
    for work in make_plan([study], "tiny", [], seeds=1).work:
        assert attempt(work.trial, "plain")["status"] == "done"
    seen()
    Path("slowly").touch()
    engine = subprocess.Popen(
        [sys.executable, "-c", WITH_LISTED_GPUS, *COMMAND, "--checkpoint-every", "0"],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.DEVNULL,
    )
    with engine:
        while engine.poll() is None and len(list(Path("runs/work").glob("*"))) < 2:
            time.sleep(0.01)
        processes = descendants(engine.pid)
        engine.kill()
    assert len(processes) == 3 and all_gone(processes)  # the server and two trials
    assert seen() == {"0": 1, "1": 1}
    Path("slowly").unlink()
    assert main([*COMMAND, "--device", "cpu", "--jobs", "1"]) == 0
    assert "2 trials to run, 1 in parallel" in capsys.readouterr().out
    assert seen() == {"all": 2}
    assert Counter(run.status for run in DirectoryStore(Path("runs")).runs()) == {"lost": 2, "done": 2}
    assert len(results("plain")) == 2 and results("runs") == results("plain")


def test_two_trials_share_a_gpu_unless_one_needs_it_whole_and_lack_of_memory_is_explained(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", "sharing", "--preset", "tiny", "--seeds", "2", "--per-device", "2", "--no-references"]
    assert main(["plan", *command[1:6]]) == 0
    assert "2 need 1 GPU each" in capsys.readouterr().out
    assert main([*command, "--ranks", "3"]) == 2
    assert "--ranks 3: each of 3 ranks needs a GPU of its own, and 2 can be used here" in capsys.readouterr().err
    assert main(command) == 1
    shown = capsys.readouterr()
    assert "10 trials to run, 4 in parallel" in shown.out and "2 need 1 GPU each, as the study says" in shown.out
    taken = [line.split() for line in Path("taken").read_text().splitlines()]
    assert len(taken) == 10 and {gpu for gpu, _ in taken} == {"0", "1"}
    assert all(float(share) <= 1.0 for _, share in taken)
    status = Counter(run.status for run in DirectoryStore(Path("runs")).runs())
    assert status == {"done": 8, "failed": 2}
    (first, *_) = (line for line in shown.err.splitlines() if line.startswith("failed: sharing/greedy"))
    assert "out of memory on the GPU: Tried to allocate 20.00 GiB. GPU 0 has 24 GiB." in first
    settings = ("--per-device", "--ranks 2", "train.batch_size=20", "rank.batch_size=256", "train.precision=bfloat16")
    assert all(setting in first for setting in settings), first


def test_a_page_about_runs_made_on_gpus(project: Path) -> None:
    machine = {**environment.describe.__wrapped__(), "hostname": "node7"}
    assert machine["gpus"] == ["NVIDIA Listed 0", "NVIDIA Listed 1"]
    (study,) = find_studies("seeing")
    for request in expand(study, get_preset("tiny"), 1):
        store_run(Path("runs"), request, 0.5, machine=machine)
    assert main(["report", "seeing", "--preset", "tiny", "--seeds", "1", "--format", "html", "--out", "page"]) == 0
    text = "".join(path.read_text() for path in Path("page").rglob("*.html"))
    assert "NVIDIA Listed 0, NVIDIA Listed 1" in text and "node7" in text
