"""What a store holds at one moment, as the pages need it, read again in the background while somebody looks.

A snapshot never changes: pages read the newest one and wait for nobody. Every row has the version of the snapshot in
which it changed last, so that a page asks only for what is new.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, Any

from harness.components.discovery import component
from harness.components.preset import presets_of
from harness.errors import HarnessError, UserError
from harness.stores.stored import Status
from harness.study.configuration import unnamed
from harness.study.expansion import expand_stored, parents
from harness.study.frames import frame, record
from harness.work.states import State, stand

if TYPE_CHECKING:
    import pandas

    from harness.stores.store import Store
    from harness.stores.stored import Problem, StoredRun
    from harness.study.study import Request, Study

PAUSE = 2.0
"""Minimum seconds between two readings of the store."""
SHARE = 4.0
"""A reading is followed by a pause of so many times its own duration: a large store is read less often."""
ATTENTION = 30.0
"""Seconds after the last request in which the store is still read."""


@dataclass(frozen=True)
class Row:
    """One run in a snapshot."""

    run: StoredRun
    record: Mapping[str, Any]
    """Its columns, as in `harness.results.runs`, with study, row and times."""
    version: int
    """The version of the snapshot in which the row changed last."""


@dataclass(frozen=True)
class Standing:
    """How the trials of a study stand under one preset."""

    study: Study
    preset: str
    trials: int
    requests: Mapping[str, Request]
    """By trial, the first request for it."""
    counts: Mapping[State, int]
    seconds_left: float | None
    """An estimate from the done trials of the study; None if there are none, or nothing is left."""


@dataclass(frozen=True)
class Snapshot:
    """All runs of a store at one moment."""

    version: int = 0
    rows: Mapping[str, Row] = field(default_factory=dict)
    """By run id."""
    removed: Mapping[str, int] = field(default_factory=dict)
    """Runs that the store no longer holds, and the version in which they went."""
    standings: Sequence[Standing] = ()
    """The studies that have runs, in the order of the catalogue."""
    problems: Sequence[Problem] = ()
    trouble: str = ""
    """Why the store could not be read the last time; the rest is then older."""

    @cached_property
    def frame(self) -> pandas.DataFrame:
        """All rows as a data frame."""
        return frame([row.record for row in self.rows.values()], {"study": str, "row": str})


class Watcher:
    """Keeps the newest snapshot of a store. Only its own thread reads the store."""

    def __init__(self, store: Store, studies: Callable[[], Sequence[Study]]) -> None:
        """`studies` returns all studies that pages may show."""
        self.now = Snapshot()
        self._store, self._studies = store, studies
        self._requests: dict[tuple[str, str], list[Request]] = {}
        self._looked, self._due, self._wake = 0.0, 0.0, threading.Event()

    def look(self) -> Snapshot:
        """The newest snapshot; the store is read again soon."""
        self._looked = time.monotonic()
        self._wake.set()
        return self.now

    def start(self) -> None:
        """Read the store in the background from now on. The first reading ends before this returns."""
        self.refresh()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            if time.monotonic() - self._looked > ATTENTION:
                self._wake.clear()
                self._wake.wait()
            time.sleep(max(0.0, self._due - time.monotonic()))
            self.refresh()

    def refresh(self) -> Snapshot:
        """Read the store now."""
        began = time.monotonic()
        try:
            runs = self._store.runs()
        except HarnessError as error:
            self.now = replace(self.now, trouble=str(error))
        else:
            self._take(runs)
        ended = time.monotonic()
        self._due = ended + max(PAUSE, SHARE * (ended - began))
        return self.now

    def _take(self, runs: Sequence[StoredRun]) -> None:
        before, new = self.now, self.now.version + 1
        changed = [run for run in runs if run.id not in before.rows or before.rows[run.id].run != run]
        gone = before.rows.keys() - {run.id for run in runs}
        problems = tuple(self._store.problems)
        if not (changed or gone or before.trouble or problems != tuple(before.problems)) and before.version:
            return
        standings, names = self._stand(runs)
        columns, changed_ids = unnamed(), {run.id for run in changed}
        rows = {
            run.id: before.rows[run.id]
            if run.id not in changed_ids
            else Row(run, record(run, names=columns) | about(run, names.get(run.key, ("", ""))), new)
            for run in runs
        }
        removed = {**before.removed, **dict.fromkeys(gone, new)}
        snapshot = Snapshot(new, rows, removed, standings, problems)
        snapshot.frame  # noqa: B018  # here, so that no page waits for it
        self.now = snapshot

    def _stand(self, runs: Sequence[StoredRun]) -> tuple[list[Standing], dict[str, tuple[str, str]]]:
        """How the studies stand, and by trial the first study and row that requests it."""
        attempts: dict[str, list[StoredRun]] = {}
        for run in runs:
            attempts.setdefault(run.key, []).append(run)
        used = {run.preset for run in runs}
        names: dict[str, tuple[str, str]] = {}
        standings = []
        is_own = component("reports.paper.order").is_own
        for study in self._studies():
            for preset in (name for name in presets_of(study.about) if name in used):
                requests = self._expanded(study, preset, runs)
                by_key: dict[str, list[Request]] = {}
                for request in requests:
                    by_key.setdefault(request.trial.key, []).append(request)
                if by_key.keys() & attempts.keys():
                    standings.append(_standing(study, preset, by_key, attempts))
                    own_names = {key: (study.name, row_name(study, own[0])) for key, own in by_key.items()}
                    names = names | own_names if is_own(study) else own_names | names  # the user's come first
        return standings, names

    def _expanded(self, study: Study, preset: str, runs: Sequence[StoredRun]) -> list[Request]:
        """The requests of a study and of what its rows start from. Expanding takes long, and is done once."""
        place = (study.name, preset)
        if place not in self._requests:
            self._requests[place] = []
            with contextlib.suppress(UserError):  # a study that cannot be expanded here is not shown
                requests = expand_stored(study, presets_of(study.about)[preset], lambda: runs)
                self._requests[place] = [*parents(requests), *requests]
        return self._requests[place]


def about(run: StoredRun, name: tuple[str, str]) -> dict[str, Any]:
    """The columns of a run that its configuration and result do not have."""
    study, row = name
    return {"study": study, "row": row}


def row_name(study: Study, request: Request) -> str:
    """What a study calls the row of a request: its labels, those that are true by their names."""
    labels = study.rows[request.row].labels
    return " ".join(name if value is True else str(value) for name, value in labels.items() if value not in (False, ""))


def _standing(
    study: Study, preset: str, requests: Mapping[str, list[Request]], attempts: Mapping[str, list[StoredRun]]
) -> Standing:
    works = [stand("", own, attempts.get(key, [])) for key, own in requests.items()]
    counts = Counter(work.state for work in works)
    left = counts[State.WAITING] + counts[State.RANK] + counts[State.AGAIN] + counts[State.INTERRUPTED]
    first = {key: own[0] for key, own in requests.items()}
    return Standing(study, preset, len(works), first, counts, _left(works, left, counts[State.RUNNING]))


def _left(works: Iterable[Any], left: int, running: int) -> float | None:
    """Seconds until the rest is done if as many trials as now run at once, and those that run are halfway."""
    done = [work.run.cost["wall_seconds"] for work in works if work.run and work.run.status is Status.DONE]
    if not done or not running:
        return None
    return fmean(done) * (left / running + 0.5)
