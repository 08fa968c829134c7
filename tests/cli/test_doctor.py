"""`harness doctor` as a user meets it, with real problems around it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from harness.cli import main
from harness.components.preset import get_preset
from harness.environment import PROJECT
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from tests.data.formats import SMALL_CIFAR10, write_cifar
from tests.mongod import free_port
from tests.stored_runs import store_run


def doctor(folder: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """Exit status and output of the command in that folder."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("HARNESS_")}
    path = os.pathsep.join([*filter(None, [environment.get("PYTHONPATH")]), str(PROJECT)])
    done = subprocess.run(
        [sys.executable, "-m", "harness", "doctor", "--wait", "600"],
        cwd=folder,
        env={**own, **environment, "PYTHONPATH": path},
        capture_output=True,
    )
    said = (done.stdout + done.stderr).decode("ascii" if "PYTHONIOENCODING" in environment else "utf-8")
    assert "Traceback" not in said and "could not be checked" not in said, said
    return done.returncode, said


def lines(said: str, state: str) -> list[str]:
    """The lines of that state, each with what to do behind it."""
    joined = re.sub(r"\n +what to do: ", " >> ", said)
    return [line for line in joined.splitlines() if line.startswith(f"{state} ")]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: test_gpu.py tries it")
def test_without_a_gpu_its_check_says_so_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "--gpu"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("there is no GPU here that torch can use") and not list(tmp_path.iterdir())


def test_a_sound_place_has_no_problem_and_says_so(tmp_path: Path) -> None:
    status, said = doctor(tmp_path, {})
    assert (status, lines(said, "problem")) == (0, []), said
    assert said.splitlines()[-1].startswith("no problems")
    subjects = {line.split()[1] for line in said.splitlines() if re.match("ok|note", line)}
    checks = "python packages torch output cores temporary components studies data tables store disk database gpus"
    assert subjects >= set(checks.split()), said
    assert not list(tmp_path.iterdir())  # nothing is left behind


def test_ten_seeded_problems_are_found_each_with_what_to_do(tmp_path: Path) -> None:
    here, store = tmp_path / "here", tmp_path / "here" / "runs"
    here.mkdir()
    damaged, newer, lost, whole = expand(find_studies("ablation_calr_ms")[0], get_preset("tiny"), 1)[:4]
    result = store / store_run(store, damaged, 0.5).id / "result.json"
    result.write_bytes(result.read_bytes()[:-9])
    trial = store / store_run(store, newer, 0.5).id / "cell.json"
    trial.write_text(json.dumps(json.loads(trial.read_text()) | {"schema": 99}))
    left = store_run(store, lost, status="lost").id
    store_run(store, whole, 0.5)
    (here / "studies").mkdir()
    (here / "studies" / "mine.py").write_text("from harness.study import Colum\n")
    write_cifar(tmp_path / "data", SMALL_CIFAR10)
    (tmp_path / "data" / SMALL_CIFAR10.folder / SMALL_CIFAR10.train[1]).unlink()
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "nasbench201.npz").write_bytes(b"PK not a table")
    for package, more in (("pandas-1.0.0", ""), ("plugin-1.0", "[harness.components]\nplugin = plugged\n")):
        place = tmp_path / "site" / f"{package}.dist-info"
        place.mkdir(parents=True)
        name, _, version = package.partition("-")
        (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (place / "entry_points.txt").write_text(more)
    (here / "plugged.py").write_text("")
    port = free_port()
    environment = {
        "PYTHONPATH": str(tmp_path / "site"),
        "PYTHONIOENCODING": "ascii",
        "OMP_NUM_THREADS": "many",
        "TMPDIR": str(tmp_path / "no-folder"),
        "HARNESS_DATA": str(tmp_path / "data"),
        "HARNESS_DATA_FOLDER": str(tmp_path / "no-images"),
        "HARNESS_BENCHMARKS": str(tmp_path / "tables"),
        "HARNESS_MONGO": f"mongodb://lab:s3cret@127.0.0.1:{port}/nas",
    }
    status, said = doctor(here, environment)
    problems = lines(said, "problem")
    assert status == 1 and said.splitlines()[-1].startswith(f"{len(problems)} problems")
    for expected in (
        "packages    pandas is 1.0.0; >=2.2 is needed >> pip install 'pandas>=2.2'",
        r"output      the output is ascii.* >> export PYTHONUTF8=1",
        "cores       OMP_NUM_THREADS is 'many'.* >> unset OMP_NUM_THREADS",
        r"temporary   no file can be written in \S*no-folder, which TMPDIR names: No such file.* >> make the folder",
        r"modules     \S*plugged.py hides the module 'plugged' .* >> rename it",
        r"components  \S*plugged.py registers nothing.* >> correct \S*plugged.py",
        r"studies     \S*mine.py:1 does not import: ImportError: .*Colum.* >> correct \S*mine.py",
        r"data sets   HARNESS_DATA_FOLDER names \S*no-images, which is not a folder >> correct",
        r"data sets   cifar10: \S*data_batch_2: missing.* >> .*`harness data check cifar10`",
        r"tables      nasbench201: \S*nasbench201.npz: not a readable .* >> .*harness benchmark import",
        rf"runs        1 entry cannot be used: \S*{result.parent.name}.* >> `harness store check`",
        r"runs        1 run is of a newer version: \S*cell.json has schema 99.* >> pip install --upgrade",
        rf"runs        1 run left unfinished by a process that died, for example {left} >> `harness show {left}`",
        rf"database    mongodb://lab@127.0.0.1:{port}/nas does not answer.* >> start the server",
    ):
        assert [line for line in problems if re.match(f"problem  {expected}", line)], f"{expected}\n\n{said}"
    assert len(problems) == 14 + said.count("cifar10-16: ") and "s3cret" not in said
