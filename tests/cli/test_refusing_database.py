"""`run` with a database that answers and refuses: done trials count, are reported as done, and are copied later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from harness.truth.table import Table
from tests.many_trials import finish, make_project, standing, start
from tests.mongod import refusing

ONE = (
    "run",
    "many",
    "--preset",
    "tiny",
    "--jobs",
    "1",
    "--no-references",
    "--seeds",
    "1",
    "--only",
    "schedule.name=calr",
)

DISK_FULL, CANNOT_SATISFY_WRITE_CONCERN = 14031, 64


@pytest.fixture
def project(tmp_path: Path, toy_table: Table) -> Path:
    return make_project(tmp_path / "project", toy_table, milliseconds=1, epochs=1)


@pytest.fixture
def uri(mongod: str, mongo_database: Database[dict[str, Any]]) -> str:
    return mongod.replace("/?", f"/{mongo_database.name}?")


@pytest.mark.parametrize("code", [DISK_FULL, CANNOT_SATISFY_WRITE_CONCERN])
def test_a_done_trial_counts_and_a_line_says_how_to_copy_it(code: int, project: Path, uri: str) -> None:
    with refusing(uri, code) as refused:
        run = start(project, *ONE, mongo=uri)
        try:
            said = finish(run, within=120)
        finally:
            run.kill()
    assert run.returncode == 0 and "1 of 1 trials done, 1 of them now" in said, said
    assert "failed after" not in said and said.count("`harness store sync` copies") == 1, said
    assert 0 < refused[0] < 50
    assert standing(project / "runs")[1] == {"counts": 1} and not standing(uri)[0]
    sync = start(project, "store", "sync", mongo=uri)
    assert "1 of 1 local runs" in finish(sync) and sync.returncode == 0
    assert standing(uri)[0] == standing(project / "runs")[0]


def test_a_very_long_message_is_shortened_and_the_trial_failed_everywhere(project: Path, uri: str) -> None:
    method = project / "methods" / "slow.py"
    method.write_text(method.read_text().replace("time.sleep(0.001)", "raise ValueError('first ' + 'x' * 20_000_000)"))
    run = start(project, *ONE, mongo=uri)
    said = finish(run)
    assert run.returncode == 1 and "0 of 1 trials done, 0 of them now, 1 failed" in said
    assert "ValueError: first x" in said and "characters left out" in said and len(said) < 200_000
    (stored,), _ = standing(project / "runs")
    assert stored.status == "failed" and stored.fail_trace and stored.fail_trace[0].startswith("Traceback")
    assert (project / "runs" / stored.id / "run.json").stat().st_size < 100_000
    assert standing(uri)[0] == [stored]


def test_a_very_long_message_of_an_older_version_is_shortened_when_read(project: Path, uri: str) -> None:
    method = project / "methods" / "slow.py"
    method.write_text(method.read_text().replace("time.sleep(0.001)", "raise ValueError('first')"))
    finish(start(project, *ONE))
    (file,) = (project / "runs").glob("*/run.json")
    document = json.loads(file.read_text())
    file.write_text(json.dumps(document | {"fail_trace": ["Traceback\n", "x" * 20_000_000, "ValueError: the end\n"]}))
    assert start(project, "store", "sync", mongo=uri).wait() == 0
    ((stored,), _), ((mirrored,), _) = standing(project / "runs"), standing(uri)
    assert mirrored == stored and stored.status == "failed" and stored.fail_trace
    assert stored.fail_trace[0] == "Traceback\n" and sum(map(len, stored.fail_trace)) < 100_000
    assert "ValueError: the end" in finish(start(project, "show", stored.id, mongo=uri))
