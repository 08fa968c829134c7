"""Four workers share 200 trials by one MongoDB while one is killed every few seconds: each trial is done once."""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path

import pytest

from harness.truth.table import Table
from tests.many_trials import finish, make_project, standing, start

WORKERS, TRIALS = 4, 200


def has_begun(worker: subprocess.Popen[str]) -> bool:
    said: Path = worker.said  # type: ignore[attr-defined]
    return ": started" in said.read_text()


@pytest.mark.long
def test_workers_that_are_killed_lose_no_trial_and_repeat_none(tmp_path: Path, toy_table: Table, mongod: str) -> None:
    uri = mongod.replace("/?", "/workers?")
    # Machines of their own: each has the files, and a directory that the others do not see.
    folders = [make_project(tmp_path / f"machine{n}", toy_table, milliseconds=20, epochs=3) for n in range(WORKERS)]
    rng = random.Random(3)
    began = time.monotonic()

    def work(place: int) -> subprocess.Popen[str]:
        words = ("worker", "many", "--preset", "tiny", "--seeds", str(TRIALS // 2), "--jobs", "1", "--lease", "20")
        return start(folders[place], *words, "--retry", "lost", mongo=uri)

    workers = [work(place) for place in range(WORKERS)]
    killed = done_before = 0
    while any(worker.poll() is None for worker in workers):
        time.sleep(rng.uniform(2.0, 6.0))  # a random moment is the point
        # Those that have begun a trial: who only starts up has nothing to lose. Between kills some trials are done.
        busy = [place for place in range(WORKERS) if workers[place].poll() is None and has_begun(workers[place])]
        done_now = standing(uri)[1]["counts"]
        if busy and done_before + 5 <= done_now < TRIALS - 5:
            workers[place := rng.choice(busy)].kill()
            workers[place].wait()
            killed, done_before = killed + 1, done_now
            workers[place] = work(place)
    said = [finish(worker) for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * WORKERS, said
    assert all(f"{TRIALS} of {TRIALS} trials done" in one for one in said), said
    runs, counts = standing(uri)
    print(f"\n{killed} kills, {len(runs)} attempts {dict(counts)}, {time.monotonic() - began:.0f} s")
    done = [run.key for run in runs if run.status == "done"]
    assert len(done) == len(set(done)) == TRIALS == counts["counts"] and killed >= 5
    assert not counts["superseded"] and not counts["failed"]
    owners = {run.key: Path(folder.name) for folder in folders for run in standing(folder / "runs")[0] if run.counts}
    assert len(owners) == TRIALS and len(set(owners.values())) == WORKERS  # each worked
