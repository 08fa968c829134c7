"""Steps and ranking batches of a configuration on synthetic images: `doctor --gpu` times them, tests count their
operations. Images are on the device, without augmentation: what is measured is the network, the method and the update.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np
import torch

from harness.components.dataset import DataSet, Split, inputs_of
from harness.components.loader import Batch
from harness.components.preset import Preset
from harness.data.loading import loader_for
from harness.data.shipped import SHAPES
from harness.errors import InvalidConfiguration
from harness.study.configuration import RunConfig
from harness.study.expansion import expand
from harness.study.layout import Row
from harness.study.study import Study
from harness.training.cost import Meter
from harness.training.stages.rank import RankingImages, predict
from harness.training.stages.train import build_supernets, make_step, prepare

LEAST = 32
"""Training images, of which a method may hold some out."""


@dataclass(frozen=True)
class Size:
    """What takes the place of a configuration's own numbers; None keeps its own. Operations do not depend on them."""

    batch: int | None = None
    side: int | None = None
    ranked: int | None = None
    """Images of a ranking batch."""


def configuration(preset: Preset, settings: dict[str, object]) -> RunConfig:
    """A trial of the preset with these settings, whether its images are here or not."""
    own = {"space": preset.settings.get("space", preset.space)}
    return expand(Study("one", "one trial", [Row({"": ""}, own | settings)], []), preset, 1)[0].trial.config


class Workload:
    """A training of the configuration at the beginning, on a device."""

    def __init__(self, config: RunConfig, device: torch.device | str, size: Size = Size()) -> None:
        inputs = inputs_of(config.dataset) or SHAPES.get(config.dataset)
        if inputs is None:
            raise InvalidConfiguration(f"the size of the images of {config.dataset} is not known without its files")
        batch, ranked = size.batch or config.train.batch_size, size.ranked or config.rank.batch_size
        training = replace(config.train, batch_size=batch, augment=(), bn_group=None, weights=None)
        ranking = replace(config.rank, batch_size=ranked, images=None, calibration=0)
        self.config = config.with_valid(train=training, rank=ranking)
        side = size.side or inputs["image_size"]
        counts = (max(2 * batch, LEAST), ranked, 1)
        train, valid, test = (_images(count, inputs["image_channels"], side, inputs["classes"]) for count in counts)
        plain = (0.5,) * inputs["image_channels"]
        self.dataset = DataSet("synthetic", inputs["classes"], train, valid, test, plain, plain)
        self.meter = Meter(torch.device(device))
        self.supernets = build_supernets(self.config, self.dataset, self.meter.device)
        self.method, trainings = prepare(self.config, self.supernets, -(-counts[0] // batch), self.dataset)
        self.training = trainings[0]
        self.batches = loader_for(self.dataset, "train", batch, 0, self.meter.device)
        self.images = RankingImages(self.dataset, ranking, self.meter.device)
        self.rng, self.steps = random.Random(0), 0

    def batch(self) -> Batch:
        """The batch of the next step. All steps are of the first epoch, as far as batches are concerned."""
        return self.batches.batch(self.steps % 2)

    def step(self, batch: Batch | None = None) -> None:
        """Make the next training step."""
        if self.steps % self.training.steps_per_epoch == 0:
            self.training.begin_epoch()
            self.method.begin_epoch(self.training, self.steps // self.training.steps_per_epoch)
        make_step(self.method, self.training, batch or self.batch(), self.steps % self.training.total_steps)
        self.steps += 1

    def rank(self) -> None:
        """Evaluate a random architecture on one batch."""
        self.training.network.eval()
        path = self.training.source.draw(self.rng)
        predict(self.supernets, [path], self.dataset, self.config.rank, self.meter, images=self.images)
        self.training.network.train()


def _images(count: int, channels: int, side: int, classes: int) -> Split:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (count, channels, side, side), dtype=np.uint8)
    return Split(pixels, rng.integers(0, classes, count))
