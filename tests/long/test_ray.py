"""The ablation on a Ray cluster of two nodes: the same bytes as on one machine; a node and the driver may die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.owner import lives_here
from harness.stores.claims import Claims
from harness.stores.directory.records import DirectoryRecords
from harness.stores.directory.store import DirectoryStore
from harness.stores.stored import Status
from tests.ray_cluster import RayCluster

ROOT = Path(__file__).parents[2]
FILES = ("weights.pt", "predictions.json", "curves.json")
LONG = 1800.0
"""Seconds that a busy machine may take."""

TRIALS = 24


@pytest.fixture
def cluster() -> Iterator[RayCluster]:
    with RayCluster(nodes=2) as running:
        yield running


def command(store: Path, *more: str) -> list[str]:
    asked = [sys.executable, "-m", "harness", "run", "ablation_calr_ms", "--preset", "tiny", "--store", str(store)]
    return [*asked, "--no-references", "--device", "cpu", *more]


def on_ray(store: Path, cluster: RayCluster, *more: str) -> list[str]:
    return command(store, "--executor", "ray", "--ray-address", cluster.address, "--checkpoint-every", "0.2", *more)


def start(arguments: list[str], cluster: RayCluster, folder: Path) -> subprocess.Popen[str]:
    environment = {**cluster.environment, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        arguments, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def ended(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=LONG)
    assert process.returncode == 0, output
    return output


def until(happens: Callable[[], object]) -> None:
    limit = time.monotonic() + LONG
    while not happens():
        assert time.monotonic() < limit
        time.sleep(0.1)


def finished(store: Path) -> dict[str, str]:
    """The done runs by trial."""
    return {run.key: run.id for run in DirectoryStore(store).runs() if run.status is Status.DONE}


def once_each(store: Path, trials: int) -> bool:
    done = Counter(run.key for run in DirectoryStore(store).runs() if run.status is Status.DONE)
    return len(done) == trials and set(done.values()) == {1}


def contents(store: Path) -> dict[str, list[object]]:
    """By trial, the result and the bytes of what else is deterministic."""
    found: dict[str, list[object]] = {}
    for run in DirectoryStore(store).runs():
        files = [store / run.id / name for name in FILES]
        found[run.key] = [run.result, run.rankings, *(file.read_bytes() for file in files if file.exists())]
    return found


@pytest.mark.long
def test_the_ablation_on_two_nodes_has_the_bytes_of_two_local_jobs(cluster: RayCluster, tmp_path: Path) -> None:
    local = start(command(tmp_path / "local", "--jobs", "2"), cluster, tmp_path)
    assert f"{TRIALS} of {TRIALS} trials done" in ended(local)
    remote = start(on_ray(tmp_path / "remote", cluster), cluster, tmp_path)
    assert f"{TRIALS} of {TRIALS} trials done, {TRIALS} of them now" in ended(remote)
    assert once_each(tmp_path / "remote", TRIALS)
    assert contents(tmp_path / "remote") == contents(tmp_path / "local")


@pytest.mark.long
def test_a_node_that_dies_loses_nothing_and_repeats_no_finished_trial(cluster: RayCluster, tmp_path: Path) -> None:
    store = tmp_path / "runs"
    process = start(on_ray(store, cluster), cluster, tmp_path)
    until(lambda: len(finished(store)) >= 6)
    before = finished(store)
    cluster.kill_node()
    output = ended(process)
    assert f"{TRIALS} of {TRIALS} trials done" in output and "a worker was lost" in output
    assert once_each(store, TRIALS) and before.items() <= finished(store).items()


@pytest.mark.long
def test_a_driver_that_dies_is_started_again_and_every_trial_is_done_once(cluster: RayCluster, tmp_path: Path) -> None:
    store = tmp_path / "runs"
    process = start(on_ray(store, cluster), cluster, tmp_path)
    until(lambda: len(finished(store)) >= 6)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    # Its tasks die with it, and so do the trials that they ran.
    claims = Claims(DirectoryRecords(store))
    held = [record.owner for record in claims.records() if record.held and record.owner]
    until(lambda: not any(lives_here(owner) for owner in held))
    before = finished(store)
    assert len(before) < TRIALS
    output = ended(start(on_ray(store, cluster), cluster, tmp_path))
    assert f"{TRIALS} of {TRIALS} trials done, {TRIALS - len(before)} of them now" in output
    assert once_each(store, TRIALS) and before.items() <= finished(store).items()
