"""Checks of the store and the database: reachable, writable, undamaged, not too new, with nothing left unfinished."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from harness.documents import NEWER
from harness.errors import HarnessError, Unreachable, UserError
from harness.stores.claims import Claims
from harness.stores.directory.records import DirectoryRecords
from harness.stores.directory.store import DirectoryStore
from harness.stores.places import MONGO, VARIABLE, Places
from harness.stores.stored import Problem, Status
from harness.stores.upkeep.checking import orphaned
from harness.work.diagnosis.finding import Findings, nearest, note, ok, plural, problem, write_error

PATIENCE = 3.0
"""Seconds within which the database must answer."""
SKEW = 5.0
"""Seconds by which two clocks may differ. Leases are a minute long."""
ANOTHER = f"name another with --store or {VARIABLE}"


def check_store(places: Places) -> Findings:
    """The directory of the runs."""
    if places.database_only:
        yield note("store", "only the database was named; the directory is not looked at")
        return
    try:
        store = DirectoryStore(places.directory)
    except UserError as error:
        yield problem("store", str(error), f"move the file away, or {ANOTHER}")
        return
    place = nearest(store.path)
    refused = write_error(place)
    if refused is not None:
        yield problem("store", f"no file can be written in {place}: {refused}", f"make it writable, or {ANOTHER}")
    if place != store.path.absolute():
        if refused is None:
            yield note("store", f"there is no store {store.path} yet; the first `harness run` makes it")
        return
    if refused is None:
        yield from _check_clock(store.path)
    try:
        yield from _check_runs(store, refused is None)
    except UserError as unreadable:
        yield problem("store", str(unreadable), f"make it readable, or {ANOTHER}")


def check_database(places: Places) -> Findings:
    """The database: whether it answers, lets this user read and write, and has all runs of the directory."""
    if places.mongo is None:
        yield ok("database", f"none ({MONGO} is not set): runs are kept in the directory alone")
        return
    from harness.stores.mongo.connection import address, connect, disconnect, translated
    from harness.stores.mongo.sync import unsynced

    try:
        database = connect(places.mongo, timeout=PATIENCE)
    except Unreachable as error:
        advice = f"start the server (`harness mongo start` starts a private one), or correct {MONGO}"
        yield problem("database", str(error), advice)
        return
    except UserError as error:
        yield problem("database", str(error), f"correct {MONGO}: address, user, password; or ask for the right to read")
        return
    try:
        with translated():
            version = database.client.server_info()["version"]
            runs = database["runs"].estimated_document_count()
            # Matches nothing and so writes nothing, but needs the right to write.
            database["runs"].update_one({"_id": "no run has this id"}, {"$set": {"seen": True}})
        yield ok("database", f"{address(database)} answers (MongoDB {version}), {plural(runs, 'run')}")
        here = not places.database_only and places.directory.is_dir()
        if here and (missing := unsynced(DirectoryStore(places.directory), database)):
            text = f"{plural(len(missing), 'run')} of {places.directory} not in the database yet"
            yield note("database", text, "`harness store sync` brings them there")
    except HarnessError as error:
        yield problem("database", f"{address(database)}: {error}", "ask for the right to write (role readWrite)")
    finally:
        disconnect(database.client)


def _check_clock(folder: Path) -> Findings:
    """The clock of the file system against this machine's: on a network disk it is the server's."""
    before = time.time()
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".new-") as file:
        os.utime(file.fileno())  # now, by the clock of the file system where that is another
        written = os.stat(file.name).st_mtime
    after = time.time()
    off = written - after if written > after else min(0.0, written - before)
    if abs(off) > SKEW:
        text = f"the clock of {folder} is {abs(off):.0f} s {'ahead of' if off > 0 else 'behind'} this machine's"
        yield problem("clock", text, "synchronise the clocks (NTP): claims of several machines expire by them")


def _check_runs(store: DirectoryStore, writable: bool) -> Findings:
    runs = store.runs()
    newer = [one for one in store.problems if NEWER in one.reason]
    damaged = [one for one in store.problems if one not in newer]
    if damaged:
        advice = "`harness store check` lists all damage; with --fix it repairs what a database has"
        yield problem("runs", f"{_some(damaged, 'entry', 'entries')} cannot be used: {_first(damaged)}", advice)
    if newer:
        text = f"{_some(newer, 'run is', 'runs are')} of a newer version: {_first(newer)}"
        yield problem("runs", text, "pip install --upgrade nas-harness")
    over = {run.key for run in runs if run.status in (Status.DONE, Status.RUNNING)}
    left = [run for run in runs if run.status is Status.LOST and run.key not in over]
    if left:
        scales = ", ".join(sorted({run.preset for run in left}))
        text = f"{plural(len(left), 'run')} left unfinished by a process that died, for example {left[-1].id}"
        advice = f"`harness show {left[-1].id}` names its configuration; running its study continues it ({scales})"
        yield problem("runs", text, advice)
    if claims := list(orphaned(Claims(DirectoryRecords(store.path)), str(store.claims))):
        text = f"{plural(len(claims), 'claim')} of dead or silent processes, for example {claims[0].reason}"
        yield note("claims", text, "`harness run` takes them over; `harness store check --fix` frees them")
    if not store.problems:
        counted = sum(run.counts for run in runs)
        how = "readable and writable" if writable else "readable"
        yield ok("store", f"{store.path}: {plural(len(runs), 'run')}, of which {counted} count; {how}")


def _some(found: list[Problem], one: str, many: str) -> str:
    return f"{len(found)} {one if len(found) == 1 else many}"


def _first(found: list[Problem]) -> str:
    return f"{found[0].place} {found[0].reason}"
