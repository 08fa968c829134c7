"""`harness mongo` as a user meets it: real processes, a real server, a real Ctrl-C."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pymongo import MongoClient

from harness.components import discovery
from harness.stores.server import mongod
from harness.stores.server.ports import free_port
from tests.processes import all_gone

REPOSITORY = Path(discovery.__file__).resolve().parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A working directory; the server that was started in it is stopped in the end."""
    yield tmp_path
    mongod.stop(tmp_path / "mongo")


def harness(folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """The command as a shell starts it: in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "harness", "mongo", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell's background jobs ignore Ctrl-C, and so would all that is started below them.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_start_status_stop(folder: Path) -> None:
    """Two people in a hurry get one server; it outlives both terminals."""
    port = free_port()
    starts = [harness(folder, "start", "--port", str(port)) for _ in range(2)]
    said = [start.communicate() for start in starts]
    assert [start.returncode for start in starts] == [0, 0], said
    assert [out for out, _ in said] == [f"export HARNESS_MONGO=mongodb://127.0.0.1:{port}/nas\n"] * 2
    assert sorted("already runs" in error for _, error in said) == [False, True]
    for start in starts:
        with pytest.raises(ProcessLookupError):
            os.killpg(start.pid, signal.SIGHUP)

    server = mongod.read(folder / "mongo")
    assert server is not None and server.pid is not None and server.running
    with MongoClient[dict[str, int]](server.uri) as client:
        client["nas"]["runs"].insert_many({"_id": number} for number in range(1, 4))
        client["nas"].command("create", "some", viewOn="runs", pipeline=[])

    status = harness(folder, "status", HARNESS_MONGO_DATA=str(folder / "mongo"))
    out, error = status.communicate()
    assert status.returncode == 0, error
    shown = dict(line.split(maxsplit=1) for line in out.splitlines() if line)
    assert (shown["port"], shown["address"]) == (str(port), server.uri)
    assert shown["running"] == f"process {server.pid}" and shown["runs"] == "3 in nas"
    assert re.fullmatch(r"\d+\.\d+\.\d+", shown["version"])
    assert re.fullmatch(r"3 +0\.00 MB +0\.0\d MB", shown["nas.runs"])

    for expected in (f"mongod stopped, process {server.pid}\n", f"no server runs on {folder / 'mongo'}\n"):
        stop = harness(folder, "stop")
        assert stop.communicate() == (expected, "") and stop.returncode == 0
    assert all_gone([server.pid])
    status = harness(folder, "status")
    assert "no server runs" in status.communicate()[0] and status.returncode == 1


@pytest.mark.long
def test_status_of_a_server_that_does_not_answer(folder: Path) -> None:
    server, _ = mongod.start(folder / "mongo", free_port())
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    try:
        status = harness(folder, "status")
        out, error = status.communicate()
        assert "the server does not answer" in out and status.returncode == 1, error
    finally:
        os.kill(server.pid, signal.SIGCONT)


def test_ctrl_c_while_it_starts_leaves_nothing(folder: Path) -> None:
    """The program stands for a server that is long at its repairs."""
    program = folder / "bin" / "mongod"
    program.parent.mkdir()
    os.mkfifo(folder / "told")
    program.write_text(f"#!/bin/sh\necho $$ > {folder}/told\nexec sleep 600\n")
    program.chmod(0o755)
    told = os.open(folder / "told", os.O_RDWR)
    start = harness(folder, "start", PATH=f"{program.parent}:/usr/bin:/bin")
    assert select.select([told], [], [], 30)[0], start.communicate()
    pid = int(os.read(told, 100))
    os.close(told)
    os.kill(start.pid, signal.SIGINT)
    out, error = start.communicate()
    assert (start.returncode, out, error.strip()) == (130, "", "interrupted")
    assert all_gone([pid])
    assert mongod.read(folder / "mongo") is None


def test_what_cannot_be_is_refused_in_a_line(folder: Path) -> None:
    (folder / "mongo").mkdir()
    (folder / "mongo" / "notes.txt").write_text("mine")
    start = harness(folder, "start")
    out, error = start.communicate()
    assert start.returncode == 2 and out == ""
    assert (
        error == f"error: {folder / 'mongo'} holds other files and no database: give the server a folder of its own\n"
    )
