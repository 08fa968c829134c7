"""Checks of a space: its architectures as tuples, its counts, its networks. Stores nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

from harness.components.dataset import DataSet
from harness.components.space import Architecture, Space, network_settings
from harness.data.randomness import seeded
from harness.study.configuration import RunConfig
from harness.work.findings import Checks, Unfit

DRAWN = 20
"""Architectures that are drawn to check what holds for all."""
BUILT = 4
"""Architectures whose networks are run."""
LISTED = 20_000
"""The largest space whose extremes are found by listing it here."""


def check_architectures(found: Checks, name: str, space: Space) -> list[Architecture]:
    """Check everything that needs no network; returns a few architectures, the extreme ones first."""
    rng, drawn, ends = random.Random(0), [], []
    with found.check(f"draws architectures of {len(space.choices)} decisions"):
        _check_definition(name, space)
        drawn = [space.check(space.sample(rng)) for _ in range(DRAWN)]
        _check_steps(space, drawn, rng)
    if found.problems:
        return []
    with found.check("prints and parses: parse(format(architecture)) is the architecture"):
        _check_text(space, drawn)
    with found.check("numbers: architecture(index(architecture)) is the architecture"):
        for one in drawn:
            if space.architecture(number := space.index(one)) != one:
                raise Unfit(f"index({one}) is {number}, but architecture({number}) is {space.architecture(number)}")
    with found.check(f"counts {', '.join(space.complexity_counts)}"):
        _check_counts(space, drawn)
    if space.enumerable and space.size > LISTED and type(space).extremes is Space.extremes:
        found.note(f"its extremes are found by listing {space.size:,} architectures, which is not tried here")
    else:
        with found.check("knows its smallest and its largest architecture"):
            ends = _check_extremes(space, drawn)
    return [*ends, *drawn][:BUILT]


def check_networks(found: Checks, space: Space, config: RunConfig, data: DataSet, few: Sequence[Architecture]) -> None:
    """Check supernet and stand-alone networks of a few architectures: logits, gradients, the same twice."""
    inputs = {"classes": data.classes, "image_channels": data.image_channels, "image_size": data.image_size}
    settings = network_settings(config.network, **inputs)
    images = torch.zeros(2, *data.train.shape)
    with found.check(f"builds a supernet that runs {len(few)} architectures"):
        with seeded(0):
            network = space.supernet(settings)
        with seeded(0):
            again = space.supernet(settings)
        _require_same(network, again, "supernet")
        for one in few:
            logits = _require_logits(network(images, one), data.classes, f"the supernet's forward(images, {one})")
            if logits.requires_grad:
                logits.sum().backward()  # type: ignore[no-untyped-call]
        grouped = {id(p) for group in space.parameter_groups(network) for p in group["params"]}
        if grouped != {id(p) for p in network.parameters()}:
            raise Unfit("parameter_groups must hold every parameter of the supernet once, and no others")
    if found.problems:
        return
    alone = network_settings(space.alone(config.network), **inputs)
    with found.check(f"builds {len(few)} stand-alone networks"):
        for one in few:
            with seeded(0):
                network = space.standalone(one, alone)
            with seeded(0):
                _require_same(network, space.standalone(one, alone), "stand-alone network")
            _require_logits(network(images), data.classes, f"forward(images) of standalone({one})")


def _check_definition(name: str, space: Space) -> None:
    if space.name != name:
        raise Unfit(f"its `name` is {space.name!r}, but it is registered as {name!r}: make them equal")
    choices = space.choices
    if not isinstance(choices, tuple) or not choices or not all(isinstance(one, int) and one >= 1 for one in choices):
        raise Unfit(f"`choices` must be a tuple with the number of choices of every decision, not {choices!r}")
    wrong = [layer for layer in space.layers if any(decision not in range(len(choices)) for decision in layer)]
    if wrong:
        raise Unfit(f"`layers` names decisions that do not exist: {wrong[0]}; there are 0 to {len(choices) - 1}")


def _check_steps(space: Space, drawn: Sequence[Architecture], rng: random.Random) -> None:
    """Steps of searches, and representatives."""
    for one, other in zip(drawn, drawn[1:], strict=False):
        space.check(space.mutate(one, rng, 0.5))
        space.check(space.crossover(one, other, rng))
        for rule in (space.canonical, space.function_class, space.network_class):
            same = space.check(rule(one))
            if rule(same) != same:
                name = rule.__name__
                raise Unfit(f"{name}({one}) is {same}, but {name}({same}) is {rule(same)}: it must be itself")


def _check_text(space: Space, drawn: Sequence[Architecture]) -> None:
    for one in drawn:
        text = space.format(one)
        if not isinstance(text, str):
            raise Unfit(f"format({one}) must be text, not {text!r}")
        if space.canonical(back := space.parse(text)) != space.canonical(one):
            raise Unfit(f"format({one}) is {text!r}, but parse({text!r}) is {back}")


def _check_counts(space: Space, drawn: Sequence[Architecture]) -> None:
    for count in space.complexity_counts:
        for one in drawn:
            number = space.complexity(one, count)
            if isinstance(number, bool) or not isinstance(number, int | float) or not number >= 0:
                raise Unfit(f"complexity({one}, {count!r}) must be a number that is not negative, not {number!r}")


def _check_extremes(space: Space, drawn: Sequence[Architecture]) -> list[Architecture]:
    ends: list[Architecture] = []
    for count in space.complexity_counts:
        least, smallest, greatest, largest = space.extremes(count)
        for number, one in ((least, smallest), (greatest, largest)):
            if (own := space.complexity(space.check(one), count)) != number:
                raise Unfit(f"extremes({count!r}) says {number} for {one}, but complexity says {own}")
        for one in drawn:
            if not least <= (own := space.complexity(one, count)) <= greatest:
                raise Unfit(f"complexity({one}, {count!r}) is {own}, outside of extremes: {least} to {greatest}")
        ends += [smallest, largest]
    return list(dict.fromkeys(ends))[:2]


def _require_logits(logits: object, classes: int, what: str) -> torch.Tensor:
    if not isinstance(logits, torch.Tensor) or tuple(logits.shape) != (2, classes):
        shape = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
        raise Unfit(f"{what} must give logits of shape (2, {classes}) for 2 images and {classes} classes, not {shape}")
    if not bool(torch.isfinite(logits).all()):
        raise Unfit(f"{what} gives values that are not finite")
    return logits


def _require_same(one: torch.nn.Module, other: torch.nn.Module, what: str) -> None:
    mine, its = one.state_dict(), other.state_dict()
    if mine.keys() != its.keys() or any(not torch.equal(mine[name], its[name]) for name in mine):
        raise Unfit(
            f"two builds of the {what} with one seed of torch differ: draw initial weights from torch's rng only"
        )
