"""`harness rerun`: a real run once more, compared with what is stored, true or not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.components import discovery
from harness.components.preset import get_preset
from harness.stores.directory.store import DirectoryStore
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from harness.truth.table import Table
from tests.conftest import TOY
from tests.jobs import run_job
from tests.stored_runs import forge
from tests.toy import SINGLE_PATH, user_folder

STUDY = """
from harness.study import Column, Row, Study

toy = {"space": "toy", "dataset": "toy", "benchmark": "toy", "method.name": "own", "train.epochs": 2,
       "train.batch_size": 20, "network.width": 2, "rank.images": 50, "rank.candidates": 4, "rank.bins": 3}
study = Study("mine", "Mine", [Row({"Method": "own"}, toy)], [Column("τ", "kendall_tau")])
"""

METHOD = SINGLE_PATH.format(name="own", type="Own")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, toy_table: Table) -> Iterator[Path]:
    """A user's folder with one run in its store, made by the real thing."""
    folder = tmp_path_factory.mktemp("rerun")
    toy_table.write(folder / "toy.npz")
    with user_folder(folder, {"spaces/toy.py": TOY, "methods/own.py": METHOD, "studies/mine.py": STUDY}):
        (request,) = expand(find_studies("mine")[0], get_preset("tiny"), 1)
        job: dict[str, Any] = {"kind": "train", "trial": request.trial.json(), "store": "runs", "preset": "tiny"}
        answer = run_job(job | {"overrides": {}, "threads": 1, "device": "cpu"}, lambda report: None)
        assert answer["status"] == "done"
        yield folder


@pytest.fixture
def run_id(project: Path) -> str:
    return DirectoryStore(project / "runs").ids()[0]


def test_the_same_again_is_equal_and_kept_where_it_is_told(
    project: Path, run_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rerun", run_id[:20], "--into", "again"]) == 0
    printed = capsys.readouterr().out
    assert printed.endswith("results are equal\n") and "\ncost\n" in printed
    one, other = DirectoryStore(project / "runs").runs()[0], DirectoryStore(project / "again").runs()[0]
    assert one.result == other.result and one.key == other.key
    for name in ("weights.pt", "predictions.json"):
        assert (project / "runs" / one.id / name).read_bytes() == (project / "again" / other.id / name).read_bytes()
    # The store itself got nothing new, and a second time there would be nothing to run.
    assert DirectoryStore(project / "runs").ids() == [run_id]
    assert main(["rerun", run_id, "--into", "again"]) == 2
    assert capsys.readouterr().err == "error: again has a done run of this trial already: give another directory\n"


@pytest.mark.long
def test_a_stored_result_that_is_not_what_comes_out_is_shown(
    project: Path, run_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree("runs", "forged")
    forge(project / "forged" / run_id)
    assert main(["rerun", run_id, "--store", "forged"]) == 1
    printed = capsys.readouterr().out
    assert "\nresult\n  selected  " in printed and printed.endswith("results differ: result\n")


def test_a_component_that_changed_makes_it_another_trial(
    project: Path, run_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    own = project / "methods" / "own.py"
    try:
        own.write_text(METHOD + "\nCHANGED = True\n")
        with discovery.fresh():
            assert main(["rerun", run_id]) == 2
    finally:
        own.write_text(METHOD)
    said = capsys.readouterr().err
    start = f"error: run {run_id} cannot be repeated: its configuration is now another trial: versions.method was "
    assert said.startswith(start)
    assert said.count("\n") == 1 and "versions.space" not in said


def test_only_a_done_run_can_be_compared(project: Path, run_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree("runs", "lost")
    (project / "lost" / run_id / "completion.json").unlink()
    record = project / "lost" / run_id / "run.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"status": "FAILED"}))
    assert main(["rerun", run_id, "--store", "lost"]) == 2
    assert capsys.readouterr().err == (f"error: run {run_id} is failed: only a done run can be repeated and compared\n")
    assert main(["rerun", "nothing"]) == 2
    assert "no run's id begins with 'nothing'" in capsys.readouterr().err
