"""A power cut at any moment: what was reported as done counts, with the same bytes, and all else continues.

The store lies on a loop-mounted ext4 image. A copy of the image file holds what was written to the disk, and lacks what
only the page cache has, so mounting the copy is what happens after a power cut. A disk that loses what it has
acknowledged is not covered.
"""

from __future__ import annotations

import hashlib
import json
import queue
import random
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.stores.stored import StoredRun
from harness.truth.table import Table
from tests.jobs import outcome
from tests.long.disks import loop_mounted, make_image, power_cut
from tests.many_trials import finish, make_project, standing, start, start_piped

RANDOM = 10
"""Copies at random moments; a further one is made whenever a trial is reported as done."""

SEEDS = 4
OFTEN = ("--checkpoint-every", "0.05")
RUN = ("run", "many", "--preset", "tiny", "--seeds", str(SEEDS), "--jobs", "2", "--no-references", *OFTEN)
DONE = re.compile(r"\[ *\d+/\d+\] many/(\w+) seed (\d+): done")

Name = tuple[str, int]
"""Schedule and seed of a trial."""


@dataclass(frozen=True)
class Cut:
    """The disk at a moment, and what had been reported as done before."""

    moment: str
    disk: bytes
    announced: frozenset[Name]


def counting(store: Path) -> dict[Name, StoredRun]:
    """The runs that count, by trial."""
    runs = (run for run in standing(store)[0] if run.counts) if store.exists() else ()
    return {(run.trial["config"]["schedule"]["name"], run.trial["config"]["seed"]): run for run in runs}


def outcomes(store: Path) -> dict[Name, Any]:
    """What must not depend on how the runs that count were made."""
    return {name: outcome(str(store), run) for name, run in counting(store).items()}


def is_whole(folder: Path) -> bool:
    """Whether every file that the completion record names has its checksum, logs included."""
    recorded: dict[str, str] = json.loads((folder / "completion.json").read_text())["files"]
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in recorded} == recorded


def lines_of(project: Path, store: Path, moments: list[float]) -> Iterator[tuple[float, str | None]]:
    """Each line that `run` prints, and None at these moments after the first trial has started, with its time."""
    run, said = start_piped(project, *RUN, "--store", str(store)), ""
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert run.stdout is not None
        for line in run.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    began, left = float("inf"), sorted(moments)
    while True:
        wait = max(0.0, began + left[0] - time.monotonic()) if left and began < float("inf") else None
        try:
            line = lines.get(timeout=wait)
        except queue.Empty:
            left.pop(0)
            yield time.monotonic() - began, None
            continue
        if line is None:
            break
        said += line
        began = min(began, time.monotonic()) if line.endswith(": started\n") else began
        yield time.monotonic() - began, line
    assert run.wait() == 0 and "Traceback" not in said, said


def cuts_of(project: Path, image: Path, moments: list[float]) -> Iterator[Cut]:
    """The disk at these moments of a `run` into an empty image, and whenever a trial is reported as done."""
    announced: set[Name] = set()
    with loop_mounted(image, project / "disk") as disk:
        for at, line in lines_of(project, disk / "runs", moments):
            if line is None:
                yield Cut(f"after {at:.2f} s", power_cut(image), frozenset(announced))
            elif (done := DONE.match(line)) is not None:
                announced.add((done[1], int(done[2])))
                yield Cut(f"at {done[0]!r}", power_cut(image), frozenset(announced))
        assert len(announced) == 2 * SEEDS


@pytest.mark.long
def test_a_power_cut_loses_nothing_that_was_reported_as_done(tmp_path: Path, toy_table: Table) -> None:
    empty = make_image(tmp_path / "empty.img").read_bytes()
    project = make_project(tmp_path / "project", toy_table, milliseconds=40, epochs=6)
    *_, (length, _) = lines_of(project, project / "runs", [])
    whole = outcomes(project / "runs")
    assert len(whole) == 2 * SEEDS

    cuts: list[Cut] = []
    moment = random.Random(1)
    while (missing := RANDOM - sum(cut.moment.startswith("after") for cut in cuts)) > 0:
        (image := tmp_path / "disk.img").write_bytes(empty)
        cuts += cuts_of(project, image, [moment.uniform(0, length) for _ in range(missing)])

    announced = counted = resumed = 0
    for cut in cuts:
        (image := tmp_path / "cut.img").write_bytes(cut.disk)
        with loop_mounted(image, tmp_path / "after") as disk:
            found = outcomes(store := disk / "runs")
            lost = [name for name in cut.announced if found.get(name) != whole[name]]
            print(f"\n{cut.moment}: {len(cut.announced)} announced, {len(found)} counted, {len(lost)} lost", end="")
            assert not lost and found == {name: whole[name] for name in found}
            assert all(is_whole(store / run.id) for name, run in counting(store).items() if name in cut.announced)
            announced, counted = announced + len(cut.announced), counted + len(cut.announced & found.keys())
            keys = {run.key[:16] for run in counting(store).values()}
            checkpoints = {path.name[:16] for path in (store / "work").glob("*.checkpoint")} - keys
            again = start(project, *RUN, "--store", str(store))
            said = finish(again)
            assert again.returncode == 0 and "Traceback" not in said, said
            assert f"{2 * SEEDS} of {2 * SEEDS} trials done, {2 * SEEDS - len(found)} of them now" in said, said
            assert outcomes(store) == whole and not standing(store)[1]["superseded"]
            continued = {run.key[:16] for run in counting(store).values() if run.cost and run.cost["resumed"]}
            assert checkpoints <= continued, said
            resumed += len(checkpoints)
    total = f"{announced} announced, {counted} counted, {announced - counted} lost; {resumed} resumed"
    print(f"\n{len(cuts)} cuts: {total}")
    assert resumed and announced
