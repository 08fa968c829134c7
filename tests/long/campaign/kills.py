"""SIGKILL at random moments, of every kind of process, on both stores: each trial once, with a reference's bytes."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymongo

from tests.long.campaign.commands import attempt, call
from tests.long.campaign.forks import killed
from tests.long.campaign.scene import TINY, Scene, kill_all
from tests.long.campaign.tally import Attempt, Hang, Tally
from tests.many_trials import finish, standing, start
from tests.mongod import Mongod
from tests.processes import descendants
from tests.stores.upkeep.test_archive import tree

DIRECTORY, DATABASE, SYNCS, IMPORTS, EXPORTS = 12, 12, 16, 14, 6
TRIALS = 12
PATIENCE = 1200.0
"""Seconds that the whole of one store has, kills and all; then it hangs."""

STUDY = """
from harness.study import Column, Row, Study

toy = {"space": "toy", "rank.images": 50, "rank.candidates": 12, "rank.bins": 5,
       "train.epochs": 6, "train.batch_size": 20, "network.width": 2, "method.name": "slow",
       "observe.kendall_tau_every": 2}
rows = [Row({"Images": name}, toy | {"dataset": name, "benchmark": name}) for name in ("toy", "streamed")]
study = Study("killed", "Killed", rows, [Column("τ", "kendall_tau")])
"""

STREAMED = """
from dataclasses import replace
from pathlib import Path

from harness.components.dataset import DataSet, Stream
from harness.components.registries import BENCHMARKS, DATASETS, SPACES
from harness.truth.table import Table, TableBenchmark


class Few:
    def __init__(self, split):
        self.split = split

    def __len__(self):
        return len(self.split.labels)

    def sample(self, index):
        return self.split.images[index], int(self.split.labels[index])


@DATASETS.register("streamed")
def streamed():
    '''The toy's images, read one by one by processes of their own.'''
    whole = DATASETS.get("toy")()
    parts = (Stream(Few(part), part.images.shape[1:]) for part in (whole.train, whole.valid, whole.test))
    return DataSet("streamed", 10, *parts, whole.mean, whole.std)


@BENCHMARKS.register("streamed")
def benchmark():
    '''The toy's table.'''
    table = Table.read(Path(__file__).parents[1] / "toy.npz")
    table = replace(table, provenance={**table.provenance, "dataset": "streamed"})
    return TableBenchmark("streamed", SPACES.get("toy")(), table)
"""

READERS = {"HARNESS_DATA_WORKERS": "1"}
ASKED = ("run", "killed", "--preset", "tiny", "--seeds", str(TRIALS // 2), "--no-references", "--retry", "all")


def content(store: Path) -> dict[str, dict[str, Any]]:
    """What the runs that count have computed, by trial: exact, and nothing that was measured in time."""
    runs, _ = standing(store)
    found = {}
    for run in (run for run in runs if run.counts):
        folder = store / run.id
        curves = json.loads((folder / "metrics.json").read_text())
        found[run.key] = {
            "result": json.loads((folder / "result.json").read_text())["result"],
            "curves": {name: (one["steps"], one["values"]) for name, one in curves.items()},
            "predictions": (folder / "predictions.json").read_bytes(),
            "weights": (folder / "weights.pt").read_bytes(),
        }
    return found


def processes(run: subprocess.Popen[str]) -> Iterator[tuple[str, int]]:
    """The processes of a `run` by their kind: its server's children train, their children read images."""
    yield "run", run.pid
    servers = _children(run.pid)
    trials = [one for server in servers for one in _children(server)]
    yield from (("fork server", one) for one in servers)
    yield from (("trial", one) for one in trials)
    yield from (("reading worker", worker) for one in trials for worker in _children(one))


def _children(process: int) -> list[int]:
    everybody = descendants(process)
    return sorted(everybody - {below for one in everybody for below in descendants(one)})


