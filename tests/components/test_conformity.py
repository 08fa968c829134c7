"""Components that do not fit their interface: each mistake is one message with file, line and what to write."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cli import main
from harness.components.registries import DATASETS, METHODS, METRICS, OPTIMISERS, SAMPLERS, SCHEDULES, SPACES
from harness.components.registry import Registry
from harness.errors import InvalidConfiguration, users_place
from harness.study.configuration import RunConfig
from tests.toy import user_folder

HEADING = """from dataclasses import dataclass
from harness.components.method import Method
from harness.components.sampler import Sampler
from harness.components.schedule import Schedule
from harness.components.space import Space
from harness.components.optimiser import Optimiser
from harness.components.registries import DATASETS, METHODS, METRICS, OPTIMISERS, SAMPLERS, SCHEDULES, SPACES

"""
FIRST = 1 + len(HEADING.splitlines())
"""The line on which a component begins."""

STUDY = """from harness.study import Column, Row, Study

rows = [Row({"Method": name}, {"method.name": name}) for name in METHODS]
study = Study("compared", "Compared", rows, [Column("τ", "kendall_tau")])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with user_folder(tmp_path):
        yield tmp_path


def written(folder: Path, component: str) -> Path:
    file = folder / "methods" / "mine.py"
    file.parent.mkdir()
    file.write_text(HEADING + component)
    return file


@pytest.mark.parametrize(
    ("registry", "component", "line", "message"),
    [
        (
            METHODS,
            "@METHODS.register('mine')\nclass Mine(Method):\n    def pahts(self, training):\n        return []\n",
            3,
            "defines neither `paths` nor `train_step`; did you mean `paths` by `pahts`? "
            "Write `def paths(self, training)`",
        ),
        (
            METHODS,
            "@METHODS.register('mine')\nclass Mine(Method):\n    '''Nothing.'''\n",
            1,
            "defines neither `paths` nor `train_step`: write `def paths(self, training)`",
        ),
        (
            SCHEDULES,
            "@SCHEDULES.register('mine')\n@dataclass(frozen=True)\nclass Mine(Schedule):\n"
            "    def bnid(self, space):\n        return 1\n",
            4,
            "has no `bind`; did you mean `bind` by `bnid`? Write `def bind(self, space)`, "
            "as in harness/components/schedule.py",
        ),
        (
            METHODS,
            "@METHODS.register('mine')\nclass Mine(Method):\n    gamma: float = 2.0\n"
            "    def paths(self, training):\n        return []\n",
            1,
            "has the option gamma, but is not a dataclass: put @dataclass(frozen=True) above the class",
        ),
        (
            OPTIMISERS,
            "@OPTIMISERS.register('mine')\nclass Mine(Optimiser):\n    learning_rate: float = 2.0\n"
            "    def make(self, groups):\n        return None\n",
            1,
            "has the option learning_rate, but is not a dataclass",
        ),
        (
            METHODS,
            "@METHODS.register('mine')\nclass Mine(Method):\n    def paths(self):\n        return []\n",
            3,
            "has `paths(self)`, which cannot be called as Method.paths is: write `def paths(self, training)`",
        ),
        (
            METHODS,
            "@METHODS.register('mine')\nclass Mine(Method):\n    paths = 3\n",
            1,
            "has a `paths` that is not a function",
        ),
        (
            SAMPLERS,
            "@SAMPLERS.register('mine')\nclass Mine(Sampler):\n    def bind(self):\n        return None\n",
            3,
            "write `def bind(self, space, fixed)`",
        ),
        (
            SPACES,
            "@SPACES.register('mine')\nclass Mine(Space):\n    name = 'mine'\n"
            + "".join(
                f"    def {name}: ...\n"
                for name in (
                    "parse(self, text)",
                    "format(self, architecture)",
                    "complexity(self, architecture, count)",
                    "supernet(self, settings)",
                    "standalone(self, architecture, settings)",
                )
            ),
            1,
            "has no `choices`, an attribute that every Space has; see harness/components/space.py",
        ),
        (
            DATASETS,
            "@DATASETS.register('mine')\ndef mine(size):\n    return None\n",
            1,
            "is called with no arguments: write `def mine()`, not `def mine(size)`",
        ),
        (
            METRICS,
            "@METRICS.register('mine')\ndef mine(predicted, truth):\n    return 0.0\n",
            1,
            "is called with 3 arguments: write `def mine(predicted, truth, complexity)`",
        ),
    ],
)
def test_a_component_that_does_not_fit_is_refused_with_its_line(
    folder: Path, registry: Registry[object], component: str, line: int, message: str
) -> None:
    file = written(folder, component)
    with pytest.raises(InvalidConfiguration) as refusal:
        registry.get("mine")
    assert str(refusal.value).startswith(f"{file}:{FIRST + line - 1}: ") and message in str(refusal.value)


