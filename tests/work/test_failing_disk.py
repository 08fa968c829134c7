"""A disk that fails for a moment: the trial is interrupted, never failed, and the same command continues it.

What is done stays done, whatever fails afterwards, and what cannot be read now is not trained again.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.stores.directory.store import DirectoryStore
from harness.stores.stored import Status
from harness.study.trial import Trial
from harness.truth.table import Table
from tests.jobs import outcome, run_job
from tests.many_trials import finish, make_project, standing, start
from tests.toy import toy_config

NUMBERS = (errno.ENOSPC, errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENOMEM, errno.EACCES)
TRIAL = {"rank": {"images": 40, "candidates": 4, "bins": 3}}

Fail = Callable[..., list[str]]


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Fail:
    """Lets calls of a function of `os` fail whose path has that text in it, the first `times`; gives their paths."""

    def fail(function: str, text: str, number: int = errno.EIO, times: int = 1, after: int = 0) -> list[str]:
        really, calls, paths = getattr(os, function), 0, []

        def called(*arguments: Any, **more: Any) -> Any:
            nonlocal calls
            path = arguments[1] if function in ("replace", "link") else arguments[0]
            path = os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else os.fspath(path)
            if text in path:
                calls += 1
                if after < calls <= after + times:
                    paths.append(path)
                    raise OSError(number, os.strerror(number))
            return really(*arguments, **more)

        monkeypatch.setattr(os, function, called)
        return paths

    return fail


def run(store: Path, every: float = 0.0) -> tuple[dict[str, Any], list[str]]:
    """Train the trial; the answer, and the notes for the user."""
    reports: list[dict[str, Any]] = []
    asked = {"kind": "train", "trial": Trial(toy_config(**TRIAL)).json(), "store": str(store), "preset": "toy"}
    more = {"overrides": {}, "threads": 1, "device": "cpu", "checkpoint_every": every}
    answer = run_job(asked | more, reports.append)
    return answer, [report["note"] for report in reports if "note" in report]


def only(store: Path) -> Any:
    """The store's one run that counts, and what must not depend on how it was made."""
    (counting,) = (one for one in DirectoryStore(store).runs() if one.counts)
    return outcome(str(store), counting)


