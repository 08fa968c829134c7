"""`harness run` with real processes: crashes, kills, Ctrl-C, and the same bytes however it ran."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from harness.cli import main
from harness.components import discovery
from harness.stores.directory.store import DirectoryStore
from harness.stores.stored import StoredRun
from harness.study.references import reference_names
from harness.work import states
from harness.work.processes import GRACE
from tests.processes import all_gone, descendants
from tests.toy import SINGLE_PATH, user_folder

UNASKED = len(reference_names(on_request=False))
"""References of one seed that `run` makes without being asked."""

REPOSITORY = Path(discovery.__file__).resolve().parents[2]

METHODS = (
    SINGLE_PATH.format(name="well", type="Well")
    + """
import os, signal, time

@METHODS.register("crash")
@dataclass(frozen=True)
class Crash(Well):
    '''Takes its process with it.'''

    def paths(self, training):
        os.kill(os.getpid(), signal.SIGKILL)

@METHODS.register("stumble")
@dataclass(frozen=True)
class Stumble(Well):
    '''Is killed the first time.'''

    def paths(self, training):
        if not os.path.exists("stumbled"):
            open("stumbled", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().paths(training)

@METHODS.register("raise")
@dataclass(frozen=True)
class Raise(Well):
    '''Has a mistake in it.'''

    def paths(self, training):
        return undefined_name

@METHODS.register("endless")
@dataclass(frozen=True)
class Endless(Well):
    '''Stays in its first step until there is a file.'''

    def paths(self, training):
        while not os.path.exists("enough"):
            time.sleep(0.01)
        return super().paths(training)

@METHODS.register("deaf")
@dataclass(frozen=True)
class Deaf(Endless):
    '''Does not even stop when it is asked to.'''

    def paths(self, training):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return super().paths(training)
"""
)

STUDY = '''
"""Rows of one method each."""

from harness.study import Column, Row, Study

rows = [Row({{"Method": name}}, {{"method": name}}) for name in {names}]
study = Study("mine", "Mine", rows, [Column("τ", "kendall_tau")])
'''


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A user's folder with methods of her own, as the current directory."""
    folder = tmp_path_factory.mktemp("project")
    studies = {"mixed": ["crash", "well", "raise", "stumble"], "endless": ["well", "endless"], "deaf": ["well", "deaf"]}
    studies |= {"wrong": ["raise"]}
    files = {f"{name}.py": STUDY.format(names=names) for name, names in studies.items()}
    with user_folder(folder, {"methods/own.py": METHODS, **files}):
        yield folder


def start(*arguments: str) -> subprocess.Popen[str]:
    """`python -m harness run` in the current directory."""
    return subprocess.Popen(
        [sys.executable, "-m", "harness", "run", *arguments],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def await_line(stream: IO[str] | None, pattern: str) -> None:
    assert stream
    for line in stream:
        if re.search(pattern, line):
            return
    raise AssertionError(f"the output ended without {pattern!r}")


def outcomes(store: Path) -> dict[str, bytes]:
    """What must be equal, by trial: results and predictions as they lie there."""
    found = {}
    for run in DirectoryStore(store).runs():
        result = json.loads((store / run.id / "result.json").read_text())["result"]
        found[run.key] = json.dumps(result).encode() + (store / run.id / "predictions.json").read_bytes()
    return found


LOSSES = 3
"""Losses in a row, in place of ten: each takes a process."""

SAID = io.StringIO()
"""What the run of `mixed` printed."""


@pytest.fixture(scope="module")
def mixed(project: Path) -> Iterator[tuple[int, Path]]:
    """The exit status of a run in which one trial always dies, one once, one is well and one raises; and its store."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(states, "LOSSES", LOSSES)
        with contextlib.redirect_stdout(SAID):
            status = main(["run", "mixed.py", "--preset", "tiny", "--seeds", "1", "--jobs", "2", "--store", "mixed"])
        yield status, Path("mixed")


def test_what_is_said_of_trials_agrees_with_the_summary(mixed: tuple[int, Path]) -> None:
    header, why, references, *lines = SAID.getvalue().splitlines()
    assert header == "4 trials to run, 2 in parallel, stored in mixed" and why == "  4 new"
    assert references == f"  {UNASKED} references to make afterwards"
    ended = [line for line in lines if line.startswith("[") and "references" not in line]
    total = 4 + UNASKED
    assert [line.split("]")[0] for line in ended] == [f"[{over:{len(str(total))}}/{total}" for over in (1, 2, 3, 4)]
    assert [sum(f": {how} after" in line for line in ended) for how in ("done", "failed", "lost")] == [2, 1, 1]
    again = [line.split(":")[0] for line in lines if line.endswith("(SIGKILL): out of memory?; tried again")]
    assert Counter(again) == {"mine/crash seed 0": LOSSES - 1, "mine/stumble seed 0": 1}
    assert lines[-2:] == ["2 of 4 trials done, 2 of them now, 1 failed, 1 lost", f"{UNASKED} references made"]


def test_quiet_prints_errors_and_the_summary(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--preset", "tiny", "--seeds", "1", "--only", "method.name=raise", "--store", "quiet", "--no-references"]
    assert main(["run", "mixed.py", *asked, "--quiet"]) == 1
    captured = capsys.readouterr()
    assert captured.out == "0 of 1 trials done, 0 of them now, 1 failed\n"
    assert "[1/1] mine/raise seed 0: failed after" in captured.err and "started" not in captured.err


def test_a_death_and_an_error_belong_to_their_trials_alone(mixed: tuple[int, Path]) -> None:
    status, store = mixed
    assert status == 1
    runs: dict[str, list[StoredRun]] = {}
    for run in DirectoryStore(store).runs():
        runs.setdefault(run.trial["config"]["method"]["name"], []).append(run)
    assert {name: [run.status for run in own] for name, own in runs.items()} == {
        "crash": ["lost"] * LOSSES,
        "well": ["done"],
        "raise": ["failed"],
        "stumble": ["lost", "done"],
    }
    assert all(run.fail_trace == ["killed by signal 9 (SIGKILL): out of memory?"] for run in runs["crash"])
    assert "NameError" in (runs["raise"][0].fail_trace or [""])[-1]


def test_failed_and_lost_trials_are_listed_and_not_run_again(
    mixed: tuple[int, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    _, store = mixed
    before = [run.id for run in DirectoryStore(store).runs()]
    assert main(["run", "mixed.py", "--preset", "tiny", "--seeds", "1", "--store", str(store)]) == 1
    captured = capsys.readouterr()
    assert captured.out == "2 of 4 trials done, 0 of them now, 1 failed, 1 lost\n"
    error, crash, *advice = captured.err.splitlines()
    see = rf"see `harness show \w+-\d+-\w+ --store {store}`"
    assert re.fullmatch(rf"lost: mine/crash seed 0: killed by signal 9 \(SIGKILL\): out of memory\?; {see}", crash)
    line = 1 + METHODS.splitlines().index("        return undefined_name")
    assert re.fullmatch(
        rf"failed: mine/raise seed 0: NameError: name 'undefined_name' is .* \(methods/own.py:{line}\); {see}",
        error,
    )
    assert advice == [
        "trials that failed before are run again with --retry failed",
        f"trials that died {LOSSES} times in a row are run again with --retry lost",
        f"next: harness report mine --preset tiny --seeds 1 --store {store}",
    ]
    assert [run.id for run in DirectoryStore(store).runs()] == before


def test_what_is_done_is_not_trained_again(mixed: tuple[int, Path], capsys: pytest.CaptureFixture[str]) -> None:
    _, store = mixed
    command = ["run", "mixed.py", "--preset", "tiny", "--seeds", "1", "--store", str(store)]
    assert main([*command, "--only", "method.name=well"]) == 0
    advice = f"next: harness report mine --preset tiny --seeds 1 --store {store}\n"
    assert capsys.readouterr() == ("1 of 1 trials done, 0 of them now\n", advice)


def test_a_study_whose_first_trials_fail_alike_stops_and_the_others_need_no_retry(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", "wrong.py", "--preset", "tiny", "--seeds", "5", "--jobs", "1", "--store", "wrong"]
    assert main([*command, "--no-references", "--notify", "cat > told.json"]) == 1
    told = json.loads(Path("told.json").read_text())
    assert (told["outcome"], told["failed"], told["waiting"]) == ("failed", 3, 2)
    assert told["errors"].keys() == {f"mine/raise seed {seed}" for seed in range(3)}
    captured = capsys.readouterr()
    assert captured.out.endswith("0 of 5 trials done, 0 of them now, 3 failed, 2 waiting\n")
    stopped = "the first 3 trials of mine failed with the same error, so the other 2 were not started: NameError"
    assert stopped in captured.err
    assert main([*command, "--no-references"]) == 1
    assert capsys.readouterr().out.endswith("0 of 5 trials done, 0 of them now, 5 failed\n")


def test_ctrl_c_while_torch_is_imported_ends_at_once(project: Path) -> None:
    with start("mixed.py", "--preset", "tiny", "--seeds", "1", "--store", "early") as engine:
        await_line(engine.stdout, "trials to run")
        children = descendants(engine.pid)
        engine.send_signal(signal.SIGINT)
        _, errors = engine.communicate(timeout=120)
    assert engine.returncode == 130
    assert "the same command continues with the rest" in errors and "Traceback" not in errors
    assert children and all_gone(children)


@pytest.mark.long
def test_killing_run_leaves_no_process_and_the_next_run_completes(project: Path) -> None:
    command = ["endless.py", "--preset", "tiny", "--seeds", "1", "--jobs", "2", "--store", "killed"]
    with start(*command) as engine:
        await_line(engine.stdout, "well seed 0: done")
        children = descendants(engine.pid)
        assert len(children) == 2  # the server and the endless trial
        engine.kill()
    assert all_gone(children)
    assert sorted(run.status for run in DirectoryStore(Path("killed")).runs()) == ["done", "lost"]
    Path("enough").touch()
    try:
        assert main(["run", *command]) == 0
    finally:
        Path("enough").unlink()
    assert sorted(run.status for run in DirectoryStore(Path("killed")).runs()) == ["done", "done", "lost"]


@pytest.mark.long
def test_ctrl_c_stores_running_trials_as_interrupted(project: Path) -> None:
    with start("endless.py", "--preset", "tiny", "--seeds", "1", "--jobs", "2", "--store", "once") as engine:
        await_line(engine.stdout, "well seed 0: done")
        children = descendants(engine.pid)
        engine.send_signal(signal.SIGINT)
        printed, errors = engine.communicate(timeout=60)
    assert engine.returncode == 130
    assert "endless seed 0: interrupted" in printed and printed.endswith(
        "1 of 2 trials done, 1 of them now, 1 interrupted\n"
    )
    assert errors.endswith("the same command continues with the rest\n") and "Traceback" not in errors
    assert all_gone(children)
    assert sorted(run.status for run in DirectoryStore(Path("once")).runs()) == ["done", "interrupted"]


@pytest.mark.long
def test_a_second_ctrl_c_ends_trials_that_do_not_stop(project: Path) -> None:
    with start("deaf.py", "--preset", "tiny", "--seeds", "1", "--jobs", "2", "--store", "twice") as engine:
        await_line(engine.stdout, "well seed 0: done")
        children = descendants(engine.pid)
        engine.send_signal(signal.SIGINT)
        await_line(engine.stderr, "Ctrl-C again ends them at once")
        engine.send_signal(signal.SIGINT)
        engine.communicate(timeout=GRACE - 1)
    assert engine.returncode == 130
    assert all_gone(children)
    assert sorted(run.status for run in DirectoryStore(Path("twice")).runs()) == ["done", "interrupted"]


@pytest.mark.long
def test_results_do_not_depend_on_the_number_of_jobs_and_run_itself_imports_nothing_heavy(project: Path) -> None:
    only = "clusters.name=operation,schedule.name=calr"
    command = ["run", "ablation_calr_ms", "--preset", "tiny", "--seeds", "1", "--only", only]
    script = (
        "import json, sys; from harness.cli import main; status = main(sys.argv[1:]); "
        "print(json.dumps([status, sorted({'torch', 'pandas', 'scipy', 'sacred', 'sklearn'} & set(sys.modules))]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *command, "--jobs", "1", "--store", "one"],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == [0, []]
    assert main([*command, "--jobs", "2", "--store", "two"]) == 0
    assert len(outcomes(Path("one"))) == 3
    assert outcomes(Path("one")) == outcomes(Path("two"))
