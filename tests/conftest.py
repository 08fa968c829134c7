"""Shared by all tests: a miniature project with a space, images and a table of its own, few real digits, a server."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pymongo
import pytest
import torch
from pymongo.database import Database

from harness.components.dataset import DataSet
from harness.components.registries import DATASETS
from harness.truth.table import Table
from tests.mongod import FAIL_POINTS, Mongod
from tests.toy import user_folder

# No test may fail because the machine is busy.
hypothesis.settings.register_profile("patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("patient")

TOY = '''
"""A space of 12 architectures (9 different networks), a few of the digits, and a table beside them."""

from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from harness.truth.table import Table, TableBenchmark
from harness.components.dataset import DataSet
from harness.components.registries import BENCHMARKS, DATASETS, SPACES
from harness.components.space import Space

KERNELS = ({1: 1, 2: 3}, {0: 1, 1: 3})


@SPACES.register("toy")
class Toy(Space):
    """Two convolutions, the first of which may be missing, and a pooling; none of them counts then."""

    name = "toy"
    choices = (3, 2, 2)
    stacks = True

    def parse(self, text):
        return self.check(tuple(map(int, text.split())))

    def format(self, architecture):
        return " ".join(map(str, architecture))

    def complexity(self, architecture, count="parameters"):
        first, second, _ = self.check(architecture)
        return 1 + (first and KERNELS[0][first] + 10 * KERNELS[1][second])

    def function_class(self, architecture):
        return self.check(architecture) if architecture[0] else (0, 0, 0)

    network_class = function_class

    def operation_parameters(self, network):
        layers = enumerate(network.layers)
        return {(n, int(name)): list(one.parameters()) for n, layer in layers for name, one in layer.items()}

    def supernet(self, settings):
        return Network(settings, KERNELS)

    def standalone(self, architecture, settings):
        own = [{architecture[layer]: kernels.get(architecture[layer])} for layer, kernels in enumerate(KERNELS)]
        network = Network(settings, own if architecture[0] else [{}, {}])
        network.architecture = architecture
        return network


class Network(nn.Module):
    def __init__(self, settings, kernels):
        super().__init__()
        self.copies, self.classes, self.width = settings.copies, settings.classes, settings.width * settings.copies
        inputs = (settings.image_channels * self.copies, self.width)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    str(choice): nn.Conv2d(inputs[layer], self.width, kernel, padding=kernel // 2, groups=self.copies)
                    for choice, kernel in own.items()
                }
            )
            for layer, own in enumerate(kernels)
        )
        self.classifier = nn.Conv2d(self.width, self.classes * self.copies, 4, groups=self.copies)

    def forward(self, x, architecture=None):
        first, second, pooling = architecture or self.architecture
        if first:
            x = self.layers[1][str(second)](torch.relu(self.layers[0][str(first)](x)))
            x = functional.max_pool2d(x, 2) if pooling else functional.avg_pool2d(x, 2)
        else:
            x = x.new_zeros(len(x), self.width, 4, 4)
        logits = self.classifier(x).flatten(1)
        return logits if self.copies == 1 else logits.view(len(x), self.copies, self.classes)


@DATASETS.register("toy")
def images():
    """The first of the digits."""
    whole = DATASETS.get("digits")()
    return DataSet("toy", 10, whole.train.head(40), whole.valid.head(50), whole.test.head(60), whole.mean, whole.std)


@BENCHMARKS.register("toy")
def benchmark():
    """The table of this folder."""
    return TableBenchmark("toy", Toy(), Table.read(Path(__file__).parents[1] / "toy.npz"))
'''

TOY_CLASSES = [0, 4, 5, 6, 7, 8, 9, 10, 11]
"""The numbers of the toy space's different networks."""


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """As trials run: sums in one order, and no fight over the cores."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def few_digits() -> DataSet:
    """48, 40 and 30 real images: two steps an epoch at 32 images a batch, the second of them short."""
    whole: DataSet = DATASETS.get("digits")()
    parts = whole.train.head(48), whole.valid.head(40), whole.test.head(30)
    return DataSet("few digits", whole.classes, *parts, mean=whole.mean, std=whole.std)


def made_up_table() -> Table:
    """Made-up ground truth of the toy space: 50 and 60 images, two seeds; the later, the better.

    Mean test accuracies are those of (0 or 4 to 11) × 4 + 2 correct answers of 60.
    """
    correct = np.array([[4 * number + 1, 4 * number + 3] for number in TOY_CLASSES], np.uint16)
    provenance = {
        "space": "toy",
        "dataset": "toy",
        "data_checksum": "made up",
        "images": {"train": 40, "valid": 50, "test": 60},
        "seed": 0,
        "seeds": 2,
        "recipe": {
            "width": 2,
            "depth": 1,
            "epochs": 1,
            "batch_size": 20,
            "learning_rate": 0.1,
            "momentum": 0.9,
            "weight_decay": 0.0005,
        },
        "environments": [{"cpu": "none", "torch": "none", "threads": "1"}],
        "command": "none",
    }
    return Table(np.array(TOY_CLASSES, np.int32), correct // 2, correct, provenance)


@pytest.fixture(scope="session")
def toy_table() -> Table:
    """The made-up table, for tests that write it where they need it."""
    return made_up_table()


@pytest.fixture(scope="module")
def toy_project(tmp_path_factory: pytest.TempPathFactory, toy_table: Table) -> Iterator[Path]:
    """A user's folder with the toy space in it, as the current directory; all is forgotten afterwards."""
    folder = tmp_path_factory.mktemp("toy")
    toy_table.write(folder / "toy.npz")
    with user_folder(folder, {"spaces/toy.py": TOY}):
        yield folder


@pytest.fixture(scope="session")
def mongod() -> Iterator[str]:
    """The URI of a real server without authentication, with `FAIL_POINTS`; one a test process, ended with it."""
    # Not one of pytest's folders: those stay, and an empty server takes 300 MB.
    with tempfile.TemporaryDirectory(prefix="mongod-") as folder:
        server = Mongod(Path(folder), *FAIL_POINTS)
        server.start()
        try:
            yield server.uri
        finally:
            server.kill()


@pytest.fixture
def mongo_database(mongod: str) -> Iterator[Database[dict[str, Any]]]:
    """An empty database of that server, dropped afterwards."""
    with pymongo.MongoClient[dict[str, Any]](mongod) as client:
        database = client[f"test_{uuid.uuid4().hex[:12]}"]
        yield database
        client.drop_database(database.name)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is HARNESS_DATA, with an empty cache beside it."""
    (folder := tmp_path / "data").mkdir()
    monkeypatch.setenv("HARNESS_DATA", str(folder))
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HARNESS_DATA_FOLDER", raising=False)
    return folder
