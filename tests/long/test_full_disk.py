"""A disk that fills up fails the trial with a clear message; with room again, the same command completes it.

Needs the right to mount a small file system.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.truth.table import Table
from tests.long.disks import filled, mounted
from tests.many_trials import finish, make_project, standing, start


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    (place := tmp_path / "disk").mkdir()
    with mounted(place, "size=1m"):
        yield place


@pytest.mark.long
@pytest.mark.parametrize("left", [0, 16, 40, 64, 100])
def test_a_full_disk_fails_the_trial_and_leaves_the_store_readable(
    left: int, small_disk: Path, tmp_path: Path, toy_table: Table
) -> None:
    folder = make_project(tmp_path / "project", toy_table)
    store = small_disk / "runs"
    command = ("run", "many", "--preset", "tiny", "--seeds", "2", "--jobs", "1", "--checkpoint-every", "0.02")
    first = start(folder, *command, "--only", "seed=0", "--store", str(store))
    assert "2 of 2 trials done" in finish(first)
    with filled(small_disk, left):
        full = start(folder, *command, "--store", str(store))
        said = finish(full)
        print(f"\n{left} kB left: " + "; ".join(line for line in said.splitlines() if "failed" in line))
        assert "Traceback" not in said
        runs, counts = standing(store)
        assert counts["counts"] >= 2  # what was done is there and readable
        if counts["counts"] < 4:
            assert full.returncode != 0 and "o space left" in said
    again = start(folder, *command, "--store", str(store))
    said = finish(again)
    assert again.returncode == 0 and "4 of 4 trials done" in said
    runs, counts = standing(store)
    assert counts["counts"] == 4 and not counts["superseded"]
