"""Mistakes that a command answers with the thing to do, in process; and settings of a folder."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import results
from harness.cli import main
from harness.components.preset import get_preset
from harness.environment import PROJECT
from harness.errors import MOST, UserError
from harness.settings import settings
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from tests.stored_runs import store_run
from tests.toy import user_folder


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    """A user's folder with one run in `runs`."""
    with user_folder(tmp_path):
        store_run(Path("runs"), expand(find_studies("ablation_calr_ms")[0], get_preset("tiny"), 1)[0], 0.5)
        yield tmp_path


HINTS: dict[str, tuple[str, ...]] = {
    "query 'method.name == spos'": ("'spos' is not a column", "method_name == 'spos'"),
    "query 'seed in [zero, 1]'": ("'zero' is not a column", "quotes"),
    "query \"method.name = 'spos'\"": ("written `==`",),
    "query 'tau > 0.5'": ("did you mean", "'kendall_tau'", "--columns all"),
    "query 'kendal_tau > 0.5'": ("did you mean 'kendall_tau'?", "more"),
    "run ablation_calr_ms --with train.epochs=3": ("`with`, without dashes", "with train.epochs=10"),
    "clean": ("no command is named 'clean'", "did you mean `harness store clean`"),
    "run nowhere": ("no study is named 'nowhere'", "Searched: ", "there is no "),
    "status --store rnus": ("there is no store rnus", "did you mean runs"),
    "run nothing_like_it": ("no study is named 'nothing_like_it'", "more"),
    "status --mongo mongodb://127.0.0.1:1/nas": ("does not answer", "harness mongo start", "--store runs"),
}
"""A command, and the key words of its answer."""


@pytest.mark.parametrize("command", HINTS)
def test_a_mistake_is_answered_with_what_to_do(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    import shlex

    assert main(shlex.split(command)) in (1, 2)
    message = capsys.readouterr().err
    assert not [word for word in HINTS[command] if word not in message], message
    assert len(message) < 800 and "Traceback" not in message


@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        ("MS", "momentum separation"),
        ("calr", "complexity-aware learning rate"),
        ("τ", "Kendall's τ"),
        ("CB", "complexity bias"),
        ("ablation_calr_ms", "Ablation of CaLR and MS"),
    ],
)
def test_terms_and_studies_are_explained(word: str, meaning: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", word]) == 0
    assert meaning in capsys.readouterr().out


def test_a_message_lists_at_most_ten_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", "no_such_column > 1"]) == 2
    listed = capsys.readouterr().err.partition("Known: ")[2].partition(" and ")[0]
    assert len(listed.split(", ")) == MOST


def test_a_plan_needs_no_store(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "ablation_calr_ms", "--preset", "tiny", "--store", "new"]) == 0
    printed = capsys.readouterr()
    assert "24 trials, 0 done" in printed.out and "there is no store new yet" in printed.err
    assert not Path("new").exists()


def test_a_folder_that_cannot_be_written_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refused)
    assert main(["new", "method", "mine"]) == 2
    assert f"cannot write {Path.cwd() / 'methods' / 'mine.py'}: Read-only file system" in capsys.readouterr().err
    assert main(["init", "mine"]) == 2
    assert "cannot create" in capsys.readouterr().err


def test_without_its_packages_it_says_what_to_install() -> None:
    ended = subprocess.run(
        [sys.executable, "-S", "-m", "harness", "--help"], cwd=PROJECT, capture_output=True, text=True
    )
    assert ended.returncode == 1 and ended.stderr.startswith("error: ")
    assert "make setup" in ended.stderr and "Traceback" not in ended.stderr


@pytest.mark.parametrize("command", [["explain", "kendall_tau"], ["status"]])
def test_an_ascii_terminal_is_no_traceback(command: list[str]) -> None:
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": str(PROJECT)}
    ended = subprocess.run([sys.executable, "-m", "harness", *command], env=plain, capture_output=True)
    assert ended.returncode == 0 and b"Traceback" not in ended.stderr, ended.stderr


def test_a_file_that_imports_torch_is_named() -> None:
    Path("methods").mkdir(exist_ok=True)
    imports = ("torch", "harness.components.registries", "harness.components.method")
    text = "".join(f"import {name}\n" for name in imports)
    register = "harness.components.registries.METHODS.register"
    text += f'@{register}("slow")\nclass Slow(harness.components.method.Method):\n    """Slow."""\n'
    Path("methods", "slow.py").write_text(text)
    called = [sys.executable, "-m", "harness", "list", "metrics"]
    ended = subprocess.run(called, env={"PYTHONPATH": str(PROJECT)}, capture_output=True, text=True)
    assert "slow.py imports torch, so every command takes seconds longer" in ended.stderr


def test_two_copies_of_the_project_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("methods").mkdir(exist_ok=True)
    Path("methods", "spos.py").write_text((PROJECT / "methods" / "spos.py").read_text())
    assert main(["plan", "ablation_calr_ms", "--preset", "tiny"]) == 2
    assert f"two copies of the project: {PROJECT} and {folder}" in capsys.readouterr().err


def test_init_makes_a_project_that_runs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["init", "own"]) == 0
    assert "next:    cd own && harness run compare --preset tiny" in capsys.readouterr().out
    made = sorted(str(file) for file in Path("own").rglob("*") if file.is_file())
    assert made == ["own/.gitignore", "own/harness.toml", "own/methods/mine.py", "own/studies/compare.py"]
    assert main(["init", "own"]) == 2
    assert "exists already" in capsys.readouterr().err
    monkeypatch.chdir("own")
    assert main(["plan", "compare", "--preset", "tiny", "--seeds", "1"]) == 0
    assert "compare: Methods compared, 2 trials" in capsys.readouterr().out


def test_settings_of_the_folder_are_defaults(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("runs").rename("kept")
    Path("harness.toml").write_text('store = "kept"\npreset = "tiny"\nlease = "soon"\n')
    assert main(["report", "ablation_calr_ms"]) == 0  # it has no option --lease
    assert "Preset tiny" in capsys.readouterr().out and len(results.runs()) == 1
    assert main(["run", "ablation_calr_ms"]) == 2
    assert "'soon' is not a duration" in capsys.readouterr().err
    monkeypatch.setenv("HARNESS_STORE", "elsewhere")
    assert main(["status"]) == 0
    assert "there is no store elsewhere yet" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("leas = 3\n", "no setting is named 'leas'; did you mean 'lease'?"),
        ('jobs = "many"\n', "jobs must be int, not 'many'"),
        ("jobs = true\n", "jobs must be int, not True"),
        ("jobs =\n", "harness.toml cannot be read"),
    ],
)
def test_a_wrong_setting_names_the_file(text: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("harness.toml").write_text(text)
    assert main(["status"]) == 2
    message = capsys.readouterr().err
    assert words in message and "harness.toml" in message


def test_settings_may_be_in_pyproject() -> None:
    Path("pyproject.toml").write_text('[tool.harness]\nstore = "there"\n')
    assert settings() == {"store": "there"}
    Path("pyproject.toml").write_text("[tool]\nharness = 3\n[tool.harness]\n")
    with pytest.raises(UserError, match="cannot be read"):
        settings()
    Path("pyproject.toml").write_text('[project]\nname = "mine"\n')
    assert settings() == {}
