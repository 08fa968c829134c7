"""A newcomer's first hour: the installed wheel, an empty folder, parts of her own, a table, and the usual mistakes.

Everything goes through the command line. Each mistake is answered by a message that names file, line or option, and
never by a traceback.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tests.wheel import harness, install

METHOD, SPACE, DATASET, STUDY = "methods/mine.py", "spaces/kernels.py", "datasets/corners.py", "studies/compare.py"
TINY = ("--preset", "tiny", "--seeds", "1")
RUN = ("run", "compare", *TINY, "--only", "method.name=mine")
SUFFIXES = {"markdown": "md", "latex": "tex", "html": "html", "csv": "csv", "parquet": "parquet"}
HOOK = "def train_step(self, training, batch, step):"

Edit = Callable[[Path], None]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def project(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder, into which `harness new` has written one file of each kind."""
    folder = tmp_path_factory.mktemp("project")
    for kind, file in (("method", METHOD), ("space", SPACE), ("dataset", DATASET), ("study", STUDY)):
        assert f"written: {file}" in done(site, folder, "new", kind, Path(file).stem)
    return folder


def done(site: Path, folder: Path, *command: str) -> str:
    """What a command prints that must succeed."""
    ended = harness(site, folder, *command)
    print(f"$ harness {' '.join(command)}\n{ended.stdout}{ended.stderr}")
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def edit(file: str, *changes: tuple[str, str]) -> Edit:
    """Replace parts of a file; each is there once."""

    def change(folder: Path) -> None:
        text = (folder / file).read_text()
        for old, new in changes:
            assert text.count(old) == 1, f"{old!r} in {file}"
            text = text.replace(old, new)
        (folder / file).write_text(text)

    return change


def paths(*lines: str) -> Edit:
    """Choose the paths alone, by these lines, in place of a training step."""
    body = "\n        ".join(lines)
    comment = "# From the sampler"
    return edit(METHOD, (HOOK, f"def paths(self, training):\n        {body}\n        {comment}"))


def nothing(folder: Path) -> None:
    """The files stay as they are: the mistake is in the command."""


def second_study(folder: Path) -> None:
    shutil.copy(folder / STUDY, folder / "studies" / "other.py")


def misnamed_folder(folder: Path) -> None:
    (folder / "methods").rename(folder / "method")


