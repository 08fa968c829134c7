"""Edits of a user's method after runs were made: which count, what commands say, and how to accept one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from harness import results
from harness.cli import main
from harness.components.code import text_digest
from harness.components.preset import get_preset
from harness.errors import SourceWarning
from harness.stores.directory.store import DirectoryStore
from harness.stores.mongo.store import MongoStore
from harness.stores.mongo.sync import sync
from harness.study import trial
from harness.study.catalogue import find_studies
from harness.study.expansion import expand, expand_stored, parents
from harness.study.study import Request
from tests.stored_runs import store_run
from tests.toy import user_folder

MINE = '''from harness.components.method import Method
from harness.components.registries import METHODS, METRICS


@METHODS.register("mine")
class Mine(Method):
    """As SPOS."""

    def paths(self, training):
        drawn = training.draw(1)
        return drawn


@METRICS.register("gap")
def gap(predicted, truth, complexity):
    """How far the prediction is from the truth."""
    return 1.0
'''
STUDY = """from harness.study import Column, Row, Study

study = Study(
    name="mine",
    title="Mine",
    rows=[
        Row({"Method": "mine"}, {"method.name": "mine", "rank.metrics": ["gap"]}),
        Row({"Method": "retrained"}, {"method.name": "mine", "rank.metrics": ["gap"], "retrain.epochs": 1}),
    ],
    columns=[Column("τ", "kendall_tau"), Column("Gap", "gap")],
)
"""
HELPED = MINE.replace("from harness.components.method", "from ._lib import COUNT\nfrom harness.components.method")
HELPED = HELPED.replace("draw(1)", "draw(COUNT)")
LIB = "COUNT = 1\n"
EDITED = MINE.replace("drawn = training.draw(1)", "drawn = training.draw(1 + 0)")

OF_OLD = (
    "c21a4fee9cee60eafd0b205e3303e858ee7896656fd66df941820b4761ae2af2",
    "b355d6358934be6171480124709d3439d39d1c4fac16606df88096bedd9ffb4e",
    "3b5998d7833061a58e37c683e9624c97c231bcadc90d4bd7a094737ce0c773f0",
    "6879e87c1f4455efb0961c75ecea6200393591ca59538ed1062c4778062b793f",
)
"""The keys that the version of the harness before gave the trials of this study, of which two retrain."""

TINY = ("mine", "--preset", "tiny", "--seeds", "2")
Capture = pytest.CaptureFixture[str]
Mongo = Database[dict[str, Any]]


@contextmanager
def edition(folder: Path, method: str = MINE, **others: str) -> Iterator[None]:
    """Within, the user's folder has this text of the method, and a new process has found it."""
    files = {f"methods/{name}.py": text for name, text in others.items()}
    with user_folder(folder, {"methods/mine.py": method, "studies/mine.py": STUDY, **files}):
        yield


@contextmanager
def of_old(folder: Path) -> Iterator[None]:
    """Within, the folder is read as by the version before: a component's whole text counts, and no run says so."""
    with edition(folder), pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial, "code_version", lambda entry: text_digest(entry.file.read_bytes()))
        patch.setattr(trial.Trial, "own_code", {})
        yield


def asked(seeds: int = 2) -> list[Request]:
    return expand(find_studies("mine")[0], get_preset("tiny"), seeds)


def stored(seeds: int = 2) -> list[Request]:
    opened = DirectoryStore(Path("runs"))
    return expand_stored(find_studies("mine")[0], get_preset("tiny"), opened.runs, seeds)


def fill(requests: list[Request], tau: float = 0.5) -> list[str]:
    """Store runs of these requests, with copies of their sources, as they are now."""
    cost = {"wall_seconds": 3600.0}
    return [store_run(Path("runs"), one, tau, sources=True, more={"gap": 1.0}, cost=cost).id for one in requests]


def done(requests: list[Request]) -> int:
    """How many of these requests stored runs answer, with the ranking that is asked for."""
    runs = {run.key: run for run in DirectoryStore(Path("runs")).runs() if run.counts}
    return sum(one.trial.key in runs and one.trial.ranking_key in runs[one.trial.key].rankings for one in requests)


