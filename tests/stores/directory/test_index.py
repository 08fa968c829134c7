"""The index changes nothing but the time that reading takes: whatever happens to the store or to the index itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.stores.directory.index import INDEX
from harness.stores.directory.reading import Damaged, summarise
from harness.stores.directory.run_directory import (
    COMPLETION,
    METRICS,
    PREDICTIONS,
    RANKINGS,
    RESULT,
    RUN,
    TRIAL,
    WEIGHTS,
    declare_invalid,
    write_ranking,
)
from harness.stores.directory.store import DirectoryStore
from harness.stores.store import supersede
from harness.stores.stored import Problem, StoredRun, stored_run
from tests.stored_runs import NO_PREDICTIONS, judged
from tests.stores.conftest import RESULT as OUTCOME
from tests.stores.conftest import finish, trial

FILES = (TRIAL, RUN, RESULT, METRICS, PREDICTIONS, WEIGHTS, COMPLETION, "invalid.json", "rankings/aa.json")


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Runs that differ in all that matters here, to be copied: made once, since making one takes a while."""
    store = DirectoryStore(tmp_path_factory.mktemp("stock"))
    made = []
    for seed, tau, status in (
        (0, 0.5, "done"),
        (0, 0.6, "done"),
        (1, 0.1, "done"),
        (1, 0.1, "FAILED"),
        (2, 0.0, "INTERRUPTED"),
        (2, 0.0, "open"),
        (3, 0.4, "done"),
    ):
        one = trial(seed)
        directory = store.create(one, "tiny", {})
        if status == "done":
            finish(directory, one, OUTCOME | judged(tau))
        elif status != "open":
            directory.write(RUN, {"status": status, "fail_trace": ["ValueError\n"]})
        made.append(directory.path)
    return made


def without_index(store: Path, keys: set[str] | None = None) -> tuple[list[StoredRun], list[Problem]]:
    """What the store holds, every run read and verified."""
    runs: list[StoredRun] = []
    problems: list[Problem] = []
    for name in sorted(DirectoryStore(store).ids()):
        if keys is None or name[:16] in {key[:16] for key in keys}:
            try:
                runs.append(stored_run(summarise(store / name, problems)))
            except Damaged as error:
                problems.append(Problem(str(error.path), error.reason))
    return supersede(runs, problems), problems


def assert_equal_reading(store: Path, keys: set[str] | None = None) -> None:
    opened = DirectoryStore(store)
    assert (opened.runs(keys), opened.problems) == without_index(store, keys)


def spoil(file: Path, how: str) -> None:
    """Damage a file, if it is there, in a way that its size or its time tells."""
    if not file.is_file():
        return
    before, content = file.stat(), file.read_bytes()
    if how == "remove":
        return file.unlink()
    if how == "pipe":  # nobody will ever write into it
        file.unlink()
        return os.mkfifo(file)
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :] if content else b""
    file.write_bytes({"truncate": content[:middle], "append": content + b"\n", "flip": flipped}[how])
    # The clock of a file system may be too coarse for two writes in a row.
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1))


which = st.integers(0, 6)
damage = st.sampled_from(["remove", "truncate", "append", "flip", "pipe"])
operations = st.one_of(
    st.tuples(st.just("add"), which),
    st.tuples(st.just("delete"), which),
    st.tuples(st.just("rank"), which, st.floats(0, 1)),
    st.tuples(st.just("invalidate"), which, st.text(max_size=3)),
    st.tuples(st.just("spoil"), which, st.sampled_from(FILES), damage),
    st.tuples(st.just("spoil index"), which, damage),
    st.tuples(st.just("read some"), which),
)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(operations, min_size=4, max_size=12))
def test_reading_with_the_index_is_reading_without(stock: list[Path], plan: list[tuple[object, ...]]) -> None:
    with tempfile.TemporaryDirectory(dir=stock[0].parent.parent) as folder:
        store = Path(folder)
        for original in stock[1:]:
            shutil.copytree(original, store / original.name)
        assert_equal_reading(store)
        for kind, number, *more in plan:
            assert isinstance(number, int)
            original = stock[number]
            run, shard = store / original.name, store / INDEX / f"{original.name[:2]}.json"
            if kind == "add" and not run.exists():
                shutil.copytree(original, run)
            elif kind == "delete":
                shutil.rmtree(run, ignore_errors=True)
            elif kind == "rank" and run.exists():
                write_ranking(run, "aa", {"rank": {}, "benchmark": ""}, judged(more[0]), {}, NO_PREDICTIONS)
            elif kind == "invalidate" and run.exists():
                declare_invalid(run, str(more[0]))
            elif kind == "spoil":
                spoil(run / str(more[0]), str(more[1]))
            elif kind == "spoil index":
                spoil(shard, str(more[0]))
            elif kind == "read some":
                assert_equal_reading(store, {original.name[:16]})
            if kind != "read some":
                assert_equal_reading(store)
        assert_equal_reading(store)


OPENED = """
import sys
from pathlib import Path
from harness.stores.directory.store import DirectoryStore
store = Path(sys.argv[1])
opened = []
sys.addaudithook(lambda event, arguments: event == "open" and opened.append(str(arguments[0])))
DirectoryStore(store).runs(sys.argv[2:] or None)
inside = [Path(name) for name in opened if name.startswith(f"{store}/")]
print(*(name.relative_to(store) for name in inside if name.is_file()))
"""


