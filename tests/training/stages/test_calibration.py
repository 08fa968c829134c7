"""Batch normalisation calibrated for each architecture before it is ranked, by a supernet that offers it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.components.registries import AUGMENTATIONS, DATASETS, SPACES
from harness.data.loading import EvaluationBatches, loader_for
from harness.errors import InvalidConfiguration
from harness.seeds import derive
from harness.stores.directory.run_directory import predictions_document
from harness.study.configuration import Ranking
from harness.study.trial import Trial
from harness.training.stages.rank import RankingImages
from harness.training.trial import run_trial
from tests.conftest import TOY
from tests.toy import toy_config, user_folder

CALIBRATED = TOY.replace('"toy"', '"normed"').replace(
    "class Network(nn.Module):",
    '''class Network(nn.Module):
    @contextmanager
    def calibrated(self, architecture, batches):
        """The images' mean, for as long as the architecture is evaluated."""
        before, self.shift = self.shift, torch.cat(list(batches)).mean()
        yield
        self.shift = before

    shift = 0.0
''',
)
CALIBRATED = CALIBRATED.replace("import torch\n", "from contextlib import contextmanager\n\nimport torch\n", 1)
CALIBRATED = CALIBRATED.replace(
    "        first, second, pooling =", "        x = x - 20 * self.shift\n        first, second, pooling ="
)


@pytest.fixture(scope="module")
def normed(toy_project: Path) -> Iterator[Path]:
    with user_folder(toy_project, {"spaces/normed.py": CALIBRATED}):
        yield toy_project


def test_each_architecture_is_evaluated_with_its_own_statistics(normed: Path) -> None:
    own = {"space": "normed", "dataset": "normed", "benchmark": None}
    plain, calibrated = (toy_config(**own, rank={"calibration": batches}) for batches in (0, 2))
    assert Trial(plain).key == Trial(calibrated).key and Trial(plain).ranking_key != Trial(calibrated).ranking_key
    one, other = run_trial(plain), run_trial(calibrated)
    assert one.predictions != other.predictions
    assert one.result["observed"] == other.result["observed"] and other.supernets is not None
    assert other.supernets.networks[0].shift == 0.0  # afterwards all is as before


def test_nothing_is_shared_between_architectures_that_are_calibrated(normed: Path) -> None:
    text = CALIBRATED.replace(
        "    shift = 0.0\n",
        "    shift = 0.0\n\n    def evaluation(self, batches):\n        raise AssertionError('shared')\n",
    ).replace('"normed"', '"sharing"')
    own = {"space": "sharing", "dataset": "sharing", "benchmark": None}
    with user_folder(normed, {"spaces/sharing.py": text}):
        assert run_trial(toy_config(**own, rank={"calibration": 2})).predictions
        with pytest.raises(AssertionError, match="shared"):
            run_trial(toy_config(**own))


def test_a_supernet_without_it_is_refused(toy_project: Path) -> None:
    with pytest.raises(InvalidConfiguration, match=r"rank\.calibration needs a supernet with the method calibrated"):
        run_trial(toy_config(rank={"calibration": 1}))
    assert SPACES.get("toy") is not None


def calibrating(images: str, augment: tuple[str, ...] = ()) -> list[torch.Tensor]:
    built: Any = [AUGMENTATIONS.get(name)() for name in augment]
    ranking = Ranking(batch_size=16, calibration=3, calibration_images=images)
    return list(RankingImages(DATASETS.get("digits")(), ranking, torch.device("cpu"), tuple(built)).calibrating)


def test_calibrating_images_are_the_first_or_batches_as_training_sees_them() -> None:
    dataset = DATASETS.get("digits")()
    [first, *_] = EvaluationBatches(dataset, dataset.train, 16).images
    assert torch.equal(calibrating("plain", ("erasing",))[0], first)
    augmented, again, bare = (calibrating("augmented", names) for names in (("erasing",), ("erasing",), ()))
    assert len(augmented) == 3 and all(map(torch.equal, augmented, again))  # the same for every architecture
    assert not any(map(torch.equal, augmented, bare)) and not any(map(torch.equal, calibrating("plain"), bare))
    loader = loader_for(dataset, "train", 16, derive(0, "calibration images"))
    assert all(torch.equal(one, loader.batch(number).images) for number, one in enumerate(bare))


def test_augmented_calibration_is_another_ranking_of_the_same_trial(normed: Path) -> None:
    own = {"space": "normed", "dataset": "normed", "benchmark": None}
    rank = {"calibration": 1, "batch_size": 16}
    plain, augmented = (toy_config(**own, rank=rank | more) for more in ({}, {"calibration_images": "augmented"}))
    assert Trial(plain).key == Trial(augmented).key and Trial(plain).ranking_key != Trial(augmented).ranking_key
    assert run_trial(plain).predictions != run_trial(augmented).predictions
    stored = [predictions_document(one.json(), {}) for one in (plain, augmented)]
    assert [one.get("calibration_images") for one in stored] == [None, "augmented"]


def test_other_calibrating_images_are_refused() -> None:
    with pytest.raises(InvalidConfiguration, match="rank.calibration_images is 'all'; allowed: plain, augmented"):
        Ranking(calibration_images="all")
