"""Turns of a comparison of training steps: the same paths on the same batch, by the harness and plainly."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.components.loader import Batch
from harness.components.method import Part
from harness.components.registries import SPACES
from harness.components.space import Architecture


def paths(space: str, count: int) -> Iterator[Architecture]:
    """So many random paths of the space, again and again."""
    own = SPACES.get(space)()
    while True:
        rng = random.Random(1)
        yield from (own.sample(rng) for _ in range(count))


def random_batch(size: int, side: int, classes: int) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(0)
    return torch.randn(size, 3, side, side, generator=rng), torch.randint(classes, (size,), generator=rng)


def our_turn(
    asked: dict[str, Any], settings: Any, batch: tuple[Tensor, Tensor], drawn: Iterator[Architecture], steps: int
) -> Callable[[], object]:
    """So many steps of a supernet of these settings, as the harness makes them."""
    from harness.study.configuration import RunConfig
    from harness.training.stages.train import Supernets, prepare

    config = RunConfig.from_json(asked)
    space = SPACES.get(config.space)().at(settings)
    torch.manual_seed(0)
    _, (training,) = prepare(config, Supernets(space, (Part({}),), (space.supernet(settings),)), 1000)
    images, labels = batch
    whole = Batch(images.contiguous(memory_format=torch.channels_last), labels, torch.arange(len(labels)))
    done = 0

    def turn() -> None:
        nonlocal done
        for _ in range(steps):
            training.descend(whole, [next(drawn)], done)
            done += 1

    return turn


def plain_turn(
    network: nn.Module,
    optimiser: torch.optim.Optimizer,
    batch: tuple[Tensor, Tensor],
    drawn: Iterator[Any],
    steps: int,
    order: str = "contiguous",
    clip: float | None = None,
) -> Callable[[], object]:
    """The same of any module, as most research code writes it; `order` is that of dimensions, contiguous or last."""
    layout: Any = {"memory_format": {"contiguous": torch.contiguous_format, "last": torch.channels_last}[order]}
    network.to(**layout)
    images, labels = batch[0].contiguous(**layout), batch[1]

    def turn() -> None:
        for _ in range(steps):
            optimiser.zero_grad()
            functional.cross_entropy(network(images, next(drawn)), labels).backward()  # type: ignore[no-untyped-call]
            if clip is not None:
                nn.utils.clip_grad_norm_(network.parameters(), clip)
            optimiser.step()

    return turn
