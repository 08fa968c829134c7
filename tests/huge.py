"""A user's space of 10^30 architectures without a table of truth, and a study of three stages on it.

The networks end their process with SIGKILL where a file of the folder asks for it, so that every stage is killed in
its middle, in no time.
"""

from __future__ import annotations

SPACE = '''
"""Thirty blocks, each of five scales and on or off: 60 decisions, 10^30 architectures."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from harness.components.registries import SPACES
from harness.components.space import Space
from harness.errors import InvalidConfiguration

BLOCKS = 30


@dataclass(frozen=True)
class Blocks:
    """Settings of its own: no width, no depth."""

    channels: int = 4
    slope: float = 0.1

    def __post_init__(self):
        if self.channels < 1:
            raise InvalidConfiguration(f"network.channels must be at least 1, not {self.channels}")


@SPACES.register("huge")
class Huge(Space):
    """Blocks that may be off; the scale of one that is off does not matter."""

    name = "huge"
    choices = (5, 2) * BLOCKS
    layers = tuple((2 * block, 2 * block + 1) for block in range(BLOCKS))
    complexity_counts = ("parameters",)
    Network = Blocks

    def parse(self, text):
        return self.check(tuple(map(int, text)))

    def format(self, architecture):
        return "".join(map(str, self.check(architecture)))

    def canonical(self, architecture):
        pairs = zip(architecture[::2], architecture[1::2])
        return tuple(choice for scale, on in pairs for choice in ((scale, 1) if on else (0, 0)))

    def complexity(self, architecture, count="parameters", settings=None):
        channels = (settings or Blocks()).channels
        pairs = zip(architecture[::2], architecture[1::2])
        return channels * (10 + sum((1 + scale) * on for scale, on in pairs))

    def extremes(self, count="parameters"):
        smallest, largest = (0, 0) * BLOCKS, (4, 1) * BLOCKS
        return self.complexity(smallest), smallest, self.complexity(largest), largest

    def supernet(self, settings):
        return Net(settings)

    def standalone(self, architecture, settings):
        return Net(settings, architecture)


class Net(nn.Module):
    def __init__(self, settings, own=None):
        super().__init__()
        self.own, self.slope, self.channels = own, settings.slope, settings.channels
        self.stem = nn.Conv2d(settings.image_channels, settings.channels, 3, padding=1)
        self.scales = nn.ParameterList(torch.ones(5, settings.channels) for _ in range(BLOCKS))
        self.head = nn.Linear(settings.channels, settings.classes)

    def forward(self, x, architecture=None):
        for stage in ("retrain" if self.own else "train",) if self.training else ("rank", "search"):
            die(stage)
        x = torch.relu(self.stem(x)).mean((2, 3))
        chosen = self.own or architecture
        for block, scales in enumerate(self.scales):
            if chosen[2 * block + 1]:
                x = x + self.slope * torch.tanh(x * scales[chosen[2 * block]])
        return self.head(x)


def die(stage):
    """End the process at the call whose number stands in the file die-STAGE."""
    file = Path(f"die-{stage}")
    if file.exists():
        left = int(file.read_text()) - 1
        file.write_text(str(left))
        if not left:
            file.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
'''

STUDY = '''
"""Train, search under limits at two costs, retrain both that were found; and the better of them."""

from harness.study import Column, Row, Study

common = {
    "benchmark": None, "clusters": "first-layer", "schedule": "calr", "network.channels": 6,
    "rank.images": 64, "rank.batch_size": 16, "rank.candidates": 10,
    "search": {"name": "best-of-n-random", "samples": 12, "batches": 1, "keep": 2,
               "limits": {"parameters": [200, 230]}},
}
again = {"retrain.epochs": 2, "retrain.batch_size": 256, "retrain.network.channels": 8}
rows = [
    Row({"Stage": "searched"}, common),
    Row({"Stage": "first retrained"}, common | again | {"retrain.which": 0}),
    Row({"Stage": "second retrained"}, common | again | {"retrain.which": 1}),
    Row({"Stage": "better retrained"}, common | again | {"retrain.which": "all"}),
]
columns = [
    Column("τ", "kendall_tau"),
    Column("Top-1", "top1_accuracy"),
    Column("Retrained", "retrained_accuracy", digits=2),
]
study = Study("three", "Three stages", rows, columns, space="huge")
'''

FILES = {"spaces/huge.py": SPACE, "studies/three.py": STUDY}
