"""The 36 mistakes of a new user's first day, from an installed wheel in a folder of her own.

Each is answered without a traceback, by a message with the key words below: what is wrong, where, and what to do.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harness.environment import PROJECT
from tests import wheel

TINY = ("--preset", "tiny", "--seeds", "1")
RUN = ("run", "mine", *TINY, "--no-references")
MINE, BAD, STUDY = "methods/mine.py", "methods/bad.py", "studies/mine.py"
METHOD = '''from harness.components.method import Method
from harness.components.registries import METHODS


@METHODS.register("{name}")
class {cls}(Method):
    """One uniform path per step."""

    def {body}
'''
PATHS = "paths(self, training):\n        return training.draw(1)"
ROWS = """from harness.study import Column, Row, Study

study = Study(
    name="mine",
    title="Mine and SPOS",
    rows=[Row({"Method": name}, {"method.name": name}) for name in ("spos", "mine")],
    columns=[Column("Kendall's τ", "kendall_tau")],
)
"""
RAISES = "train_step(self, training, batch, step):\n        return {}['best']"
LOSS = "training.descend(batch, training.draw(1), step)"
DIVERGES = f"train_step(self, training, batch, step):\n        return {LOSS} * float('nan')"
SLOW = "train_step(self, training, batch, step):\n        while True:\n            pass"
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

Edit = Callable[[Path], None]


@dataclass(frozen=True)
class Mistake:
    """Commands in a copy of the folder, the exit code of the last one, and the key words of what it prints."""

    words: str
    commands: Sequence[Sequence[str]]
    status: int
    edit: Edit = lambda folder: None
    environment: Mapping[str, str] = field(default_factory=dict)
    at: str = "."


def replaced(file: str, old: str, new: str) -> Edit:
    def change(folder: Path) -> None:
        text = (folder / file).read_text()
        assert old in text
        (folder / file).write_text(text.replace(old, new))

    return change


def method(name: str, body: str) -> Edit:
    """A method of that name in `methods/bad.py`, and as the study's second row."""

    def change(folder: Path) -> None:
        (folder / BAD).write_text(METHOD.format(name=name, cls="Bad", body=body))
        replaced(STUDY, '("spos", "mine")', f'("spos", "{name}")')(folder)

    return change


def damaged(folder: Path) -> None:
    for run in (folder / "runs").glob("*-1-*"):
        (run / "result.json").unlink()


def moved(folder: Path) -> None:
    (folder / "runs").rename(folder / "results-2026")


def claimless(folder: Path) -> None:
    shutil.rmtree(folder / "runs" / "claims", ignore_errors=True)


def torch_file(folder: Path) -> None:
    (folder / "torch.py").write_text("")


