"""The command line: quick help, exit statuses, messages without tracebacks, and `harness list`."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from harness import __version__, cli
from harness.cli._help import Command, Group
from harness.cli._plain_text import replace_what_cannot_be_written
from harness.components import discovery
from harness.components.preset import get_preset
from harness.components.registries import REGISTRIES
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from tests.stored_runs import store_run

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


def every_command() -> dict[str, click.Command]:
    """All commands and subcommands, by what is typed."""
    context, found = click.Context(cli.group, info_name="harness"), {}
    for name in cli.group.list_commands(context):
        command = cli.group.get_command(context, name)
        assert command is not None
        found[name] = command
        if isinstance(command, click.Group):
            found |= {f"{name} {inner}": one for inner, one in command.commands.items()}
    return found


def test_commands_stand_under_headings_in_the_order_of_work(ending: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    headings = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    work, own = "Work:", "Components and diagnosis:"
    assert headings == [work, own, "Others:", "More, described by `harness --help --all`:", "Example:"]
    shown = [line.split()[0] for line in lines[lines.index("Work:") :] if line.startswith("  ") and line[2] != " "]
    assert shown[:6] == ["run", "plan", "status", "view", "show", "query"]
    assert "worker" not in shown and any(line.endswith("  worker, submit, cancel") for line in lines)
    assert not any("..." in line for line in lines[1:])
    assert cli.main(["--help", "--all"]) == 0
    lines = capsys.readouterr().out.splitlines()
    headings = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert headings == ["Options:", work, own, "Many machines:", "Upkeep:", "Others:", "Example:"]
    shown = [line.split()[0] for line in lines[lines.index("Work:") :] if line.startswith("  ") and line[2] != " "]
    assert shown.index("explain") < shown.index("worker") < shown.index("mongo") < shown.index("ending")


def test_every_command_has_a_short_text_that_is_not_cut_and_one_example() -> None:
    ours = {name: one for name, one in every_command().items() if isinstance(one, Command | Group)}
    assert len(ours) > 25
    for name, command in ours.items():
        context = click.Context(command, info_name=f"harness {name}", max_content_width=100)
        text = command.get_help(context)
        example = command.example
        assert f"\nExample:\n  {example}" in text and example.startswith(f"harness {name}"), name
        if isinstance(command, click.Group):
            assert "..." not in text.partition("\n")[2]
        else:
            command.make_context(name, shlex.split(example)[1 + len(name.split()) :], resilient_parsing=True)


def test_help_fits_a_screen(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 30 and max(map(len, lines)) <= 80
    assert cli.main(["run", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 50 and max(map(len, lines)) <= 80
    shown = [line for line in lines if line.startswith("  -")]
    assert len(shown) <= 16
    hidden = len(every_command()["run"].params) - 1 - (len(shown) - 1)  # one is an argument, and --help is no parameter
    assert f"`harness run --help --all` shows {hidden} more options." in lines


def options_under_headings(text: str) -> dict[str, set[str]]:
    under: dict[str, set[str]] = {}
    for line in text.splitlines():
        if line.endswith(":") and not line.startswith(" "):
            options = under.setdefault(line[:-1], set())
        elif line.startswith("  -"):
            options.add(next(word for word in line.replace(",", " ").split() if word.startswith("--")))
    return under


def test_many_options_stand_under_headings(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "--all", "--help"]) == 0
    under = options_under_headings(capsys.readouterr().out)
    assert {"--preset", "--only", "--all", "--references-only"} <= under["What to run"]
    assert {"--jobs", "--device", "--timeout", "--retry"} <= under["How"]
    assert {"--store", "--mongo", "--offline"} <= under["Store and database"]
    assert under["Checkpoints and claims"] == {"--work", "--checkpoint-every", "--lease"}
    assert {"--quiet", "--help"} <= under["What is shown"] and "Others" not in under
    assert cli.main(["show", "--help"]) == 0
    assert "\nOptions:\n" in capsys.readouterr().out


def completed(*words: str, folder: Path) -> tuple[list[str], str]:
    """What bash offers for the last of these words, and what is written to the error output."""
    environment = {"_HARNESS_COMPLETE": "bash_complete", "COMP_WORDS": shlex.join(["harness", *words])}
    done = subprocess.run(
        [sys.executable, "-m", "harness"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "COMP_CWORD": str(len(words)), **environment},
        capture_output=True,
        text=True,
    )
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line], done.stderr


def test_the_shell_completes_studies_presets_runs_and_keys(tmp_path: Path) -> None:
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "mine.py").write_text("raise RuntimeError('not loaded to complete its name')\n")
    request = expand(find_studies("ablation_calr_ms")[0], get_preset("tiny"), 1)[0]
    run = store_run(tmp_path / "elsewhere", request, 0.5)
    assert completed("run", "mi", folder=tmp_path) == (["mine"], "")
    assert completed("report", "--preset", "ti", folder=tmp_path) == (["tiny"], "")
    assert completed("show", "--store", "elsewhere", run.id[:4], folder=tmp_path) == ([run.id], "")
    assert completed("run", "mine", "with", "train.epo", folder=tmp_path) == (["train.epochs="], "")
    keys, _ = completed("plan", "--only", "seed=0,schedule.", folder=tmp_path)
    assert {"seed=0,schedule.name=", "seed=0,schedule.gamma_prime="} <= set(keys)


def test_completion_is_silent_whatever_is_broken(tmp_path: Path) -> None:
    (tmp_path / "methods").mkdir()
    (tmp_path / "methods" / "broken.py").write_text("print('hello')\nraise RuntimeError('broken')\n")
    assert completed("run", "--preset", "t", folder=tmp_path) == (["tiny"], "")
    assert completed("no-such-command", "t", folder=tmp_path) == ([], "")
    assert completed("run", "--preset", "tiny", "ablation_calr", folder=tmp_path) == (["ablation_calr_ms"], "")


HOSTILE = """from pathlib import Path
Path(__file__).with_suffix(".ran").touch()
from harness.components.preset import Preset, register
register(Preset("theirs", "A preset.", seeds=1, datasets=("digits",), space="nasbench201"))
"""


@pytest.fixture
def downloaded(tmp_path: Path) -> Path:
    """A folder of somebody else, whose every file leaves a trace when it runs."""
    for name in ("methods", "spaces", "datasets", "benchmarks", "presets", "studies", "studies/presets"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "theirs.py").write_text(HOSTILE)
    return tmp_path


def test_help_runs_no_code_of_the_current_folder(
    downloaded: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = every_command()
    monkeypatch.chdir(downloaded)
    with discovery.fresh():
        for name in commands:
            assert cli.main([*name.split(), "--help"]) == 0
        assert cli.main(["--help"]) == 0 and not [*downloaded.rglob("*.ran")]
        capsys.readouterr()
        assert cli.main(["run", "--help"]) == 0 and "theirs, tiny" in " ".join(capsys.readouterr().out.split())


def test_completion_runs_no_code_of_the_current_folder(downloaded: Path) -> None:
    assert completed("run", "--preset", "th", folder=downloaded) == (["theirs"], "")
    assert completed("query", "--preset", "ti", folder=downloaded) == (["tiny"], "")
    assert completed("run", "thei", folder=downloaded) == (["theirs"], "")
    assert completed("run", "theirs", "with", "schedule.gamma_p", folder=downloaded)[0] == ["schedule.gamma_prime="]
    assert completed("plan", "--only", "method.na", folder=downloaded) == (["method.name="], "")
    assert not [*downloaded.rglob("*.ran")]


def test_an_unknown_command_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lits"]) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: no command is named 'lits'; did you mean 'list'? Known: ")


def test_a_wrong_option_exits_2_with_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "--no-such-option"]) == 2
    assert "Usage: harness list" in capsys.readouterr().err


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
def test_characters_that_cannot_be_written_are_replaced(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(written, encoding))
    assert cli.main(["explain", "kendall_tau"]) == 0
    sys.stdout.flush()
    assert "Kendall's tau over the selected architectures" in written.getvalue().decode(encoding)
    assert cli.main(["show", "τ", "--store", "ж"]) == 2
    sys.stderr.flush()
    assert "there is no store ?" in written.getvalue().decode(encoding)


def test_cells_that_differ_by_a_sign_still_differ_where_it_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "ascii"))
    replace_what_cannot_be_written(sys.stdout, None)
    print("✓ – 0.40 ± 0.02≈ γ′ ж")
    sys.stdout.flush()
    assert written.getvalue() == b"x - 0.40 +- 0.02~ gamma' ?\n"


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"harness, version {__version__}\n"


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
    (tmp_path / "ours" / "reports").symlink_to(REPOSITORY / "reports")  # says how studies are grouped
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
    assert lines[-3:] == ["studies", "  Your studies", "    table  One table.  studies/table.py"]


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
    _, heading, syntax, name, empty = capsys.readouterr().out.splitlines()
    assert heading == "  Your studies"
    assert syntax.startswith(f"    a_syntax  does not import: {studies / 'a_syntax.py'}:2: SyntaxError")
    assert name.startswith(f"    b_name    does not import: {studies / 'b_name.py'}:3: NameError: name 'Studi'")
    assert "holds no study" in empty
