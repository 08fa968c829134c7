"""What is attacked: a user's folder with stored runs of every kind, their database, and what they are worth."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conftest import made_up_table
from tests.long.campaign.commands import Said, call
from tests.long.campaign.tally import Attempt, Hang
from tests.many_trials import finish, make_project, start
from tests.mongod import Mongod
from tests.processes import all_gone, descendants
from tests.toy import user_folder

TINY = ("--preset", "tiny", "--seeds", "2")
DATABASE = "attacked"
PATIENCE = 900.0
"""Seconds to make the store, on a machine that may be loaded."""
Row = dict[str, Any]

STUDIES = """
from harness.study import Column, Row, Study

toy = {"space": "toy", "dataset": "toy", "benchmark": "toy", "rank.images": 50, "rank.candidates": 12,
       "train.batch_size": 20, "network.width": 2, "method.name": "slow", "train.epochs": 2, "rank.bins": 5}
columns = [Column("τ", "kendall_tau"), Column("Top-1", "top1_accuracy")]


def table(name, **more):
    rows = [Row({"Schedule": one}, toy | {"schedule.name": one} | more) for one in ("cosine", "calr", "constant")]
    return Study(name, name.title(), rows, columns)


def single(name, **more):
    return Study(name, name.title(), [Row({"Schedule": "cosine"}, toy | more)], columns)


studies = [
    table("attacked"),
    table("again", **{"rank.bins": 3}),
    single("invalid", **{"train.epochs": 1}),
    single("failing", **{"method.name": "failing"}),
    single("unfinished", **{"method.name": "slower", "train.epochs": 50, "observe.kendall_tau_every": 1}),
]
"""

METHODS = """
import time
from dataclasses import dataclass
from harness.components.method import Method
from harness.components.registries import METHODS

@METHODS.register("slower")
@dataclass(frozen=True)
class Slower(Method):
    '''As SPOS, with a long rest before each step.'''

    def paths(self, training):
        time.sleep(0.1)
        return [training.source.draw(training.rng)]


@METHODS.register("failing")
@dataclass(frozen=True)
class Failing(Method):
    '''Fails.'''

    def paths(self, training):
        raise ValueError("as it should")
