"""The store that needs no server: a folder of run directories. Imports no torch.

A run that cannot be read, or does not agree with its completion record, is a `Problem` with a name and a
reason: never an exception, and never counted.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import DataError, UserError
from harness.files import make_durable, make_folder, write_json
from harness.stores.directory.curves import by_metric, from_columns
from harness.stores.directory.index import summaries
from harness.stores.directory.reading import Damaged, read_small, read_verified
from harness.stores.directory.run_directory import INPUTS, METRICS, POINTS, RunDirectory, read_points
from harness.stores.store import REFERENCE, Metrics, Store
from harness.stores.stored import Problem, StoredRun, stored_run

if TYPE_CHECKING:
    from harness.study.trial import Trial

__all__ = ["DirectoryStore", "Problem", "StoredRun"]

CLAIMS, WORK, REFERENCES, PROFILES = "claims", "work", "references", "profiles"
"""Folders beside the runs; so is `harness.stores.directory.index.INDEX`."""

RUN_ID = re.compile(r"[0-9a-f]{16}-[1-9][0-9]*(-[0-9a-f]{8})?")
"""Trial, attempt, and a suffix that distinguishes equal attempts of two machines (missing in schema 1)."""


@dataclass
class DirectoryStore(Store):
    """A folder of runs, made on the first write.

    Any number of processes may read and create runs at the same time.
    """

    path: Path
    problems: list[Problem] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        """Raises `UserError` if the path exists and is not a folder."""
        self.path = Path(self.path)
        self.name = str(self.path)
        if os.path.exists(self.path) and not os.path.isdir(self.path):
            raise UserError(f"the store {self.path} is not a directory")

    def check_writable(self) -> None:
        """Make the folder durable. Raises `UserError` unless runs can be made in it."""
        try:
            make_folder(self.path)
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as error:
            raise UserError(f"cannot write to the store {self.path}: {error.strerror or error}") from error

    @property
    def claims(self) -> Path:
        """The folder of claims."""
        return self.path / CLAIMS

    @property
    def work(self) -> Path:
        """The folder of checkpoints, unless another is named."""
        return self.path / WORK

    def ids(self) -> list[str]:
        try:
            with os.scandir(self.path) as entries:
                return [entry.name for entry in entries if RUN_ID.fullmatch(entry.name) and entry.is_dir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UserError(f"cannot read the store {self.path}: {error.strerror or error}") from error

    def load(self, trials: Collection[str] | None, problems: list[Problem]) -> list[StoredRun]:
        names = [name for name in self.ids() if trials is None or name[:16] in trials]
        return [stored_run(summary) for summary in summaries(self.path, names, problems)]

    def recall(self, key: str) -> dict[str, Any] | None:
        with contextlib.suppress(Damaged):
            return read_small(self.path / REFERENCES / f"{key}.json")
        return None

    def remember(self, key: str, document: Mapping[str, Any]) -> None:
        path = self.path / REFERENCES / f"{key}.json"
        with contextlib.suppress(OSError):
            make_folder(path.parent)
            write_json(path, document)
            make_durable(path.parent)

    def forget(self, key: str) -> None:
        try:
            (self.path / REFERENCES / f"{key}.json").unlink(missing_ok=True)
        except OSError as error:
            raise UserError(f"cannot write to the store {self.path}: {error.strerror or error}") from error

    def remembered(self) -> dict[str, dict[str, Any] | None]:
        files = (self.path / REFERENCES).glob("*.json")
        return {file.stem: self.recall(file.stem) for file in files if REFERENCE.fullmatch(file.stem)}

    def create(
        self, trial: Trial, preset: str, overrides: Mapping[str, Any], attempt: int | None = None
    ) -> RunDirectory:
        """Make a new run of the trial, as that attempt or as the next. Raises `UserError` if it cannot be written."""
        number = self.attempts(trial.key) + 1 if attempt is None else attempt
        return RunDirectory.create(self.path, trial, preset, overrides, number)

    def attempts(self, key: str) -> int:
        """The highest attempt of the trial so far; 0 for none."""
        return max((int(name.split("-")[1]) for name in self.ids() if name[:16] == key[:16]), default=0)

    def path_of(self, run: StoredRun) -> Path:
        """The run's directory."""
        return self.path / run.id

    def files(self, run: StoredRun) -> dict[str, int]:
        folder = self.path_of(run)
        there = sorted(path for path in folder.rglob("*") if not path.name.startswith("."))
        # A symbolic link is listed with its own size: whoever reads it must decide.
        sizes = {str(path.relative_to(folder)): path.lstat() for path in there}
        kept = {name: one for name, one in sizes.items() if not name.startswith(f"{INPUTS}/")}
        return {name: one.st_size for name, one in kept.items() if not stat.S_ISDIR(one.st_mode)}

    def folder_of(self, run: StoredRun) -> Path | None:
        return self.path_of(run)

    def read(self, run: StoredRun, name: str) -> bytes:
        return read_verified(self.path_of(run), name)

    def metrics(self, run: StoredRun) -> Metrics:
        folder = self.path_of(run)
        name = METRICS if (folder / METRICS).exists() else POINTS
        try:
            return from_columns(read_small(folder / name)) if name == METRICS else by_metric(read_points(folder / name))
        except Damaged:
            raise
        except DataError as error:
            raise Damaged(folder / name, str(error)) from error
