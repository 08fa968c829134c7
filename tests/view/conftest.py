"""A store of a small study, and a client of the server that shows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from harness.components.preset import get_preset
from harness.stores.directory.store import DirectoryStore
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from harness.study.study import Request
from harness.truth.table import Table
from harness.view.server import application
from harness.view.snapshot import Watcher
from tests.conftest import TOY
from tests.stored_runs import store_run
from tests.toy import user_folder

TOKEN, HOST = "the-token", "127.0.0.1:8080"
NASTY = "<script>alert(1)</script>"

STUDY = f"""
from harness.study import Column, Row, Study

toy = {{"space": "toy", "dataset": "toy", "benchmark": "toy", "train.epochs": 2, "train.batch_size": 20,
       "network.width": 2, "rank.images": 50, "rank.bins": 3}}
rows = [Row({{"Schedule": name, "Note": "{NASTY}"}}, toy | {{"schedule.name": name}}) for name in ("cosine", "calr")]
study = Study("mine", "Mine {NASTY}", rows, [Column("τ {NASTY}", "kendall_tau")])
"""


@pytest.fixture
def folder(tmp_path: Path, toy_table: Table) -> Iterator[Path]:
    toy_table.write(tmp_path / "toy.npz")
    with user_folder(tmp_path, {"spaces/toy.py": TOY, "studies/mine.py": STUDY}):
        yield tmp_path


@pytest.fixture
def requests(folder: Path) -> list[Request]:
    """Two rows, three seeds."""
    return expand(find_studies("mine")[0], get_preset("tiny"), 3)


@pytest.fixture
def stored(requests: list[Request]) -> list[str]:
    """Done runs of the first two seeds of both rows, by id."""
    known = {0: 0.5, 1: 0.7}
    found = []
    for one in requests:
        if one.seed in known:
            tau = known[one.seed] + one.row / 10
            run = store_run(Path("runs"), one, tau, curve={1: tau / 2, 2: tau}, predictions={3: 40.0, 4: 50.0})
            found.append(run.id)
    return found


@pytest.fixture
def watcher(stored: list[str]) -> Watcher:
    made = Watcher(DirectoryStore(Path("runs")), lambda: find_studies("mine"))
    made.refresh()
    return made


@pytest.fixture
def anybody(watcher: Watcher) -> TestClient:
    """A client without the token."""
    made = application(watcher, DirectoryStore(Path("runs")), TOKEN, frozenset({HOST, "localhost:8080"}))
    return TestClient(made, base_url=f"http://{HOST}", follow_redirects=False)


@pytest.fixture
def client(anybody: TestClient) -> TestClient:
    """A client that has opened the printed address."""
    assert anybody.get("/", params={"token": TOKEN}).status_code == 303
    return anybody