"""


@dataclass
class Scene:
    """The folder, its store and database; `rows` and `cells` are what an undamaged store shows."""

    folder: Path
    server: Mongod
    rows: dict[str, Row] = field(default_factory=dict)
    """The columns of every run that counts, by id."""
    cells: dict[tuple[str, ...], str] = field(default_factory=dict)
    """What the report shows, by study, row, column and run."""
    unfinished: str = ""
    """The run that was killed; its checkpoint and its claim are there."""

    @property
    def store(self) -> Path:
        return self.folder / "runs"

    @property
    def uri(self) -> str:
        return self.server.uri.replace("/?", f"/{DATABASE}?")

    @contextmanager
    def copy(self) -> Iterator[Path]:
        """A copy of the store, to be spoilt for good."""
        place = self.folder / "copy"
        shutil.copytree(self.store, place, symlinks=True)
        try:
            yield place
        finally:
            shutil.rmtree(place)

    def judge(self, one: Attempt, said: Said, *others: Said, by_number: bool = False) -> list[Row]:
        """Compare what `query` shows with what was measured; what is missing must be named by one of the commands.

        With `by_number`, so many lines must tell of damage as runs are missing: their names may be damaged, too.
        """
        if said.code != 0:
            one.fail("other", f"one damage blocks the store: {said.end}")
            return []
        rows: list[Row] = json.loads(said.out)
        ids = [row["run_id"] for row in rows]
        one.require(len(ids) == len(set(ids)), "doubled", f"{len(ids) - len(set(ids))} runs are shown twice")
        for row in rows:
            known = self.rows.get(row["run_id"], {})
            differing = [name for name in {*row, *known} if row.get(name) != known.get(name)]
            if differing:
                shown = ", ".join(f"{name} {str(row.get(name))[:40]}" for name in sorted(differing)[:3])
                one.fail("wrong", f"{row['run_id']} shows {shown}")
        told = said.text + "".join(other.text for other in others)
        missing = sorted(self.rows.keys() - ids)
        if by_number and told.count("damaged and not counted") >= len(missing):
            missing = []
        for name in missing:
            one.require(name in told, "lost", f"{name} is not shown, and nothing says why: {said.err[-200:]}")
        return rows

    def judge_report(self, one: Attempt, said: Said) -> None:
        """Every value of a report is one that was measured."""
        if said.code == 0:
            for place, value in cells(said.out).items():
                one.require(self.cells.get(place) == value, "wrong", f"the report shows {value} for {place}")


def cells(text: str) -> dict[tuple[str, ...], str]:
    """The values of a report as CSV that come from runs."""
    names = ("study", "row", "column", "seed", "run_id")
    rows = csv.DictReader(io.StringIO(text))
    return {tuple(row[name] for name in names): row["value"] for row in rows if row["value"] and row["run_id"]}


def query(place: str | Path, *more: str) -> tuple[str, ...]:
    return ("query", "--format", "json", "--columns", "all", "--store", str(place), *more)


def report(place: str | Path, study: str = "attacked") -> tuple[str, ...]:
    return ("report", study, *TINY, "--format", "csv", "--store", str(place))


@contextmanager
def scene(folder: Path) -> Iterator[Scene]:
    """Make it: done, ranked twice, invalid, failed and killed runs, a checkpoint, a claim, references, an index."""
    project = make_project(folder / "project", made_up_table(), milliseconds=2, epochs=2)
    (project / "studies" / "targets.py").write_text(STUDIES)
    (project / "methods" / "others.py").write_text(METHODS)
    server = Mongod(folder / "server")
    server.start()
    made = Scene(project, server)
    try:
        begun = start(project, "run", "attacked", "again", "invalid", "failing", *TINY, "--jobs", "2")
        said = finish(begun, within=PATIENCE)
        assert begun.returncode == 1 and "as it should" in said, said
        kill_midway(project, "unfinished", *TINY, "--only", "seed=0", store=made.store)
        with user_folder(project):
            _measure(made)
            yield made
    finally:
        server.kill()


def _measure(made: Scene) -> None:
    spoilt = json.loads(call(*query(made.store), "--study", "invalid").out)[0]["run_id"]
    _expect(call("store", "invalidate", spoilt, "--reason", "for the attacks", "--store", str(made.store)))
    synced = call("store", "sync", "--store", str(made.store), "--mongo", made.uri)
    _expect(synced)
    made.rows = {row["run_id"]: row for row in json.loads(_expect(call(*query(made.store))).out)}
    made.cells = cells(_expect(call(*report(made.store))).out) | cells(_expect(call(*report(made.store, "again"))).out)
    assert len(made.rows) == 7 and len(made.cells) == 24, (made.rows.keys(), made.cells)
    mirrored = {row["run_id"]: row for row in json.loads(_expect(call(*query(made.uri))).out)}
    assert mirrored == made.rows
    made.unfinished = next(path.parent.name for path in made.store.glob("*-*-*/metrics.jsonl"))


def _expect(said: Said) -> Said:
    assert said.code == 0 and not said.raised, (said.command, said.end)
    return said


def kill_midway(folder: Path, *study: str, store: Path, mongo: str | None = None) -> None:
    """Start `run`, and kill all its processes when there is a checkpoint."""
    run = start(folder, "run", *study, "--checkpoint-every", "0.05", "--lease", "5", mongo=mongo)
    try:
        await_event(lambda: any(store.glob("work/*.checkpoint")) and any(store.glob("*-*-*/metrics.jsonl")), run)
    finally:
        kill_all(run)


def await_event(happened: Any, process: subprocess.Popen[str] | None = None, within: float = PATIENCE) -> None:
    until = time.monotonic() + within
    while not happened():
        if process is not None and process.poll() is not None:
            raise AssertionError(finish(process))
        if time.monotonic() > until:
            raise Hang
        time.sleep(0.02)


def kill_all(process: subprocess.Popen[str]) -> None:
    """Kill a process and all below it, as a power failure does, and wait until they are gone."""
    everybody = [process.pid, *descendants(process.pid)]
    for one in everybody:
        try:
            os.kill(one, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()
    all_gone(everybody)
