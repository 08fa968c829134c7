"""A user's folder for tests of sharing: the toy space, a study of many quick trials, and `run` as a process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from harness.components import discovery
from harness.stores.places import places
from harness.stores.stored import StoredRun
from harness.truth.table import Table
from tests.conftest import TOY

REPOSITORY = Path(discovery.__file__).resolve().parents[2]

STUDY = '''
"""Trials of {milliseconds} milliseconds a step, as many as there are seeds, twice."""

from harness.study import Column, Row, Study

toy = {{"space": "toy", "dataset": "toy", "benchmark": "toy", "rank.images": 50, "rank.candidates": 12, "rank.bins": 5,
        "train.epochs": {epochs}, "train.batch_size": 20, "network.width": 2}}
toy |= {{"method.name": "slow"}}
rows = [Row({{"Schedule": name}}, toy | {{"schedule.name": name}}) for name in ("cosine", "calr")]
study = Study("many", "Many trials", rows, [Column("τ", "kendall_tau")])
'''

SLOW = """
import time
from dataclasses import dataclass
from harness.components.method import Method
from harness.components.registries import METHODS

@METHODS.register("slow")
@dataclass(frozen=True)
class Slow(Method):
    '''As SPOS, with a rest before each step.'''

    def paths(self, training):
        time.sleep({seconds})
        return [training.source.draw(training.rng)]
"""


STAGES = """[
    Row({"Schedule": "cosine, searched"}, toy | {"search.name": "evolution", "search.generations": 3}),
    Row({"Schedule": "cosine, retrained"}, toy | {"retrain.epochs": 3, "retrain.batch_size": 16}),
]"""
"""Rows that take the weights of the first: a search of them, and a network that is trained by itself."""


def make_project(folder: Path, table: Table, milliseconds: float = 40, epochs: int = 6, stages: bool = False) -> Path:
    """The folder with the study `many` in it: two steps an epoch, each with a rest of so long.

    With `stages` there are rows that search and retrain, too.
    """
    for name in ("spaces", "methods", "studies"):
        (folder / name).mkdir(parents=True)
    (folder / "spaces" / "toy.py").write_text(TOY)
    (folder / "methods" / "slow.py").write_text(SLOW.format(seconds=milliseconds / 1000))
    study = STUDY.format(milliseconds=milliseconds, epochs=epochs)
    if stages:
        study = study.replace("\nstudy = ", f"\nrows += {STAGES}\nstudy = ")
    (folder / "studies" / "many.py").write_text(study)
    table.write(folder / "toy.npz")
    return folder


def start(
    folder: Path, *arguments: str, mongo: str | None = None, path: str | None = None, **variables: str
) -> subprocess.Popen[str]:
    """`python -m harness ARGUMENTS` in that folder; what it prints goes to a file, so that nothing ever blocks it.

    `path` is another PATH, with commands of the test's own in it.
    """
    environment = _environment() | variables
    if path:
        environment["PATH"] = path
    if mongo:
        environment["HARNESS_MONGO"] = mongo
    with tempfile.NamedTemporaryFile("w", prefix="said-", dir=folder, delete=False) as said:
        command = [sys.executable, "-m", "harness", *arguments]
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=said, stderr=said, text=True)
        process.said = Path(said.name)  # type: ignore[attr-defined]
    return process


def start_piped(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """The same, but the caller reads each line from `stdout` as it is printed."""
    command = [sys.executable, "-u", "-m", "harness", *arguments]
    output = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=_environment(), stdout=output, stderr=subprocess.STDOUT, text=True)


def _environment() -> dict[str, str]:
    ours = {key: value for key, value in os.environ.items() if not key.startswith("HARNESS_")}
    return ours | {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}


def finish(process: subprocess.Popen[str], within: float = 300) -> str:
    """What it printed until its end."""
    process.wait(timeout=within)
    said: Path = process.said  # type: ignore[attr-defined]
    return said.read_text()


def standing(place: str | Path) -> tuple[list[StoredRun], Counter[str]]:
    """All runs of a store of either kind, and how many of them count, are done and superseded, lost, …."""
    runs = places(place).open().runs()
    names = ("counts" if run.counts else "superseded" if run.superseded else run.status for run in runs)
    return runs, Counter(names)
