"""Whether the process that owns a run lives: told by real processes."""

from __future__ import annotations

import os
import signal
import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from harness.owner import describe, is_alive, lives_here, start_ticks, this_process


def test_this_process_lives() -> None:
    assert is_alive(this_process(), None)


def test_a_number_that_another_process_got_is_not_the_owner() -> None:
    owner = this_process()
    assert not is_alive(owner | {"started": owner["started"] - 1}, None)


def test_a_killed_process_is_dead_before_and_after_it_is_reaped() -> None:
    child = subprocess.Popen(["sleep", "600"])
    owner = this_process() | {"pid": child.pid, "started": start_ticks(child.pid)}
    assert is_alive(owner, None)
    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, not reaped
    assert not is_alive(owner, None)
    child.wait()
    assert not is_alive(owner, None)


def test_a_name_with_parentheses_and_spaces_is_read(tmp_path: Any) -> None:
    program = tmp_path / "a) Z (b"
    program.symlink_to("/bin/sleep")
    child = subprocess.Popen([str(program), "600"])
    try:
        assert start_ticks(child.pid) is not None
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize(("age", "alive"), [(0, True), (110, True), (130, False)])
@pytest.mark.parametrize("aware", [True, False])
def test_on_another_host_the_heartbeat_tells(age: int, alive: bool, aware: bool) -> None:
    owner = {"host": "elsewhere", "pid": os.getpid(), "started": 1}
    beat = datetime.now(UTC) - timedelta(seconds=age)
    assert is_alive(owner, (beat if aware else beat.replace(tzinfo=None)).isoformat()) is alive
    assert not is_alive(owner, None)


def test_a_process_with_the_same_number_in_another_container_is_not_seen() -> None:
    """Nor is one from before a reboot: only a heartbeat tells."""
    beat = datetime.now(UTC).isoformat()
    for other in ({"boot": "another"}, {"pid_namespace": "pid:[1]"}, {"host": "elsewhere"}):
        owner = this_process() | other
        assert lives_here(owner) is None
        assert is_alive(owner, beat)
        assert not is_alive(owner, None)


def test_records_that_know_no_boot_are_judged_by_their_host() -> None:
    owner = this_process()
    old = {name: owner[name] for name in ("host", "pid", "started")}
    assert lives_here(old) is True
    assert lives_here(old | {"started": 1}) is False
    assert lives_here(old | {"boot": None, "pid_namespace": None}) is True
    assert lives_here(old | {"host": "elsewhere"}) is None


def test_an_owner_whose_start_is_unknown_is_not_taken_for_dead() -> None:
    assert lives_here(this_process() | {"started": None}) is None


def test_an_owner_in_words() -> None:
    assert describe({"host": "lab", "pid": 7}) == "process 7 on lab"
    assert describe(None) == "an unknown process"
