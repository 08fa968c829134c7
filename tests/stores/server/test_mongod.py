"""A private server: started once, found again, stopped cleanly, and clear words when it cannot start."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pymongo import WriteConcern

from harness.errors import HarnessError, UserError
from harness.owner import start_ticks
from harness.stores.server import mongod
from harness.stores.server.log import first_errors
from harness.stores.server.ports import free_port
from tests.processes import all_gone

REPOSITORY = Path(mongod.__file__).parents[3]


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A folder for a server, which is stopped in the end."""
    folder = tmp_path / "mongo"
    yield folder
    mongod.stop(folder)


@pytest.fixture
def port() -> int:
    return free_port()


def test_a_server_is_started_once_and_stopped_cleanly(data: Path, port: int) -> None:
    server, fresh = mongod.start(data, port)
    assert fresh and server.running and server.pid is not None
    assert server.uri == f"mongodb://127.0.0.1:{port}/nas"
    assert os.getsid(server.pid) == server.pid, "it must not end with the terminal"
    assert mongod.start(data) == (server, False)
    with server.client() as client:
        assert client.admin.command("getCmdLineOpts")["parsed"]["net"]["bindIp"] == "127.0.0.1"

    with pytest.raises(UserError, match=f"already running on .*, at port {port}"):
        mongod.start(data, port + 1 if port < 65535 else 1025)

    assert mongod.stop(data) == server
    assert all_gone([server.pid])
    assert '"Shutting down"' in server.log.read_text(), "a clean end"
    assert mongod.stop(data) is None


def test_a_killed_server_is_noticed_and_comes_back_with_its_data_at_its_port(data: Path, port: int) -> None:
    server, _ = mongod.start(data, port)
    with server.client() as client:
        client["nas"].get_collection("kept", write_concern=WriteConcern(j=True)).insert_one({"_id": 1})
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    assert all_gone([server.pid])

    found = mongod.read(data)
    assert found is not None and not found.running
    again, fresh = mongod.start(data)
    assert fresh and again.port == port and again.pid != server.pid
    with again.client() as client:
        assert client["nas"]["kept"].count_documents({}) == 1


def test_a_server_that_lost_its_record_is_not_disturbed(data: Path, port: int) -> None:
    server, _ = mongod.start(data, port)
    record = data / mongod.RECORD
    record.rename(record.with_suffix(".away"))
    with pytest.raises(HarnessError, match="Another mongod instance is already running"):
        mongod.start(data)
    assert server.running
    record.with_suffix(".away").rename(record)


def test_only_the_recorded_process_is_stopped(data: Path) -> None:
    """The recorded number may belong to another process by now."""
    with subprocess.Popen(["sleep", "60"]) as other:
        ticks = start_ticks(other.pid)
        assert ticks is not None
        data.mkdir()
        _write_record(data, pid=other.pid, started=ticks - 1, host=os.uname().nodename)
        assert mongod.stop(data) is None
        assert other.poll() is None
        other.kill()


def test_a_server_of_another_machine_is_left_to_it(data: Path) -> None:
    data.mkdir()
    _write_record(data, pid=1, started=-1, host="elsewhere")
    for act in (mongod.start, mongod.stop):
        with pytest.raises(UserError, match="elsewhere serves .*: stop it there"):
            act(data)
    (data / mongod.RECORD).unlink()


def test_a_damaged_record_is_said(data: Path) -> None:
    data.mkdir()
    (data / mongod.RECORD).write_text('{"port": 1')
    with pytest.raises(UserError, match=r"server\.json is damaged"):
        mongod.start(data)
    (data / mongod.RECORD).unlink()


