"""Trials of a second while the database refuses to write, for each of twelve reasons: none waits long, none is lost."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.truth.table import Table
from tests.many_trials import finish, make_project, standing, start
from tests.mongod import FAIL_POINTS, Mongod, refusing
from tests.processes import await_that

CODES = (2, 13, 39, 50, 64, 91, 112, 133, 262, 8000, 10334, 14031)
"""As the server gives them: wrong value, no permission, no plan, time limit, write concern, shutdown, write conflict,
no server, time exceeded, refused by a service, too large, disk full."""

MIRRORING = ("insert", "update", "delete")
WRITING = (*MIRRORING, "findAndModify")
"""Claims use the last one."""

DELAY = 15.0
"""Seconds that errors may add between a trial's result and the end of its `run`, where the machine is idle. A machine
that is busy may take as much longer again as it takes for the same without errors."""

EVERY = 4
"""After so many codes a further trial is run without errors, to compare with the same load of the machine."""

RUN = ("run", "many", "--preset", "tiny", "--jobs", "1", "--no-references", "--seeds", "40")


@pytest.fixture
def uri(tmp_path: Path) -> Iterator[str]:
    server = Mongod(tmp_path / "server", *FAIL_POINTS)
    server.start()
    yield server.uri.replace("/?", "/errors?")
    server.kill()


@dataclass(frozen=True)
class Ended:
    """A `run` of one trial."""

    before: float
    """Seconds until the trial had its result: they depend on the machine's load, and on errors hardly at all."""
    after: float
    """Seconds from then on: copying it, retries and pauses, and the end of the command."""
    said: str


def run_seed(project: Path, uri: str, seed: int, code: int | None = None, midway: bool = False) -> Ended:
    """Run one trial, with errors from the start or from its first metric on."""
    began = time.time()
    before = set((project / "runs").glob("*-*"))
    run = start(project, *RUN, "--only", f"schedule.name=calr,seed={seed}", mongo=uri)
    try:
        if code is None:
            said = finish(run)
        elif midway:
            await_that(lambda: set((project / "runs").glob("*/metrics.jsonl")) or run.poll() is not None)
            with refusing(uri, code, WRITING):
                said = finish(run)
        else:
            with refusing(uri, code, MIRRORING) as refused:
                said = finish(run)
            assert 0 < refused[0] < 100
    finally:
        run.kill()
    ended = time.time()
    assert run.returncode == 0, said
    (made,) = set((project / "runs").glob("*-*")) - before
    computed = (made / "result.json").stat().st_mtime
    return Ended(computed - began, ended - computed, said)


@pytest.mark.long
def test_twelve_errors_delay_nothing_and_lose_nothing(tmp_path: Path, toy_table: Table, uri: str) -> None:
    project = make_project(tmp_path / "project", toy_table, milliseconds=50, epochs=10)
    seeds = itertools.count()
    usual: list[Ended] = []
    delays = []
    for number, (code, midway) in enumerate(itertools.product(CODES, (False, True))):
        if number % (2 * EVERY) == 0:
            usual.append(run_seed(project, uri, next(seeds)))
            print(f"\nwithout errors: {usual[-1].before:.1f} s and {usual[-1].after:.1f} s")
        trial = run_seed(project, uri, next(seeds), code, midway)
        delays.append(trial.after - max(one.after for one in usual))
        runs, counts = standing(project / "runs")
        behind = [run for run in runs if run not in standing(uri)[0]]
        when = "from its first metric on" if midway else "from the start"
        print(f"{code} {when}: {trial.before:.1f} s, and then {delays[-1]:+.1f} s, {len(behind)} left to copy")
        said = trial.said
        assert trial.after < DELAY + 2 * max(one.after for one in usual), said
        assert trial.before < DELAY + 2 * max(one.before for one in usual), said
        assert "1 of 1 trials done, 1 of them now" in said and "failed after" not in said and "Traceback" not in said, (
            said
        )
        assert counts == {"counts": number + 1 + len(usual)} and len(runs) == counts["counts"]
        assert bool(behind) == ("`harness store sync` copies" in said), said
        if behind:
            sync = start(project, "store", "sync", mongo=uri)
            said = finish(sync)
            assert sync.returncode == 0 and standing(uri)[0] == runs, said
    print(f"longest delay {max(delays):.1f} s")
    check = start(project, "store", "check", "--fix", mongo=uri)  # claims that could not be released
    assert check.wait() == 0
    check = start(project, "store", "check", mongo=uri)
    assert "no problems" in finish(check) and check.returncode == 0
