"""Damaged files: of done, failed, invalid and unfinished runs, claims, checkpoints, references and the index."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.stores.directory.store import DirectoryStore
from harness.stores.stored import StoredRun
from tests.long.campaign.commands import attempt, limited
from tests.long.campaign.damage import WAYS, damaged, flipped
from tests.long.campaign.scene import TINY, Scene, query, report
from tests.long.campaign.tally import Attempt, Tally
from tests.many_trials import finish, start

FLIPS, DAMAGES, REPAIRS = 500, 80, 3
_NUMBERS = re.compile(r"[0-9a-f]{16,}|-\d+-[0-9a-f]{8}|\b\d+\b")


def kinds(store: Path) -> dict[str, list[Path]]:
    """Every file of a store, by what it is: files of one name of runs that ended alike are one kind."""
    found: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(path for path in store.rglob("*") if path.is_file()):
        run = store / path.relative_to(store).parts[0]
        state = "done" if (run / "completion.json").exists() else ""
        if (run / "cell.json").exists() and not state:
            state = "unfinished" if (run / "metrics.jsonl").exists() else "failed"
        found[f"{state} {_NUMBERS.sub('*', str(path.relative_to(store)))}".strip()].append(path)
    return dict(found)


def is_recorded(path: Path, store: Path) -> bool:
    """Whether a completion record knows the file's checksum."""
    run = store / path.relative_to(store).parts[0]
    record = run / "completion.json"
    return record.exists() and str(path.relative_to(run)) in json.loads(record.read_text())["files"]


def flips(scene: Scene, rng: random.Random, tries: int) -> Tally:
    """Single bits, read as every command reads: nothing else than what was measured may come out."""
    tally = Tally("bit flips in files, read")
    with scene.copy() as store:
        known = {run.id: run for run in DirectoryStore(store).runs()}
        of_kind = kinds(store)
        for number in range(tries):
            kind = rng.choice(sorted(of_kind))
            path = rng.choice(of_kind[kind])
            with tally.attempt(f"{number}: {kind}") as one, damaged(path, rng, (flipped,)), limited(30):
                _read(one, store, known)
    return tally


def _read(one: Attempt, store: Path, known: dict[str, StoredRun]) -> None:
    opened = DirectoryStore(store)
    try:
        runs = opened.runs()
    except Exception as error:
        one.fail("tracebacks", f"{type(error).__name__}: {error}")
        return
    told = " ".join(problem.place for problem in opened.problems)
    counted = {run.id: run for run in runs if run.counts}
    for name, run in counted.items():
        expected = known.get(name)
        if expected is not None and len(run.rankings) < len(expected.rankings) and name in told:
            expected = _without_rankings(expected, run)
        one.require(run == expected, "wrong", f"{name} counts with other values")
    for name in {name for name, run in known.items() if run.counts} - counted.keys():
        one.require(name in told, "lost", f"{name} does not count, and nothing says why")


def _without_rankings(known: StoredRun, run: StoredRun) -> StoredRun:
    """The run as it is known, but for rankings that were named as damaged."""

    def left(rankings: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        return {key: value for key, value in rankings.items() if key in run.rankings}

    first = left(known.first_rankings)
    return replace(known, rankings=left(known.rankings), asked=left(known.asked), first_rankings=first)


def damages(scene: Scene, rng: random.Random, tries: int) -> Tally:
    """Any damage, met by the commands: values, exit codes, and whether `store check` names it."""
    tally = Tally("damaged files, all commands")
    with scene.copy() as store:
        of_kind = kinds(store)
        for number in range(tries):
            kind = rng.choice(sorted(of_kind))
            path = rng.choice(of_kind[kind])
            before, recorded = path.read_bytes(), is_recorded(path, store)
            with tally.attempt(f"{number}: {kind}") as one, damaged(path, rng) as what:
                one.what += f": {what}"
                if path.name == "invalid.json" and what == "deleted":
                    continue  # as if it had never been there
                shown = attempt(one, *query(store), within=30)
                checked = attempt(one, "store", "check", "--store", str(store), codes=(0, 1), within=30)
                scene.judge(one, shown, checked)
                changed = not path.is_file() or path.read_bytes() != before
                if changed and recorded:
                    named = path.name in checked.text or path.parent.name in checked.text
                    one.require(checked.code == 1 and named, "other", "`store check` does not name it")
                scene.judge_report(one, attempt(one, *report(store), within=30))
                run = path.relative_to(store).parts[0]
                more = [
                    ("status", "attacked", "failing", "unfinished", *TINY, "--store", str(store)),
                    ("plan", "unfinished", *TINY, "--store", str(store)),
                    ("store", "clean", "--dry-run", "--store", str(store)),
                    ("show", run if "-" in run else scene.unfinished, "--store", str(store)),
                    (*query(store), "--all"),
                ]
                attempt(one, *rng.choice(more), within=30)
    return tally


def repairs(scene: Scene, rng: random.Random, tries: int) -> Tally:
    """Damage, `store check --fix` beside the database, then `run`: everything is there again, once, with its values."""
    tally = Tally("damaged files, repaired and run again")
    for number in range(tries):
        with scene.copy() as store:
            of_kind = kinds(store)
            kind = rng.choice(sorted(of_kind))
            path = rng.choice(of_kind[kind])
            with tally.attempt(f"{number}: {kind}") as one:
                one.what += f": {rng.choice(WAYS)(path, rng)}"
                attempt(one, "store", "check", "--fix", "--store", str(store), "--mongo", scene.uri, codes=(0, 1))
                again = start(scene.folder, "run", "attacked", *TINY, "--no-references", "--store", str(store))
                said = finish(again)
                one.require("Traceback" not in said, "tracebacks", said[-300:])
                one.require(again.returncode == 0 and "6 of 6 trials done" in said, "lost", said[-300:])
                _compare(one, scene, store)
    return tally


def _compare(one: Attempt, scene: Scene, store: Path) -> None:
    """Every trial counts once, with the values that it had."""
    shown = attempt(one, *query(store, "--study", "attacked"))
    if shown.code == 0:
        columns = ("key", "kendall_tau", "top1_accuracy", "top1", "ranked", "selected")
        measured = sorted([row[name] for name in columns] for row in json.loads(shown.out))
        mine = {row["key"] for row in json.loads(shown.out)}
        expected = sorted([row[name] for name in columns] for row in scene.rows.values() if row["key"] in mine)
        one.require(len(mine) == 6, "lost", f"{len(mine)} trials count")
        one.require(len(measured) == len(mine), "doubled", "a trial counts twice")
        one.require(measured == expected, "wrong", "values differ")


def run(scene: Scene, rng: random.Random) -> list[Tally]:
    shutil.rmtree(scene.folder / "copy", ignore_errors=True)
    return [flips(scene, rng, FLIPS), damages(scene, rng, DAMAGES), repairs(scene, rng, REPAIRS)]
