"""A study as an array of workers on a pretended SLURM that cuts trials short, preempts and requeues: the same bytes."""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.stores.places import places
from harness.stores.stored import StoredRun
from tests.jobs import outcome
from tests.many_trials import finish, standing, start
from tests.processes import await_that
from tests.slurm import Cluster, cluster

STUDY = ("ablation_calr_ms", "--preset", "tiny", "--seeds", "1")
CHANGES = ("with", "train.epochs=60")
TASKS, PREEMPTIONS = 4, 6


def outcomes(store: Path, runs: list[StoredRun]) -> dict[str, object]:
    """By trial, what must be the same however it ran."""
    return {run.key: outcome(str(store), run) for run in runs if run.counts}


@dataclass(frozen=True)
class Alone:
    """What `run --jobs 2` gives."""

    outcomes: dict[str, object]
    start: float
    """Seconds until its first trial begins: with other work on the machine that may be long."""
    trial: float
    """Seconds of a usual trial."""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Alone:
    folder = tmp_path_factory.mktemp("alone")
    began = time.monotonic()
    process = start(folder, "run", *STUDY, "--jobs", "2", "--no-references", *CHANGES)
    await_that(lambda: any(folder.glob("runs/*-1-*")))
    ready = time.monotonic() - began
    said = finish(process, within=1800)
    assert process.returncode == 0, said
    runs, _ = standing(folder / "runs")
    usual = statistics.median(float((run.cost or {})["wall_seconds"]) for run in runs)
    return Alone(outcomes(folder / "runs", runs), ready, usual)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["directory", "mongodb"])
def test_cut_short_preempted_and_requeued(
    kind: str, alone: Alone, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    expected = alone.outcomes
    uri = request.getfixturevalue("mongod").replace("/?", "/slurm?") if kind == "mongodb" else None
    (folder := tmp_path / "project").mkdir()
    rng = random.Random(2)
    # Time for all tasks to start side by side, for a part of a trial, and to save: many are cut short.
    limit = f"time=0:{int(15 + 4 * alone.start + 0.7 * alone.trial)} signal=B:USR2@12"
    with cluster(tmp_path, grace=30.0) as slurm:
        how = ("--slurm", limit, "--workers", str(TASKS), "--checkpoint-every", "1", "--lease", "20")
        submitted = start(folder, "submit", *STUDY, *how, *CHANGES, mongo=uri, path=slurm.path)
        said = finish(submitted)
        assert submitted.returncode == 0 and f"{TASKS} workers for {len(expected)} trials" in said, said
        preempted = _drive(slurm, folder / "runs", rng)
        logs = "".join(file.read_text() for file in (folder / "runs" / "work" / "slurm").glob("*.log"))
        requeued = len(slurm.calls("scontrol")) - 1
        starts = sum(task.starts for task in slurm.tasks)
        assert "12 of 12 trials done" in logs and any(task.codes[-1] == 0 for task in slurm.tasks), logs
    runs, counts = standing(uri or folder / "runs")
    figures = f"{starts} starts, {preempted} preemptions, {requeued} requeues, {len(runs)} attempts {dict(counts)}"
    print(f"\n{kind}: {alone.trial:.1f} s a trial, {limit}; {figures}")
    assert counts["counts"] == len(expected) and not counts["superseded"] and not counts["running"]
    done = [run.key for run in runs if run.status == "done"]
    assert sorted(done) == sorted(expected) and preempted and requeued  # every trial once
    local = places(folder / "runs").open().runs()
    assert outcomes(folder / "runs", local) == expected
    assert {run.owner["slurm"]["array"] for run in runs} == {"1000"}
    assert not list((folder / "runs" / "work").glob("*.checkpoint"))


def _drive(slurm: Cluster, store: Path, rng: random.Random) -> int:
    """Preempt tasks that train, some so that KILL comes before they have saved; returns how many."""
    preempted, seen = 0, 0

    def step() -> bool:
        nonlocal preempted, seen
        begun = sum(1 for _ in store.glob("*-*-*/cell.json"))
        running = [task for task in slurm.tasks if task.running and task.kill_at is None]
        if begun > seen + 1 and preempted < PREEMPTIONS and running:
            seen = begun
            task = rng.choice(running)
            slurm.preempt(task, 0.0 if preempted % 2 else None)
            preempted += 1
        return slurm.is_idle()

    slurm.run(step, within=3600)
    return preempted
