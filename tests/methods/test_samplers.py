"""Samplers: the frequencies they promise, on a space small enough to count."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
import torch

from harness.components.discovery import component
from harness.components.registries import SPACES
from harness.components.space import Architecture, NetworkSettings, Space
from harness.errors import InvalidConfiguration

samplers = component("methods.samplers")

DRAWS = 20_000


class Weighted(Space):
    """Twelve architectures whose sizes span a factor of twenty."""

    name = "weighted"
    choices = (3, 1, 4)
    complexity_counts = ("parameters", "flops")

    def complexity(self, architecture: Architecture, count: str = "parameters") -> int:
        first, _, last = self.check(architecture)
        return 1 + 5 * first + 3 * last if count == "parameters" else 10 * (20 - 5 * first - 3 * last)

    def parse(self, text: str) -> Architecture:
        return self.check(tuple(int(choice) for choice in text.split()))

    def format(self, architecture: Architecture) -> str:
        return " ".join(map(str, architecture))

    def supernet(self, settings: NetworkSettings) -> torch.nn.Module:
        raise NotImplementedError

    def standalone(self, architecture: Architecture, settings: NetworkSettings) -> torch.nn.Module:
        raise NotImplementedError


def chi_square(drawn: Counter[Architecture], weights: dict[Architecture, int]) -> float:
    """How far the frequencies are from proportional to the weights; the expectation is categories − 1."""
    draws, total = drawn.total(), sum(weights.values())
    expected = {architecture: draws * weight / total for architecture, weight in weights.items()}
    return sum((drawn[a] - expected[a]) ** 2 / expected[a] for a in expected)


@pytest.mark.parametrize("count", ["parameters", "flops"])
def test_by_complexity_draws_in_proportion(count: str) -> None:
    space, rng = Weighted(), random.Random(11)
    source = samplers.ByComplexity(count).bind(space, {})
    drawn = Counter(source.draw(rng) for _ in range(DRAWS))
    weights = {a: space.complexity(a, count) for a in space}
    assert set(drawn) == set(weights)
    assert chi_square(drawn, weights) < 31.3  # 11 degrees of freedom, 1 in 1,000
    assert chi_square(drawn, dict.fromkeys(weights, 1)) > 1000  # the test can tell it from uniform


def test_by_complexity_draws_in_proportion_within_a_part() -> None:
    """The part holds none of the largest subnets: the bound of the rejection is that of the space."""
    space, rng = Weighted(), random.Random(12)
    source = samplers.ByComplexity().bind(space, {0: 1})
    drawn = Counter(source.draw(rng) for _ in range(DRAWS))
    weights = {a: space.complexity(a) for a in space if a[0] == 1}
    assert set(drawn) == set(weights)
    assert chi_square(drawn, weights) < 16.3  # 3 degrees of freedom, 1 in 1,000


def test_uniform_draws_all_alike() -> None:
    space, rng = Weighted(), random.Random(13)
    source = samplers.Uniform().bind(space, {})
    drawn = Counter(source.draw(rng) for _ in range(DRAWS))
    assert set(drawn) == set(space)
    assert chi_square(drawn, dict.fromkeys(space, 1)) < 31.3


def test_uniform_keeps_what_is_fixed_and_only_that() -> None:
    space, rng = SPACES.get("nasbench201")(), random.Random(14)
    source = samplers.Uniform().bind(space, {0: 4, 3: 0})
    drawn = [source.draw(rng) for _ in range(2000)]
    assert {(path[0], path[3]) for path in drawn} == {(4, 0)}
    for decision in (1, 2, 4, 5):
        shares = Counter(path[decision] for path in drawn)
        assert all(abs(shares[choice] - 400) < 90 for choice in range(5))  # 5 deviations


@pytest.mark.parametrize("sampler", [samplers.Uniform(), samplers.ByComplexity()])
def test_paths_depend_on_chance_alone(sampler: Any) -> None:
    space = SPACES.get("nasbench201")()

    def draws(seed: int) -> list[Architecture]:
        source, rng = sampler.bind(space, {}), random.Random(seed)
        return [source.draw(rng) for _ in range(20)]

    assert draws(1) == draws(1) != draws(2)


def test_an_unknown_count_is_refused() -> None:
    with pytest.raises(InvalidConfiguration, match="'latency'; weighted allows parameters, flops"):
        samplers.ByComplexity("latency").bind(Weighted(), {})
