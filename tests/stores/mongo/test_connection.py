"""Connections to a database: what the driver's own threads meet is not shown to the user."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pymongo.errors import InvalidOperation
from pymongo.uri_parser import parse_uri

from harness.errors import Unreachable
from harness.stores.mongo.connection import connect, disconnect
from tests.long.campaign.servers import changing, listening

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


class Wire:
    """A way to the server, on which all replies but the greetings can be damaged: they begin with an unknown type."""

    def __init__(self, server: int) -> None:
        self.damages = False
        self.way = listening(changing(server, self.change))

    def change(self, reply: bytes) -> bytes:
        greeting = b"maxWireVersion" in reply
        return reply if greeting or not self.damages else reply[:25] + b"0" + reply[26:]


def test_a_connection_that_talks_nonsense_is_closed(mongod: str) -> None:
    wire = Wire(parse_uri(mongod)["nodelist"][0][1])
    with wire.way as port:
        address = f"mongodb://127.0.0.1:{port}/nas?directConnection=true"
        client = connect(address).client
        wire.damages = True
        disconnect(client)
        with pytest.raises(InvalidOperation, match="after close"):
            client.admin.command("ping")
        with pytest.raises(Unreachable, match="does not answer as a database does: Detected unknown BSON type"):
            connect(address)