def until_done(tally: Tally, folder: Path, store: Path, uri: str | None, server: Mongod | None, plan: Plan) -> None:
    """Run a store to its end, with kills on the way."""
    asked = (*ASKED, "--jobs", "2", "--checkpoint-every", "0.05", "--lease", "5", "--store", str(store))
    more = ("--mongo", uri, "--outage-wait", "60") if uri else ()

    def begin() -> subprocess.Popen[str]:
        return start(folder, *asked, *more, **READERS)

    until = time.monotonic() + PATIENCE
    run = begin()
    failed = 0
    try:
        while failed < TRIALS:
            if time.monotonic() > until:
                raise Hang
            time.sleep(plan.rng.uniform(0.05, 0.8))  # a random moment is the point
            if run.poll() is not None:
                said = finish(run)
                if "Traceback" in said:
                    tally.attempts.append(Attempt("what `run` said", [("tracebacks", said[-400:])]))
                if run.returncode == 0:
                    return
                failed += 1
                run = begin()
            elif plan.left and "trial" in (there := dict(processes(run))):  # before that, nothing is to lose
                kind = plan.next(there, server is not None)
                tally.attempts.append(Attempt(f"{kind} killed"))
                _kill(kind, run, there, server, plan.rng)
        tally.attempts.append(Attempt("the end", [("lost", finish(run)[-400:])]))
    except Hang:
        tally.attempts.append(Attempt("the end", [("hangs", f"not done after {PATIENCE:.0f} s: {dict(plan.made)}")]))
    finally:
        kill_all(run)


@dataclass
class Plan:
    """Which processes are still to be killed."""

    rng: random.Random
    left: int
    made: Counter[str] = field(default_factory=Counter)

    def next(self, there: Mapping[str, int], database: bool) -> str:
        """A kind of process that is there, seldom killed ones first."""
        kinds = [*there, "everything", *(["mongod"] if database else [])]
        fewest = min(self.made[kind] for kind in kinds)
        kind = self.rng.choice([kind for kind in kinds if self.made[kind] <= fewest + 1])
        self.made[kind] += 1
        self.left -= 1
        return kind


def _kill(
    kind: str, run: subprocess.Popen[str], there: dict[str, int], server: Mongod | None, rng: random.Random
) -> None:
    if kind == "everything":
        kill_all(run)
    elif kind == "mongod":
        assert server is not None
        server.kill()
        time.sleep(rng.uniform(0.1, 2.0))
        server.start()
    else:
        with contextlib.suppress(ProcessLookupError):
            os.kill(there[kind], signal.SIGKILL)


def judge(tally: Tally, store: Path, uri: str | None, reference: dict[str, dict[str, Any]]) -> None:
    """Each trial once, with the bytes of the reference, in the directory and in the database."""
    one = tally.attempts[-1]
    runs, _ = standing(store)
    done = Counter(run.key for run in runs if run.status == "done")
    one.require(not (twice := [key for key, count in done.items() if count > 1]), "doubled", f"done twice: {twice}")
    found = content(store)
    one.require(found.keys() == reference.keys(), "lost", f"{len(found)} of {len(reference)} trials count")
    for key in found.keys() & reference.keys():
        other = [name for name in reference[key] if found[key][name] != reference[key][name]]
        one.require(not other, "wrong", f"{key[:16]} has other {', '.join(other)}")
    if uri:
        attempt(one, "store", "sync", "--store", str(store), "--mongo", uri, codes=(0,))
        one.require(standing(uri)[0] == runs, "wrong", "the database has other runs than the directory")


def killed_at_random(
    scene: Scene, rng: random.Random, kills: int, reference: dict[str, dict[str, Any]], server: Mongod | None
) -> Tally:
    """So many kills, over as many stores as they need."""
    where = "directory and database" if server else "directory"
    tally, plan = Tally(where), Plan(rng, kills)
    for number in range(kills):
        store = scene.folder / f"killed-{number}-{where.replace(' ', '-')}"
        uri = server.uri.replace("/?", f"/killed-{number}?") if server else None
        until_done(tally, scene.folder, store, uri, server, plan)
        judge(tally, store, uri, reference)
        if not plan.left or any(kind == "hangs" for kind, _ in tally.attempts[-1].failures):
            break
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(plan.made.items()))
    tally.attack = f"kills, {where}: {kinds}"
    return tally


