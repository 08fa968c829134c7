"""What a killed writer leaves in a store: found by `store check`, removed by `store clean`, not counted as content."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from harness.cli import main
from harness.files import write
from harness.stores.board import FILES, Board
from harness.stores.directory.records import DirectoryRecords
from harness.stores.directory.store import DirectoryStore
from harness.stores.upkeep.cleaning import unfinished

PLACES = (
    "RUN/result.json",
    "RUN/rankings/abab.json",
    "RUN/sources/spaces-toy.py",
    "references/0123.json",
    "board/files/abcd.json",
    "index/ab.json",
    "profiles/RUN/breakdown.txt",
    "a/b/c/d.json",
)


def killed(act: Callable[[], object]) -> int:
    """Call it in a process that must die by SIGKILL; returns its PID."""
    child = os.fork()
    if not child:
        act()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    return child


def die(file: IO[bytes]) -> None:
    file.write(b"the first half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def test_they_are_found_and_removed_in_every_folder(
    store: DirectoryStore, make_run: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run()
    left = []
    for name in PLACES:
        path = store.path / name.replace("RUN", run.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        pid = killed(lambda path=path: write(path, die))  # type: ignore[misc]
        left += [str(one) for one in path.parent.glob(f".{path.name}.{pid}.*")]
    assert len(left) == len(PLACES)
    whole = {path: path.read_bytes() for path in store.path.rglob("*.json")}
    capsys.readouterr()
    assert main(["store", "check", "--store", str(store.path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("leftover: ")] == [
        f"leftover: {path}: unfinished file, 14 bytes" for path in sorted(left)
    ]
    assert [one.counts for one in store.runs()] == [True] and store.remembered() == {}
    assert main(["store", "clean", "--store", str(store.path)]) == 0
    assert f"{len(PLACES)} × unfinished file" in capsys.readouterr().out
    assert not any(map(os.path.exists, left))
    assert main(["store", "check", "--store", str(store.path)]) == 0
    assert {path: path.read_bytes() for path in store.path.rglob("*.json") if path in whole} == whole


def test_a_note_of_a_killed_writer_is_found_too(store: DirectoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def post() -> None:
        monkeypatch.setattr(os, "link", lambda source, target: os.kill(os.getpid(), signal.SIGKILL))
        Board(DirectoryRecords(store.path)).post(FILES, "abcd", {"a": 1})

    killed(post)
    (file,) = (store.path / "board" / f"{FILES}-abcd").iterdir()
    assert [one.path for one in unfinished(store.path)] == [file]
    assert Board(DirectoryRecords(store.path)).all(FILES) == {}
    assert Board(DirectoryRecords(store.path)).post(FILES, "abcd", {"a": 2}) == {"a": 2}


def test_a_file_that_is_being_written_stays(store: DirectoryStore) -> None:
    """By a process of this machine, and by one of another whose PID says nothing here."""
    store.path.mkdir()
    begun, go_on = threading.Event(), threading.Event()

    def fill(file: IO[bytes]) -> None:
        begun.set()
        go_on.wait(120)

    writer = threading.Thread(target=write, args=(store.path / "a.json", fill), daemon=True)
    writer.start()
    begun.wait(120)
    (here,) = store.path.iterdir()
    tag = here.name.rpartition(".")[2]
    there = here.with_name(here.name.replace(tag, f"{int(tag[:8], 16) ^ 1:08x}{tag[8:]}"))
    dead = killed(lambda: os.kill(os.getpid(), signal.SIGKILL))
    elsewhere = there.with_name(there.name.replace(f".{os.getpid()}.", f".{dead}."))
    for path in (there, elsewhere):
        path.write_bytes(b"")
    assert unfinished(store.path) == []
    for path in (there, elsewhere):
        os.utime(path, (1e9, 1e9))
    assert [one.path for one in unfinished(store.path)] == sorted([there, elsewhere])
    go_on.set()
    writer.join(120)
    assert (store.path / "a.json").exists() and not here.exists()


def test_writers_with_equal_process_ids_do_not_disturb_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers that share a folder: here two threads, which have one process id, too."""
    both, first, got = threading.Barrier(2), threading.Event(), {}
    link = os.link

    def linking(source: Path, target: Path) -> None:
        both.wait(120)  # each has written its document
        if threading.current_thread().name == "second":
            first.wait(120)
        link(source, target)

    def post(name: str) -> None:
        got[name] = Board(DirectoryRecords(tmp_path)).post(FILES, "abcd", {"from": name})
        first.set()

    monkeypatch.setattr(os, "link", linking)
    threads = [threading.Thread(target=post, args=(name,), name=name, daemon=True) for name in ("first", "second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert got == {"first": {"from": "first"}, "second": {"from": "first"}}
