"""A directory and the database that mirrors it, read as one store: `run` plans with it.

A run that both hold counts once and is taken from the directory, which is the source of truth.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.stores.directory.store import DirectoryStore
from harness.stores.store import Metrics, Store
from harness.stores.stored import Problem, StoredRun


class MergedStore(Store):
    """Both places, the directory first. Raises `Unreachable` when the database does not answer."""

    def __init__(self, directory: DirectoryStore, database: Store) -> None:
        self.directory = directory
        self.database = database
        self.name = f"{directory.name} and {database.name}"
        self.problems = []

    def ids(self) -> list[str]:
        return sorted({*self.directory.ids(), *self.database.ids()})

    def load(self, trials: Collection[str] | None, problems: list[Problem]) -> list[StoredRun]:
        here = {run.id: run for run in self.directory.load(trials, problems)}
        there = {run.id: run for run in self.database.load(trials, problems)}
        return [_merged(run, there.get(run.id)) for run in (there | here).values()]

    def files(self, run: StoredRun) -> dict[str, int]:
        return self._holder(run).files(run)

    def read(self, run: StoredRun, name: str) -> bytes:
        return self._holder(run).read(run, name)

    def folder_of(self, run: StoredRun) -> Path | None:
        return self._holder(run).folder_of(run)

    def metrics(self, run: StoredRun) -> Metrics:
        return self._holder(run).metrics(run)

    def recall(self, key: str) -> dict[str, Any] | None:
        return self.directory.recall(key) or self.database.recall(key)

    def remember(self, key: str, document: Mapping[str, Any]) -> None:
        self.directory.remember(key, document)

    def forget(self, key: str) -> None:
        self.directory.forget(key)
        self.database.forget(key)

    def remembered(self) -> dict[str, dict[str, Any] | None]:
        return self.database.remembered() | self.directory.remembered()

    def _holder(self, run: StoredRun) -> Store:
        return self.directory if self.directory.path_of(run).is_dir() else self.database


def _merged(run: StoredRun, mirrored: StoredRun | None) -> StoredRun:
    """The run with what others have added to its mirror: rankings, and the invalid mark."""
    if mirrored is None or mirrored is run:
        return run
    again, its = (
        {key for key, found in one.rankings.items() if found != one.first_rankings.get(key)} for one in (run, mirrored)
    )
    # A recomputed ranking replaces the first one, wherever it was recomputed.
    taken = {key: found for key, found in mirrored.rankings.items() if key not in run.rankings or key in its - again}
    rankings = run.rankings | taken
    return replace(run, invalid=run.invalid or mirrored.invalid, rankings=rankings)
