"""`run --ranks`: what is refused, and, for long tests, what a user sees of ranks that fail or are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cli import main
from harness.components import discovery
from harness.stores.directory.store import DirectoryStore
from harness.truth.table import Table
from tests.processes import all_gone, descendants
from tests.shared_trials import shared_trials

REPOSITORY = Path(discovery.__file__).resolve().parents[2]

OPTIONS = ["--preset", "tiny", "--seeds", "1", "--jobs", "1", "--checkpoint-every", "0", "--no-references"]


@pytest.fixture
def project(tmp_path: Path, toy_table: Table) -> Iterator[Path]:
    with shared_trials(tmp_path, toy_table) as folder:
        yield folder


def test_what_cannot_be_shared_is_refused_before_anything_runs(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "refused", *OPTIONS, "--ranks", "2"]) == 2
    reason = "refused/alone seed 0: method alone cannot train with --ranks 2: it remembers images"
    assert reason in capsys.readouterr().err and not Path("runs").exists()


@pytest.mark.long
def test_a_rank_that_fails_is_reported_and_one_rank_does_the_rest(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "several", *OPTIONS, "--ranks", "2"]) == 1
    shown = capsys.readouterr()
    assert "3 trials to run, 1 in parallel by 2 ranks each" in shown.out
    for stage in ("training", "ranking"):
        assert f"failed: several/{stage} seed 0: rank 1: ValueError: no {stage} in rank 1" in shown.err
    failed = [run for run in DirectoryStore(Path("runs")).runs() if run.status == "failed"]
    assert len(failed) == 2
    assert main(["show", failed[0].id]) == 0
    assert "methods/shared.py" in capsys.readouterr().out
    Path("broken").unlink()
    assert main(["run", "several", *OPTIONS, "--retry", "failed"]) == 0
    note = "several/training seed 0: not resuming from the checkpoint"
    out = capsys.readouterr().out
    assert out.count("not resuming") == out.count(note) == 1
    done = next(run for run in DirectoryStore(Path("runs")).runs() if (run.cost or {}).get("ranks") == 2)
    assert main(["rerun", done.id]) == 0
    assert main(["store", "recompute", "one", "--preset", "tiny", "--seeds", "1", "--again", "--ranks", "2"]) == 0
    assert "1 unchanged" in capsys.readouterr().out


@pytest.mark.long
def test_a_killed_rank_ends_all_and_the_same_command_goes_on(project: Path) -> None:
    assert main(["run", "one", *OPTIONS, "--ranks", "2", "--store", "plain"]) == 0
    Path("hold").touch()
    command = [sys.executable, "-m", "harness", "run", "one", *OPTIONS, "--ranks", "2"]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}) as engine:
        while engine.poll() is None and not list(Path("runs/work").glob("*.checkpoint")):
            time.sleep(0.01)
        (folder,) = (path.parent for path in Path("runs").glob("*/cell.json"))
        first = json.loads((folder / "cell.json").read_text())["owner"]["pid"]
        (server,) = (one for one in descendants(engine.pid) if first in descendants(one))
        ranks = descendants(server)
        (second,) = ranks - {first}
        os.kill(second, signal.SIGKILL)
        assert all_gone(ranks, within=60.0)
        Path("hold").unlink()
        assert engine.wait() == 0
    found = DirectoryStore(Path("runs")).runs()
    assert Counter(run.status for run in found) == {"lost": 1, "done": 1}
    (plain,) = DirectoryStore(Path("plain")).runs()
    assert json.dumps(found[-1].result) == json.dumps(plain.result)
