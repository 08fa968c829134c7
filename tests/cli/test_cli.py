"""The command line: quick help, exit statuses, messages without tracebacks, and `harness list`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import __version__, cli
from harness.components import discovery
from harness.components.registries import REGISTRIES

REPOSITORY = Path(cli.__file__).resolve().parents[2]

# A command file such as stands in harness/cli/, for every way a command can end.
ENDING = """
import click
from harness.errors import Diverged, InvalidConfiguration

@click.command("ending")
@click.argument("how")
def command(how):
    '''End in some way.'''
    if how == "interrupt":
        raise KeyboardInterrupt
    if how == "user":
        raise InvalidConfiguration("train.epochs must be at least 1")
    if how == "failed":
        raise Diverged(3, float("inf"))
    return int(how) if how.isdigit() else None
"""


@pytest.fixture
def ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Adds the command `ending` as a file of a further commands folder."""
    folder = tmp_path / "commands"
    folder.mkdir()
    (folder / "ending.py").write_text(ENDING)
    monkeypatch.setattr(cli, "__path__", [*cli.__path__, str(folder)])
    yield
    sys.modules.pop("harness.cli.ending", None)
    vars(cli).pop("ending", None)


@pytest.mark.parametrize(
    ("how", "status", "message"),
    [
        ("fine", 0, ""),
        ("3", 3, ""),
        ("user", 2, "error: train.epochs must be at least 1\n"),
        ("failed", 1, "error: training diverged at step 3: the loss is inf\n"),
        ("interrupt", 130, "interrupted\n"),
    ],
)
def test_how_a_command_ends_is_the_exit_status(
    ending: None, how: str, status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["ending", how]) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.lstrip("\n") == message  # click ends a terminal's ^C line first


def test_a_new_file_in_the_folder_is_a_command_with_its_summary(
    ending: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--help"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "ending End in some way." in lines


def test_an_unknown_command_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lits"]) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: no command is named 'lits'; did you mean 'list'? Known: ")


def test_a_wrong_option_exits_2_with_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "--no-such-option"]) == 2
    assert "Usage: harness list" in capsys.readouterr().err


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert __version__ in capsys.readouterr().out


def test_help_is_quick_and_imports_nothing_heavy(tmp_path: Path) -> None:
    script = (
        "import json, sys, time; from harness.cli import main; status = main(['--help']); "
        "heavy = {'torch', 'numpy', 'pandas', 'sacred', 'harness.components.discovery'} & set(sys.modules); "
        "print(json.dumps([status, sorted(heavy), time.process_time()]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
    )
    status, heavy, seconds = json.loads(done.stdout.splitlines()[-1])
    assert (status, heavy) == (0, [])
    assert seconds < 0.5  # processor time: a busy machine does not count against it


def test_the_help_of_run_names_presets_and_imports_nothing_heavy(tmp_path: Path) -> None:
    script = (
        "import json, sys; from harness.cli import main; main(['run', '--help']); "
        "print(json.dumps(sorted({'torch', 'numpy', 'pandas', 'sacred'} & set(sys.modules))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == []
    assert "demo, official, paper, small, tiny" in " ".join(done.stdout.split())


def test_the_module_runs_as_a_program_in_a_users_project(tmp_path: Path) -> None:
    """`python -m` puts the project first on the path; a file that does not import is one line and stops nothing."""
    (tmp_path / "methods").mkdir()
    (tmp_path / "methods" / "random.py").write_text("import torch_of_nobody\n")
    done = subprocess.run(
        [sys.executable, "-m", "harness", "list"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    file = tmp_path / "methods" / "random.py"
    assert done.stderr.startswith(f"warning: {file}:1 does not import: ModuleNotFoundError")
    assert len(done.stderr.splitlines()) == 1 and "\nmethods\n" in f"\n{done.stdout}"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty project of a user, with nothing of ours beside the engine."""
    (tmp_path / "ours").mkdir()
    monkeypatch.chdir(tmp_path)
    with discovery.fresh(ours=tmp_path / "ours"):
        yield tmp_path


def test_list_shows_name_summary_and_origin(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "methods").mkdir()
    (project / "methods" / "mine.py").write_text(
        "from harness.components.registries import METHODS\n\n\n"
        "@METHODS.register('mine')\nclass Mine:\n    '''A method of my own.'''\n"
    )
    (project / "studies").mkdir()
    (project / "studies" / "table.py").write_text(
        "'''One table.\n\nMore.'''\nfrom harness.study import Row, Study\n\n"
        "study = Study('table', 'A table', [Row({'Method': 'SPOS'})], [])\n"
    )
    assert cli.main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["methods", "  mine  A method of my own.  methods/mine.py:4"]
    assert lines[-2:] == ["studies", "  table  One table.  studies/table.py"]


def test_list_takes_one_kind(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "methods"]) == 0
    assert capsys.readouterr().out == "methods\n  none\n"
    assert cli.main(["list", "metods"]) == 2
    assert "did you mean 'methods'?" in capsys.readouterr().err


def test_list_knows_every_kind_in_any_form(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for form, kind in {
        "method": "methods",
        "cluster rules": "cluster-rules",
        "cluster_rule": "cluster-rules",
        "data sets": "datasets",
        "order of samples": "orders",
        "study": "studies",
        "searches": "searches",
    }.items():
        assert cli.main(["list", *form.split()]) == 0, form
        assert capsys.readouterr().out.splitlines()[0] == kind
    assert cli.main(["list"]) == 0
    headings = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    assert headings == [*REGISTRIES, "studies"]


def test_list_shows_what_is_built_in_beside_what_is_registered(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "methods").mkdir()
    (project / "methods" / "mine.py").write_text(
        "from harness.components.registries import METRICS, OBSERVATIONS\n\n"
        "@METRICS.register('regret')\ndef regret(*arrays):\n    'How far behind.'\n\n"
        "@OBSERVATIONS.register('norm')\ndef norm(*state):\n    'The norm.'\n"
    )
    assert cli.main(["list", "metrics"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["regret", "How", "far", "behind.", "methods/mine.py:3"]
    for name in ("kendall_tau", "retrained_accuracy", "wall_seconds", "stage_seconds.*"):
        assert any(line.startswith(f"  {name} ") for line in lines)
    assert cli.main(["list", "observations"]) == 0
    shown = capsys.readouterr().out
    assert "methods/mine.py:7" in shown and "observe.gradient_similarity" in shown


def test_list_says_of_a_study_that_it_does_not_import(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    studies = project / "studies"
    studies.mkdir()
    (studies / "a_syntax.py").write_text("x = 1\nif x\n")
    (studies / "b_name.py").write_text("'''A table.'''\n\nstudy = Studi()\n")
    (studies / "c_empty.py").write_text("")
    assert cli.main(["list", "studies"]) == 0
    heading, syntax, name, empty = capsys.readouterr().out.splitlines()
    assert syntax.startswith(f"  a_syntax  does not import: {studies / 'a_syntax.py'}:2: SyntaxError")
    assert name.startswith(f"  b_name    does not import: {studies / 'b_name.py'}:3: NameError: name 'Studi'")
    assert "holds no study" in empty