def test_a_taken_port_is_refused_when_asked_for_and_avoided_otherwise(data: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(UserError, match=f"port {port} is taken by another process: choose another with --port"):
            mongod.start(data, port)
        _write_record(data, pid=None, started=None, host="any", port=port)
        with pytest.raises(UserError, match=f"port {port} is taken"):
            mongod.start(data)
        (data / mongod.RECORD).unlink()

    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            holder.bind(("127.0.0.1", mongod.PORT))
            holder.listen()
        except OSError:
            pass  # somebody else holds it, which is as good
        server, _ = mongod.start(data)
    assert server.port != mongod.PORT


def test_damaged_data_are_named_and_nothing_is_left_running(data: Path, port: int) -> None:
    data.mkdir()
    _write_record(data, pid=None, started=None, host="any", port=port)
    (data / "storage.bson").write_bytes(b"\0" * 100)
    with pytest.raises(HarnessError) as caught:
        mongod.start(data)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("mongod ended during startup: ") and "storage engine metadata file" in lines[0]
    assert len(lines) <= 3 and lines[-1] == f"  see {data / mongod.LOG}"
    found = mongod.read(data)
    assert found is not None and (found.pid, found.port) == (None, port)


def test_a_folder_of_other_things_is_refused(data: Path) -> None:
    data.mkdir()
    (data / "thesis.tex").write_text("…")
    with pytest.raises(UserError, match="holds other files"):
        mongod.start(data)
    assert [file.name for file in data.iterdir()] == ["thesis.tex"]
    with pytest.raises(UserError, match="cannot be a data folder"):
        mongod.start(data / "thesis.tex")


def test_a_program_that_cannot_run_says_why(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _on_path(tmp_path, monkeypatch, "#!/bin/sh\necho 'mongod: error while loading shared libraries: libcrypto' >&2\n")
    with pytest.raises(HarnessError, match="ended during startup: mongod: error while loading shared libraries"):
        mongod.start(data)
    assert mongod.read(data) is None
    _on_path(tmp_path, monkeypatch, "no program")
    with pytest.raises(HarnessError, match="could not be started"):
        mongod.start(data)


def test_a_silent_server_is_given_up_and_ended(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _on_path(tmp_path, monkeypatch, f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 600\n")
    with pytest.raises(HarnessError, match=r"did not answer within 0\.5 s"):
        mongod.start(data, wait=0.5)
    assert all_gone([int((tmp_path / "pid").read_text())])
    assert mongod.read(data) is None


def test_without_any_mongod_the_ways_to_get_one_are_told() -> None:
    """Without site-packages there is no wheel, without PATH no program."""
    code = "from harness.errors import UserError\nfrom harness.stores.server import mongod\n"
    code += "try: mongod.find_mongod()\nexcept UserError as error: print(error)\n"
    said = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(REPOSITORY), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert all(way in said.stdout for way in ("nas-harness[dev]", "system's packages", "compose.yaml")), said


def test_the_wheels_program_is_made_runnable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.syspath_prepend(tmp_path)
    name = mongod.WHEEL.replace("-", "_")
    program = tmp_path / "fiftyone" / "db" / "bin" / "mongod"
    program.parent.mkdir(parents=True)
    program.write_text("")
    (tmp_path / f"{name}-9.dist-info").mkdir()
    (tmp_path / f"{name}-9.dist-info" / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 9\n")
    (tmp_path / f"{name}-9.dist-info" / "RECORD").write_text("fiftyone/db/bin/mongod,,\n")
    assert mongod.find_mongod() == program
    assert os.access(program, os.X_OK)


def test_the_log_tells_the_first_errors_only(tmp_path: Path) -> None:
    """Lines as mongod 6.0.5 wrote them on a full disk, shortened."""
    entries = [
        {"s": "I", "msg": "MongoDB starting"},
        {
            "s": "E",
            "msg": "WiredTiger error message",
            "attr": {"error": 28, "message": {"msg": "collection-0.wt: handle-write: No space left on device"}},
        },
        {"s": "E", "msg": "DBException in initAndListen, terminating", "attr": {"error": "UnknownError: 28: No space"}},
        {"s": "F", "msg": "\n\n***aborting after fassert() failure\n\n"},
    ]
    log = tmp_path / "mongod.log"
    log.write_text("an earlier start\n")
    begin = log.stat().st_size
    with log.open("a") as file:
        file.writelines(json.dumps(entry) + "\n" for entry in entries)
    assert first_errors(log, begin).splitlines() == [
        "WiredTiger error message: collection-0.wt: handle-write: No space left on device",
        "  DBException in initAndListen, terminating: UnknownError: 28: No space",
        f"  see {log}",
    ]
    listener = {"s": "E", "msg": "Error setting up listener", "attr": {"error": {"errmsg": "Address already in use"}}}
    log.write_text(json.dumps(listener))
    assert first_errors(log, 0).startswith("Error setting up listener: Address already in use\n")


def _write_record(data: Path, **values: object) -> None:
    (data / mongod.RECORD).write_text(json.dumps({"port": 1, "uri": "", **values}))


def _on_path(folder: Path, patch: pytest.MonkeyPatch, text: str) -> None:
    program = folder / "bin" / "mongod"
    program.parent.mkdir(exist_ok=True)
    program.write_text(text)
    program.chmod(0o755)
    patch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
