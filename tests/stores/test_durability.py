"""Nothing that counts is lost in a power failure: it is on disk before it counts, and the checkpoint goes after that.

A file is on disk if it was synced after its last change, a name in a folder if the folder was synced with it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.stores.directory.run_directory import declare_invalid, write_ranking
from harness.stores.directory.store import DirectoryStore
from harness.stores.upkeep.archive import export_runs
from harness.stores.upkeep.importing import import_into_directory
from harness.study.layout import Column, Row
from harness.study.study import Study
from harness.study.trial import Trial
from harness.truth.table import Table
from harness.work.references import missing_references
from tests.jobs import job, make_references
from tests.stored_runs import NO_PREDICTIONS, judged
from tests.toy import toy_config

TRIAL = {"rank": {"images": 40, "candidates": 4, "bins": 3}}


class Disk:
    """What is on disk of the files and folders that were synced since this was made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._synced: dict[int, object] = {}
        really = os.fsync

        def fsync(descriptor: int) -> None:
            really(descriptor)
            self._synced[os.fstat(descriptor).st_ino] = self._content(f"/proc/self/fd/{descriptor}")

        monkeypatch.setattr(os, "fsync", fsync)

    def lacks(self, folder: Path, *parents: Path) -> list[str]:
        """What a power failure now would take: of everything in the folder, and of the names in the parents."""
        inside = [path for path in (folder, *sorted(folder.rglob("*"))) if not path.name.startswith(".")]
        return [
            str(path) for path in (*parents, *inside) if self._synced.get(path.stat().st_ino) != self._content(path)
        ]

    def _content(self, path: str | Path) -> object:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            return sorted(name for name in os.listdir(path) if not name.startswith("."))
        return status.st_mtime_ns, status.st_size


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def done(toy_project: Path, tmp_path: Path) -> Path:
    """The directory of a done run."""
    assert job(Trial(toy_config(**TRIAL)), str(tmp_path / "runs"))["status"] == "done"
    (run,) = DirectoryStore(tmp_path / "runs").runs()
    return tmp_path / "runs" / run.id


def test_a_run_is_on_disk_before_it_counts_and_before_its_checkpoint_goes(
    toy_project: Path, tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, lacking = tmp_path / "new" / "runs", {}
    replace, unlink = os.replace, os.unlink

    def look(event: str, path: Any) -> None:
        if Path(path).name == "completion.json":
            lacking[event] = disk.lacks(Path(path).parent, store, store.parent, tmp_path)
        elif Path(path).suffix == ".checkpoint":
            (run,) = (one for one in store.iterdir() if (one / "cell.json").exists())
            lacking[event] = disk.lacks(run) if (run / "completion.json").exists() else ["completion.json"]

    def replacing(source: Any, target: Any, **more: Any) -> None:
        look("completed", target)
        replace(source, target, **more)

    def removing(path: Any, **more: Any) -> None:
        look("checkpoint removed", path)
        unlink(path, **more)

    monkeypatch.setattr(os, "replace", replacing)
    monkeypatch.setattr(os, "unlink", removing)
    assert job(Trial(toy_config(**TRIAL)), str(store))["status"] == "done"
    assert lacking == {"completed": [], "checkpoint removed": []}


@pytest.mark.parametrize("name", ["cout.txt", "sources/spaces-toy.py"])
@pytest.mark.parametrize("how", ["cut", "missing", "changed"])
def test_a_damaged_log_or_source_is_reported_and_the_run_counts(
    name: str, how: str, done: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = (done / name).read_bytes()
    assert content
    if how == "missing":
        (done / name).unlink()
    else:
        (done / name).write_bytes(b"" if how == "cut" else bytes([content[0] ^ 1]) + content[1:])
    store = DirectoryStore(done.parent)
    (run,) = store.runs()
    (problem,) = store.problems
    assert run.counts and problem.place == str(done / name) and "no result depends on it" in problem.reason
    capsys.readouterr()
    assert main(["store", "check", "--store", str(done.parent)]) == 1
    said = capsys.readouterr().out
    assert f"damaged: {done / name}: " in said and "1 run: 1 done" in said and "1 problem" in said
    assert job(Trial(toy_config(**TRIAL)), str(done.parent))["already"]


def test_a_ranking_and_an_invalid_mark_are_on_disk(done: Path, disk: Disk) -> None:
    write_ranking(done, "ab" * 8, {"rank": {}, "benchmark": "x"}, judged(0.5), {}, NO_PREDICTIONS)
    assert not disk.lacks(done / "rankings", done)
    declare_invalid(done, "wrong images")
    assert not disk.lacks(done / "rankings", done)


def test_imported_runs_are_on_disk(done: Path, tmp_path: Path, disk: Disk) -> None:
    store = DirectoryStore(done.parent)
    archive = tmp_path / "all.tar"
    export_runs(store, store.runs(), archive)
    for place in (tmp_path / "new" / "store",) * 2:
        import_into_directory(archive, place)
        assert not disk.lacks(place / done.name, place, place.parent, tmp_path)
        write_ranking(done, "ab" * 8, {"rank": {}, "benchmark": "x"}, judged(0.5), {}, NO_PREDICTIONS)
        export_runs(store, store.runs(), archive)


def test_references_are_on_disk(toy_project: Path, tmp_path: Path, disk: Disk) -> None:
    row = Row({"Method": "SPOS"}, {"space": "toy", "dataset": "toy", "benchmark": "toy", "rank.images": 20})
    study = Study("mine", "Mine", [row], [Column("τ", "kendall_tau")])
    store = tmp_path / "new" / "store"
    missing = missing_references([study], "tiny", DirectoryStore(store), 1)
    assert {answer["status"] for answer in make_references(missing, store)} == {"done"}
    assert list((store / "references").iterdir())
    assert not disk.lacks(store / "references", store, store.parent, tmp_path)


def test_a_table_is_on_disk(tmp_path: Path, toy_table: Table, disk: Disk) -> None:
    toy_table.write(tmp_path / "new" / "tables" / "toy.npz")
    assert not disk.lacks(tmp_path / "new", tmp_path)
