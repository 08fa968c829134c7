"""How long the live page takes for 10,000 stored runs, on both kinds of stores.

    python -m tests.perf.view [--runs 10000] [--folder DIR]

Prints one Markdown table: seconds of requests after the server has started (in brackets processor time, without that of
the database), and its memory. A plot of 200 runs is
computed from their curves on disk. Making the stores takes minutes and memory: a second call with the same folder
measures what the first one made.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

from starlette.testclient import TestClient

from harness.stores.directory.store import DirectoryStore
from harness.stores.mongo.connection import connect
from harness.stores.mongo.sync import sync
from harness.stores.places import places
from harness.stores.store import Store
from harness.study.catalogue import all_studies
from harness.view.server import application
from harness.view.snapshot import Watcher
from tests.mongod import Mongod
from tests.perf.synthetic import fill

HOST, TOKEN = "127.0.0.1:8080", "token"


Clocks = tuple[float, float]


def clocks() -> Clocks:
    return time.perf_counter(), time.process_time()


def since(began: Clocks) -> Clocks:
    now = clocks()
    return now[0] - began[0], now[1] - began[1]


def measure(store: Store, details: Store, number: int) -> dict[str, Clocks]:
    """Seconds of each request, by the clock and of the processor."""
    began = clocks()
    watcher = Watcher(store, all_studies)
    watcher.refresh()
    found = {"start": since(began)}
    assert len(watcher.now.rows) == number, "the store is of another call, or was not finished"
    client = TestClient(application(watcher, details, TOKEN, frozenset({HOST})), base_url=f"http://{HOST}")
    client.get("/", params={"token": TOKEN})
    runs = "&".join(f"run={one}" for one in list(watcher.now.rows)[:200])
    for name, path in {
        "first page": "/",
        "table of all runs": "/runs",
        "filter": "/data/runs?since=1&where=kendall_tau > 0.2 and method.name == 'spos'",
        "nothing new": f"/data/runs?since={watcher.now.version}",
        "curves of 200 runs": f"/data/curves?metric=train_loss&{runs}",
    }.items():
        began = clocks()
        answer = client.get(path)
        found[name] = since(began)
        assert answer.status_code == 200, answer.text
    began = clocks()
    watcher.refresh()
    return {**found, "reading again": since(began)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, help="keeps the stores; those that it holds are not made again")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.folder or Path(temporary)
        runs, database = folder / "runs", folder / "mongo"
        made = database.exists()
        if not made:
            fill(runs, asked.runs)
        measured = {"directory": measure(DirectoryStore(runs), DirectoryStore(runs), asked.runs)}
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        server = Mongod(database)
        server.start()
        try:
            address = server.uri.replace("/?", "/view?")
            if not made:
                sync(DirectoryStore(runs), connect(address))
            measured["MongoDB"] = measure(places(address).open(), places(address).open(), asked.runs)
        finally:
            server.kill()
    print(f"| seconds, {asked.runs:,} runs | {' | '.join(measured)} |\n|:--|{'--:|' * len(measured)}")
    for name in measured["directory"]:
        print(f"| {name} | {' | '.join('{:.2f} ({:.2f})'.format(*own[name]) for own in measured.values())} |")
    print(f"\nmemory with the directory: {memory:.0f} MB")


if __name__ == "__main__":
    main()