MISTAKES: dict[str, tuple[Edit, tuple[str, ...], int, str]] = {
    "an abstract method is misspelt": (
        edit(SPACE, ("def format(", "def fromat(")),
        ("check", SPACE),
        1,
        r"spaces/kernels\.py:\d+.*format.*fromat",
    ),
    "an abstract method is missing": (
        edit(SPACE, ("def standalone(self, architecture, settings):", "def _network(self, architecture, settings):")),
        RUN,
        2,
        r"spaces/kernels\.py:\d+.*standalone",
    ),
    "a file registers nothing": (
        edit(METHOD, ('@METHODS.register("mine")\n', "")),
        RUN,
        2,
        r"no method is named 'mine'(.|\n)*methods/mine\.py:\d+ registers nothing.*METHODS\.register",
    ),
    "a study does not import": (
        edit(STUDY, ("import Column", "import Colum")),
        RUN,
        2,
        r"studies/compare\.py:3 does not import: ImportError.*Colum",
    ),
    "options without a decorator": (
        edit(METHOD, ("@dataclass(frozen=True)\n", "")),
        ("check", METHOD),
        1,
        r"methods/mine\.py:\d+.*@dataclass\(frozen=True\)",
    ),
    "an option is misspelt": (
        nothing,
        ("run", "compare", *TINY, "with", "method.name=mine", "method.nubmer=3"),
        2,
        r"nubmer.*number",
    ),
    "a wrong signature": (
        edit(METHOD, (HOOK, "def train_step(self, training, batch):")),
        RUN,
        2,
        r"methods/mine\.py:\d+.*train_step.*step",
    ),
    "a step returns nothing": (
        edit(METHOD, ("return training.descend", "training.descend")),
        RUN,
        1,
        r"train_step \(methods/mine\.py:\d+\) returned nothing.*harness show",
    ),
    "paths of a wrong length": (
        paths("return [(0,)] * self.number"),
        RUN,
        1,
        r"methods/mine\.py:\d+.*\(0,\)",
    ),
    "a list in place of a tuple": (
        paths("return [list(path) for path in training.draw(self.number)]"),
        RUN,
        1,
        r"methods/mine\.py:\d+.*(tuple|list)",
    ),
    "more paths than paths_per_step": (
        paths("return training.draw(self.number + 1)"),
        RUN,
        1,
        r"methods/mine\.py:\d+.*3.*paths_per_step.*2",
    ),
    "several paths with momentum separation": (
        paths("return [training.source.draw(training.rng) for _ in range(self.number)]"),
        (*RUN, "with", "clusters.name=operation"),
        2,
        r"methods/mine\.py:\d+.*training\.draw\(",
    ),
    "an override without with": (
        nothing,
        ("run", "compare", "train.epochs=3", *TINY),
        2,
        r"'train\.epochs=3' is an override.*put `with` before it",
    ),
    "a metric is misspelt": (
        edit(STUDY, ('"retrained_accuracy"', '"retrained_acuracy"')),
        RUN,
        2,
        r"studies/compare\.py.*'retrained_acuracy'.*did you mean 'retrained_accuracy'",
    ),
    "a study's name is misspelt": (nothing, ("run", "comprae", *TINY), 2, r"'comprae'; did you mean 'compare'"),
    "a preset is misspelt": (
        nothing,
        ("run", "compare", "--preset", "tinny"),
        2,
        r"no preset is named 'tinny'; did you mean 'tiny'",
    ),
    "an unknown key": (
        nothing,
        (*RUN, "with", "train.epoch=3"),
        2,
        r"'train\.epoch'; did you mean 'epochs'",
    ),
    "a value of a wrong type": (nothing, (*RUN, "with", "train.epochs=many"), 2, r"train\.epochs.*'many'"),
    "a value out of range": (nothing, (*RUN, "with", "train.batch_size=0"), 2, r"train\.batch_size.*0"),
    "a store that does not exist": (
        nothing,
        ("report", "compare", *TINY, "--store", "rnus"),
        2,
        r"there is no store rnus",
    ),
    "an unknown command": (nothing, ("rnu", "compare"), 2, r"no command is named 'rnu'; did you mean 'run'"),
    "an unknown option": (nothing, ("run", "compare", "--sedes", "1"), 2, r"--sedes.*--seeds"),
    "a folder of another name": (
        misnamed_folder,
        RUN,
        2,
        r"\./method is not read: should it be \./methods\?(.|\n)*no method is named 'mine'",
    ),
    "two studies of one name": (
        second_study,
        ("plan", "--all", *TINY),
        2,
        r"'compare'.*studies/compare\.py.*studies/other\.py.*[Rr]ename one",
    ),
    "limits that nothing keeps": (
        nothing,
        (*RUN, "with", "search.limits.parameters=[0,1]"),
        2,
        r"search\.limits.*parameters",
    ),
    "a benchmark that is not there": (
        nothing,
        ("run", "ablation_calr_ms", *TINY, "with", "benchmark=nasbench201"),
        2,
        r"nasbench201\.npz.*harness benchmark import",
    ),
    "an unknown metric of a query": (nothing, ("query", "kendal_tau > 0.5"), 2, r"kendal_tau.*kendall_tau"),
}


@pytest.mark.long
def test_from_an_empty_folder_to_a_table_in_every_format(site: Path, project: Path) -> None:
    for file in (METHOD, SPACE, DATASET, STUDY):
        assert re.search(r"checks, 0 problems", done(site, project, "check", file))
    assert "4 of 4 trials done, 4 of them now" in done(site, project, "run", "compare", *TINY)
    for form, suffix in SUFFIXES.items():
        done(site, project, "report", "compare", *TINY, "--format", form, "--out", form)
        written = [path for path in (project / form).iterdir() if path.suffix == f".{suffix}"]
        assert written and all(path.stat().st_size > 100 for path in written), form
    assert "| mine " in (project / "markdown" / "compare.md").read_text()
    assert len(pd.read_parquet(project / "parquet" / "compare.parquet")) == 2


@pytest.mark.long
def test_typical_mistakes_are_answered_without_a_traceback(site: Path, project: Path, tmp_path: Path) -> None:
    assert len(MISTAKES) >= 20
    wrong = []
    for number, (name, (make, command, status, expected)) in enumerate(MISTAKES.items(), 1):
        folder = tmp_path / str(number)
        for file in (METHOD, SPACE, DATASET, STUDY):
            (folder / file).parent.mkdir(parents=True)
            shutil.copy(project / file, folder / file)
        make(folder)
        ended = harness(site, folder, *command)
        said = message(ended).replace(f"{folder}/", "")
        print(f"{number:2} {name} (exit {ended.returncode}): {said}")
        if ended.returncode != status or "Traceback" in ended.stdout + ended.stderr or not re.search(expected, said):
            wrong.append(f"{name}: expected exit {status} and {expected}\n{ended.stdout}{ended.stderr}")
    assert not wrong, "\n\n".join(wrong)


def message(ended: subprocess.CompletedProcess[str]) -> str:
    """The lines that say what is wrong."""
    wrong = [line.strip() for line in ended.stdout.splitlines() if line.startswith("  problem")]
    usage = ("Usage: ", "Try 'harness")
    return "\n   ".join(wrong + [line for line in ended.stderr.splitlines() if line and not line.startswith(usage)])
