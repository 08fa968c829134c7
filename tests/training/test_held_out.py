"""Training images that are set aside for a sampler: no step trains on them, and the sampler sees them as they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.components.registries import DATASETS, METHODS
from harness.data.loader import in_order
from harness.errors import InvalidConfiguration
from harness.training.stages.train import build_supernets, prepare
from harness.training.supernet import SupernetTraining
from harness.training.trial import run_trial
from harness.truth.table import Table
from tests.conftest import TOY
from tests.toy import toy_config, user_folder

RECORDING = '''
from harness.components.dataset import DataSet
from harness.components.method import Method
from harness.components.registries import DATASETS, METHODS

@METHODS.register("recording")
class Recording(Method):
    """Writes down which images it trains on."""

    seen = []

    def train_step(self, training, batch, step):
        self.seen.extend(batch.indices.tolist())
        return training.descend(batch, training.draw(1), step)

@DATASETS.register("nine")
def nine():
    """Nine images to train on."""
    whole = DATASETS.get("digits")()
    return DataSet("nine", 10, whole.train.head(9), whole.valid.head(9), whole.test.head(9), whole.mean, whole.std)
'''


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, toy_table: Table) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("held out")
    toy_table.write(folder / "toy.npz")
    with user_folder(folder, {"spaces/toy.py": TOY, "methods/recording.py": RECORDING}):
        yield folder


def training(**more: Any) -> SupernetTraining:
    config, dataset = toy_config(**more), DATASETS.get("toy")()
    return prepare(config, build_supernets(config, dataset), 3, dataset)[1][0]


def test_no_step_trains_on_them(project: Path) -> None:
    run_trial(toy_config(method="recording", sampler={"name": "greedy", "candidates": 2, "kept": 1}))
    seen: Any = METHODS.get("recording").seen
    left_out = training(sampler="greedy").left_out
    assert len(left_out) == 4 and len(seen) == 4 * 40  # a tenth of the images; as many trained on as without
    assert set(seen) == set(range(40)) - set(left_out)


def test_the_sampler_sees_them_without_augmentation(project: Path) -> None:
    made, dataset = training(sampler="greedy"), DATASETS.get("toy")()
    [(stored, labels)] = in_order(dataset.train, dataset, 40)
    numbers = list(made.left_out)
    assert torch.equal(torch.cat(list(made.held_out.images)), stored[numbers])
    assert torch.equal(torch.cat(made.held_out.labels), labels[numbers])


def test_they_depend_on_the_seed_and_on_what_the_sampler_asks_for(project: Path) -> None:
    made = [training(sampler="greedy", seed=seed).left_out for seed in (0, 0, 1)]
    assert made[0] == made[1] != made[2]
    assert len(training(sampler={"name": "greedy", "images": 2}).left_out) == 2
    assert training().left_out == ()
    with pytest.raises(InvalidConfiguration, match="without held-out images"):
        _ = training().held_out


def test_too_few_images_are_refused(project: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="nine has 9 training images: too few to set a tenth aside"):
        run_trial(toy_config(dataset="nine", benchmark=None, method="greedynas"))