def syncs(scene: Scene, rng: random.Random) -> Tally:
    """`store sync` killed, again and again; then the database is what one sync would have made."""
    tally = Tally("sync killed")
    uri = scene.server.uri.replace("/?", "/killed-sync?")
    asked = ("store", "sync", "--store", str(scene.store), "--mongo", uri)
    with pymongo.MongoClient[dict[str, Any]](scene.server.uri) as client:
        began = time.monotonic()
        assert call(*asked).code == 0
        whole = time.monotonic() - began
        counts = _documents(client)
        client.drop_database("killed-sync")
        for number in range(SYNCS):
            tally.attempts.append(Attempt(f"{number}"))
            killed(*asked, after=rng.uniform(0, whole))
            if number % 4 == 3:
                one = tally.attempts[-1]
                attempt(one, *asked, codes=(0,))
                again = attempt(one, *asked, codes=(0,))
                one.require(again.out.startswith("0 of"), "doubled", again.end)
                one.require(_documents(client) == counts, "doubled", f"{_documents(client)} instead of {counts}")
                local, mirrored = standing(scene.store)[0], standing(uri)[0]
                one.require(local == mirrored, "wrong", "the database has other runs than the directory")
                client.drop_database("killed-sync")
    return tally


def _documents(client: pymongo.MongoClient[dict[str, Any]]) -> dict[str, int]:
    database = client["killed-sync"]
    return {name: database[name].count_documents({}) for name in sorted(database.list_collection_names())}


def imports(scene: Scene, rng: random.Random) -> Tally:
    """`store import` and `export` killed: no half run is seen, and the next call completes it."""
    tally = Tally("import and export killed")
    archive, place = scene.folder / "killed.tar.gz", scene.folder / "killed-import"
    assert call("store", "export", "attacked", str(archive), *TINY, "--store", str(scene.store)).code == 0
    asked = ("store", "import", str(archive), "--store", str(place))
    began = time.monotonic()
    assert call(*asked).code == 0
    whole = time.monotonic() - began
    shutil.rmtree(place)
    for number in range(IMPORTS):
        with tally.attempt(f"import {number}") as one:
            killed(*asked, after=rng.uniform(0, whole))
            _equal(one, scene, place)
            if number % 3 == 2:
                attempt(one, *asked, codes=(0,))
                _equal(one, scene, place, 6)
                shutil.rmtree(place)
    shutil.rmtree(place, ignore_errors=True)
    target = scene.folder / "half.tar.gz"
    for number in range(EXPORTS):
        with tally.attempt(f"export {number}") as one:
            killed(
                "store",
                "export",
                "attacked",
                str(target),
                *TINY,
                "--store",
                str(scene.store),
                after=rng.uniform(0, whole),
            )
            if target.exists():
                one.require(target.read_bytes() == archive.read_bytes(), "wrong", "half an archive")
                target.unlink()
    archive.unlink()
    for left in scene.folder.glob(".half*"):
        left.unlink()
    return tally


def _equal(one: Attempt, scene: Scene, place: Path, count: int | None = None) -> None:
    runs = [path for path in place.glob("*-*-*") if not path.name.startswith(".")]
    one.require(count in (None, len(runs)), "lost", f"{len(runs)} runs instead of {count}")
    for run in runs:
        one.require(tree(run) == tree(scene.store / run.name), "wrong", f"{run.name} differs")


def run(scene: Scene, rng: random.Random) -> list[Tally]:
    folder = scene.folder
    copies = [syncs(scene, rng), imports(scene, rng)]  # first: the runs of a changed method are other runs
    (folder / "studies" / "killed.py").write_text(STUDY)
    (folder / "spaces" / "streamed.py").write_text(STREAMED)
    (folder / "methods" / "slow.py").write_text((folder / "methods" / "slow.py").read_text().replace("0.002", "0.05"))
    reference = start(folder, *ASKED, "--jobs", "2", "--store", str(folder / "reference"), **READERS)
    said = finish(reference)
    assert reference.returncode == 0, said
    known = content(folder / "reference")
    assert len(known) == TRIALS
    server = Mongod(folder.parent / "killed-server")
    server.start()
    try:
        directory = killed_at_random(scene, rng, DIRECTORY, known, None)
        both = killed_at_random(scene, rng, DATABASE, known, server)
    finally:
        server.kill()
    return [directory, both, *copies]
