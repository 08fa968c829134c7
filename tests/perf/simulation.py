"""Many workers on one store: how much of their time coordination takes, and whether any trial is done twice.

    python -m tests.perf.simulation [--trials 10000] [--workers 500] [--seconds 600 60 10] [--only mongo] [--out DIR]

What is real: how every worker chooses (`harness.work.worker`), and the claims, in a directory and on a MongoDB
server of its own. Each operation of a claim is done for real. What passes for the worker that asked is the median of
the last durations measured, because this machine may do other things. What is simulated: the clock, the trials and
their states, and reading stored runs, which takes what it takes on real stores of both kinds that are filled and
measured first. Operations queue: the store serves one at a time, as if it had one core; only the processor time of the
worker itself keeps no others. A worker sees the store as it was when its look began, so collisions are rather too
frequent. Renewals of claims only lengthen the queue. With `--network MS` every operation of the file system costs a
round trip more, as on a network file system.
"""

from __future__ import annotations

import argparse
import heapq
import random
import statistics
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pymongo

from harness.components.preset import get_preset
from harness.stores.claims import LEASE, RENEWALS, Claim, Claims
from harness.stores.directory.records import DirectoryRecords
from harness.stores.directory.store import DirectoryStore
from harness.stores.mongo.records import MongoRecords
from harness.stores.mongo.store import MongoStore
from harness.stores.mongo.sync import sync
from harness.stores.store import Store
from harness.stores.stored import StoredRun
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from harness.study.study import Request
from harness.work import worker as workers
from harness.work.jobs import Answered, Job
from harness.work.states import Kind, State, Work, stand
from harness.work.worker import Round
from tests.jobs import round_of
from tests.mongod import Mongod
from tests.perf.synthetic import fill
from tests.stored_runs import store_run

LEAST = 0.2
"""The least share of an operation in which the store is busy."""

FILLED = 500
"""Runs of the stores whose reading is measured."""

STARTING = 0.2
"""Seconds from the claim of a trial to its first step: its folder, and the fork of its process."""


VARIES = 0.1
"""By how much trials are shorter or longer: as no two machines are equally fast."""

DAY = 86400.0
"""Length of the real leases: simulated hours take real minutes, and nothing renews them meanwhile."""


class Clock:
    """The simulated time of whichever worker acts."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


class Files:
    """Counts operations of the file system of this process."""

    NAMES = frozenset({"open", "os.listdir", "os.link", "os.remove", "os.mkdir", "os.utime", "os.rename"})

    def __init__(self) -> None:
        self.count = 0
        sys.addaudithook(self._hear)

    def _hear(self, name: str, arguments: object) -> None:
        self.count += name in self.NAMES


@dataclass
class Server:
    """The store that all workers share: it does one operation after the other, and renews claims in between."""

    clock: Clock
    files: Files
    round_trip: float = 0.0
    """Seconds that an operation of the file system takes longer than here."""
    renewing: float = 0.0
    """The share of its time that renewals take."""
    free: float = 0.0
    durations: dict[str, list[float]] = field(default_factory=dict)
    lately: dict[str, deque[tuple[float, float]]] = field(default_factory=dict)

    @contextmanager
    def measured(self, name: str) -> Iterator[None]:
        """Let the real duration of the block pass."""
        before, begin, own = self.files.count, time.perf_counter(), time.thread_time()
        yield
        took, own = time.perf_counter() - begin, time.thread_time() - own
        lately = self.lately.setdefault(name, deque(maxlen=51))
        lately.append((took, own))
        self.durations.setdefault(name, []).append(took)
        seconds, own = (statistics.median(one[place] for one in lately) for place in (0, 1))
        self.spend(seconds, own, (self.files.count - before) * self.round_trip)

    def spend(self, seconds: float, own: float, waiting: float = 0.0) -> None:
        """Let the time of an operation pass. `own` of its seconds are the worker's: only the rest keeps others."""
        busy = max(seconds - own, LEAST * seconds)
        self.free = max(self.clock.now, self.free) + busy / (1 - min(0.9, self.renewing))
        self.clock.now = self.free + (seconds - busy) + waiting


@dataclass
class TimedClaims(Claims):
    """Real claims, whose durations pass in simulated time."""

    real: Claims
    server: Server
    collisions: int = 0
    """Trials that another worker had claimed between the look and the claim."""

    def __post_init__(self) -> None:
        self.lease = self.real.lease

    def acquire(self, key: str, at_least: int = 0) -> Claim | None:
        with self.server.measured("acquire"):
            claim = self.real.acquire(key, at_least)
        self.collisions += claim is None
        return claim

    def held(self, keys: Collection[str]) -> set[str]:
        with self.server.measured(f"held {len(keys).bit_length()}"):
            return self.real.held(keys)

    def records(self) -> list[Any]:
        raise NotImplementedError

    def drop(self, record: Any) -> bool:
        raise NotImplementedError

    def restart(self, record: Any) -> bool:
        raise NotImplementedError


