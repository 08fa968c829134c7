"""Trials on a real Ray of one node: files of a user's own travel, and one failed trial cancels no other."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.stores.directory.store import DirectoryStore
from harness.stores.stored import Status
from tests.ray_cluster import RayCluster
from tests.toy import SINGLE_PATH

ROOT = Path(__file__).parents[3]
STUDY = """from harness.study import Column, Row, Study

study = Study(
    name="mine",
    title="Own methods",
    rows=[Row({"Method": name}, {"method.name": name}) for name in ("own", "broken", "spos")],
    columns=[Column("τ", "kendall_tau")],
)
"""
BROKEN = SINGLE_PATH.replace("return [training", "raise RuntimeError('it breaks')\n        return [training")


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with RayCluster(nodes=1, cpus=2) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {
        "studies/mine.py": STUDY,
        "methods/own.py": SINGLE_PATH.format(name="own", type="Own"),
        "methods/broken.py": BROKEN.format(name="broken", type="Broken"),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.long
def test_own_components_travel_and_a_failed_trial_cancels_no_other(cluster: RayCluster, folder: Path) -> None:
    command = [sys.executable, "-m", "harness", "run", "mine", "--preset", "tiny", "--seeds", "1", "--no-references"]
    ray = ["--executor", "ray", "--ray-address", cluster.address, "--device", "cpu"]
    few = ["with", "train.epochs=1", "rank.candidates=1"]
    environment = {**cluster.environment, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*command, *ray, *few], cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "3 trials to run, 2 in parallel, stored in runs"
    assert lines[-1] == "2 of 3 trials done, 2 of them now, 1 failed"
    # Two workers may begin with the same trial; the one that does not get its claim looks elsewhere.
    assert len({line for line in lines if line.endswith(": started")}) == 3
    assert "failed: mine/broken seed 0: RuntimeError: it breaks" in done.stderr
    runs = DirectoryStore(folder / "runs").runs()
    assert sorted(run.status for run in runs) == [Status.DONE, Status.DONE, Status.FAILED]
    again = subprocess.run([*command, *ray, *few], cwd=folder, capture_output=True, text=True, env=environment)
    assert "trials that failed before are run again with --retry failed" in again.stderr
