"""`harness check`: each planted mistake is one line that says what is wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cli import main
from harness.environment import PROJECT
from harness.testing.components import check_named
from harness.work.findings import Checks, State
from tests.test_documents import example_files
from tests.toy import user_folder

HEADING = """import random
from dataclasses import dataclass
from math import inf

import numpy as np
import torch

from harness.components.clustering import Clustering, ClusterRule
from harness.components.dataset import DataSet, Split, Stream
from harness.components.method import Method, Step
from harness.components.preset import Preset, register
from harness.components.registries import *
from harness.components.registries import CLUSTER_RULES, DATASETS, METHODS, METRICS, OBSERVATIONS, SAMPLERS, SCHEDULES
from harness.components.sampler import PathSource, Sampler
from harness.components.schedule import Schedule
from harness.components.search import Found, Search
from harness.components.space import Space

UNSEEDED = random.Random()
CALLS = []
"""
FIRST = 1 + len(HEADING.splitlines())

METHOD = """@METHODS.register("mine")
class Mine(Method):
    def paths(self, training):
        return training.draw(1)

"""
SPACE = """@SPACES.register("mine")
class Mine(Space):
    name = "mine"
    choices = (2, 3)
    complexity_counts = ("parameters",)

    def parse(self, text):
        return tuple(map(int, text))

    def format(self, architecture):
        return "".join(map(str, architecture))

    def complexity(self, architecture, count="parameters"):
        return 1 + sum(architecture)

    def supernet(self, settings):
        return Network(settings)

    def standalone(self, architecture, settings):
        return Network(settings, architecture)


class Network(torch.nn.Module):
    def __init__(self, settings, architecture=None):
        super().__init__()
        self.architecture = architecture
        self.layer = torch.nn.Linear(settings.image_channels * settings.image_size**2, settings.classes)

    def forward(self, images, architecture=None):
        scale = 1 + sum(architecture or self.architecture)
        return scale * self.layer(images.flatten(1))
"""
DATA = """@DATASETS.register("mine")
def mine():
    rng = np.random.default_rng(0)
    def split(count):
        return Split(rng.integers(0, 256, (count, 1, 8, 8)).astype(np.uint8), rng.integers(0, 2, count))
    return DataSet("mine", 2, split(50), split(40), split(30), (127.0,), (74.0,))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with user_folder(tmp_path):
        yield tmp_path


def checked(folder: Path, component: str) -> list[Checks]:
    """The findings of a file outside of the folders that are read by themselves."""
    (folder / "tried.py").write_text(HEADING + component)
    return list(check_named("tried.py", {}))


def wrong(found: list[Checks]) -> list[str]:
    return [line.text for one in found for line in one.found if line.state is State.PROBLEM]


@pytest.mark.parametrize("component", [METHOD, SPACE, DATA], ids=["method", "space", "data set"])
def test_a_right_component_is_ok_and_nothing_is_written(folder: Path, component: str) -> None:
    found = checked(folder, component)
    assert [line.state for one in found for line in one.found if line.state is not State.OK] == []
    ends = [line.text.partition(":")[0] for line in found[0].found][-4:]
    assert ends[1:] == ["costs 1 pass per step, as paths_per_step says", "repeats", "resumes"]
    assert {path.name for path in folder.iterdir()} <= {"tried.py", "__pycache__"}