def opened(store: DirectoryStore, *keys: str) -> set[str]:
    """The files of the store that a process opens to read it."""
    command = [sys.executable, "-c", OPENED, str(store.path), *keys]
    return {*subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()}


def shards(store: DirectoryStore) -> dict[str, tuple[int, bytes]]:
    """Inode and contents, by name."""
    return {path.name: (path.stat().st_ino, path.read_bytes()) for path in (store.path / INDEX).iterdir()}


def shard_of(path: Path) -> str:
    return f"{path.name[:2]}.json"


def test_only_what_changed_is_read_and_only_its_shard_written(
    store: DirectoryStore, make_run: Callable[..., Path]
) -> None:
    seeds = [*{trial(seed).key[:2]: seed for seed in range(9)}.values()][:4]
    paths = [make_run(seed) for seed in seeds]
    assert {path.name for path in paths} < {name.partition("/")[0] for name in opened(store)}
    before = shards(store)
    assert opened(store) == {f"{INDEX}/{shard_of(path)}" for path in paths}
    assert opened(store, trial(seeds[2]).key) == {f"{INDEX}/{shard_of(paths[2])}"}
    assert shards(store) == before

    declare_invalid(paths[1], "wrong data")
    newest = make_run(seeds[2])
    read = {name for name in opened(store, trial(seeds[2]).key) if not name.startswith(INDEX)}
    assert {name.partition("/")[0] for name in read} == {newest.name}
    assert {name for name, there in shards(store).items() if there != before[name]} == {shard_of(newest)}
    read = {name for name in opened(store) if not name.startswith(INDEX)}
    assert {name.partition("/")[0] for name in read} == {paths[1].name}


def test_readers_and_those_who_remove_the_index_do_not_disturb_each_other(
    store: DirectoryStore, make_run: Callable[..., Path]
) -> None:
    for seed in range(3):
        make_run(seed)
    expected, _ = without_index(store.path)

    def read(_: int) -> bool:
        for shard in (store.path / INDEX).glob("*.json"):
            shard.unlink(missing_ok=True)
        return DirectoryStore(store.path).runs() == expected

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(read, range(16)))
    assert_equal_reading(store.path)
    assert not list((store.path / INDEX).glob(".*"))


def test_what_has_not_ended_or_is_damaged_is_read_every_time(
    store: DirectoryStore, make_run: Callable[..., Path]
) -> None:
    under_way = store.create(trial(7), "tiny", {})
    assert [run.status for run in store.runs()] == ["running"]
    assert not (store.path / INDEX).exists()
    finish(under_way, trial(7), OUTCOME)
    damaged = make_run(8)
    (damaged / PREDICTIONS).unlink()
    for _ in range(2):
        assert [run.status for run in store.runs()] == ["done"]
        assert [problem.reason for problem in store.problems] == ["is missing"]
    write_ranking(under_way.path, "aa", {"rank": {}, "benchmark": ""}, judged(0.5), {}, NO_PREDICTIONS)
    spoil(under_way.path / RANKINGS / f"aa.{PREDICTIONS}", "append")
    for _ in range(2):
        assert ["aa" in run.rankings for run in store.runs()] == [False]
        assert sorted(problem.reason[:10] for problem in store.problems) == ["has anothe", "is missing"]


def test_a_run_that_is_removed_leaves_the_index(store: DirectoryStore, make_run: Callable[..., Path]) -> None:
    first, second = make_run(0), make_run(0)
    store.runs()
    shutil.rmtree(first)
    write_ranking(second, "aa", {"rank": {}, "benchmark": ""}, judged(0.5), {}, NO_PREDICTIONS)
    assert [run.id for run in store.runs()] == [second.name]
    assert [*json.loads((store.path / INDEX / shard_of(second)).read_text())["runs"]] == [second.name]


def test_a_shard_of_another_version_or_store_is_made_again(
    store: DirectoryStore, make_run: Callable[..., Path], tmp_path: Path
) -> None:
    path = make_run(0, judged(0.25))
    runs = store.runs()
    shard = store.path / INDEX / shard_of(path)
    good = shard.read_bytes()
    shard.write_bytes(good.replace(b'"version": "1-', b'"version": "9-').replace(b"0.25", b"0.75"))
    assert store.runs() == runs
    assert shard.read_bytes() == good
    shutil.copytree(store.path, tmp_path / "copy")
    spoil(tmp_path / "copy" / path.name / RESULT, "flip")
    assert_equal_reading(tmp_path / "copy")
    assert DirectoryStore(tmp_path / "copy").runs() == []


@pytest.mark.parametrize("obstacle", ["file", "link to nowhere"])
def test_a_store_whose_index_cannot_be_written_is_read_all_the_same(
    store: DirectoryStore, make_run: Callable[..., Path], obstacle: str
) -> None:
    path = make_run(0)
    if obstacle == "file":
        (store.path / INDEX).write_text("mine")
    else:
        (store.path / INDEX).symlink_to("/nonexistent/index")
    assert [run.id for run in store.runs()] == [path.name] == [run.id for run in store.runs()]
    assert not list(store.path.glob(".index*"))


def test_a_link_that_leads_back_does_not_catch_the_reader(store: DirectoryStore, make_run: Callable[..., Path]) -> None:
    path = make_run(0)
    (path / RANKINGS).mkdir()
    (path / RANKINGS / "back").symlink_to("..")
    assert [run.id for run in store.runs()] == [path.name] == [run.id for run in store.runs()]
