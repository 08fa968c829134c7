"""Clocks that are wrong by a year: claims, heartbeats, and a whole `run` under such a clock."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pymongo

from harness.owner import this_process
from harness.stores.claims.directory import DirectoryClaims
from harness.stores.claims.lease import Claims
from harness.stores.claims.mongo import COLLECTION, MongoClaims
from tests.long.campaign.commands import attempt, limited
from tests.long.campaign.scene import TINY, Scene, query
from tests.long.campaign.tally import Tally
from tests.many_trials import REPOSITORY, finish, start

YEAR = 365.25 * 86400
LEASE = 1.0
TRIES = 6

SHIFTED = """
import datetime, os, time
_shift, _time, _zone = float(os.environ["CLOCK_SHIFT"]), time.time, datetime.timezone.utc
class _Datetime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(_time() + _shift, tz)
    @classmethod
    def utcnow(cls):
        return cls.fromtimestamp(_time() + _shift, _zone).replace(tzinfo=None)
time.time = lambda: _time() + _shift
datetime.datetime = _Datetime
"""
"""The start of every Python process under a wrong clock. The kernel's clock, which sets times of files, is right."""


def away(owner: dict[str, Any]) -> dict[str, Any]:
    """The owner on a machine that cannot be seen from here."""
    return {**owner, "host": "elsewhere", "boot": "another", "pid_namespace": "another"}


def claims(scene: Scene, rng: random.Random) -> Tally:
    """A claim of another machine, renewed a year from now or a year ago: free after its lease, and named until then."""
    tally = Tally("claims with times wrong by a year")
    with pymongo.MongoClient[dict[str, Any]](scene.server.uri) as client:
        database = client["clocks"]
        folder = scene.folder / "clocks" / "claims"
        for number in range(TRIES):
            key = f"{rng.getrandbits(256):064x}"
            shift = rng.choice([-YEAR, YEAR, YEAR])
            kinds: list[tuple[str, Claims, Callable[[], None], tuple[str, ...]]] = [
                (
                    "directory",
                    DirectoryClaims(folder, lease=LEASE),
                    lambda key=key, shift=shift: _in_directory(folder / key, shift),  # type: ignore[misc]
                    ("--store", str(folder.parent)),
                ),
                (
                    "database",
                    MongoClaims(database, lease=LEASE),
                    lambda key=key, shift=shift: _in_database(database, key, shift),  # type: ignore[misc]
                    ("--store", scene.server.uri.replace("/?", "/clocks?")),
                ),
            ]
            for kind, own, change, place in kinds:
                when = "from now" if shift > 0 else "ago"
                with tally.attempt(f"{number}: {kind}, a year {when}") as one, limited(60):
                    assert own.acquire(key) is not None
                    change()
                    if shift > 0:
                        checked = attempt(one, "store", "check", *place, codes=(0, 1))
                        one.require(key[:16] in checked.text, "other", "`store check` does not name it")
                    until = time.monotonic() + LEASE + 20
                    while (taken := own.acquire(key)) is None and time.monotonic() < until:
                        time.sleep(0.1)
                    one.require(taken is not None, "hangs", "the trial is blocked")
                    if taken is not None:
                        taken.release()
        client.drop_database("clocks")
    return tally


def _in_directory(place: Path, shift: float) -> None:
    path = max(place.iterdir(), key=lambda one: int(one.name))
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "owner": away(document["owner"])}))
    now = time.time() + shift
    os.utime(path, (now, now))


def _in_database(database: Any, key: str, shift: float) -> None:
    when = datetime.now(timezone.utc) + timedelta(seconds=shift)
    database[COLLECTION].update_one({"_id": key}, {"$set": {"owner": away(this_process()), "renewed": when}})


def heartbeats(scene: Scene, rng: random.Random) -> Tally:
    """An unfinished run of another machine whose last sign of life is a year from now: `run` does not wait for it."""
    tally = Tally("heartbeats wrong by a year")
    for shift in (YEAR, -YEAR):
        with scene.copy() as store, tally.attempt(f"{shift / YEAR:+.0f} year") as one:
            run = store / scene.unfinished
            trial, record = (json.loads((run / name).read_text()) for name in ("cell.json", "run.json"))
            (run / "cell.json").write_text(json.dumps({**trial, "owner": away(trial["owner"])}))
            beat = datetime.now(timezone.utc).replace(tzinfo=None) + timedelta(seconds=shift)
            (run / "run.json").write_text(json.dumps({**record, "heartbeat": beat.isoformat()}))
            asked = ("--preset", "tiny", "--seeds", "1", "--store", str(store))
            said = attempt(one, "status", "unfinished", *asked)
            running = [line.split() for line in said.out.splitlines() if line.startswith("unfinished")][0][4]
            one.require(running == "0", "hangs", "`status` says that it is running")
            shown = attempt(one, *query(store))
            scene.judge(one, shown)
    return tally


def running(scene: Scene, rng: random.Random) -> Tally:
    """`run` under a wrong clock, read under a right one."""
    tally = Tally("run under a clock wrong by a year")
    site = scene.folder / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(SHIFTED)
    for shift in (YEAR, -YEAR):
        with tally.attempt(f"{shift / YEAR:+.0f} year") as one:
            store = scene.folder / f"clock-{shift > 0}"
            variables = {"PYTHONPATH": f"{site}{os.pathsep}{REPOSITORY}", "CLOCK_SHIFT": str(shift)}
            asked = ("run", "attacked", *TINY, "--store", str(store), "--no-references", "--only", "seed=0")
            process = start(scene.folder, *asked, variables=variables)
            said = finish(process)
            one.require("Traceback" not in said, "tracebacks", said[-300:])
            one.require(process.returncode == 0 and "3 of 3 trials done" in said, "lost", said[-300:])
            shown = attempt(one, *query(store))
            mine = {row["key"]: row["kendall_tau"] for row in json.loads(shown.out)}
            known = {row["key"]: row["kendall_tau"] for row in scene.rows.values() if row["key"] in mine}
            one.require(len(mine) == 3 and mine == known, "wrong", f"{mine} instead of {known}")
            checked = attempt(one, "store", "check", "--store", str(store), codes=(0, 1))
            one.require("no problems" in checked.text, "other", checked.end)
    return tally


def run(scene: Scene, rng: random.Random) -> list[Tally]:
    return [claims(scene, rng), heartbeats(scene, rng), running(scene, rng)]
