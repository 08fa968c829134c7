"""Several `run` commands on the same trials: each trial is run once, the dead are replaced, the late are stopped."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

from harness.truth.table import Table
from tests.many_trials import finish, make_project, standing, start
from tests.processes import all_gone, await_that, descendants

RUN = ("run", "many", "--preset", "tiny", "--jobs", "1", "--no-references")


def test_two_processes_share_the_work_and_one_takes_over_from_the_dead(tmp_path: Path, toy_table: Table) -> None:
    folder = make_project(tmp_path / "project", toy_table, milliseconds=50, epochs=3)
    one, other = (start(folder, *RUN, "--seeds", "2") for _ in range(2))
    while not list((folder / "runs").glob("*-1-*")):
        time.sleep(0.02)
    one.kill()  # in the midst of a trial, most likely
    said = finish(other)
    assert other.returncode == 0 and "4 of 4 trials done" in said
    runs, counts = standing(folder / "runs")
    assert counts["counts"] == 4 and not counts["superseded"] and not counts["running"]
    # What was lost is kept, and the next attempt is complete in itself.
    assert all(
        run.attempt == 1 + len([r for r in runs if r.key == run.key and r.status == "lost"]) for run in runs[-1:]
    )
    assert not list((folder / "runs" / "work").glob("*.checkpoint"))


def test_each_of_two_processes_counts_its_own_trials(tmp_path: Path, toy_table: Table) -> None:
    folder = make_project(tmp_path / "project", toy_table, milliseconds=100, epochs=5)
    both = [start(folder, *RUN, "--seeds", "2") for _ in range(2)]
    found = [re.search(r"4 of 4 trials done, (\d) of them now", finish(one)) for one in both]
    assert sum(int(one[1]) for one in found if one) == 4


def test_a_trial_that_takes_too_long_fails_and_goes_on_later(tmp_path: Path, toy_table: Table) -> None:
    folder = make_project(tmp_path / "project", toy_table, milliseconds=2000)
    method = folder / "methods" / "slow.py"
    method.write_text(method.read_text().replace("time.sleep(", "__import__('os').path.exists('quick') or time.sleep("))
    only = (*RUN, "--seeds", "1", "--only", "schedule.name=calr")
    timeout = 1
    while True:
        short = start(folder, *only, "--timeout", str(timeout), "--no-wait")
        said = finish(short)
        assert short.returncode == 1, said
        runs, counts = standing(folder / "runs")
        if counts["failed"]:
            break
        timeout *= 2  # a busy machine needs longer to begin
    assert f"it took longer than {timeout} s" in said and f"{timeout} s" in "".join(runs[-1].fail_trace or []), said
    (folder / "quick").touch()
    longer = start(folder, *only, "--retry", "failed")
    assert "1 of 1 trials done, 1 of them now" in finish(longer)
    _, counts = standing(folder / "runs")
    assert counts["failed"] == counts["counts"] == 1


def test_an_owner_that_was_suspended_finds_its_trial_taken(tmp_path: Path, toy_table: Table) -> None:
    folder = make_project(tmp_path / "project", toy_table, milliseconds=150)
    only = (*RUN, "--seeds", "1", "--only", "schedule.name=calr", "--lease", "1")
    slow = start(folder, *only)
    while not list((folder / "runs").glob("*-1-*/metrics.jsonl")):
        time.sleep(0.02)
    asleep = descendants(slow.pid)
    for process in asleep:
        os.kill(process, signal.SIGSTOP)
    # Alive, but silent: to others on this machine its record says that it lives, the claim that it does not.
    quick = start(folder, *only)
    said = finish(quick)
    assert quick.returncode == 0 and "1 of 1 trials done, 1 of them now" in said
    for process in asleep:
        os.kill(process, signal.SIGCONT)
    assert "1 of 1 trials done" in finish(slow)
    runs, counts = standing(folder / "runs")
    assert counts == {"lost": 1, "counts": 1}
    assert [run.status for run in runs] == ["lost", "done"]  # its process was ended by the one that took it over


LATE = """
        import os
        from pathlib import Path
        if not Path("killed").exists():
            really = os.killpg
            os.killpg = lambda *arguments: (time.sleep(5), really(*arguments))
            Path("begun").touch()
            while not Path("killed").exists():
                time.sleep(0.01)
"""


def test_a_trial_whose_run_is_killed_never_fails_of_it(tmp_path: Path, toy_table: Table) -> None:
    """On a busy machine a trial computes and reports for some time after the death of its `run`."""
    folder = make_project(tmp_path / "project", toy_table, milliseconds=1, epochs=2)
    method = folder / "methods" / "slow.py"
    method.write_text(method.read_text().replace("        time.sleep(0.001)\n", LATE))
    only = (*RUN, "--seeds", "1", "--only", "schedule.name=calr")
    killed = start(folder, *only)
    await_that(lambda: (folder / "begun").exists() or killed.poll() is not None)
    trial = descendants(killed.pid)
    killed.kill()
    killed.wait()
    (folder / "killed").touch()
    assert all_gone(trial)
    again = start(folder, *only)
    said = finish(again)
    assert again.returncode == 0 and "1 of 1 trials done" in said, said
    assert not standing(folder / "runs")[1]["failed"]
