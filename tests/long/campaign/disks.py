"""Full and read-only file systems. Needs the right to mount a small one."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.long.campaign.commands import attempt, call
from tests.long.campaign.scene import TINY, Scene, query, report
from tests.long.campaign.tally import Tally
from tests.long.disks import filled, mounted
from tests.many_trials import finish, start
from tests.stores.upkeep.test_archive import tree

IMPORTS, EXPORTS, RUNS = 14, 6, 1
ROOM = 3000
"""Kilobytes of the small disk; the archive of six runs takes a quarter of it."""


@contextmanager
def small(scene: Scene, size: int = ROOM) -> Iterator[Path]:
    place = scene.folder / "disk"
    place.mkdir(exist_ok=True)
    with mounted(place, f"size={size}k"):
        yield place


def full(scene: Scene, rng: random.Random, archive: Path) -> Tally:
    """So many kilobytes are left: what cannot be written is refused in a line, and what was there stays."""
    tally = Tally("full disk")
    for _ in range(IMPORTS):
        left = rng.choice([0, 4, 16, 64, rng.randrange(600), rng.randrange(600)])
        with tally.attempt(f"import with {left} kB left") as one, small(scene) as disk, filled(disk, left):
            said = attempt(one, "store", "import", str(archive), "--store", str(disk / "runs"))
            runs = [path for path in (disk / "runs").glob("*-*-*") if not path.name.startswith(".")]
            one.require(
                len(runs) in (0, 6) and (said.code == 0) == (len(runs) == 6), "other", f"{len(runs)} runs added"
            )
            for run in runs:
                one.require(tree(run) == tree(scene.store / run.name), "wrong", f"{run.name} differs")
            one.require(said.code == 0 or "o space left" in said.text, "other", said.end)
    for _ in range(EXPORTS):
        left = rng.choice([0, 4, rng.randrange(300)])
        with tally.attempt(f"export and report with {left} kB left") as one, small(scene) as disk, filled(disk, left):
            target = disk / "x.tar"
            said = attempt(one, "store", "export", "attacked", str(target), *TINY, "--store", str(scene.store))
            whole = said.code == 0
            one.require(target.exists() == whole, "other", f"exit code {said.code}, but the file is there: {not whole}")
            one.require(not whole or target.read_bytes() == archive.read_bytes(), "wrong", "the archive differs")
            target.unlink(missing_ok=True)
            attempt(one, "report", "attacked", *TINY, "--store", str(scene.store), "--out", str(disk / "out"))
    for _ in range(RUNS):
        left = rng.choice([0, 16, 40, 100])
        with tally.attempt(f"run with {left} kB left") as one, small(scene) as disk:
            store = disk / "runs"
            assert call("store", "import", str(archive), "--store", str(store)).code == 0
            asked = ("run", "attacked", "--preset", "tiny", "--seeds", "3", "--store", str(store), "--no-references")
            with filled(disk, left):
                text = finish(start(scene.folder, *asked, "--checkpoint-every", "0.02"))
                one.require("Traceback" not in text, "tracebacks", text[-300:])
                shown = attempt(one, *query(store, "seed < 2"), codes=(0,))
                there = {row["run_id"]: row for row in json.loads(shown.out)}
                one.require(len(there) == 6, "lost", f"{len(there)} of 6 runs are left")
                one.require(there.items() <= scene.rows.items(), "wrong", "values differ")
            again = start(scene.folder, *asked)
            text = finish(again)
            one.require(again.returncode == 0 and "9 of 9 trials done" in text, "lost", text[-300:])
    return tally


def read_only(scene: Scene, archive: Path) -> Tally:
    """Readers read; writers say that they cannot."""
    tally = Tally("read-only file system")
    with small(scene, 8000) as disk:
        store = disk / "runs"
        shutil.copytree(scene.store, store, symlinks=True)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        place = ("--store", str(store))
        reading = [
            ("status", "attacked", *TINY, *place),
            ("plan", "attacked", *TINY, *place),
            ("show", scene.unfinished, *place),
            ("store", "clean", "--dry-run", *place),
            ("store", "check", *place),
            ("store", "export", "attacked", str(scene.folder / "ro.tar"), *TINY, *place),
        ]
        writing = [
            ("store", "check", "--fix", *place),
            ("store", "clean", *place),
            ("store", "import", str(archive), "--store", str(disk / "other")),
            ("store", "invalidate", min(scene.rows), "--reason", "x", *place),
            ("report", "attacked", *TINY, *place, "--out", str(disk / "out")),
            ("run", "attacked", "--preset", "tiny", "--seeds", "3", *place),
        ]
        with tally.attempt("query") as one:
            scene.judge(one, attempt(one, *query(store)))
        with tally.attempt("report") as one:
            scene.judge_report(one, attempt(one, *report(store), codes=(0,)))
        for command in reading:
            with tally.attempt(" ".join(command[:2])) as one:
                attempt(one, *command, codes=(0, 1) if "check" in command else (0,))
        for command in writing:
            with tally.attempt(" ".join(command[:2])) as one:
                attempt(one, *command, codes=(1, 2))
    (scene.folder / "ro.tar").unlink(missing_ok=True)
    return tally


def run(scene: Scene, rng: random.Random) -> list[Tally]:
    archive = scene.folder / "whole.tar"
    said = call("store", "export", "attacked", str(archive), *TINY, "--store", str(scene.store))
    assert said.code == 0, said.end
    try:
        with small(scene):
            pass
    except (OSError, subprocess.CalledProcessError):
        why = "no right to mount a file system"
        return [Tally("full disk", not_run=why), Tally("read-only file system", not_run=why)]
    try:
        return [full(scene, rng, archive), read_only(scene, archive)]
    finally:
        archive.unlink()
