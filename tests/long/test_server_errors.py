"""Trials of a second while the database refuses to write, for each of twelve reasons: none waits long, none is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.truth.table import Table
from tests.many_trials import finish, make_project, standing, start
from tests.mongod import FAIL_POINTS, Mongod, refusing

CODES = (2, 13, 39, 50, 64, 91, 112, 133, 262, 8000, 10334, 14031)
"""As the server gives them: wrong value, no permission, no plan, time limit, write concern, shutdown, write conflict,
no server, time exceeded, refused by a service, too large, disk full."""

MIRRORING = ("insert", "update", "delete")
WRITING = (*MIRRORING, "findAndModify")
"""Claims use the last one."""

DELAY = 15.0
"""Seconds that a trial may take longer than without errors."""

RUN = ("run", "many", "--preset", "tiny", "--jobs", "1", "--no-references", "--seeds", str(2 * len(CODES) + 2))


@pytest.fixture
def uri(tmp_path: Path) -> Iterator[str]:
    server = Mongod(tmp_path / "server", *FAIL_POINTS)
    server.start()
    yield server.uri.replace("/?", "/errors?")
    server.kill()


def run_seed(project: Path, uri: str, seed: int, code: int | None = None, midway: bool = False) -> tuple[float, str]:
    """Run one trial, with errors from the start or from its first metric on; returns seconds and output."""
    began = time.monotonic()
    before = set((project / "runs").glob("*/metrics.jsonl"))
    run = start(project, *RUN, "--only", f"schedule.name=calr,seed={seed}", mongo=uri)
    try:
        if code is None:
            said = finish(run)
        elif midway:
            while set((project / "runs").glob("*/metrics.jsonl")) <= before:
                assert run.poll() is None, finish(run)
                time.sleep(0.01)
            with refusing(uri, code, WRITING):
                said = finish(run)
        else:
            with refusing(uri, code, MIRRORING) as refused:
                said = finish(run)
            assert 0 < refused[0] < 100
    finally:
        run.kill()
    assert run.returncode == 0, said
    return time.monotonic() - began, said


@pytest.mark.long
def test_twelve_errors_delay_nothing_and_lose_nothing(tmp_path: Path, toy_table: Table, uri: str) -> None:
    project = make_project(tmp_path / "project", toy_table, milliseconds=50, epochs=10)
    usual = max(run_seed(project, uri, seed)[0] for seed in range(2))
    print(f"\nwithout errors {usual:.1f} s")
    for number, code in enumerate(CODES):
        for midway in (False, True):
            took, said = run_seed(project, uri, 2 + 2 * number + midway, code, midway)
            runs, counts = standing(project / "runs")
            behind = [run for run in runs if run not in standing(uri)[0]]
            when = "from its first metric on" if midway else "from the start"
            print(f"{code} {when}: {took - usual:+.1f} s, {len(behind)} left to copy")
            assert took - usual < DELAY, said
            assert (
                "1 of 1 trials done, 1 of them now" in said and "failed after" not in said and "Traceback" not in said
            ), said
            assert counts == {"counts": 3 + 2 * number + midway} and len(runs) == counts["counts"]
            assert bool(behind) == ("`harness store sync` copies" in said), said
            sync = start(project, "store", "sync", mongo=uri)
            said = finish(sync)
            assert sync.returncode == 0 and standing(uri)[0] == runs, said
    check = start(project, "store", "check", "--fix", mongo=uri)  # claims that could not be released
    assert check.wait() == 0
    check = start(project, "store", "check", mongo=uri)
    assert "no problems" in finish(check) and check.returncode == 0