@pytest.fixture(scope="module")
def undisturbed(toy_project: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    store = tmp_path_factory.mktemp("undisturbed")
    assert run(store)[0]["status"] == "done"
    return only(store)


@pytest.mark.parametrize("number", NUMBERS, ids=errno.errorcode.get)
def test_an_error_of_the_machine_interrupts_the_trial_and_names_the_file(
    number: int, tmp_path: Path, fail: Fail, undisturbed: Any
) -> None:
    fail("fsync", ".result.json.", number)
    answer, _ = run(tmp_path)
    (stored,) = DirectoryStore(tmp_path).runs()
    file = tmp_path / stored.id / "result.json"
    assert (answer["status"], stored.status) == ("interrupted", Status.INTERRUPTED)
    assert answer["error"] == f"{os.strerror(number)}: {file}; the same command continues"
    assert stored.fail_trace and str(file) in stored.fail_trace[-1]
    assert run(tmp_path)[0]["status"] == "done"
    assert only(tmp_path) == undisturbed
    assert [one.status for one in DirectoryStore(tmp_path).runs()] == [Status.INTERRUPTED, Status.DONE]


@pytest.mark.parametrize(
    ("function", "text"),
    [
        ("replace", "/weights.pt"),
        ("replace", "/metrics.json"),
        ("replace", "/completion.json"),
        ("fsync", "/cout.txt"),
        ("fsync", "/sources/"),
        ("unlink", "/metrics.jsonl"),
    ],
)
def test_no_place_makes_it_failed(function: str, text: str, tmp_path: Path, fail: Fail, undisturbed: Any) -> None:
    failures = fail(function, text)
    answer, _ = run(tmp_path)
    assert failures and answer["status"] in ("interrupted", "unreachable")
    assert not {one.status for one in DirectoryStore(tmp_path).runs()} & {Status.FAILED, Status.DONE}
    assert run(tmp_path)[0]["status"] == "done" and only(tmp_path) == undisturbed


def test_a_claim_that_cannot_be_made_now_is_made_later(tmp_path: Path, fail: Fail, undisturbed: Any) -> None:
    failures = fail("link", "/claims/")
    answer, notes = run(tmp_path)
    assert failures and answer["status"] == "done" and only(tmp_path) == undisturbed
    assert any("new ones wait up to" in note for note in notes)


def test_a_record_that_could_not_be_written_at_once_is_written_again(
    tmp_path: Path, fail: Fail, undisturbed: Any
) -> None:
    """Sacred only logs such an error, and drops an observer after one in a heartbeat."""
    failures = fail("replace", "/run.json", times=3, after=2)  # two artifacts and the end; or heartbeats
    answer, _ = run(tmp_path)
    assert len(failures) == 3 and answer["status"] == "done" and only(tmp_path) == undisturbed
    (record,) = tmp_path.glob("*/run.json")
    assert json.loads(record.read_text())["artifacts"] == ["predictions.json", "weights.pt"]


def test_an_error_after_completion_does_not_replace_the_answer(tmp_path: Path, undisturbed: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        really = os.replace

        def broken(descriptor: int) -> None:
            raise OSError(errno.EIO, "I/O error")

        def replace(source: Any, target: Any) -> None:
            really(source, target)
            if Path(target).name == "completion.json":
                patch.setattr(os, "fsync", broken)

        patch.setattr(os, "replace", replace)
        answer, notes = run(tmp_path)
    (stored,) = DirectoryStore(tmp_path).runs()
    assert answer["status"] == "done" and stored.counts and only(tmp_path) == undisturbed
    (note,) = notes
    assert "done, but a power cut may cost the run" in note and str(tmp_path / stored.id) in note
    assert len(list((tmp_path / "work").glob("*.checkpoint"))) == 1  # it goes only after the record is on disk


def test_a_checkpoint_that_cannot_be_written_is_tried_again_with_one_warning(
    tmp_path: Path, fail: Fail, undisturbed: Any
) -> None:
    failures = fail("fsync", ".checkpoint.", errno.ENOSPC, times=3)
    answer, notes = run(tmp_path)
    assert answer["status"] == "done" and only(tmp_path) == undisturbed
    (note,) = notes
    assert len(failures) == 3 and "cannot write the checkpoint" in note and "No space left on device" in note
    assert "the next try is in 0 s" in note
    (stored,) = DirectoryStore(tmp_path).runs()
    assert note in (tmp_path / stored.id / "cout.txt").read_text()


@pytest.mark.parametrize("number", NUMBERS, ids=errno.errorcode.get)
@pytest.mark.parametrize("function", ["open", "stat"])
def test_a_run_that_cannot_be_read_now_is_not_trained_again(
    function: str, number: int, tmp_path: Path, undisturbed: Any
) -> None:
    assert run(tmp_path)[0]["status"] == "done"
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*-*/**/*")}
    with pytest.MonkeyPatch.context() as patch:
        really = getattr(os, function)

        def called(path: Any, *arguments: Any, **more: Any) -> Any:
            if str(path).endswith("/completion.json"):
                raise OSError(number, os.strerror(number))
            return really(path, *arguments, **more)

        patch.setattr(os, function, called)
        shutil.rmtree(tmp_path / "index", ignore_errors=True)
        store = DirectoryStore(tmp_path)
        assert store.runs() == []
        (problem,) = store.problems
        assert problem.unreadable and os.strerror(number) in problem.reason
        answer, _ = run(tmp_path)
        assert answer["status"] == "interrupted" and next(tmp_path.glob("*-*")).name in answer["error"]
        assert "the trial may be done, and is not run again; the same command continues" in answer["error"]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*-*/**/*")} == before
    assert run(tmp_path)[0]["already"]


def test_a_checkpoint_that_cannot_be_read_now_is_kept(tmp_path: Path, fail: Fail, undisturbed: Any) -> None:
    fail("replace", "/result.json")
    assert run(tmp_path)[0]["status"] == "interrupted"
    (checkpoint,) = (tmp_path / "work").glob("*.checkpoint")
    content = checkpoint.read_bytes()
    fail("open", str(checkpoint))
    answer, _ = run(tmp_path)
    assert answer["status"] == "interrupted" and f"cannot read the checkpoint {checkpoint}" in answer["error"]
    assert checkpoint.read_bytes() == content
    answer, _ = run(tmp_path)
    assert answer["status"] == "done" and only(tmp_path) == undisturbed


def test_the_command_says_why_and_continues(tmp_path: Path, toy_table: Table) -> None:
    project = make_project(tmp_path / "project", toy_table, milliseconds=1, epochs=2)
    method = project / "methods" / "slow.py"
    broken = "__import__('builtins').open('switch').read() and (_ for _ in ()).throw(OSError(5, 'I/O error', '/d/x'))"
    method.write_text(method.read_text().replace("time.sleep(0.001)", broken))
    command = ("run", "many", "--preset", "tiny", "--seeds", "1", "--jobs", "1", "--no-references")
    (project / "switch").write_text("on")
    first = start(project, *command)
    said = finish(first)
    assert first.returncode == 1 and "Traceback" not in said, said
    assert "0 of 2 trials done, 0 of them now, 2 interrupted" in said and "failed" not in said, said
    assert said.count("I/O error: /d/x; the same command continues") == 4, said  # when it happens, and at the end
    assert standing(project / "runs")[1] == {"interrupted": 2}
    (project / "switch").write_text("")
    second = start(project, *command)
    assert "2 of 2 trials done, 2 of them now" in finish(second) and second.returncode == 0
