"""The reading of ShiftNAS: probabilities of groups by a slow reference, and paths of a wanted complexity."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from harness.components.discovery import component
from harness.components.registries import SPACES
from harness.errors import InvalidConfiguration
from harness.training.stages.train import make_step
from tests.methods.small import Small, batch_of, training_of
from tests.methods.test_methods import Toy

shiftnas = component("methods.shiftnas")


def group_of(path: tuple[int, ...], groups: int) -> int:
    """The interval of equal width between the least, 1, and the greatest complexity, 19."""
    return min(int((Small().complexity(path) - 1) * groups / 18), groups - 1)


def test_groups_whose_loss_changes_most_are_drawn_most() -> None:
    method = shiftnas.ShiftNAS(groups=3, uniform=0.3)
    training = training_of(method)
    assert training.source.probabilities == [1 / 3] * 3
    before: dict[int, float] = {}
    expected, unequal = [1 / 3] * 3, 0
    for epoch in range(4):
        losses: dict[int, list[float]] = {}
        for step in range(3 * epoch, 3 * epoch + 3):
            done = make_step(method, training, batch_of(step), step)
            losses.setdefault(group_of(training.trained[0], 3), []).append(float(done.losses))
        means = {group: sum(own) / len(own) for group, own in losses.items()}
        changes = {group: abs(mean - before[group]) for group, mean in means.items() if group in before}
        before |= means
        if changes:
            usual = sum(changes.values()) / len(changes)
            variations = [changes.get(group, usual) for group in range(3)]
            expected = [0.1 + 0.7 * one / sum(variations) for one in variations]
        unequal += len(set(expected)) > 1
        assert training.source.probabilities == pytest.approx(expected)
    assert unequal


@pytest.mark.parametrize("name", ["nasbench201", "mobilenet"])
def test_a_path_of_every_group_is_found(name: str) -> None:
    """In a space where the outer groups are never met by chance, too."""
    source = shiftnas.ByVariation().bind(SPACES.get(name)(), {1: 2})
    rng = random.Random(2)
    for group in range(1, 6):  # paths with that choice need not be among the smallest or the largest
        paths = [source.path_of(group, rng) for _ in range(5)]
        assert {source.group(path) for path in paths} == {group} and {path[1] for path in paths} == {2}
        assert len(set(paths)) > 1


def test_groups_are_drawn_by_their_probabilities() -> None:
    source = shiftnas.ByVariation(groups=3).bind(Small(), {})
    rng = random.Random(4)
    source.probabilities = [0.2, 0.5, 0.3]
    drawn = Counter(group_of(source.draw(rng), 3) for _ in range(2000))
    assert [drawn[group] / 2000 for group in range(3)] == pytest.approx([0.2, 0.5, 0.3], abs=0.04)


def test_an_empty_group_gives_a_path_near_it() -> None:
    source = shiftnas.ByVariation(groups=18).bind(Small(), {})  # complexities are odd numbers: every other is empty
    path = source.path_of(1, random.Random(1))
    assert source.group(path) in (0, 2)


def test_what_it_cannot_group_is_refused() -> None:
    with pytest.raises(InvalidConfiguration, match="'latency'; small allows parameters, flops"):
        shiftnas.ByVariation(complexity="latency").bind(Small(), {})
    with pytest.raises(InvalidConfiguration, match="all of toy have 1 flops"):
        shiftnas.ByVariation().bind(Toy((1, 1)), {})
    for options, message in ({"groups": 1}, "at least 2, not 1"), ({"uniform": 1.5}, r"\[0, 1\], not 1.5"):
        broken: Any = options
        with pytest.raises(InvalidConfiguration, match=message):
            shiftnas.ShiftNAS(**broken)
