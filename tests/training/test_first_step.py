"""A method that gives wrong paths, or whose step returns something else than losses, is told so in its first step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from harness.components import discovery
from harness.errors import InvalidConfiguration
from harness.training.trial import run_trial
from tests.stores.test_checkpoints import Stop, checkpoint
from tests.toy import toy_config

HEAD = """
import numpy
from harness.components.method import Method, Part, Step
from harness.components.registries import METHODS
"""
TEMPLATE = '''
@METHODS.register("{name}")
class {type}(Method):
    """One mistake."""
    def {function}:
        {body}
'''
PATHS, STEP = "paths(self, training)", "train_step(self, training, batch, step)"
A_PATH = "a tuple of 3 whole numbers, one per decision of toy"
LOSSES = "expected is a tensor with one loss per path, or a Step with it"
WRONG = {
    "short": (PATHS, "return [(0, 1)]", "gave a path that is not one of toy: (0, 1) has 2 decisions; an architecture"),
    "listed": (PATHS, "return [[0, 1, 1]]", f"gave the path [0, 1, 1], which is a list; a path is {A_PATH}: write tu"),
    "array": (PATHS, "return [numpy.array([0, 1, 1])]", f"which is a numpy.ndarray; a path is {A_PATH}: write tuple("),
    "numpy": (PATHS, "return [tuple(numpy.array([0, 1, 1]))]", f"a numpy.int64 in it; a path is {A_PATH}: write int("),
    "far": (PATHS, "return [(0, 2, 0)]", "(0, 2, 0): decision 1 of toy takes 0 to 1, not 2"),
    "real": (PATHS, "return [(0, 1.0, 0)]", f"gave the path (0, 1.0, 0) with a float in it; a path is {A_PATH}"),
    "alone": (PATHS, "return training.draw(1)[0]", "expected is a list of paths: put it into a list, [path]"),
    "nothing": (PATHS, "training.draw(1)", f"gave nothing; expected is a list of paths, each {A_PATH}"),
    "lazy": (PATHS, "return (path for path in training.draw(1))", "gave a generator; expected is a list of paths"),
    "idle": (PATHS, "return []", "gave no path; a step trains at least one"),
    "three": (PATHS, "return training.draw(3)", "gave 3 paths, but paths_per_step is 1"),
    "losing": (STEP, "training.descend(batch, training.draw(1), step)", f"returned nothing; {LOSSES}: did you forget"),
    "single": (STEP, "return training.descend(batch, training.draw(1), step).sum()", f"of shape (); {LOSSES}: write l"),
    "number": (STEP, "return float(training.descend(batch, training.draw(1), step))", f"returned a float; {LOSSES}"),
    "boxed": (STEP, "return Step([0.5], 1, len(batch.labels))", f"returned a list; {LOSSES}: write torch.stack("),
    "two": (STEP, "return training.descend(batch, training.draw(2), step)", "gave 2 losses, but paths_per_step is 1"),
    "loss": (STEP, "return training.loss(batch, (0, 1, 5)).detach()[None]", "decision 2 of toy takes 0 to 1, not 5"),
    "logits": (STEP, "return training.logits(batch, [0, 1])[0]", "gave the path [0, 1], which is a list; a path is"),
    "update": (STEP, "training.update([(0, 1)], step)", "gave a path that is not one of toy: (0, 1) has 2 decisions"),
}
LATER = '''
@METHODS.register("later")
class Later(Method):
    """Gives lists from the second step on."""
    def paths(self, training):
        return [list(path) if training.step else path for path in training.draw(1)]

@METHODS.register("strayed")
class Strayed(Method):
    """Two supernets, and paths that do not keep to theirs."""
    def parts(self, space, rng):
        return Part({0: 1}), Part({}, {0: (0, 2)})
    def paths(self, training):
        return [(2, 0, 0)]

@METHODS.register("soft")
class Soft(Method):
    """Asks the network with weights of choices, as networks of some spaces understand them."""
    def train_step(self, training, batch, step):
        training.logits(batch, [0.0, 0.5, 0.5])
        return training.descend(batch, training.draw(1), step)
'''


@pytest.fixture(scope="module")
def methods(toy_project: Path) -> Iterator[Path]:
    """The toy's folder with the methods in it."""
    texts = [
        TEMPLATE.format(name=name, type=name.title(), function=function, body=body)
        for name, (function, body, _) in WRONG.items()
    ]
    (toy_project / "methods").mkdir()
    file = toy_project / "methods" / "wrong.py"
    file.write_text(HEAD + "".join(texts) + LATER)
    with discovery.fresh():
        yield file


@pytest.mark.parametrize("name", WRONG)
def test_the_message_names_the_function_its_line_and_what_is_expected(name: str, methods: Path) -> None:
    function, body, expected = WRONG[name]
    lines = methods.read_text().splitlines()
    line = lines.index(f"class {name.title()}(Method):") + 3
    called = function.partition("(")[0]
    with pytest.raises(InvalidConfiguration) as refused:
        run_trial(toy_config(method=name))
    message = str(refused.value)
    assert message.startswith(f"{name.title()}.{called} ({methods}:{line}) ")
    assert expected in message and "\n" not in message


def test_paths_keep_to_their_supernets_part(methods: Path) -> None:
    with pytest.raises(InvalidConfiguration, match=r"gave the path \(2, 0, 0\), which is not in the part of toy"):
        run_trial(toy_config(method="strayed"))


def test_only_the_first_step_is_checked_also_after_a_resume(methods: Path, tmp_path: Path) -> None:
    config = toy_config(method="later")
    assert run_trial(config).result["diverged"] is None
    with suppress(Stop):
        run_trial(config, checkpoint=checkpoint(tmp_path, config, 1))
    assert list(tmp_path.iterdir())
    with pytest.raises(InvalidConfiguration, match=r"Later.paths .* gave the path \[.*, which is a list"):
        run_trial(config, checkpoint=checkpoint(tmp_path, config, 1))


def test_a_network_may_take_other_things_than_paths(methods: Path) -> None:
    assert run_trial(toy_config(method="soft")).result["diverged"] is None
