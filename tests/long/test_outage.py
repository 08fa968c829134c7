"""A study while its database comes and goes: running trials finish, nothing is lost, nothing stands there twice."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest

from harness.truth.table import Table
from tests.many_trials import finish, make_project, standing, start
from tests.mongod import Mongod

RUN = ("run", "many", "--preset", "tiny", "--seeds", "10", "--jobs", "2", "--lease", "5")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Mongod]:
    one = Mongod(tmp_path / "server")
    one.start()
    yield one
    one.kill()


def documents(uri: str) -> dict[str, int]:
    """How many documents each collection of the database has."""
    client: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(uri)
    database = client["outage"]
    counts = {name: database[name].count_documents({}) for name in sorted(database.list_collection_names())}
    client.close()
    return counts


def await_runs(store: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Wait until so many runs are begun."""
    while sum("-" in path.name for path in store.glob("????????????????-*")) < count:
        assert process.poll() is None, finish(process)
        time.sleep(0.05)


@pytest.mark.long
def test_the_server_is_killed_three_times_and_then_for_good(tmp_path: Path, toy_table: Table, server: Mongod) -> None:
    folder = make_project(tmp_path / "project", toy_table, milliseconds=150, epochs=8)
    uri = server.uri.replace("/?", "/outage?")
    store = folder / "runs"
    study = start(folder, *RUN, "--outage-wait", "60", "--only", "seed=0,1,2,3,4,5", mongo=uri)
    for outage in range(3):
        await_runs(store, 2 + 3 * outage, study)
        server.kill()
        time.sleep(2 + 2 * outage)  # longer than some trials take, shorter than others
        server.start()
    said = finish(study)
    assert study.returncode == 0 and "12 of 12 trials done" in said, said
    print("\n" + "\n".join(line for line in said.splitlines() if "answer" in line))

    rest = start(folder, *RUN, "--outage-wait", "6", mongo=uri)
    await_runs(store, 14, rest)
    server.kill()
    killed = time.monotonic()
    said = finish(rest)
    took = time.monotonic() - killed
    print(f"ended {took:.1f} s after the server; " + said.strip().splitlines()[-1])
    _, counts = standing(store)
    assert rest.returncode == 1 and "waiting" in said and "--offline" in said, said
    assert counts["counts"] == 14 and counts.total() == 14  # what ran has finished, and nothing was begun
    assert took < 6 + 30  # its wait, the trials under way, and some

    alone = start(folder, *RUN, "--offline", mongo=uri)
    assert "20 of 20 trials done" in finish(alone) and alone.returncode == 0

    server.start()
    first = start(folder, "store", "sync", mongo=uri)
    said = finish(first)
    assert first.returncode == 0, said
    after = documents(server.uri)
    print(f"{said.strip().splitlines()[-1]}; {after}")
    local, _ = standing(store)
    mirrored, counts = standing(uri)
    assert local == mirrored and counts["counts"] == 20
    assert after["runs"] == len(local)
    for _ in range(2):
        assert start(folder, "store", "sync", mongo=uri).wait() == 0
    both = [start(folder, "store", "sync", mongo=uri) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert start(folder, "store", "sync", mongo=uri).wait() == 0
    assert documents(server.uri) == after
    # All that is left of the outages are claims that could not be released.
    print(finish(start(folder, "store", "check", "--fix", mongo=uri)))
    check = start(folder, "store", "check", mongo=uri)
    assert "no problems" in finish(check) and check.returncode == 0
