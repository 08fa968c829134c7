"""The store: what is done counts, what is damaged is named and skipped, nothing is a crash."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from harness.errors import InvalidConfiguration, UnknownName, UserError
from harness.files import sha256, write_json
from harness.stores.directory.run_directory import (
    COMPLETION,
    RANKINGS,
    complete_ranking,
    declare_invalid,
    write_ranking,
)
from harness.stores.directory.store import DirectoryStore, StoredRun
from harness.stores.stored import without_curves
from tests.stored_runs import NO_PREDICTIONS, judged
from tests.stores.conftest import RESULT, finish, trial

Make = Callable[..., Path]


def only(store: DirectoryStore) -> StoredRun:
    (run,) = store.runs()
    assert not store.problems
    return run


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


def agree(path: Path) -> None:
    """Let the completion record say what lies there now."""
    files = [file for file in path.iterdir() if file.is_file() and file.name != "completion.json"]
    changes = {"files": {f.name: sha256(f) for f in files}, "sizes": {f.name: f.stat().st_size for f in files}}
    edit(path / "completion.json", lambda document: document | changes)


def test_a_done_run_is_read_as_it_was_written(store: DirectoryStore, make_run: Make) -> None:
    path = make_run()
    run = only(store)
    one = trial()
    assert (run.id, run.key, run.attempt) == (path.name, one.key, 1) and run.id.startswith(f"{one.key[:16]}-1-")
    assert (run.status, run.preset, run.overrides, run.superseded) == ("done", "tiny", {}, False)
    assert run.trial == one.json() and run.result == RESULT and run.cost == {"wall_seconds": 1.0}
    assert run.rankings == {one.ranking_key: {k: v for k, v in RESULT.items() if k != "observed"}}
    assert (run.start_time, run.fail_trace) == ("2026-01-01T10:00:00", None)
    assert store.predictions(run) == {3: 50.0, 7: 12.5}
    assert [(p["step"], p["value"]) for p in store.metrics(run)["train_loss"]] == [(1, 2.5), (2, 1.25)]
    assert store.done(one.key) == run and store.done(trial(1).key) is None


def test_a_store_is_made_when_it_is_first_written_to(store: DirectoryStore, make_run: Make) -> None:
    assert store.runs() == [] and store.done("0" * 64) is None and not store.path.exists()
    make_run()
    assert store.path.is_dir()


def test_attempts_are_counted_and_sorted_as_numbers(store: DirectoryStore) -> None:
    ids = [store.create(trial(), "tiny", {}).id for _ in range(11)]
    assert [run.id for run in store.runs()] == ids
    assert [run.attempt for run in store.runs()] == [*range(1, 12)]


def test_two_processes_never_share_a_directory(store: DirectoryStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: store.create(trial(), "tiny", {}).id, range(24)))
    assert len(set(made)) == 24
    assert not [path for path in store.path.iterdir() if path.name.startswith(".")]


def test_a_store_of_an_older_harness_is_read(store: DirectoryStore, make_run: Make) -> None:
    path = make_run()
    older = path.with_name(path.name.rpartition("-")[0])  # ids ended with the attempt
    path.rename(older)
    for name in ("cell.json", "result.json", "completion.json"):
        edit(older / name, lambda document: document | {"schema": 1})
    edit(older / "cell.json", lambda document: document | {"run_id": older.name})
    agree(older)
    assert (only(store).id, only(store).status) == (older.name, "done")
    assert store.create(trial(), "tiny", {}).id.split("-")[1] == "2"


def test_an_invalid_run_is_kept_and_does_not_count(store: DirectoryStore, make_run: Make) -> None:
    older, newer = make_run(), make_run()
    declare_invalid(newer, "wrong data")
    assert [(run.id, run.invalid, run.counts) for run in store.runs()] == [
        (older.name, None, True),
        (newer.name, "wrong data", False),
    ]
    assert (found := store.done(trial().key)) is not None and found.id == older.name


def test_the_newer_done_run_counts(store: DirectoryStore, make_run: Make) -> None:
    make_run()
    newer = make_run(observe={"kendall_tau_every": 1}, result={"observed": {"kendall_tau": [[1, 0.25]]}})
    store.create(trial(), "tiny", {})  # an attempt under way supersedes nothing
    runs = store.runs()
    assert [(run.status, run.superseded) for run in runs] == [("done", True), ("done", False), ("running", False)]
    found = store.done(trial().key)
    assert found is not None and store.path_of(found) == newer and not store.problems


@pytest.mark.parametrize(
    ("older", "newer", "reason"),
    [
        ({}, judged(0.25), "ranking"),
        ({"observed": {"kendall_tau": [[1, 0.1], [2, 0.2]]}}, {"observed": {"kendall_tau": [[2, 0.3]]}}, "step 2"),
    ],
)
def test_runs_that_disagree_are_a_problem_that_names_both(
    store: DirectoryStore, make_run: Make, older: dict[str, Any], newer: dict[str, Any], reason: str
) -> None:
    first, second = make_run(result=older), make_run(result=newer)
    assert [run.superseded for run in store.runs()] == [True, False]
    (problem,) = store.problems
    assert first.name in problem.reason and second.name in problem.reason and reason in problem.reason


def test_what_was_recomputed_is_the_result_and_contradicts_nothing(store: DirectoryStore, make_run: Make) -> None:
    config, own, further = trial().config.json(), trial().ranking_key, "0123456789abcdef"
    observed = {"observed": {"kendall_tau": [[1, 0.25]]}}
    older, newer = make_run(result=observed), make_run(result=observed)
    for path in (older, newer):
        write_ranking(path, further, config, judged(0.1), {}, NO_PREDICTIONS)
    # Only the run that counts is recomputed.
    write_ranking(newer, further, config, judged(0.2), {}, NO_PREDICTIONS)
    write_ranking(newer, own, config, without_curves(RESULT) | {"kendall_tau": 0.75}, {}, NO_PREDICTIONS)
    first, second = store.runs()
    assert first.superseded and first.result == RESULT | observed
    assert second.result == RESULT | {"kendall_tau": 0.75} | observed and second.own_ranking == own
    assert (second.rankings[own]["kendall_tau"], second.rankings[further]["kendall_tau"]) == (0.75, 0.2)
    assert not store.problems


def test_a_run_that_contradicts_from_the_start_does_so_when_it_was_recomputed(
    store: DirectoryStore, make_run: Make
) -> None:
    make_run()
    newer = make_run(result=judged(0.25))
    write_ranking(newer, trial().ranking_key, trial().config.json(), judged(0.5), {}, NO_PREDICTIONS)
    store.runs()
    (problem,) = store.problems
    assert "0.25" in problem.reason and "are runs of one trial, but ranking" in problem.reason


def test_further_rankings_are_read(store: DirectoryStore, make_run: Make) -> None:
    path = make_run()
    config = trial(rank={"candidates": 5}).config.json()
    own = {"schema": 2, "images": None, "batch_size": 256, "accuracies": {"9": 1.0}}
    write_ranking(path, "0123456789abcdef", config, judged(0.75), {}, own)
    elsewhere = own | {"images": 3, "accuracies": {"8": 2.0}}
    write_ranking(path, "fedcba9876543210", config, judged(0.5), {}, elsewhere)
    run = only(store)
    assert run.rankings["0123456789abcdef"] == judged(0.75) and len(run.rankings) == 3
    assert store.predictions(run) == {3: 50.0, 7: 12.5, 9: 1.0}  # those on the same images


def test_a_damaged_ranking_is_skipped_and_its_run_is_not(store: DirectoryStore, make_run: Make) -> None:
    path = make_run()
    config = trial().config.json()
    for key in ("0" * 16, "1" * 16, "2" * 16):
        write_ranking(path, key, config, judged(None), {}, NO_PREDICTIONS)
    (path / "rankings" / f"{'0' * 16}.json").write_text('{"schema": 1, "res')
    (path / "rankings" / f"{'1' * 16}.predictions.json").write_text("{}")
    (path / "rankings" / f"{'2' * 16}.json").write_text('{"schema": 1}')
    (run,) = store.runs()
    assert run.status == "done" and len(run.rankings) == 1
    assert len(store.problems) == 3
    assert {Path(problem.place).parent for problem in store.problems} == {path / "rankings"}
    altered_result = path / "rankings" / f"{'2' * 16}.1.json"
    write_ranking(path, "2" * 16, config, judged(0.25), {}, NO_PREDICTIONS)
    assert len(store.runs()[0].rankings) == 2
    altered_result.write_text(altered_result.read_text().replace("0.25", "0.35"))
    assert len(store.runs()[0].rankings) == 1 and "checksum differs" in store.problems[-1].reason
    # Neither a truncated file nor one that is whole but altered is taken for what the weights predict.
    truncate(path / "rankings" / f"{'0' * 16}.predictions.json")
    altered = {"schema": 1, "images": None, "batch_size": 256, "accuracies": {"3": 99.0}}
    (path / "rankings" / f"{'1' * 16}.predictions.json").write_text(json.dumps(altered))
    (run,) = store.runs()
    assert store.predictions(run) == {3: 50.0, 7: 12.5}


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def loop(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(path.name)


DAMAGES: dict[str, tuple[str, Callable[[Path], Any], str]] = {
    "a mark that leads nowhere": ("invalid.json", loop, "cannot be read"),
    "a completion that leads nowhere": ("completion.json", loop, "cannot be read"),
    "a record that leads nowhere": ("run.json", loop, "cannot be read"),
    "half-written trial": ("cell.json", truncate, "not whole JSON"),
    "no trial": ("cell.json", Path.unlink, "missing"),
    "a list for a trial": ("cell.json", lambda file: file.write_text("[]"), "no JSON object"),
    "newer trial": ("cell.json", lambda file: edit(file, lambda d: d | {"schema": 3}), "schema 3"),
    "no schema": ("cell.json", lambda file: edit(file, lambda d: {**d, "schema": None}), "schema: expected"),
    "another's trial": ("cell.json", lambda file: edit(file, lambda d: d | {"run_id": "x-1"}), "about run x-1"),
    "another identity": ("cell.json", lambda file: edit(file, lambda d: d | {"identity": {}}), "another identity"),
    "fields missing": ("cell.json", lambda file: file.write_text('{"schema": 1}'), "is missing"),
    "half-written run": ("run.json", truncate, "not whole JSON"),
    "truncated predictions": ("predictions.json", truncate, "bytes instead of"),
    "truncated weights": ("weights.pt", truncate, "bytes instead of"),
    "no weights": ("weights.pt", Path.unlink, "missing"),
    "no result": ("result.json", Path.unlink, "missing"),
    "another result": (
        "result.json",
        lambda file: file.write_text(file.read_text().replace("0.5", "0.9")),
        "another checksum",
    ),
    "half-written completion": ("completion.json", truncate, "not whole JSON"),
    "newer completion": ("completion.json", lambda file: edit(file, lambda d: d | {"schema": 9}), "schema 9"),
    "wrong number of points": (
        "completion.json",
        lambda file: edit(file, lambda d: d | {"metrics": {"train_loss": 3}}),
        "points instead of",
    ),
    "says nothing of the result": (
        "completion.json",
        lambda file: edit(file, lambda d: d | {"files": {}, "sizes": {}}),
        "does not list",
    ),
    "not UTF-8": ("cell.json", lambda file: file.write_bytes(b"\xff\xfe{}"), "not whole JSON"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_named_and_skipped(store: DirectoryStore, make_run: Make, damage: str) -> None:
    name, break_it, reason = DAMAGES[damage]
    path, whole = make_run(), make_run(seed=1)
    break_it(path / name)
    assert [run.id for run in store.runs()] == [whole.name]
    (problem,) = store.problems
    assert str(path) in problem.place and reason in problem.reason
    assert store.done(trial().key) is None
    with pytest.raises(UserError, match=f"{path.name} is damaged"):
        store.find(path.name)


def test_what_is_no_run_is_not_looked_at(store: DirectoryStore, make_run: Make) -> None:
    make_run()
    (store.path / "notes.txt").write_text("mine")
    (store.path / ".new-abc").mkdir()
    (store.path / "_sources").mkdir()
    assert only(store).status == "done"
    (store.path / f"{'0' * 16}-1").mkdir()
    assert len(store.runs()) == 1
    assert [problem.reason for problem in store.problems] == ["is missing"]


def test_half_written_leftovers_of_a_killed_process_do_no_harm(store: DirectoryStore, make_run: Make) -> None:
    path = make_run()
    (path / ".run.json.123.0123456789abcdef").write_text('{"sta')
    assert only(store).status == "done"


def test_a_run_is_found_by_the_beginning_of_its_id(store: DirectoryStore, make_run: Make) -> None:
    first = make_run()
    second = make_run()
    other = make_run(seed=1)
    assert store.find(other.name[:8]).id == other.name
    assert store.find(first.name).id == first.name and store.find(first.name).superseded
    with pytest.raises(InvalidConfiguration, match=f"not unique.*{first.name}, {second.name}"):
        store.find(first.name[:8])
    with pytest.raises(UnknownName, match=f"did you mean {other.name}.*holds 3 runs"):
        store.find("x" + other.name[1:])


def test_a_store_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is not a directory"):
        DirectoryStore(tmp_path / "file")
    below = DirectoryStore(tmp_path / "file" / "runs")
    with pytest.raises(UserError, match="cannot read the store"):
        below.runs()
    with pytest.raises(UserError, match="cannot read the store"):
        below.create(trial(), "tiny", {})
    with pytest.raises(UserError, match="cannot write to the store /proc/runs"):
        DirectoryStore(Path("/proc/runs")).create(trial(), "tiny", {})


def test_a_run_without_a_last_word_of_ours_is_not_done(store: DirectoryStore, make_run: Make) -> None:
    path = make_run()
    (path / "completion.json").unlink()  # though Sacred's record says COMPLETED
    assert only(store).status == "running"  # this process, its owner, lives
    edit(path / "cell.json", lambda d: d | {"owner": d["owner"] | {"started": 1}})
    assert only(store).status == "lost"
    assert store.done(trial().key) is None


@pytest.mark.parametrize(("status", "expected"), [("FAILED", "failed"), ("INTERRUPTED", "interrupted")])
def test_failed_and_interrupted_are_told_apart(store: DirectoryStore, status: str, expected: str) -> None:
    directory = store.create(trial(), "demo", {"train.epochs": 3})
    directory.write("run.json", {"status": status, "fail_trace": ["Traceback", "ValueError: no"]})
    run = only(store)
    assert (run.status, run.preset, run.overrides) == (expected, "demo", {"train.epochs": 3})
    assert run.fail_trace == ["Traceback", "ValueError: no"] and run.result is None


def test_metrics_of_a_run_under_way_leave_out_a_half_written_point(store: DirectoryStore) -> None:
    directory = store.create(trial(), "tiny", {})
    assert store.metrics(only(store)) == {}
    directory.log_metric("train_loss", 1, 2.0)
    directory.log_metric("kendall_tau", 1, float("nan"))
    with (directory.path / "metrics.jsonl").open("a") as file:
        file.write('{"name": "train_loss", "st')
    found = store.metrics(only(store))
    assert [(p["step"], p["value"]) for p in found["train_loss"]] == [(1, 2.0)]
    assert [p["value"] for p in found["kendall_tau"]] == [None]


def test_reading_imports_no_torch(store: DirectoryStore, make_run: Make) -> None:
    make_run()
    program = (
        "import sys; from pathlib import Path; from harness.stores.directory.store import DirectoryStore\n"
        f"runs = DirectoryStore(Path({str(store.path)!r})).runs()\n"
        "print(len(runs), 'torch' in sys.modules, 'sacred' in sys.modules, 'pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "False", "False", "False"]


def test_hundreds_of_runs_are_read_quickly(store: DirectoryStore, make_run: Make) -> None:
    template = make_run()
    for attempt in range(2, 301):
        copy = template.with_name(f"{template.name[:16]}-{attempt}")
        shutil.copytree(template, copy, copy_function=os.link)
        document = json.loads((copy / "cell.json").read_text()) | {"attempt": attempt, "run_id": copy.name}
        write_json(copy / "cell.json", document)
        record = json.loads((copy / "completion.json").read_text())
        record["files"]["cell.json"] = sha256(copy / "cell.json")
        record["sizes"]["cell.json"] = (copy / "cell.json").stat().st_size
        write_json(copy / "completion.json", record)
    before = time.process_time()
    runs = store.runs()
    seconds = time.process_time() - before
    assert len(runs) == 300 and not store.problems
    assert seconds < 0.6, f"{seconds:.2f} s of processor time for 300 runs"


def test_hidden_files_are_not_part_of_a_run(store: DirectoryStore) -> None:
    """Files that are being written, and what editors and network file systems leave."""
    directory = store.create(trial(), "tiny", {})
    (directory.path / ".nfs0001").write_text("?")
    finish(directory, trial(), RESULT)
    record = json.loads((directory.path / COMPLETION).read_text())
    assert {"cell.json", "result.json"} < record["files"].keys() == record["sizes"].keys()
    assert ".nfs0001" not in record["files"]
    (directory.path / ".nfs0001").unlink()
    assert only(store).status == "done"


def test_the_schema_of_what_is_written_is_2(make_run: Make) -> None:
    """A higher number tells older versions not to read it: it changes only together with the documents."""
    path = make_run()
    names = ("cell.json", "result.json", "predictions.json", COMPLETION)
    assert [json.loads((path / name).read_text())["schema"] for name in names] == [2] * 4


def test_a_ranking_that_was_completed_survives_a_power_failure(make_run: Make, synced: list[str]) -> None:
    run = make_run()
    synced.clear()
    complete_ranking(run, trial().ranking_key, trial().config.json(), RESULT)
    assert synced[-1] == str(run / RANKINGS)
