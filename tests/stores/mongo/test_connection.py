"""Connections to a database: what the driver's own threads meet is not shown to the user."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
SCRIPT = """
import sys, threading
from types import SimpleNamespace
from pymongo.topology_shared import _is_stale_server_description
from harness.stores.mongo.connection import connect

connect(sys.argv[1])
before, damaged = (SimpleNamespace(topology_version=version) for version in ({"processId": 1, "counter": 1}, {}))

def believe():  # as the thread does that watches a server
    _is_stale_server_description(before, damaged)

def own():
    raise ValueError("a fault of ours")

for target in (believe, own):
    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
"""


def test_a_reply_that_ends_a_thread_of_the_driver_shows_no_traceback(mongod: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", SCRIPT, mongod], capture_output=True, text=True, env=environment)
    assert done.returncode == 0
    assert "processId" not in done.stderr
    assert done.stderr.count("Traceback") == 1 and "ValueError: a fault of ours" in done.stderr
