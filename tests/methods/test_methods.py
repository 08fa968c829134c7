"""Which supernets there are and which paths a step trains, on random spaces and on NAS-Bench-201."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.components.discovery import component
from harness.components.method import Method, Part, check_partition
from harness.components.registries import METHODS, SPACES
from harness.components.space import Architecture, NetworkSettings, Space
from harness.errors import InvalidConfiguration
from harness.training.separation import SeparatedMomentum
from harness.training.supernet import SupernetTraining

FairNAS: Any = component("methods.fairnas").FairNAS
FSNAS: Any = component("methods.fsnas").FSNAS
SPOS: Any = component("methods.spos").SPOS
clusters = component("methods.clusters")
samplers = component("methods.samplers")
schedules = component("methods.schedules")
Optimiser: Any = component("methods.optimisers").SGD


class Sums(torch.nn.Module):
    """A supernet of nothing but biases: a path's logits are the sum of its choices' vectors."""

    def __init__(self, choices: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.choices = torch.nn.ModuleList(
            torch.nn.ParameterList(torch.zeros(classes) for _ in range(count)) for count in choices
        )

    def forward(self, images: torch.Tensor, path: Architecture) -> torch.Tensor:
        vectors = [self.choices[decision][choice] for decision, choice in enumerate(path)]  # type: ignore[index]
        return torch.stack(vectors).sum(0).expand(len(images), -1)


class Toy(Space):
    """Any tuple of choices as a space."""

    name = "toy"

    def __init__(self, choices: tuple[int, ...]) -> None:
        self.choices = choices

    def complexity(self, architecture: Architecture, count: str = "parameters") -> int:
        return 1 + sum(self.check(architecture))

    def parse(self, text: str) -> Architecture:
        return self.check(tuple(int(choice) for choice in text.split()))

    def format(self, architecture: Architecture) -> str:
        return " ".join(map(str, architecture))

    def supernet(self, settings: NetworkSettings) -> torch.nn.Module:
        return Sums(self.choices, settings.classes)

    def standalone(self, architecture: Architecture, settings: NetworkSettings) -> torch.nn.Module:
        return Sums((1,), settings.classes)


spaces = st.lists(st.integers(1, 6), min_size=1, max_size=5).map(lambda choices: Toy(tuple(choices)))
splittable = spaces.filter(lambda space: space.size > 1)
seeds = st.integers(0, 2**32)


def training(
    space: Space, seed: int, rule: Any = None, part: Part | None = None, sampler: Any = None
) -> SupernetTraining:
    """A real training of that space."""
    part = part or Part({})
    network = space.supernet(NetworkSettings(width=4, depth=1, classes=2, image_size=8))
    return SupernetTraining(
        space=space,
        part=part,
        network=network,
        momentum=SeparatedMomentum(network.parameters(), Optimiser()),
        clustering=(rule or clusters.NoClusters()).bind(space, part.fixed, random.Random(seed)),
        source=(sampler or samplers.Uniform()).bind(space, part.fixed),
        factor=schedules.Cosine().bind(space),
        factor_depends_on_path=False,
        rng=random.Random(seed),
        total_steps=10,
    )


def assert_fair(space: Space, paths: list[Architecture], held: set[int]) -> None:
    """Every choice as often as any other, or once more, at every decision that is not held."""
    count = max(space.choices)
    assert len(paths) == count
    for decision, choices in enumerate(space.choices):
        column = [path[decision] for path in paths]
        if decision in held:
            assert len(set(column)) == 1
            continue
        times = Counter(column)
        assert all(count // choices <= times[choice] <= -(-count // choices) for choice in range(choices))
        if choices == count:
            assert sorted(column) == list(range(choices))
        for start in range(0, count, choices):  # each run is a permutation of its own, the last may be cut off
            run = column[start : start + choices]
            assert len(set(run)) == len(run)


@given(spaces, seeds)
@settings(deadline=None)
def test_fairnas_trains_every_choice_once_a_step(space: Toy, seed: int) -> None:
    state = training(space, seed)
    method = FairNAS()
    for _ in range(3):
        paths = method.paths(state)
        assert len(paths) == method.paths_per_step(space)
        assert [space.check(path) for path in paths] == paths
        assert_fair(space, paths, held=set())


@given(splittable, seeds, st.data())
@settings(deadline=None)
def test_fairnas_with_clusters_is_fair_to_all_other_decisions(space: Toy, seed: int, data: st.DataObject) -> None:
    able = [decision for decision, choices in enumerate(space.choices) if choices > 1]
    rules = [clusters.ByOperation(edges=edges) for edges in range(1, len(able) + 1)]
    state = training(space, seed, data.draw(st.sampled_from([*rules, clusters.ByFirstLayer(), clusters.ByLastLayer()])))
    assert state.clustering.decisions
    for _ in range(3):
        paths = FairNAS().paths(state)
        assert_fair(space, paths, held=set(state.clustering.decisions))
        assert len({state.clustering.of(path) for path in paths}) == 1


@given(splittable, seeds)
@settings(deadline=None)
def test_fairnas_stays_in_a_part_of_the_space(space: Toy, seed: int) -> None:
    part = FSNAS().parts(space, random.Random(seed))[-1]
    paths = FairNAS().paths(training(space, seed, part=part))
    assert all(path in part for path in paths)
    assert_fair(space, paths, held=set(part.fixed))


def test_fairnas_visits_all_clusters_alike() -> None:
    state = training(SPACES.get("nasbench201")(), 3, clusters.ByOperation())
    visited = Counter(state.clustering.of(FairNAS().paths(state)[0]) for _ in range(1000))
    assert all(abs(visited[cluster] - 200) < 65 for cluster in range(5))  # 5 deviations


def test_fairnas_permutes_each_decision_on_its_own() -> None:
    """All 120 permutations of an edge come up, and those of two edges are unrelated."""
    state = training(SPACES.get("nasbench201")(), 4)
    steps = [FairNAS().paths(state) for _ in range(2000)]
    permutations = Counter(tuple(path[2] for path in paths) for paths in steps)
    assert len(permutations) == 120
    agreeing = sum(path[0] == path[1] for paths in steps for path in paths) / 10_000
    assert abs(agreeing - 0.2) < 0.03


def test_smaller_decisions_repeat_a_fresh_permutation() -> None:
    state = training(Toy((6, 3)), 5)
    steps = [[path[1] for path in FairNAS().paths(state)] for _ in range(200)]
    assert all(sorted(column[:3]) == sorted(column[3:]) == [0, 1, 2] for column in steps)
    repeated = sum(column[:3] == column[3:] for column in steps)
    assert 10 < repeated < 70  # one in six by chance


@pytest.mark.parametrize("choices", [(5,) * 6, (2, 3)])
def test_fairnas_refuses_random_clusters(choices: tuple[int, ...]) -> None:
    space = Toy(choices)
    clustering = clusters.Random(clusters=2).bind(space, {}, random.Random(0))
    with pytest.raises(InvalidConfiguration, match="no decision can be held constant to keep them in one cluster"):
        FairNAS().check(space, clustering, samplers.Uniform())


@pytest.mark.parametrize("rule", [clusters.NoClusters(), clusters.ByOperation(), clusters.ByOperation(edges=2)])
def test_fairnas_draws_from_a_sampler_that_prefers_some_within_one_cluster(rule: Any) -> None:
    space = SPACES.get("nasbench201")()
    made = training(space, 0, rule=rule, sampler=samplers.ByComplexity())
    plain = training(space, 0, rule=rule)
    FairNAS().check(space, made.clustering, samplers.ByComplexity())
    drawn = [FairNAS().paths(made) for _ in range(200)]
    assert all(len(paths) == 5 and len({made.clustering.of(path) for path in paths}) == 1 for paths in drawn)

    def mean(steps: list[list[Architecture]]) -> float:
        return sum(space.complexity(path) for paths in steps for path in paths) / (5 * len(steps))

    fair = mean([FairNAS().paths(plain) for _ in range(200)])
    assert mean(drawn) > 1.1 * fair
    if rule == clusters.NoClusters():  # every operation once a step: no step is larger than another
        assert len({sum(map(space.complexity, FairNAS().paths(plain))) for _ in range(50)}) == 1


def test_related_subnets_are_drawn_once_and_differ_as_asked() -> None:
    space = SPACES.get("nasbench201")()
    related = component("methods.related").Related()
    for seed in range(20):
        made = training(space, seed)
        subnets = related.paths(made)
        assert related.paths(made) == subnets and related.subnets(space, random.Random(seed)) == subnets
        base, *others = subnets
        assert [sum(a != b for a, b in zip(base, other, strict=True)) for other in others] == [1, 3, 5]
        assert all(space.is_connected(subnet) for subnet in subnets)
    assert related.paths_per_step(space) == 4
    with pytest.raises(InvalidConfiguration, match="can change 0 to 6 decisions, not 7"):
        component("methods.related").Related(changes=(1, 7)).check(space, made.clustering, samplers.Uniform())
    with pytest.raises(InvalidConfiguration, match="at least 1, not"):
        component("methods.related").Related(changes=(0,))
    with pytest.raises(InvalidConfiguration, match="cannot be clustered"):
        related.check(space, clusters.ByOperation().bind(space, {}, random.Random(0)), samplers.Uniform())


@pytest.mark.parametrize("method", [SPOS(), FSNAS()])
@pytest.mark.parametrize("rule", [clusters.NoClusters(), clusters.ByOperation(), clusters.Random()])
@pytest.mark.parametrize("sampler", [samplers.Uniform(), samplers.ByComplexity()])
def test_single_path_methods_take_every_combination(method: Method, rule: Any, sampler: Any) -> None:
    space = SPACES.get("nasbench201")()
    for part in method.parts(space, random.Random(1)):
        state = training(space, 1, rule, part, sampler)
        method.check(space, state.clustering, sampler)
        paths = [method.paths(state) for _ in range(20)]
        assert all(len(path) == method.paths_per_step(space) == 1 for path in paths)
        assert all(path in part for [path] in paths)
        assert len({path for [path] in paths}) > 10


@given(spaces, seeds)
@settings(deadline=None)
def test_spos_trains_one_path_of_one_supernet(space: Toy, seed: int) -> None:
    assert SPOS().parts(space, random.Random(seed)) == (Part({}),)
    [path] = SPOS().paths(training(space, seed))
    assert space.check(path) == path == space.sample(random.Random(seed))


@given(splittable, seeds, st.booleans())
@settings(deadline=None, max_examples=50)
def test_fsnas_parts_partition_the_space(space: Toy, seed: int, drawn: bool) -> None:
    possible = [decision for decision, choices in enumerate(space.choices) if choices > 1]
    parts = (FSNAS() if drawn else FSNAS(split=possible[-1])).parts(space, random.Random(seed))
    [decision] = {decision for part in parts for decision in part.fixed}
    assert decision in possible if drawn else decision == possible[-1]
    assert len(parts) == space.choices[decision] > 1
    for architecture in space:
        assert sum(architecture in part for part in parts) == 1


def test_fsnas_draws_the_split_once_a_run() -> None:
    space = SPACES.get("nasbench201")()
    splits = [next(iter(FSNAS().parts(space, random.Random(seed))[0].fixed)) for seed in range(100)]
    assert set(splits) == set(range(6))
    assert splits == [next(iter(FSNAS().parts(space, random.Random(seed))[0].fixed)) for seed in range(100)]


@pytest.mark.parametrize("split", [-1, 1, 3])
def test_fsnas_refuses_a_decision_that_splits_nothing(split: int) -> None:
    with pytest.raises(InvalidConfiguration, match=rf"must be one of \[0, 2\] in toy, not {split}"):
        FSNAS(split=split).parts(Toy((3, 1, 2)), random.Random(0))


def test_fsnas_refuses_a_space_of_one_architecture() -> None:
    with pytest.raises(InvalidConfiguration, match="none of its decisions has a second choice"):
        FSNAS().parts(Toy((1, 1)), random.Random(0))


def test_the_methods_have_names() -> None:
    assert [METHODS.get(name) for name in ("spos", "fairnas", "fsnas")] == [SPOS, FairNAS, FSNAS]


@given(splittable, seeds, st.data())
@settings(deadline=None)
def test_fsnas_groups_choices_into_fewer_supernets(space: Toy, seed: int, data: st.DataObject) -> None:
    split = data.draw(st.sampled_from([decision for decision, choices in enumerate(space.choices) if choices > 1]))
    count = data.draw(st.integers(2, space.choices[split]))
    parts = FSNAS(split=split, supernets=count).parts(space, random.Random(seed))
    assert len(parts) == count
    check_partition(space, Part({}), parts)
    shares = [len(part.allowed.get(split, (0,))) for part in parts]
    assert max(shares) - min(shares) <= 1
    state = training(space, seed, part=parts[-1])
    assert all(path in parts[-1] for _ in range(5) for path in FSNAS().paths(state))
    with pytest.raises(InvalidConfiguration, match=r"method\.supernets must be 2 to"):
        FSNAS(split=split, supernets=space.choices[split] + 1).parts(space, random.Random(seed))


def test_fsnas_splits_where_the_space_says_unless_told() -> None:
    space = Toy((2, 3, 4))
    space.split = 2
    for seed in range(5):
        assert [part.fixed for part in FSNAS().parts(space, random.Random(seed))] == [{2: c} for c in range(4)]
    assert [part.fixed for part in FSNAS(split=0).parts(space, random.Random(0))] == [{0: 0}, {0: 1}]
