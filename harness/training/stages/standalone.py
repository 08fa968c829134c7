"""Stand-alone training of one architecture; several seeds at once, as one stacked network, where the space can.

Used to build tables of ground truth, and to retrain the architecture that a search has found. The seeds differ in
initial weights and in the order of the data.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from harness.components.augmentation import Augmentation, Order
from harness.components.dataset import DataSet, Split
from harness.components.schedule import Factor
from harness.components.space import Architecture, Network, Space, network_settings
from harness.data.devices import placed
from harness.data.loading import evaluation_batches, loader_for
from harness.data.randomness import step_randomness
from harness.errors import Diverged, InvalidConfiguration
from harness.seeds import derive
from harness.study.parallel import check_last_batch
from harness.training.parts import WHOLE, Division, divided


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


class StandaloneTraining:
    """The training of one architecture's networks, between two steps: all state that is needed to resume."""

    def __init__(
        self,
        space: Space,
        architecture: Architecture,
        dataset: DataSet,
        recipe: StandaloneRecipe,
        seed: int,
        copies: int = 1,
        device: torch.device | str = "cpu",
        factor: Factor | None = None,
        augment: Sequence[Augmentation] = (),
        network: Any = None,
        order: Order | None = None,
        division: Division = WHOLE,
    ) -> None:
        """`factor` gives the learning rate relative to the initial one; by default half a cosine wave to zero.

        `network` holds the space's settings of the network; by default those of the recipe. `order` is that of the
        samples; by default a random permutation per epoch. `division` says how batches are divided; several ranks train
        one copy.
        """
        self.division = division
        self.architecture, self.dataset, self.recipe, self.copies = architecture, dataset, recipe, copies
        self.device = torch.device(device)
        self.factor = factor or (lambda architecture, progress: 0.5 * (1 + math.cos(math.pi * progress)))
        alone = space.alone(network or _sized(space, recipe))
        settings = network_settings(alone, **dataset.inputs, copies=copies)
        with torch.random.fork_rng(devices=[]):  # modules draw weights when made; those of `initialise` replace them
            self.network = space.standalone(architecture, settings)
        initialise(self.network, seed)
        placed(self.network, device)
        division.prepare(self.network)
        check_last_batch(len(dataset.train), recipe.batch_size, division.groups, division.ranks.size, "train")
        make = partial(loader_for, order=order, augment=augment, share=division.share)
        self.loaders = [
            make(dataset, "train", recipe.batch_size, data_seed, device)
            for data_seed in (derive(seed, "standalone data", number) for number in range(copies))
        ]
        self.optimiser = torch.optim.SGD(
            self.network.parameters(),
            lr=recipe.learning_rate,
            momentum=recipe.momentum,
            nesterov=recipe.momentum > 0,
            weight_decay=recipe.weight_decay,
            foreach=True,
        )
        self.randomness = step_randomness(self.network, derive(seed, "standalone network"), device)
        self.steps_per_epoch = self.loaders[0].steps_per_epoch
        self.steps = recipe.epochs * self.steps_per_epoch
        self.step = 0
        """Steps done."""
        self.images = 0
        """Images that the last step saw: fewer than a batch at the end of an epoch, and where some cannot be read."""
        self.losses: list[torch.Tensor] = []
        """Losses of the steps of the unfinished epoch."""
        self.network.train()

    def advance(self) -> torch.Tensor:
        """Do the next step; returns its loss, summed over the copies."""
        batches = [loader.batch(self.step) for loader in self.loaders]
        # An image that cannot be read makes the batch of one copy smaller; stacked copies need batches of one size.
        count, weight = min(len(batch.labels) for batch in batches), self.division.weight(batches[0])
        self.images = round(count / weight)
        images = torch.cat([batch.images[:count] for batch in batches], 1)
        labels = torch.stack([batch.labels[:count] for batch in batches], 1)
        rate = self.recipe.learning_rate * self.factor(self.architecture, self.step / self.steps)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        with self.randomness(self.step), self.passes(), divided(self.division, batches[0]):
            logits = self.network(images).view(-1, self.dataset.classes)
            # The mean over all copies, times their number: each copy sees the gradient of its own mean.
            loss = self.loss(logits, images, labels.flatten(0, 1)) * (self.copies * weight)
        self.optimiser.zero_grad()
        self.descend(loss)
        self.step += 1
        self.losses.append(loss.detach())
        self.division.ranks.soon_(self.losses[-1])
        return self.losses[-1]

    def loss(self, logits: torch.Tensor, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The loss of a step, as a mean over images and copies."""
        return functional.cross_entropy(logits, labels)

    def passes(self) -> AbstractContextManager[Any]:
        """Context of the forward pass and the loss."""
        return nullcontext()

    def descend(self, loss: torch.Tensor) -> None:
        """Compute the gradients and change the weights."""
        with self.division.ranks.summing(self.trained()):
            loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()

    @property
    def is_over(self) -> bool:
        return False  # the test images are looked at right after the last step, which is not worth a checkpoint

    def trained(self) -> list[torch.Tensor]:
        """All parameters that are trained."""
        return [one for group in self.optimiser.param_groups for one in group["params"]]

    def state(self) -> dict[str, Any]:
        """The state to resume from. Store it before the next step."""
        self.division.ranks.settle()
        return {
            "step": self.step,
            "network": self.network.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "losses": torch.stack(self.losses) if self.losses else None,
        }

    def restore(self, state: dict[str, Any], device: torch.device) -> None:
        self.step = state["step"]
        self.network.load_state_dict(state["network"])
        self.optimiser.load_state_dict(copy.deepcopy(state["optimiser"]))
        self.losses = [] if state["losses"] is None else list(state["losses"].to(device).unbind())


def _sized(space: Space, recipe: StandaloneRecipe) -> Any:
    """A space's network of the recipe's width and depth; a space with settings of its own has its defaults."""
    sized = issubclass(space.Network, Network)
    return space.Network(width=recipe.width, depth=recipe.depth) if sized else space.Network()


def train_standalone(
    space: Space,
    architecture: Architecture,
    dataset: DataSet,
    recipe: StandaloneRecipe,
    seed: int,
    copies: int = 1,
    device: torch.device | str = "cpu",
    stacked: bool = True,
    network: Any = None,
) -> Correct:
    """Train `copies` networks of one architecture and count their correct answers.

    They train as one network, or one after the other (`stacked=False`) where the space cannot stack them; their
    weights differ between the two ways. `network` is as for `StandaloneTraining`.
    """
    if copies > 1 and not stacked:
        seeds = [seed, *(derive(seed, "standalone copy", number) for number in range(1, copies))]
        each = [
            train_standalone(space, architecture, dataset, recipe, one, device=device, network=network) for one in seeds
        ]
        return Correct(tuple(one.valid[0] for one in each), tuple(one.test[0] for one in each))
    training = StandaloneTraining(space, architecture, dataset, recipe, seed, copies, device, network=network)
    while training.step < training.steps:
        loss = training.advance()
        training.losses.clear()
    if not math.isfinite(last := loss.item()):
        raise Diverged(training.steps - 1, last)
    counts = (
        count_correct(training.network, split, dataset, copies, device) for split in (dataset.valid, dataset.test)
    )
    return Correct(*counts)


def initialise(network: torch.nn.Module, seed: int) -> None:
    """Set the initial weights. Each module has its own seed, derived from its name.

    So two architectures share the data order and the initial weights of all modules that they have in common:
    effects of the seed on both of them cancel in their comparison.
    """
    with torch.random.fork_rng(devices=[]):
        for name, module in network.named_modules():
            if callable(reset := getattr(module, "reset_parameters", None)):
                # Weights are drawn on the CPU: `torch.manual_seed` would also look for other devices, and takes longer.
                torch.default_generator.manual_seed(derive(seed, "standalone weights", name))
                reset()


def count_correct(
    network: torch.nn.Module, split: Split, dataset: DataSet, copies: int, device: torch.device | str
) -> tuple[int, ...]:
    """How many images of the split each copy classifies correctly."""
    return count_among(network, split, dataset, copies, device)[0][0]


@torch.no_grad()
def count_among(
    network: torch.nn.Module,
    split: Split,
    dataset: DataSet,
    copies: int,
    device: torch.device | str,
    first: Sequence[int] = (1,),
) -> tuple[list[tuple[int, ...]], int]:
    """For each k of `first`: for how many images the class is among the k most probable, for each copy; of how many."""
    network.eval()
    correct, total = torch.zeros(len(first), copies, dtype=torch.long, device=device), 0
    for images, labels in evaluation_batches(dataset, split, 250, device):
        logits = network(images.repeat(1, copies, 1, 1)).view(len(labels), copies, dataset.classes)
        for row, k in zip(correct, first, strict=True):
            answers = logits.argmax(2, keepdim=True) if k == 1 else logits.topk(min(k, dataset.classes), 2).indices
            row += (answers == labels[:, None, None]).any(2).sum(0)
        total += len(labels)
    return [tuple(row) for row in correct.tolist()], total
