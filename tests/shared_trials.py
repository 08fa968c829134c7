"""A user's folder for tests of trials that several processes compute together.

The second rank fails in a stage that the trial names, while there is a file `broken`. In training all ranks wait at the
fourth step, while there is a file `hold`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.truth.table import Table
from tests.conftest import TOY
from tests.toy import user_folder

METHOD = """
import os, time
from dataclasses import dataclass
from harness.components.method import Method
from harness.components.registries import METHODS

steps = []

@METHODS.register("shared")
@dataclass(frozen=True)
class Shared(Method):
    '''As SPOS.'''

    fails_in: str = "nothing"

    def begin(self, training):
        training.network.register_forward_pre_hook(lambda network, inputs: self.evaluate(network, training))

    def evaluate(self, network, training):
        if not network.training:
            self.fail_in("ranking", training)

    def fail_in(self, stage, training):
        if stage == self.fails_in and training.ranks.index == 1 and os.path.exists("broken"):
            raise ValueError(f"no {stage} in rank 1")

    def paths(self, training):
        steps.append(1)
        if len(steps) == 4:
            self.fail_in("training", training)
            while os.path.exists("hold"):
                time.sleep(0.01)
        return [training.source.draw(training.rng)]

@METHODS.register("alone")
@dataclass(frozen=True)
class Alone(Shared):
    '''A method that says that it cannot be shared.'''

    ranks_reason = "it remembers images"
"""

STUDY = '''
"""Trials that are computed together."""

from harness.study import Column, Row, Study

toy = {"space": "toy", "dataset": "toy", "benchmark": "toy", "rank.images": 50, "rank.candidates": 12, "rank.bins": 5,
       "train.epochs": 3, "train.batch_size": 20, "network.width": 2, "method.name": "shared"}
column = [Column("τ", "kendall_tau")]

def rows(*stages):
    return [Row({"Fails in": stage}, toy | {"method.fails_in": stage}) for stage in stages]

one = Study("one", "One trial", rows("nothing"), column)
several = Study("several", "Several trials", rows("nothing", "training", "ranking"), column)
refused = Study("refused", "Refused", [Row({"Method": "alone"}, toy | {"method.name": "alone"})], column)
studies = [one, several, refused]
'''


@contextmanager
def shared_trials(folder: Path, toy_table: Table) -> Iterator[Path]:
    """The folder as the current one, with a file `broken`."""
    toy_table.write(folder / "toy.npz")
    files = {"spaces/toy.py": TOY, "methods/shared.py": METHOD, "studies/shared.py": STUDY, "broken": ""}
    with user_folder(folder, files):
        yield folder
