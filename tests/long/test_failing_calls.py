"""A system call of each trial fails; after a plain `run` every trial counts once, with the bytes of one left alone."""

from __future__ import annotations

import errno
import itertools
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from harness.truth.table import Table
from tests.jobs import outcome
from tests.long.failing_calls import OPERATIONS, Fault, Faults, library
from tests.many_trials import finish, make_project, standing, start

SEEDS = 36
TRIALS = 2 * SEEDS
LEAST = 60
"""Calls that must have failed."""

COUNTED = 2
"""Seeds whose calls are counted first, to spread the faults over all of them."""

RUN = ("run", "many", "--preset", "tiny", "--jobs", "2", "--no-references", "--checkpoint-every", "0")
NUMBERS = (errno.EIO, errno.ENOSPC, errno.ESTALE)
OPENING = (*NUMBERS, errno.EMFILE, errno.EACCES)


def outcomes(store: Path) -> dict[str, Any]:
    """By the key of the trial, what must not depend on how the run that counts was made."""
    return {run.key[:16]: outcome(str(store), run) for run in standing(store)[0] if run.counts}


def faults_of(keys: list[str], calls: dict[str, int]) -> list[Fault]:
    """One fault per trial, over all operations in turn, spread evenly over so many calls of each."""
    turns = list(itertools.islice(itertools.cycle([one for one in OPERATIONS if calls[one]]), len(keys)))
    number, total = Counter[str](), Counter(turns)
    faults = []
    for key, operation in zip(keys, turns, strict=True):
        numbers = OPENING if operation in ("open", "read") else NUMBERS
        nth = number[operation] * calls[operation] // total[operation]
        faults.append(Fault(key, operation, nth, numbers[number[operation] % len(numbers)]))
        number[operation] += 1
    return faults


@pytest.mark.long
def test_a_failing_call_of_each_trial_costs_nothing(tmp_path: Path, toy_table: Table) -> None:
    shim = library(tmp_path)
    project = make_project(tmp_path / "project", toy_table, milliseconds=1, epochs=2)
    alone = start(project, *RUN, "--seeds", str(SEEDS), "--store", "alone")
    said = finish(alone)
    assert alone.returncode == 0 and f"{TRIALS} of {TRIALS} trials done" in said, said
    whole = outcomes(project / "alone")

    watched = [Fault(key, operation) for key in whole for operation in OPERATIONS]
    counting = Faults(shim, tmp_path / "counted", watched)
    counted = start(project, *RUN, "--seeds", str(COUNTED), "--store", "counted", **counting.variables)
    assert counted.wait() == 0, finish(counted)
    calls = Counter[str]()
    for fault, seen in counting.seen().items():
        calls[fault.operation] = max(calls[fault.operation], seen.calls)
    print("\ncalls per trial:", ", ".join(f"{calls[name]} {name}" for name in OPERATIONS))

    faults = Faults(shim, tmp_path / "faults", faults_of(sorted(whole), calls))
    failing = start(project, *RUN, "--seeds", str(SEEDS), **faults.variables)
    said = finish(failing)
    print(said)
    hit = {fault: seen.path for fault, seen in faults.seen().items() if seen.path is not None}
    runs, states = standing(project / "runs")
    print(f"{len(hit)} of {TRIALS} faults hit:", dict(Counter(fault.operation for fault in hit)), dict(states))
    for fault, path in hit.items():
        place = re.sub(r"[0-9a-f]{16,64}", "KEY", path.removeprefix(f"{project}/runs/"))
        print(f"  {fault.operation} {fault.nth} {errno.errorcode[fault.number]} {place}")
    assert len(hit) >= LEAST and {fault.operation for fault in hit} == {name for name in OPERATIONS if calls[name]}
    assert "Traceback" not in said and "failed" not in states, said
    (now,) = re.findall(r"trials done, (\d+) of them now", said)
    assert said.count(": done after ") == int(now) + said.count("done, but cannot be read now: "), said
    before = outcomes(project / "runs")
    assert before == {key: whole[key] for key in before}

    plain = start(project, *RUN, "--seeds", str(SEEDS))
    said = finish(plain)
    assert plain.returncode == 0 and "Traceback" not in said, said
    assert f"{TRIALS} of {TRIALS} trials done, {TRIALS - len(before)} of them now" in said, said
    assert outcomes(project / "runs") == whole
    assert not standing(project / "runs")[1]["superseded"]  # none was trained twice