MISTAKES: dict[str, Mistake] = {
    "1 a wrong study name": Mistake(
        "no study is named 'ablation'.*did you mean 'ablation_calr_ms'", [("run", "ablation")], 2
    ),
    "2 a misspelt preset": Mistake("did you mean 'tiny'", [("run", "mine", "--preset", "tinny")], 2),
    "2 a misspelt method": Mistake("did you mean 'spos'", [(*RUN, "with", "method.name=sops")], 2),
    "2 a misspelt key": Mistake("did you mean 'epochs'", [(*RUN, "with", "train.epoch=3")], 2),
    "3 a misspelt metric in a column": Mistake(
        r"studies/mine\.py.*did you mean 'kendall_tau'", [RUN], 2, replaced(STUDY, "kendall_tau", "kendal_tau")
    ),
    "3 a short metric in a column": Mistake(
        r"studies/mine\.py.*'kendall_tau'", [RUN], 2, replaced(STUDY, "kendall_tau", "tau")
    ),
    "4 a wrong type of an option": Mistake(
        "--seeds.*'three' is not a valid integer", [("run", "mine", "--seeds", "three")], 2
    ),
    "4 a wrong type of a key": Mistake(
        r"train\.epochs.*int.*'ten'|train\.epochs.*'ten'", [(*RUN, "with", "train.epochs=ten")], 2
    ),
    "5 forgot with": Mistake("is an override.*put `with` before it", [("run", "mine", "train.epochs=3", *TINY)], 2),
    "6 --with": Mistake("`with`, without dashes", [("run", "mine", *TINY, "--with", "train.epochs=3")], 2),
    "7 text without quotes": Mistake(
        "'spos' is not a column.*quotes: method_name == 'spos'", [("query", "method.name == spos")], 2
    ),
    "7 one equals sign": Mistake("written `==`", [("query", "method.name = 'spos'")], 2),
    "7 a short column": Mistake("no column is named 'tau'.*'kendall_tau'", [("query", "tau > 0.5")], 2),
    "8 a wrong folder": Mistake("no study is named 'mine'.*studies", [RUN], 2, at="methods"),
    "9 report before run": Mistake("there is no store runs yet: `harness run", [("report", "mine", *TINY)], 0, moved),
    "10 plan of a new store": Mistake("2 trials", [("plan", "mine", *TINY, "--store", "new")], 0),
    "11 a damaged run": Mistake("result.json", [("store", "check")], 1, damaged),
    "11 a damaged run is made again": Mistake("2 of 2 trials done", [RUN], 0, damaged),
    "12 a store that was moved": Mistake("no store runs yet|no store.*did you mean", [("status",)], 0, moved),
    "12 a misspelt HARNESS_STORE": Mistake(
        "there is no store rnus yet.*did you mean runs", [("status",)], 0, environment={"HARNESS_STORE": "rnus"}
    ),
    "14 a method that raises": Mistake(
        r"KeyError: 'best' \(methods/bad\.py:\d+\); see `harness show", [RUN], 1, method("bad", RAISES)
    ),
    "15 a loss that is not finite": Mistake("2 of 2 trials done, 1 diverged", [RUN], 0, method("bad", DIVERGES)),
    "16 a slow method": Mistake("took longer than 3 s", [(*RUN, "--timeout", "3")], 1, method("bad", SLOW)),
    "17 a misspelt hook": Mistake(
        "did you mean `paths`|paths.*path", [("check", BAD)], 1, method("bad", PATHS.replace("paths", "path"))
    ),
    "18 a missing decorator": Mistake(
        r"methods/mine\.py:\d+ registers nothing.*METHODS\.register",
        [RUN],
        2,
        replaced(MINE, '@METHODS.register("mine")', ""),
    ),
    "18 a syntax error": Mistake(
        r"methods/mine\.py:\d+ does not import: SyntaxError",
        [RUN],
        2,
        replaced(MINE, "class Mine(Method):", "class Mine(Method)"),
    ),
    "20 a read-only folder": Mistake("cannot write .*methods/foo.py", [("new", "method", "foo")], 2, at="/sys"),
    "23 no packages": Mistake("lacks the package.*make setup", [], 1),
    "24 an ASCII terminal": Mistake("2 of 2 trials done", [(*RUN, "with", "train.epochs=2")], 0, environment=ASCII),
    "25 a folder with spaces": Mistake("SPOS|spos", [("report", "mine", *TINY)], 0),
    "26 claims that were deleted": Mistake("2 of 2 trials done", [RUN], 0, claimless),
    "27 an edited comment": Mistake(
        "2 of 2 trials done, 0 of them now",
        [RUN],
        0,
        replaced(MINE, '"""One uniform path per step."""', '"""One path."""  # drawn uniformly'),
    ),
    "28 a renamed row": Mistake("2 of 2 trials done, 0 of them now", [RUN], 0, replaced(STUDY, '"Method"', '"Name"')),
    "30 --device cuda without a GPU": Mistake("--device cuda.*no GPU", [(*RUN, "--device", "cuda")], 2),
    "31 report without the preset": Mistake("--preset tiny", [("report", "mine")], 0),
    "32 an own method of a known name": Mistake(
        r"two method registrations are named 'spos'.*methods/spos\.py.*methods/bad\.py", [RUN], 2, method("spos", PATHS)
    ),
    "33 torch.py in the folder": Mistake("torch.py hides|hides the module 'torch'", [("doctor",)], 1, torch_file),
    "34 too few seeds for a decision": Mistake(
        "can be decided before",
        [("run", "ablation_calr_ms", "--preset", "tiny", "--until", "decided", "--max-seeds", "3")],
        2,
    ),
    "35 a database that was stopped": Mistake(
        r"does not answer.*harness mongo start.*--store runs",
        [("status",)],
        1,
        environment={"HARNESS_MONGO": "mongodb://127.0.0.1:1/nas"},
    ),
    "36 show STUDY": Mistake("'mine' is a study.*harness report mine", [("show", "mine")], 0),
    "36 explain STUDY": Mistake("Ablation of CaLR and MS", [("explain", "ablation_calr_ms")], 0),
    "36 explain a term": Mistake("momentum separation", [("explain", "MS")], 0),
}
"""By number of the review. 13 (two terminals), 19 (a full disk), 21 (another user's store), 22 (an old Python) and 29
(an old store) have tests of their own: tests/cli/test_sharing.py, tests/long/test_full_disk.py, tests/stores,
tests/test_setup.py and tests/reports/test_measured.py."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel.install(tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def project(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a method, a study, and two runs."""
    folder = tmp_path_factory.mktemp("a project") / "of my own"
    (folder / "methods").mkdir(parents=True)
    (folder / "studies").mkdir()
    (folder / MINE).write_text(METHOD.format(name="mine", cls="Mine", body=PATHS))
    (folder / STUDY).write_text(ROWS)
    ended = wheel.harness(site, folder, *RUN)
    assert "2 of 2 trials done, 2 of them now" in ended.stdout, ended.stderr
    return folder


def called(site: Path, folder: Path, command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """The exit code of a command and all that it prints."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HARNESS_", "LC_", "LANG"))}
    own = {**kept, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    ended = subprocess.run(
        [str(site / "bin" / "harness"), *command],
        cwd=folder,
        env=own,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=300,
    )
    return ended.returncode, (ended.stdout + ended.stderr).decode(errors="replace")


@pytest.mark.long
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_answered(name: str, site: Path, project: Path, tmp_path: Path) -> None:
    mistake = MISTAKES[name]
    folder = tmp_path / "a project"
    shutil.copytree(project, folder)
    mistake.edit(folder)
    status, text = 0, ""
    for command in mistake.commands:
        status, text = called(site, folder / mistake.at, command, mistake.environment)
    if not mistake.commands:
        ended = subprocess.run(
            [sys.executable, "-S", "-m", "harness"],
            cwd=PROJECT,
            capture_output=True,
            text=True,
            env={"PATH": "/usr/bin"},
        )
        status, text = ended.returncode, ended.stdout + ended.stderr
    print(f"{name} (exit {status}): {text.strip()}")
    assert status == mistake.status and "Traceback" not in text, text
    assert re.search(mistake.words, text, re.DOTALL), text
    longest = max(map(len, text.splitlines()), default=0)
    assert status == 0 or longest < 900, f"a line of {longest} characters"


def test_every_mistake_of_the_review_is_listed() -> None:
    elsewhere = {13, 19, 21, 22, 29}
    assert {int(name.split()[0]) for name in MISTAKES} | elsewhere == set(range(1, 37))
