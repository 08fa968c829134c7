"""Six processes share 150 trials that train, rank, search and retrain, and are killed at random: each trial is done
once, and nothing is lost.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from harness.stores.directory.store import DirectoryStore
from harness.truth.table import Table
from tests.jobs import outcome
from tests.many_trials import finish, make_project, standing, start
from tests.processes import all_gone, descendants

WORKERS, SEEDS, KILLS = 6, 50, 100
TRIALS = 3 * SEEDS

UNDISTURBED = 2
"""Seeds that are run again without kills, and compared."""


def training(folder: Path) -> set[int]:
    """The processes that have begun a run and not ended it."""
    begun = {path.parent: path for path in (folder / "runs").glob("*-*-*/cell.json")}
    return {
        json.loads(trial.read_text())["owner"]["pid"]
        for run, trial in begun.items()
        if not (run / "completion.json").exists()
    }


@pytest.mark.long
@pytest.mark.parametrize("kind", ["directory", "mongodb"])
def test_killed_at_random(kind: str, tmp_path: Path, toy_table: Table, request: pytest.FixtureRequest) -> None:
    folder = make_project(tmp_path / "project", toy_table, stages=True)
    uri = request.getfixturevalue("mongod").replace("/?", "/soak?") if kind == "mongodb" else None
    store = uri or folder / "runs"
    rng = random.Random(4)
    began = time.monotonic()

    def work() -> subprocess.Popen[str]:
        return start(
            folder, "run", "many", "--preset", "tiny", "--seeds", str(SEEDS), "--jobs", "1", "--retry", "all", mongo=uri
        )

    workers = [work() for _ in range(WORKERS)]
    killed = {"run": 0, "trials": 0, "servers": 0}
    slowest = 0.0
    ended: list[str] = []
    while sum(killed.values()) < KILLS:
        time.sleep(rng.uniform(0.05, 0.6))  # a random moment is the point
        for place in range(WORKERS):
            if workers[place].poll() is not None:
                ended.append(finish(workers[place]))
                workers[place] = work()
        # Those that are in the midst of a trial: who only starts up has nothing to lose.
        busy = [
            (place, trial) for place in range(WORKERS) for trial in descendants(workers[place].pid) & training(folder)
        ]
        if not busy:
            continue
        place, trial = rng.choice(sorted(busy))
        if (what := rng.choice(sorted(killed))) == "run":
            children = descendants(workers[place].pid)
            workers[place].kill()
            workers[place].wait()
            since = time.monotonic()
            assert all_gone(children)
            slowest = max(slowest, time.monotonic() - since)
            workers[place] = work()
        else:
            with contextlib.suppress(ProcessLookupError):
                servers = descendants(workers[place].pid) - training(folder)
                os.kill(trial if what == "trials" else min(servers, default=trial), signal.SIGKILL)
        killed[what] += 1
    for worker in workers:
        ended.append(finish(worker))
    ended.append(finish(last_one := work()))
    assert last_one.returncode == 0, ended[-1]
    runs, counts = standing(store)
    done = [run.key for run in runs if run.status == "done"]
    took = time.monotonic() - began
    print(f"\n{kind}: {sum(killed.values())} kills ({killed}), {len(runs)} attempts {dict(counts)}, {took:.0f} s")
    print(f"the processes of a killed worker were gone after at most {slowest:.2f} s")
    assert len({run.key for run in runs}) == TRIALS and sorted(done) == sorted(set(done)) and len(done) == TRIALS
    assert counts["counts"] == TRIALS and not counts["superseded"] and not counts["running"]
    newest = {run.key: run.status for run in runs}
    assert counts["lost"] + counts["failed"] >= KILLS // 5  # kills came in the midst of a trial
    assert set(newest.values()) == {"done"}  # attempts were lost, no trial was
    assert sum(len(run.rankings) == 2 for run in runs if run.counts) == SEEDS  # searches
    seeds = str(UNDISTURBED)
    finish(start(folder, "run", "many", "--preset", "tiny", "--seeds", seeds, "--jobs", "1", "--store", "undisturbed"))
    disturbed = {run.key: run for run in DirectoryStore(folder / "runs").runs() if run.counts}
    for run in DirectoryStore(folder / "undisturbed").runs():
        there = outcome(str(folder / "runs"), disturbed[run.key])
        assert outcome(str(folder / "undisturbed"), run) == there