MISTAKES = {
    "an exception": (
        METHOD.replace("training.draw(1)", "training.draw(1)[7]"),
        f"trains 6 steps in nasbench201 on digits: tried.py:{FIRST + 3}: IndexError",
    ),
    "too many paths": (METHOD.replace("draw(1)", "draw(2)"), "gave 2 paths, but paths_per_step is 1"),
    "random numbers of its own": (
        METHOD.replace("training.draw(1)", "[training.space.sample(UNSEEDED)]"),
        "repeats: the same seed gives the same weights: tried.py:",
    ),
    "state that outlives a training": (
        METHOD.replace("return", "CALLS.append(1)\n        random.seed(len(CALLS))\n        return").replace(
            "training.draw(1)", "[training.space.sample(random)]"
        ),
        "state must not outlive a training",
    ),
    "state that a checkpoint lacks": (
        """@METHODS.register("mine")
class Mine(Method):
    def begin(self, training):
        training.remembered = []

    def paths(self, training):
        training.remembered.append(1)
        return [training.space.architecture(1111 * len(training.remembered))]
""",
        "what changes from step to step must be in training.memory or training.modules",
    ),
    "state that cannot be stored": (
        METHOD.replace("return", "training.memory['rng'] = UNSEEDED\n        return"),
        "only plain types and tensors are kept",
    ),
    "no update": (
        """@METHODS.register("mine")
class Mine(Method):
    def train_step(self, training, batch, step):
        return training.loss(batch, training.draw(1)[0]).detach()[None]
""",
        "no weight has changed: a step must make an update",
    ),
    "losses in a matrix": (
        METHOD.replace("def paths(self, training):", "def train_step(self, training, batch, step):").replace(
            "training.draw(1)", "training.descend(batch, training.draw(1), step)[None]"
        ),
        "returned a tensor of shape (1, 1); expected is a tensor with one loss per path",
    ),
    "another name": (SPACE.replace('name = "mine"', 'name = "other"'), "registered as 'mine': make them equal"),
    "text that is not parsed back": (
        SPACE.replace("map(int, text)", "map(int, reversed(text))"),
        "format((0, 1)) is '01', but parse('01') is (1, 0)",
    ),
    "a negative count": (SPACE.replace("return 1 + sum", "return -sum"), "must be a number that is not negative"),
    "wrong extremes": (
        SPACE.replace(
            "    def supernet", "    def extremes(self, count):\n        return 1, (0, 0), 3, (1, 1)\n    def supernet"
        ),
        "outside of extremes: 1 to 3",
    ),
    "logits of a wrong shape": (
        SPACE.replace("(images.flatten(1))", "(images.flatten(1))[:, :3]"),
        "must give logits of shape (2, 10) for 2 images and 10 classes, not (2, 3)",
    ),
    "a stand-alone network that fails": (
        SPACE.replace("architecture or self.architecture", "architecture"),
        f"builds 4 stand-alone networks: tried.py:{FIRST + 29}: TypeError",
    ),
    "weights drawn elsewhere": (
        SPACE.replace(
            "        self.architecture =",
            "        self.noise = torch.nn.Parameter(torch.tensor(UNSEEDED.random()))\n        self.architecture =",
        ),
        "two builds of the supernet with one seed of torch differ",
    ),
    "images that differ": (DATA.replace("default_rng(0)", "default_rng()"), "two loads differ: draw its"),
    "the scale of floats": (DATA.replace("(127.0,), (74.0,)", "(0.5,), (0.3,)"), "multiply them by 255"),
    "labels out of range": (DATA.replace("integers(0, 2, count)", "integers(0, 9, count)"), "must be 0 to 1, not"),
    "nothing returned": (DATA.replace("    return DataSet", "    DataSet"), "not NoneType: `return` it"),
    "a sampler that frees what is fixed": (
        """@SAMPLERS.register("mine")
class Mine(Sampler):
    def bind(self, space, fixed):
        return Source(space)

class Source(PathSource):
    def __init__(self, space):
        self.space = space
    def draw(self, rng):
        return self.space.sample(rng)
""",
        "and `draw` must keep them",
    ),
    "a cluster that does not exist": (
        """@CLUSTER_RULES.register("mine")
class Mine(ClusterRule):
    def bind(self, space, fixed, rng):
        return Clustering(2, lambda path: path[0])
""",
        "there are 0 to 1",
    ),
    "a schedule below zero": (
        """@SCHEDULES.register("mine")
class Mine(Schedule):
    def bind(self, space):
        return lambda path, progress: 1 - 1.5 * progress
""",
        "at progress 0.99 is -0.48",
    ),
    "a search of its own randomness": (
        """@SEARCHES.register("mine")
class Mine(Search):
    def find(self, score, space, rng, limits):
        found = space.sample(UNSEEDED)
        return [Found(found, *score([found]))]
""",
        "two searches differ: draw from the `rng` of find only",
    ),
    "a metric that is text": (
        "@METRICS.register('mine')\ndef mine(predicted, truth, complexity):\n    return 'good'\n",
        "ValueError: could not convert string to float",
    ),
    "an observation without names": (
        "@OBSERVATIONS.register('mine')\ndef mine(supernets, progress, dataset):\n    return 0.5\n",
        "it must return numbers by name",
    ),
    "a preset with a key that does not exist": (
        "register(Preset('mine', 'mine', 1, ('digits',), space='nasbench201', settings={'train.epoch': 3}))\n",
        "no configuration key 'train.epoch'; did you mean 'epochs'?",
    ),
    "nothing registered": (METHOD.partition("\n")[2], "Mine derives from Method: put @REGISTRY.register"),
    "an import error": ("import nothing_of_this_name\n", f"tried.py:{FIRST} does not import: ModuleNotFoundError"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named(folder: Path, mistake: str) -> None:
    component, message = MISTAKES[mistake]
    lines = wrong(checked(folder, component))
    assert any(message in line for line in lines), lines
    assert len(lines) == 1 or mistake in ("random numbers of its own", "state that outlives a training"), lines


def test_more_passes_than_promised_and_a_hook_that_is_never_called_are_noted(folder: Path) -> None:
    found = checked(
        folder,
        METHOD.replace(
            "return training.draw(1)\n",
            "return training.draw(1)\n\n    def train_step(self, training, batch, step):\n"
            "        losses = super().train_step(training, batch, step)\n"
            "        return Step(losses, 3, 3 * len(batch.labels))\n\n"
            "    def begin_epok(self, training, epoch):\n        pass\n",
        ),
    )
    notes = [line.text for line in found[0].found if line.state is State.NOTE]
    assert notes[0].endswith("`begin_epok` is never called; did you mean `begin_epoch`?")
    assert notes[1].startswith("a step makes 3 passes, and paths_per_step says 1") and not wrong(found)


def test_paths_of_several_clusters_are_noted(folder: Path) -> None:
    several = METHOD.replace("draw(1)", "draw(2)") + "    def paths_per_step(self, space):\n        return 2\n"
    assert all(line.state is State.OK for line in checked(folder, several)[0].found)
    apart = several.replace("training.draw(2)", "[training.source.draw(training.rng) for _ in range(2)]")
    (folder / "apart.py").write_text(HEADING + apart.replace('"mine"', '"apart"'))
    (found,) = check_named("apart.py", {})
    assert found.found[-1].state is State.NOTE and "training.draw(2)" in found.found[-1].text


STUDY = """from harness.study import Column, Row, Study

study = Study("mine", "Mine", [Row({"M": "x"}, SETTINGS)], [Column("τ", "kendall_tau")])
"""


@pytest.mark.parametrize(
    ("settings", "metric", "message"),
    [
        ({"method.name": "sops"}, "kendall_tau", "expands under no preset: no method is named 'sops'; did you mean"),
        ({}, "kendal_tau", "did you mean 'kendall_tau'?"),
    ],
)
def test_a_study_with_a_mistake(folder: Path, settings: dict[str, str], metric: str, message: str) -> None:
    (folder / "studies").mkdir()
    file = folder / "studies" / "mine.py"
    file.write_text(STUDY.replace("SETTINGS", repr(settings)).replace("kendall_tau", metric))
    (line,) = wrong(list(check_named("studies/mine.py", {})))
    assert message in line


def test_the_command_exits_by_what_it_found(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "methods").mkdir()
    (folder / "methods" / "good.py").write_text(HEADING + METHOD)
    (folder / "bad.py").write_text("import nothing_of_this_name\n")
    assert main(["check", "methods/good.py", "with", "dataset=digits", "clusters.name=operation"]) == 0
    assert capsys.readouterr().out.endswith("6 checks, 0 problems\n")
    assert main(["check", "methods"]) == 0  # a folder
    assert capsys.readouterr().out.endswith("6 checks, 0 problems\n")
    assert main(["check", "mine", "bad.py"]) == 1  # a registered name, and a file
    captured = capsys.readouterr()
    assert captured.out.endswith("7 checks, 1 problem\n") and "Traceback" not in captured.out + captured.err
    assert main(["check", "methods/none.py"]) == 2
    assert "there is no file methods/none.py" in capsys.readouterr().err
    assert main(["check", "mien"]) == 2
    assert "did you mean 'mine'?" in capsys.readouterr().err
    assert not (folder / "runs").exists()


@pytest.mark.long
def test_studies_and_documented_examples_pass(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in example_files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    ours = [str(file) for file in sorted((PROJECT / "studies").glob("[!_]*.py"))]
    users = [name for name in example_files() if not Path(name).name.startswith("_")]
    assert main(["check", *ours, *users]) == 0, capsys.readouterr().out