def said(capsys: Capture, *arguments: str, status: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    assert main(list(arguments)) == status
    captured = capsys.readouterr()
    return captured.out, captured.err


SAME = {
    "comment": MINE.replace("        drawn", "        # one\n        drawn"),
    "docstring": MINE.replace("As SPOS.", "Just as SPOS."),
    "formatting": MINE.replace("draw(1)", "draw(\n            1,\n        )").replace('"mine"', "'mine'"),
}
OTHER = {
    "decorator": MINE.replace("class Mine", "@(lambda one: one)\nclass Mine"),
    "renamed local variable": MINE.replace("drawn", "paths"),
    "code": EDITED,
}


@pytest.mark.parametrize("name", SAME)
def test_runs_outlive_what_is_no_code(name: str, tmp_path: Path, capsys: Capture) -> None:
    with edition(tmp_path):
        fill(asked())
    with edition(tmp_path, SAME[name]):
        assert done(stored()) == 4
        out, err = said(capsys, "plan", *TINY)
        assert "4 done" in out and "has changed" not in err


@pytest.mark.parametrize("name", OTHER)
def test_a_change_of_code_is_another_method_and_is_said_first(name: str, tmp_path: Path, capsys: Capture) -> None:
    with edition(tmp_path):
        fill(asked())
    with edition(tmp_path, OTHER[name]):
        assert done(stored()) == 0
        begin = "methods/mine.py has changed since 4 runs (4.0 h); they count as another method and metric gap\n"
        for command in (["plan", *TINY], ["report", *TINY], ["status", *TINY]):
            out, err = said(capsys, *command)
            assert err.startswith(begin) and "  the change: harness diff --code " in err
        assert "store accept methods/mine.py" in err
        out, _ = said(capsys, "report", *TINY)
        assert f"- {begin.rstrip()}." in out.splitlines() and "(0 of 2 seeds)" in out
        out, err = said(capsys, "status")  # the study is shown, though none of its runs counts
        assert err.startswith("methods/mine.py has changed since ") and "mine" in out


def test_an_edit_of_what_it_imports_counts_and_is_said(tmp_path: Path, capsys: Capture) -> None:
    with edition(tmp_path, HELPED, _lib=LIB):
        fill(asked())
    with edition(tmp_path, HELPED, _lib=LIB + "# for all\n"):
        assert done(stored()) == 4
    with edition(tmp_path, HELPED, _lib="COUNT = 1 + 0\n"):
        assert done(stored()) == 0
        _, err = said(capsys, "plan", *TINY)
        assert err.startswith("what methods/mine.py imports has changed since 4 runs (4.0 h); they count as another")


def test_run_says_first_what_has_changed(tmp_path: Path, capsys: Capture) -> None:
    with edition(tmp_path):
        fill(asked(1)[:1])
    with edition(tmp_path, MINE.replace("drawn = training.draw(1)", "raise ValueError")):
        _, err = said(capsys, "run", "mine", "--preset", "tiny", "--seeds", "1", "--no-references", status=1)
        assert err.startswith("methods/mine.py has changed since 1 run (60 min); it counts as another method")


def test_runs_of_the_version_before_keep_their_keys_and_count(
    tmp_path: Path, capsys: Capture, mongo_database: Mongo
) -> None:
    with of_old(tmp_path):
        requests = asked()
        assert tuple(one.trial.key for one in requests) == OF_OLD
        fill(requests)
        cells = [json.loads(path.read_text()) for path in Path("runs").glob("*/cell.json")]
        assert not any("code" in cell for cell in cells)
    with edition(tmp_path, SAME["docstring"]):
        found = stored()
        assert tuple(one.trial.key for one in found) == OF_OLD and done(found) == 4
        assert {one.trial.start.key for one in found[2:] if one.trial.start} == {*OF_OLD[:2]}
        assert {one.trial.key for one in parents(found)} == {*OF_OLD[:2]}
        assert not {one.trial.key for one in asked()} & {*OF_OLD}
        out, err = said(capsys, "report", *TINY)
        assert "0.5" in out and "missing" not in out and "has changed" not in err
        sync(DirectoryStore(Path("runs")), mongo_database)
        runs = MongoStore(mongo_database).runs()
        assert runs == DirectoryStore(Path("runs")).runs() and all(run.code for run in runs)
    with edition(tmp_path, EDITED):
        _, err = said(capsys, "plan", *TINY)
        assert err.startswith("methods/mine.py has changed since 4 runs (4.0 h)")


def test_a_child_of_this_version_starts_from_a_run_of_the_version_before(tmp_path: Path) -> None:
    with of_old(tmp_path):
        fill(asked()[:2])
    with edition(tmp_path):
        _, _, child, other = (one.trial for one in stored())
        assert child.start is not None and child.start.key == OF_OLD[0]
        assert child.parent == child.start.search and child.key != OF_OLD[2]
        again = trial.Trial.from_json(json.loads(json.dumps(child.json())))
        assert (again.key, again.start and again.start.key) == (child.key, OF_OLD[0])
        assert other.start is not None and other.start.key == OF_OLD[1]


def test_a_database_of_the_version_before_learns_the_code_at_the_next_sync(
    tmp_path: Path, mongo_database: Mongo, monkeypatch: pytest.MonkeyPatch
) -> None:
    with of_old(tmp_path):
        fill(asked())
        directory = DirectoryStore(Path("runs"))
        monkeypatch.setattr("harness.stores.directory.reading._own_code", lambda trial, sources: {})
        monkeypatch.setattr("harness.stores.directory.index._version", lambda: "before")
        sync(directory, mongo_database)
        assert not any(run.code for run in MongoStore(mongo_database).runs())
        monkeypatch.undo()
        sync(directory, mongo_database)
        assert [set(run.code) >= {"method"} for run in MongoStore(mongo_database).runs()] == [True] * 4


def test_an_accepted_edit_counts_everywhere_and_is_shown(
    tmp_path: Path, capsys: Capture, mongo_database: Mongo
) -> None:
    with edition(tmp_path):
        before = fill(asked(1))
    with edition(tmp_path, EDITED):
        _, err = said(capsys, "store", "accept", "methods/mine.py", "--reason", " ", status=2)
        assert "--reason must not be empty" in err
        _, err = said(capsys, "store", "accept", "methods/other.py", "--reason", "same", status=2)
        assert "no component of your own is in methods/other.py" in err and "methods/mine.py" in err
        out, _ = said(capsys, "store", "accept", "methods/mine.py", "--reason", "adds nothing")
        assert out == "methods/mine.py: 2 runs made before the edit count again\n"
        assert done(stored(1)) == 2
        after = fill([one for one in stored() if one.seed == 1])  # under the edited code
        out, err = said(capsys, "report", *TINY)
        declared = "methods/mine.py was edited between runs of this table; declared on "
        assert f"- {declared}" in out and "to change no result: adds nothing." in out and "has changed" not in err
        _, err = said(capsys, "store", "accept", "methods/mine.py", "--reason", "again", status=2)
        assert "there is nothing to accept" in err
        table = results.runs()
        assert dict(zip(table["run_id"], table["source"], strict=True)).keys() == {*before, *after}
        assert table["source"].nunique() == 2  # two codes, and no warning: they are declared equal
        assert said(capsys, "store", "export", "mine", "mine.tar", "--preset", "tiny", "--seeds", "2")
        sync(DirectoryStore(Path("runs")), mongo_database)
        mirrored = MongoStore(mongo_database)
        (record,) = mirrored.accepted()
        assert record["reason"] == "adds nothing" and mirrored.runs() == DirectoryStore(Path("runs")).runs()
        said(capsys, "store", "import", "mine.tar", "--store", "other")
        assert DirectoryStore(Path("other")).accepted() == [record]
        out, _ = said(capsys, "report", *TINY, "--store", "other")
        assert declared in out and "missing" not in out
    with edition(tmp_path, MINE):  # back: the runs of both count, too
        assert done(stored()) == 4


def test_of_several_versions_one_is_named(tmp_path: Path, capsys: Capture) -> None:
    for number, text in enumerate((MINE, EDITED)):
        with edition(tmp_path, text):
            fill(asked(1)[:1], number / 2)
    with edition(tmp_path, OTHER["renamed local variable"]):
        first, last = (run.id for run in sorted(DirectoryStore(Path("runs")).runs(), key=lambda run: str(run.result)))
        accept = ["store", "accept", "methods/mine.py", "--reason", "a name"]
        _, err = said(capsys, *accept, status=2)
        assert "had 2 other versions" in err and first in err and last in err
        said(capsys, *accept, "--run", first)
        (request,) = stored(1)[:1]
        assert request.trial.key[:16] == first[:16]


def test_diff_shows_the_change_of_code(tmp_path: Path, capsys: Capture) -> None:
    with edition(tmp_path, HELPED, _lib=LIB):
        first, *_ = fill(asked(1)[:1])
        assert said(capsys, "diff", "--code", first)[0] == f"{first} and today\nthe files are equal\n"
        _, err = said(capsys, "diff", first, status=2)
        assert "give --code" in err
    with edition(tmp_path, HELPED + "# more\n", _lib="COUNT = 2\n"):
        second, *_ = fill(asked(1)[:1])
        for other in ((), (second,)):
            out, _ = said(capsys, "diff", "--code", first, *other, status=1)
            assert "-COUNT = 1\n+COUNT = 2\n" in out and "methods-_lib.py: the code differs\n" in out
            assert "methods-mine.py: the code is the same" in out and "spos" not in out


def test_results_warn_of_rows_of_several_sources(tmp_path: Path) -> None:
    for text in (MINE, EDITED):
        with edition(tmp_path, text):
            fill(asked()[:2])
    with edition(tmp_path, EDITED):
        with pytest.warns(SourceWarning, match="rows of one label have several sources: 1 configuration .* mine with"):
            table = results.runs()
        assert table["source"].nunique() == 2 and len(table) == 4
        assert results.runs(study="mine")["source"].nunique() == 1  # those of today's code alone
        one = table["source"][0]
        assert len(results.runs(where=f"source == '{one}'")) == 2
