"""Clocks that are wrong by a year: claims, heartbeats, and a whole `run` under such a clock."""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pymongo

from harness.owner import this_process
from harness.stores.claims import Claims
from harness.stores.directory.records import DirectoryRecords
from harness.stores.mongo.records import MongoRecords
from tests.long.campaign.commands import attempt, limited
from tests.long.campaign.scene import TINY, Scene, query
from tests.long.campaign.tally import Tally
from tests.many_trials import finish, start

YEAR = 365.25 * 86400
LEASE = 1.0
TRIES = 4

SHIFTED = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static long shift(void) { const char *text = getenv("CLOCK_SHIFT"); return text ? atol(text) : 0; }
int clock_gettime(clockid_t clock, struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int status = real(clock, now);
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += shift();
  return status;
}
int gettimeofday(struct timeval *now, void *zone) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  now->tv_sec = exact.tv_sec; now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}
time_t time(time_t *now) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (now) *now = exact.tv_sec;
  return exact.tv_sec;
}
"""
"""A wrong clock for one process and its children. The kernel's own, which sets times of files, stays right."""


def away(owner: dict[str, Any]) -> dict[str, Any]:
    """The owner on a machine that cannot be seen from here."""
    return {**owner, "host": "elsewhere", "boot": "another", "pid_namespace": "another"}


def claims(scene: Scene, rng: random.Random) -> Tally:
    """A claim of another machine, renewed a year from now or a year ago: free after its lease, and named until then."""
    tally = Tally("claims with times wrong by a year")
    with pymongo.MongoClient[dict[str, Any]](scene.server.uri) as client:
        database = client["clocks"]
        folder = scene.folder / "clocks"
        for number in range(TRIES):
            key = f"{rng.getrandbits(256):064x}"
            shift = rng.choice([-YEAR, YEAR, YEAR])
            kinds: list[tuple[str, Claims, Callable[[], None], tuple[str, ...]]] = [
                (
                    "directory",
                    Claims(DirectoryRecords(folder), lease=LEASE),
                    lambda key=key, shift=shift: _in_directory(folder / "claims" / key, shift),  # type: ignore[misc]
                    ("--store", str(folder)),
                ),
                (
                    "database",
                    Claims(MongoRecords(database), lease=LEASE),
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
    when = datetime.now(UTC) + timedelta(seconds=shift)
    database["harness_claims"].update_one({"_id": key}, {"$set": {"owner": away(this_process()), "renewed": when}})


def heartbeats(scene: Scene, rng: random.Random) -> Tally:
    """An unfinished run of another machine whose last sign of life is a year from now: `run` does not wait for it."""
    tally = Tally("heartbeats wrong by a year")
    for shift in (YEAR, -YEAR):
        with scene.copy() as store, tally.attempt(f"{shift / YEAR:+.0f} year") as one:
            run = store / scene.unfinished
            trial, record = (json.loads((run / name).read_text()) for name in ("cell.json", "run.json"))
            (run / "cell.json").write_text(json.dumps({**trial, "owner": away(trial["owner"])}))
            beat = datetime.now(UTC).replace(tzinfo=None) + timedelta(seconds=shift)
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
    source, library = scene.folder / "clock.c", scene.folder / "clock.so"
    source.write_text(SHIFTED)
    try:
        command = ["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return replace(tally, not_run="no C compiler")
    for shift in (YEAR, -YEAR):
        with tally.attempt(f"{shift / YEAR:+.0f} year") as one:
            store = scene.folder / f"clock-{shift > 0}"
            variables = {"LD_PRELOAD": str(library), "CLOCK_SHIFT": str(int(shift))}
            asked = ("run", "attacked", *TINY, "--store", str(store), "--no-references", "--only", "seed=0")
            process = start(scene.folder, *asked, **variables)
            said = finish(process)
            one.require("Traceback" not in said, "tracebacks", said[-300:])
            one.require(process.returncode == 0 and "3 of 3 trials done" in said, "lost", said[-300:])
            years = {json.loads(path.read_text())["start_time"][:4] for path in store.glob("*/run.json")}
            one.require(str(datetime.now().year) not in years, "other", "the clock was not wrong")
            shown = attempt(one, *query(store))
            mine = {row["key"]: row["kendall_tau"] for row in json.loads(shown.out)}
            known = {row["key"]: row["kendall_tau"] for row in scene.rows.values() if row["key"] in mine}
            one.require(mine == known, "wrong", f"{mine} instead of {known}")
            checked = attempt(one, "store", "check", "--store", str(store), codes=(0, 1))
            one.require("no problems" in checked.text, "other", checked.end)
    return tally


def run(scene: Scene, rng: random.Random) -> list[Tally]:
    return [claims(scene, rng), heartbeats(scene, rng), running(scene, rng)]