@dataclass(frozen=True)
class Reading:
    """Seconds that reading stored runs takes, and the operations of the file system in it, measured on a real store."""

    one: float
    """The runs of one trial, without what grows with the store."""
    each: float
    """What looking for one trial takes longer per run of the store."""
    all_each: float
    """Reading everything, per run."""
    own: float
    """The share of it that is the reader's own processor time."""
    files_one: int = 0
    files_each: float = 0.0
    parts: int = 0
    """Into how many parts the store is divided that are read as a whole; 0 where each run is read by itself."""

    @classmethod
    def of(cls, store: Store, files: Files) -> Reading:
        ids = store.ids()
        listing = statistics.median(timed(store.ids) for _ in range(5))
        store.runs()  # fills the index
        some = ids[:: max(1, len(ids) // 40)]
        before = files.count
        one = statistics.median(timed(lambda name=name: store.load({name[:16]}, [])) for name in some)  # type: ignore[misc]
        files_one = (files.count - before) // len(some)
        before = files.count
        everything, own = min(_read_all(store) for _ in range(3))
        grows = listing if isinstance(store, DirectoryStore) else 0.0
        each = (files.count - before) / 3 / len(ids)
        parts = 256 if isinstance(store, DirectoryStore) else 0
        per_run, share = everything / len(ids), own / everything
        return cls(max(0.0, one - grows), grows / len(ids), per_run, share, files_one, each, parts)


def _read_all(store: Store) -> tuple[float, float]:
    """Seconds by the clock, and of the reader's own processor time."""
    begin, own = time.perf_counter(), time.thread_time()
    store.load(None, [])
    return time.perf_counter() - begin, time.thread_time() - own


@dataclass
class Runs(Store):
    """What is stored, in memory; to read it takes as long as from a real store of that size."""

    server: Server
    reading: Reading
    by_key: dict[str, list[StoredRun]] = field(default_factory=dict)

    name = "simulated"

    def load(self, trials: Collection[str] | None, problems: list[Any]) -> list[StoredRun]:
        number, trip, reading = len(self.by_key), self.server.round_trip, self.reading
        if trials is None:
            seconds = number * reading.all_each
            self.server.spend(seconds, seconds * reading.own, number * reading.files_each * trip)
            return [run for own in self.by_key.values() for run in own]
        with_each = max(1.0, number / reading.parts) if reading.parts else 1.0
        seconds = reading.one + number * reading.each + min(number, (len(trials) - 1) * with_each) * reading.all_each
        self.server.spend(seconds, seconds * reading.own, reading.files_one * trip)
        return [run for key in trials for run in self.by_key.get(key, ())]

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(name)

    ids = files = read = metrics = recall = remember = forget = remembered = None  # type: ignore[assignment]


def timed(function: Callable[[], object]) -> float:
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


@dataclass
class Outcome:
    """What a simulation found."""

    makespan: float
    busy: float
    """Seconds of all workers in trials."""
    coordinating: float
    """In claims, in looking for trials, and pausing although there was a free one."""
    twice: int
    done: int
    collisions: int
    """Trials that another worker had claimed between the choice and the claim."""
    durations: dict[str, list[float]]

    @property
    def lost(self) -> float:
        return self.coordinating / (self.busy + self.coordinating)


@dataclass
class Simulation:
    """Workers of one study on one store. Events are (time, order, what to do)."""

    work: list[Work]
    template: StoredRun
    claims: TimedClaims
    store: Runs
    seconds: float
    clock: Clock
    events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    held: set[str] = field(default_factory=set)
    lost: float = 0.0
    busy: float = 0.0
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    def run(self, number: int) -> Outcome:
        # Every trial that has a run is done: what a run says need not be compared with what is asked for.
        quick: dict[str, Any] = {
            "supersede": lambda runs, problems: runs,
            "state_of": lambda trial, runs: STATES[bool(runs)],
        }
        with mock.patch.multiple(workers, time=self.clock, **quick):
            for _ in range(number):
                one: Any = round_of(self.work, self.store, self.claims)
                one.worker.kind = left
                self.at(0.0, partial(self.ask, one, one.jobs()))
            makespan = 0.0
            while self.events:
                self.clock.now, _, act = heapq.heappop(self.events)
                act()
                makespan = max(makespan, self.clock.now)
        twice = sum(count - 1 for count in self.done.values())
        durations = self.claims.server.durations
        return Outcome(makespan, self.busy, self.lost, twice, len(self.done), self.claims.collisions, durations)

    def at(self, when: float, act: Callable[[], None]) -> None:
        heapq.heappush(self.events, (when, next(NUMBERS), act))

    def ask(self, one: Round, jobs: Iterator[Any]) -> None:
        begin, free = self.clock.now, len(self.done) + len(self.held) < len(self.work)
        job = next(jobs, None)
        if free:  # else there is nothing that the worker could do instead
            self.lost += self.clock.now - begin
        if isinstance(job, Job):
            self.held.add(self.work[job.number].trial.key)
            seconds = self.seconds * self.rng.uniform(1 - VARIES, 1 + VARIES)
            self.busy += seconds + STARTING
            self.at(self.clock.now + STARTING + seconds, lambda: self.end(one, jobs, job))
        elif job is not None:
            if len(self.done) + len(self.held) < len(self.work):
                self.lost += job.seconds
            self.at(self.clock.now + job.seconds, lambda: self.ask(one, jobs))

    def end(self, one: Round, jobs: Iterator[Any], job: Job) -> None:
        begin, server = self.clock.now, self.claims.server
        trial, claim = self.work[job.number].trial, one.running.pop(job.number).claim
        assert claim is not None
        with server.measured("confirm"):
            claim.confirm()
        self.done[trial.key] += 1
        self.held.discard(trial.key)
        run = replace(self.template, key=trial.key, id=f"{trial.key[:16]}-1", trial=trial.json())
        self.store.by_key.setdefault(trial.key[:16], []).append(run)
        with server.measured("release"):
            claim.release()
        self.lost += self.clock.now - begin
        one.over(job.number, {"status": Answered.DONE})
        self.ask(one, jobs)


def left(work: Work, runs: Sequence[StoredRun]) -> Kind | None:
    return None if runs else Kind.TRAIN


STATES = (State.WAITING, State.DONE)
NUMBERS = iter(range(sys.maxsize))


def the_work(trials: int, folder: Path) -> tuple[list[Work], StoredRun]:
    """One row of a study with as many seeds, and a run as one of them is stored."""
    (study,) = find_studies("ablation_calr_ms")
    first = expand(study, get_preset("tiny"), 1)[0]
    template = store_run(folder, first, 0.5)
    work = []
    for seed in range(trials):
        trial = first.trial.with_seed(seed)
        work.append(stand(f"seed {seed}", [Request(study.name, 0, first.dataset, seed, trial, False)], []))
    return work, template


def simulate(
    kind: str, claims: Claims, reading: Reading, work: list[Work], template: StoredRun, arguments: argparse.Namespace
) -> list[str]:
    """One row of the table per length of trials."""
    rows = []
    for round_trip in [0.0] + ([one / 1000 for one in arguments.network] if kind == "directory" else []):
        for seconds in arguments.seconds:
            clock = Clock()
            server = Server(clock, FILES, round_trip)
            server.renewing = renewals(claims, arguments.workers)
            found = Simulation(work, template, TimedClaims(claims, server), Runs(server, reading), seconds, clock).run(
                arguments.workers
            )
            assert found.done == len(work), f"{found.done} of {len(work)} trials were done"
            cost = {name: 1000 * statistics.median(own) for name, own in found.durations.items()}
            ideal = -(-len(work) // arguments.workers) * seconds
            place = kind if not round_trip else f"{kind}, {1000 * round_trip:g} ms per file operation"
            claimed = " / ".join(f"{cost[name]:.2f}" for name in ("held 1", "acquire", "confirm"))
            rows.append(
                f"| {place} | {seconds:g} s | {found.twice} | {found.lost:.2%} | {found.collisions:,} | "
                f"{found.makespan / ideal:.2f} | {claimed} ms |"
            )
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def renewals(claims: Claims, workers: int) -> float:
    """The share of the store's time that renewals by all workers take."""
    claim = claims.acquire("renewed")
    assert claim is not None
    took = statistics.median(timed(claim.renew) for _ in range(200))
    claim.release()
    return workers * RENEWALS / LEASE * took


FILES = Files()
HEAD = (
    "| store | trials of | done twice | worker time lost | collisions | time / ideal | held / acquire / confirm |\n"
    "|:--|--:|--:|--:|--:|--:|--:|"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=500)
    parser.add_argument("--seconds", type=float, nargs="+", default=[600.0, 60.0, 10.0], help="lengths of trials")
    parser.add_argument("--network", type=float, nargs="*", default=[1.0, 5.0], help="round trips of a network, ms")
    parser.add_argument("--filled", type=int, default=FILLED, help="runs of the stores whose reading is measured")
    parser.add_argument("--only", choices=["directory", "mongo"])
    parser.add_argument("--out", type=Path, default=Path("perf"), help="where the table goes")
    arguments = parser.parse_args()
    begin = time.perf_counter()
    rows: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "filled").mkdir()
        fill(folder / "filled", arguments.filled)
        work, template = the_work(arguments.trials, folder / "template")
        filled = DirectoryStore(folder / "filled")
        if arguments.only != "mongo":
            reading = Reading.of(filled, FILES)
            rows += simulate("directory", Claims(DirectoryRecords(folder), DAY), reading, work, template, arguments)
        if arguments.only != "directory":
            server = Mongod(folder / "mongod")
            server.start()
            try:
                database = pymongo.MongoClient[Any](server.uri)["simulated"]
                sync(filled, database)
                reading = Reading.of(MongoStore(database), FILES)
                rows += simulate("MongoDB", Claims(MongoRecords(database), DAY), reading, work, template, arguments)
            finally:
                server.kill()
    text = f"{arguments.trials:,} trials, {arguments.workers} workers.\n\n{HEAD}\n" + "\n".join(rows) + "\n"
    print(text)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "simulation.md").write_text(text)
    print(f"{time.perf_counter() - begin:.0f} s in all; written to {arguments.out}/simulation.md", file=sys.stderr)


if __name__ == "__main__":
    main()
