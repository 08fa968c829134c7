"""`run --notify`: a message per study at the end, to a command or to a web address."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.components.preset import get_preset
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from tests.stored_runs import store_run
from tests.toy import user_folder

STUDY = """
from harness.study import Column, Row, Study

study = Study("mine", "Mine", [Row({"M": "SPOS"})], [Column("τ", "kendall_tau")])
"""
RUN = ["run", "mine", "--preset", "tiny", "--seeds", "2", "--no-references"]

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[None]:
    """A study of two trials, both stored."""
    with user_folder(tmp_path, {"studies/mine.py": STUDY}):
        for request in expand(find_studies("mine")[0], get_preset("tiny"), 2):
            store_run(Path("runs"), request, 0.5)
        yield


@pytest.fixture
def address() -> Iterator[tuple[str, list[Any]]]:
    """The address of a server, and what it is sent; it answers the path `/no` with an error."""
    got: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(404 if self.path == "/no" else 200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", got
        server.shutdown()


def test_a_command_reads_the_summary(capsys: Capture) -> None:
    assert main([*RUN, "--notify", "cat > told.json"]) == 0
    told = json.loads(Path("told.json").read_text())
    host = socket.gethostname()
    assert told.pop("seconds") >= 0
    assert told == {
        "text": f"mine (tiny) on {host}: done, 2 of 2 trials done",
        "study": "mine",
        "preset": "tiny",
        "outcome": "done",
        "trials": 2,
        "done": 2,
        "errors": {},
        "host": host,
        "store": "runs",
    }
    assert capsys.readouterr().err == "next: harness report mine --preset tiny --seeds 2\n"


def test_a_web_address_gets_it_and_a_setting_names_it(address: tuple[str, list[Any]]) -> None:
    url, got = address
    Path("harness.toml").write_text(f'notify = "{url}/hook"\n')
    assert main(RUN) == 0
    assert [one["outcome"] for one in got] == ["done"]


def test_an_error_of_the_command_is_sent() -> None:
    assert main([*RUN, "--notify", "cat > told.json", "with", "rank.images=10000000"]) == 2
    told = json.loads(Path("told.json").read_text())
    assert told["outcome"] == "failed" and "rank.images" in told["text"]


@pytest.mark.parametrize("target", ["exit 3", "http://127.0.0.1:1/secret", "/no"])
def test_a_message_that_does_not_arrive_changes_nothing(
    target: str, address: tuple[str, list[Any]], capsys: Capture
) -> None:
    target = address[0] + target if target.startswith("/") else target
    assert main([*RUN, "--notify", target]) == 0
    captured = capsys.readouterr()
    assert captured.out == "2 of 2 trials done, 0 of them now\n" and "secret" not in captured.err
    (line,) = [line for line in captured.err.splitlines() if line.startswith("--notify: ")]
    assert "exit status 3: exit 3" in line or "Connection refused" in line or "404" in line
