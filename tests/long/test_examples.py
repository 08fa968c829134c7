"""The commands of the README and of docs/, page by page, under the preset `tiny`.

Runs, a database, a cluster (`tests.slurm`) and predictions exist. Commands get the preset `tiny` and at most two
seeds; of the shipped studies they train SPOS. `ELSEWHERE` names the commands that other tests run.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.error
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import HTTPCookieProcessor, build_opener

import pytest

from harness.cli import main
from harness.components.registries import SPACES
from harness.stores.directory.store import DirectoryStore
from harness.study.catalogue import find_studies
from tests.processes import await_that
from tests.slurm import cluster
from tests.test_documents import DOCS, DOCUMENTS, ROOT, blocks, commands, example_files
from tests.toy import user_folder

pytestmark = pytest.mark.long

ELSEWHERE = {
    r"init": "tests/long/test_site.py",
    r"run --all": "tests/long/every_study.py",
    r"run .*--executor ray": "tests/long/test_ray.py",
    r"doctor --gpu": "tests/cli/test_doctor.py",
    r"store accept": "tests/cli/test_edits.py",
    r"data check cifar10": "tests/cli/test_data.py",
    r"benchmark import|.*nb201-12-epochs|benchmark info nasbench201": "tests/cli/test_benchmark.py",
    r"benchmark build --data digits-polar": "tests/truth/test_build.py",
    r".*supernet-tiny": "tests/cli/test_weights.py",
}
"""Patterns of commands that need files, hours or programs that are not here, and the tests of the same with others."""

TESTED = {"tutorial.md": "test_site.py", "figures.md": "test_site.py", "analyses.md": "../test_analyses.py"} | {
    "measured_tables.md": "../reports/test_measured.py"
}
"""Pages that other tests run from top to bottom."""

TO_COME = {"reports.md", "results.md", "slurm.md", "spaces.md", "start.md", "studies.md", "view.md", "workers.md"}
"""Pages whose commands are only parsed (`tests.test_documents`) until a run of this file has passed with them."""

FAIL = {"report nb201_main --strict": 1, "report nb201_main darts_space": 2, "mongo status": None}
"""Exit status, by their beginnings, of commands that find something missing; None for any."""

INTERRUPTED = 130
"""Exit status after Ctrl-C."""

WAITING = ("view", "store sync --watch")
"""Beginnings of commands that print and wait."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project with the examples of all pages, runs of its own study and of the ablation, and a cluster."""
    folder = tmp_path_factory.mktemp("examples")
    assert main(["init", str(folder)]) == 0
    with (
        user_folder(folder, example_files()),
        cluster(tmp_path_factory.mktemp("slurm")) as slurm,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("PATH", slurm.path)
        (folder / "harness.toml").write_text('preset = "tiny"\n')
        (folder / "reports").mkdir()
        (folder / "reports" / "measured").symlink_to(ROOT / "reports" / "measured")
        (build,) = [words for words in commands((DOCS / "own_space.md").read_text()) if "build" in words]
        assert main(build) == 0
        assert main(["run", "ablation_calr_ms", "--seeds", "2", "--only", "method.name=spos"]) == 0
        assert main(["run", "mine", "compare", "--seeds", "2"]) == 0
        _predictions(folder / "mine.csv")
        yield folder


def _predictions(file: Path) -> None:
    space = SPACES.get("nasbench201")()
    names = [space.format(one) for one in itertools.product(*map(range, space.choices))]
    file.write_text("\n".join(f"{name},{number % 97}" for number, name in enumerate(names)))


@pytest.mark.parametrize(
    "page", [page for page in DOCUMENTS if page.name not in {*TESTED, *TO_COME}], ids=lambda page: page.name
)
def test_the_commands_of_a_page(
    page: Path, project: Path, mongod: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = []
    for words in commands(page.read_text()):
        line = shlex.join(words)
        if any(re.match(pattern, line) for pattern in ELSEWHERE):
            continue
        made = _small(words, page, mongod)
        if line.startswith(WAITING) and "--export" not in words:
            status = _started(made, mongod)
        elif "--gpu" in words:  # an emulated GPU is added before the first tensor
            status = subprocess.run([sys.executable, "-m", "harness", *made], env=_environment()).returncode
        else:
            with contextlib.ExitStack() as stack:
                if line.startswith("store sync"):
                    stack.enter_context(pytest.MonkeyPatch.context()).setenv("HARNESS_MONGO", mongod)
                status = main(made)
        printed = capsys.readouterr()
        expected = next((status for start, status in FAIL.items() if line.startswith(start)), 0)
        if expected is not None and status != expected:
            failed.append(f"harness {shlex.join(made)}: {status}\n{printed.err or printed.out}")
    assert not failed, "\n".join(failed)


def _small(words: list[str], page: Path, mongod: str) -> list[str]:
    """The command with its preset, seeds, networks and workers made small, on runs that are stored here."""
    done = [run for run in DirectoryStore(Path("runs")).runs() if run.counts]
    runs = [run.id for run in done if run.trial["config"]["space"] == "nasbench201"]
    line = shlex.join(words)
    for old, new in {
        r"--preset (demo|small|paper)\b": "--preset tiny",
        r"--seeds \d+": "--seeds 2",
        r"--max-seeds \d+": "--max-seeds 5",
        r"--ranks \d+": "--ranks 2",
        r"--workers \d+": "--workers 2",
        r"--sample \d+": "--sample 1",
        r"\bRUN\b": runs[0],
        "mongodb://lab/nas": mongod,
        r"/shared/runs|\.\./first/runs": "runs",
        "2026-12-24": "2999-12-24",
        "benchmark latency (.*?)( with.*)?$": r"benchmark latency \1 --repeats 1 --image-size 32\2",
        r"new method mine": f"new method {page.stem.lower()}",
    }.items():
        if words[0] not in ("plan", "explain", "list") or "preset" not in old:
            line = re.sub(old, new, line)
    made = shlex.split(line)
    shipped = [name for name in made[1:2] if (ROOT / "studies" / f"{Path(name).stem}.py").is_file()]
    if made[0] in ("run", "worker") and shipped and "--only" not in made:
        (study,) = find_studies(Path(shipped[0]).stem)
        method = "spos" if any("spos" in str(row.settings) for row in study.rows) else "autoformer"
        made[1:2] = [study.name, "--only", f"method.name={method}"]
    return made


def _started(words: list[str], mongod: str) -> int:
    """Start the command, wait until it works, and interrupt it."""
    environment = _environment() | ({} if words[0] == "view" else {"HARNESS_MONGO": mongod})
    command = [sys.executable, "-m", "harness", *words]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if words[0] != "view":
            break
        if match := re.search(r"http://\S+", line):
            await_that(partial(_answers, match[0]))
            break
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    return 0 if process.returncode == INTERRUPTED else process.returncode


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def _answers(address: str) -> bool:
    with contextlib.suppress(urllib.error.URLError):
        return bool(build_opener(HTTPCookieProcessor()).open(address, timeout=60).status == 200)
    return False


def test_every_command_that_is_left_out_is_run_elsewhere() -> None:
    lines = [shlex.join(words) for page in DOCUMENTS for words in commands(page.read_text())]
    for pattern, place in ELSEWHERE.items():
        assert (ROOT / place).exists() and any(re.match(pattern, line) for line in lines), pattern
    assert all((Path(__file__).parent / place).is_file() for place in TESTED.values())


@pytest.mark.parametrize(("page", "count"), [("slurm.md", 1), ("studies.md", 1), ("reports.md", 1), ("gpus.md", 1)])
def test_parts_of_studies_are_valid(page: str, count: int) -> None:
    import harness.study

    codes = blocks((DOCS / page).read_text(), "python")
    assert len(codes) == count
    for code in codes:
        names: dict[str, Any] = {name: getattr(harness.study, name) for name in ("Row", "Comparison")}
        exec(code, names | {"settings": {}})
