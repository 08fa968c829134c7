"""The read side of a store: a folder of run directories. Imports no torch.

Whatever cannot be read, or does not agree with its completion record, is a `Problem` with a name and a
reason: never an exception, and never counted.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import InvalidConfiguration, UnknownName, UserError
from harness.stores.reading import Damaged, read_run, read_small
from harness.stores.run_directory import METRICS, POINTS, PREDICTIONS, RANKINGS, RunDirectory, read_points
from harness.stores.stored import Problem, StoredRun

if TYPE_CHECKING:
    from harness.study import Cell

__all__ = ["DirectoryStore", "Problem", "StoredRun"]

LISTED = 20
"""How many runs a message names."""

_RUN_ID = re.compile(r"[0-9a-f]{16}-[1-9][0-9]*")


@dataclass
class DirectoryStore:
    """A folder of runs, made when it is first written to.

    Any number of processes may read and create runs at the same time. A run that is done never changes,
    but rankings may be added to it.
    """

    path: Path
    problems: list[Problem] = field(default_factory=list, init=False)
    """What the last call of `runs` could not use."""

    def __post_init__(self) -> None:
        """Raises `UserError` for a path that is something else than a folder."""
        self.path = Path(self.path)
        if os.path.exists(self.path) and not os.path.isdir(self.path):
            raise UserError(f"the store {self.path} is not a directory")

    def runs(self) -> list[StoredRun]:
        """All runs, sorted by cell and attempt. Of two done runs of a cell the older is superseded.

        Should the two differ in what both observed, that is a problem that names both; the newer counts.
        """
        self.problems = []
        return self._read(self._names(), self.problems)

    def done(self, key: str) -> StoredRun | None:
        """The run that counts for the cell of that key, if there is one."""
        found = self._read([name for name in self._names() if name.startswith(key[:16])], [])
        counting = [run for run in found if run.key == key and run.status == "done" and not run.superseded]
        return counting[-1] if counting else None

    def find(self, prefix: str) -> StoredRun:
        """The run whose id begins so.

        Raises `UnknownName` when there is none, `InvalidConfiguration` when there are several, and
        `UserError` when it is damaged.
        """
        names = self._names()
        matching = [name for name in names if name == prefix] or [name for name in names if name.startswith(prefix)]
        if not matching:
            near = difflib.get_close_matches(prefix, names, n=1)
            suggestion = f"; did you mean {near[0]}?" if near else "."
            raise UnknownName(f"no run's id begins with {prefix!r}{suggestion} {self.path} holds {len(names)} runs")
        if len(matching) > 1:
            some = ", ".join(matching[:LISTED]) + (f" and {len(matching) - LISTED} more" * (len(matching) > LISTED))
            raise InvalidConfiguration(f"{prefix!r} is not unique; runs that begin so: {some}")
        problems: list[Problem] = []
        for run in self._read([name for name in names if name[:16] == matching[0][:16]], problems):
            if run.id == matching[0]:
                return run
        path = self.path / matching[0]
        reasons = [f"{one.path}: {one.reason}" for one in problems if path in (one.path, *one.path.parents)]
        raise UserError(f"run {matching[0]} is damaged: {'; '.join(reasons)}")

    def create(self, cell: Cell, preset: str, overrides: Mapping[str, Any]) -> RunDirectory:
        """A new run of the cell. Raises `UserError` when the store cannot be written to."""
        return RunDirectory.create(self.path, cell, preset, overrides)

    def metrics(self, run: StoredRun) -> dict[str, list[dict[str, Any]]]:
        """The points (step, value, timestamp) of every metric so far; null for a value that is no number."""
        found: dict[str, list[dict[str, Any]]] = {}
        if (run.path / METRICS).exists():
            for name, columns in read_small(run.path / METRICS).items():
                rows = zip(columns["steps"], columns["values"], columns["timestamps"], strict=True)
                found[name] = [{"step": s, "value": v, "timestamp": t} for s, v, t in rows]
        else:
            try:
                points = read_points(run.path / POINTS)
            except ValueError as error:
                raise Damaged(run.path / POINTS, f"is no list of points: {error}") from error
            for point in points:
                found.setdefault(point.pop("name"), []).append(point)
        return found

    def predictions(self, run: StoredRun) -> dict[int, float]:
        """Predicted accuracy by architecture number, of all rankings on the same images as the run's own."""
        return known_predictions(run, run.cell["config"]["rank"])

    def _names(self) -> list[str]:
        try:
            with os.scandir(self.path) as entries:
                names = [entry.name for entry in entries if _RUN_ID.fullmatch(entry.name) and entry.is_dir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UserError(f"cannot read the store {self.path}: {error.strerror or error}") from error
        return sorted(names, key=lambda name: (name[:16], int(name[17:])))

    def _read(self, names: list[str], problems: list[Problem]) -> list[StoredRun]:
        runs: list[StoredRun] = []
        for name in names:
            try:
                runs.append(read_run(self.path / name, problems))
            except Damaged as error:
                problems.append(Problem(error.path, error.reason))
        return _superseded(runs, problems)


def known_predictions(run: StoredRun, rank: Mapping[str, Any]) -> dict[int, float]:
    """What the run's weights are known to predict on these images, by architecture number."""
    # Only of rankings that were verified: one that is damaged is as good as not there.
    verified = (run.path / RANKINGS / f"{key}.{PREDICTIONS}" for key in sorted(run.rankings))
    found: dict[int, float] = {}
    for file in filter(Path.exists, (run.path / PREDICTIONS, *verified)):
        document = read_small(file)
        if (document["images"], document["batch_size"]) == (rank["images"], rank["batch_size"]):
            found |= {int(number): accuracy for number, accuracy in document["accuracies"].items()}
    return dict(sorted(found.items()))


def _superseded(runs: list[StoredRun], problems: list[Problem]) -> list[StoredRun]:
    """Mark every done run that has a newer one, and compare the two."""
    newest: dict[str, StoredRun] = {run.key: run for run in runs if run.status == "done"}
    marked = []
    for run in runs:
        newer = newest.get(run.key, run)
        if run.status == "done" and newer is not run:
            for difference in _differences(run, newer):
                problems.append(Problem(run.path, f"{run.id} and {newer.id} are runs of one cell, but {difference}"))
            run = replace(run, superseded=True)
        marked.append(run)
    return marked


def _differences(one: StoredRun, other: StoredRun) -> list[str]:
    """In what of that which both observed the runs differ."""
    found = [
        f"ranking {key} gave {json.dumps(one.rankings[key])} and {json.dumps(other.rankings[key])}"
        for key in sorted(one.rankings.keys() & other.rankings.keys())
        if one.rankings[key] != other.rankings[key]
    ]
    if one.own_ranking == other.own_ranking and one.result and other.result:
        ours, theirs = (run.result.get("observed", {}) for run in (one, other) if run.result)
        for name in sorted(ours.keys() & theirs.keys()):
            mine, its = dict(map(tuple, ours[name])), dict(map(tuple, theirs[name]))
            steps = [step for step in mine.keys() & its.keys() if mine[step] != its[step]]
            if steps:
                found.append(f"{name} differs at step {min(steps)}")
    return found