def test_signatures_that_the_engine_accepts_are_accepted(folder: Path) -> None:
    written(
        folder,
        "@dataclass(frozen=True)\n@METHODS.register('mine')\nclass Mine(Method):\n    gamma: float = 2.0\n"
        "    version: int = 2\n"
        "    def data_order(self, training, epoch):\n        return None\n"
        "    def paths(self, *everything):\n        return []\n"
        "    @staticmethod\n    def paths_per_step(space):\n        return 1\n",
    )
    assert METHODS.get("mine").__name__ == "Mine"


def test_a_mistake_in_one_component_does_not_stop_commands_that_need_others(folder: Path) -> None:
    written(folder, "@METHODS.register('mine')\nclass Mine(Method):\n    def pahts(self, training): ...\n")
    assert main(["list", "methods"]) == 0 and main(["plan", "ablation_calr_ms", "--preset", "tiny"]) == 0


OPTIONS = """@METHODS.register("optional")
@dataclass(frozen=True)
class Optional(Method):
    gamma: float = 2.0
    delta = 3

    def paths(self, training):
        return [training.source.draw(training.rng)]

@METHODS.register("two")
class Two(Method):
    def paths_per_step(self, space):
        return 2
    def paths(self, training):
        return [training.source.draw(training.rng) for _ in range(2)]

@METHODS.register("together")
class Together(Two):
    def paths(self, training):
        return training.draw(2)

@METHODS.register("deep")
class Deep(Two):
    def paths(self, training):
        return [training.source.draw(training.rng) for _ in training.network.parameters()]

@METHODS.register("own")
class Own(Two):
    def train_step(self, training, *batch): ...
"""


def planned(folder: Path, methods: list[str], *updates: str) -> int:
    file = "_and_".join(methods) + ".py"
    (folder / file).write_text(STUDY.replace("METHODS", repr(methods)))
    return main(["plan", file, "--preset", "tiny", "--seeds", "1", "with", *updates])


def test_a_typo_in_an_option_lists_the_options_of_that_component(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(folder, OPTIONS)
    assert planned(folder, ["spos", "optional"], "method.gama=3") == 2
    error = capsys.readouterr().err
    assert "no configuration key 'method.gama'; did you mean 'gamma'?" in error
    assert f"gamma (the options of method 'optional', {file}:{FIRST})" in error
    assert "none (the options of method 'spos'" in error
    with pytest.raises(InvalidConfiguration, match=r"did you mean 'gamma'\? Allowed: gamma \(the options of"):
        RunConfig.from_json({"method": {"name": "optional", "gama": 3}})
    assert planned(folder, ["optional"], "method.delta=3") == 2
    assert "Its attribute delta has no type and so is not an option" in capsys.readouterr().err


def test_paths_of_several_clusters_are_refused_before_anything_runs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(folder, OPTIONS)
    line = FIRST + OPTIONS.splitlines().index('@METHODS.register("two")') + 4
    assert planned(folder, ["two"], "clusters.name=operation") == 2
    error = capsys.readouterr().err
    assert f"{file}:{line}: the 2 paths of one step are in 2 clusters" in error and "training.draw(2)" in error
    # Paths that can be drawn only in training are left to the first step, and all to a step of the method's own.
    assert planned(folder, ["together", "deep", "own"], "clusters.name=operation") == 0


def test_an_error_of_a_component_in_planning_is_one_line_with_its_place(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(folder, OPTIONS.replace("        return 2\n", "        return 2 / 0\n"))
    line = FIRST + OPTIONS.splitlines().index("        return 2")
    assert planned(folder, ["two"]) == 2
    error = capsys.readouterr().err
    assert f"error: methods/mine.py:{line}: ZeroDivisionError: division by zero" in error and "Traceback" not in error


def test_the_users_line_is_the_innermost_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    files = ("methods/mine.py", "methods/_shared.py", ".venv/lib/torch.py", "/elsewhere/other.py")
    trace = [f'  File "{tmp_path / file}", line {line}, in step\n    pass\n' for line, file in enumerate(files, 7)]
    assert users_place(trace, tmp_path) == "methods/_shared.py:8"
    assert users_place(trace[2:], tmp_path) is None


def test_an_override_without_with_is_told_where_with_goes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "ablation_calr_ms", "train.epochs=3", "--preset", "tiny"]) == 2
    assert "put `with` before it, as in `ablation_calr_ms with train.epochs=3`" in capsys.readouterr().err
