"""Stand-alone training of one architecture, several seeds at once as one stacked network.

Used to build tables of ground truth. The seeds differ in initial weights and in the order of the data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.nn import functional

from harness.data import DataSet, Split
from harness.data.loader import DeviceLoader, in_order
from harness.errors import Diverged, InvalidConfiguration
from harness.seeds import derive
from harness.space import Architecture, NetworkSettings, Space


@dataclass(frozen=True)
class StandaloneRecipe:
    """How a stand-alone network is trained: SGD with Nesterov momentum, cosine to zero, every step."""

    width: int = 16
    depth: int = 5
    epochs: int = 200
    batch_size: int = 256
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4

    def __post_init__(self) -> None:
        for name in ("width", "depth", "epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise InvalidConfiguration(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.learning_rate <= 0:
            raise InvalidConfiguration(f"learning_rate must be above 0, not {self.learning_rate}")


@dataclass(frozen=True)
class Correct:
    """How many images each seed's network got right."""

    valid: tuple[int, ...]
    test: tuple[int, ...]


def train_standalone(
    space: Space,
    architecture: Architecture,
    dataset: DataSet,
    recipe: StandaloneRecipe,
    seed: int,
    copies: int = 1,
    device: torch.device | str = "cpu",
) -> Correct:
    """Train `copies` networks of one architecture and count their correct answers."""
    settings = NetworkSettings(
        width=recipe.width,
        depth=recipe.depth,
        classes=dataset.classes,
        image_channels=dataset.image_channels,
        image_size=dataset.image_size,
        batch_norm="tracked",
        copies=copies,
    )
    with torch.random.fork_rng(devices=[]):  # modules draw weights when made; those of `initialise` replace them
        network = space.standalone(architecture, settings)
    initialise(network, seed)
    network.to(device)
    loaders = [
        DeviceLoader(dataset.train, dataset, recipe.batch_size, derive(seed, "standalone data", copy), device)
        for copy in range(copies)
    ]
    optimiser = torch.optim.SGD(
        network.parameters(),
        lr=recipe.learning_rate,
        momentum=recipe.momentum,
        nesterov=recipe.momentum > 0,
        weight_decay=recipe.weight_decay,
        foreach=True,
    )
    steps = recipe.epochs * loaders[0].steps_per_epoch
    network.train()
    for step in range(steps):
        batches = [loader.batch(step) for loader in loaders]
        images = torch.cat([batch.images for batch in batches], 1)
        labels = torch.stack([batch.labels for batch in batches], 1)
        optimiser.param_groups[0]["lr"] = recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * step / steps))
        logits = network(images).view(-1, dataset.classes)
        # The mean over all copies, times their number: each copy sees the gradient of its own mean.
        loss = functional.cross_entropy(logits, labels.flatten()) * copies
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    if not math.isfinite(last := loss.item()):
        raise Diverged(steps - 1, last)
    return Correct(*(count_correct(network, split, dataset, copies, device) for split in (dataset.valid, dataset.test)))


def initialise(network: torch.nn.Module, seed: int) -> None:
    """Initial weights, each module's from a seed of its own by name.

    So two architectures share the initial weights of all that they have in common, and the data order:
    what a seed does to both of them cancels in their comparison.
    """
    with torch.random.fork_rng(devices=[]):
        for name, module in network.named_modules():
            if callable(reset := getattr(module, "reset_parameters", None)):
                torch.manual_seed(derive(seed, "standalone weights", name))
                reset()


@torch.no_grad()
def count_correct(
    network: torch.nn.Module, split: Split, dataset: DataSet, copies: int, device: torch.device | str
) -> tuple[int, ...]:
    """How many images of the split each copy classifies correctly."""
    network.eval()
    correct = torch.zeros(copies, dtype=torch.long, device=device)
    for images, labels in in_order(split, dataset, 250, device):
        logits = network(images.repeat(1, copies, 1, 1)).view(len(labels), copies, dataset.classes)
        correct += (logits.argmax(2) == labels[:, None]).sum(0)
    return tuple(correct.tolist())
