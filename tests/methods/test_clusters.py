"""Cluster rules: how many clusters, which decisions make them, and what is refused."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.components.clustering import Clustering
from harness.components.discovery import component
from harness.components.registries import SPACES
from harness.components.space import Architecture, Space
from harness.errors import InvalidConfiguration

clusters = component("methods.clusters")


def nasbench201() -> Space:
    return SPACES.get("nasbench201")()


def narrowed(*choices: int) -> Space:
    """The space with fewer choices here and there; cluster rules see nothing else of it."""
    space = nasbench201()
    space.choices = choices
    return space


def sizes(clustering: Clustering, space: Space) -> Counter[int]:
    return Counter(clustering.of(architecture) for architecture in space)


@pytest.mark.parametrize(("edges", "count"), [(1, 5), (2, 25), (3, 125), (4, 625)])
def test_operations_at_n_edges_make_five_to_the_n_equal_clusters(edges: int, count: int) -> None:
    space = nasbench201()
    clustering = clusters.ByOperation(edges=edges).bind(space, {}, random.Random(1))
    assert clustering.count == count
    assert sizes(clustering, space) == dict.fromkeys(range(count), 15_625 // count)


@pytest.mark.parametrize(
    ("rule", "count"),
    [
        (clusters.NoClusters(), 1),
        (clusters.ByOperation(), 5),
        (clusters.ByOperation(at=(5, 0)), 25),
        (clusters.ByFirstLayer(), 5),
        (clusters.ByLastLayer(), 5),
        (clusters.Random(), 5),
        (clusters.Random(clusters=7), 7),
    ],
)
def test_every_rule_partitions_the_space(rule: Any, count: int) -> None:
    space = nasbench201()
    clustering = rule.bind(space, {}, random.Random(2))
    assert clustering.count == count
    assert set(sizes(clustering, space)) == set(range(count))


@given(st.integers(0, 2**32), st.sets(st.integers(0, 5), max_size=4), st.data())
def test_edges_are_drawn_from_those_that_are_not_fixed(seed: int, fixed: set[int], data: st.DataObject) -> None:
    space = nasbench201()
    edges = data.draw(st.integers(1, 6 - len(fixed)))
    held = dict.fromkeys(fixed, 2)
    clustering = clusters.ByOperation(edges=edges).bind(space, held, random.Random(seed))
    assert clustering.decisions is not None
    assert len(set(clustering.decisions)) == edges
    assert not fixed & set(clustering.decisions)
    again = clusters.ByOperation(edges=edges).bind(space, held, random.Random(seed))
    assert again.decisions == clustering.decisions


def test_every_edge_has_the_same_chance() -> None:
    space, rng = nasbench201(), random.Random(0)
    drawn = Counter(clusters.ByOperation().bind(space, {3: 0}, rng).decisions for _ in range(1000))
    assert set(drawn) == {(0,), (1,), (2,), (4,), (5,)}
    assert min(drawn.values()) > 150  # 200 expected, deviation 12.6


@given(st.integers(0, 2**32), st.lists(st.integers(0, 15_624), min_size=2, max_size=2))
def test_subnets_share_a_cluster_if_and_only_if_their_operations_there_agree(seed: int, pair: list[int]) -> None:
    space = nasbench201()
    clustering = clusters.ByOperation(edges=2).bind(space, {}, random.Random(seed))
    assert clustering.decisions is not None
    one, other = (space.architecture(index) for index in pair)
    agree = all(one[decision] == other[decision] for decision in clustering.decisions)
    assert (clustering.of(one) == clustering.of(other)) == agree


def test_first_and_last_layer_are_the_outermost_that_can_differ() -> None:
    space, rng = narrowed(1, 3, 2, 4, 5, 1), random.Random(0)
    for fixed, first, last in [({}, 1, 4), ({1: 0}, 2, 4), ({4: 2, 2: 1}, 1, 3)]:
        for rule, decision in [(clusters.ByFirstLayer(), first), (clusters.ByLastLayer(), last)]:
            clustering = rule.bind(space, fixed, rng)
            assert clustering.decisions == (decision,)
            assert clustering.count == space.choices[decision]


def test_clusters_by_decisions_of_different_size_are_numbered_without_gaps() -> None:
    space = narrowed(2, 3, 1, 4)
    clustering = clusters.ByOperation(at=(0, 1, 3)).bind(space, {}, random.Random(0))
    assert clustering.count == 24
    assert sizes(clustering, space) == dict.fromkeys(range(24), 1)


def test_random_clusters_depend_on_chance_alone() -> None:
    space = nasbench201()
    paths: list[Architecture] = [space.architecture(index) for index in range(0, 15_625, 7)]

    def assigned(seed: int) -> list[int]:
        clustering = clusters.Random().bind(space, {}, random.Random(seed))
        assert clustering.decisions is None
        return [clustering.of(path) for path in paths]

    assert assigned(1) == assigned(1)
    same = sum(a == b for a, b in zip(assigned(1), assigned(2), strict=True)) / len(paths)
    assert 0.15 < same < 0.25  # independent: one in five, deviation 0.0085


def test_random_clusters_are_about_equal() -> None:
    space = nasbench201()
    for seed in range(3):
        counted = sizes(clusters.Random().bind(space, {}, random.Random(seed)), space)
        assert all(abs(size - 3125) < 5 * 50 for size in counted.values())  # 5 deviations


@pytest.mark.parametrize("cluster", range(5))
def test_random_clusters_do_not_follow_any_operation(cluster: int) -> None:
    space = nasbench201()
    clustering = clusters.Random().bind(space, {}, random.Random(4))
    members = [a for a in space if clustering.of(a) == cluster]
    for decision in range(6):
        shares = Counter(member[decision] for member in members)
        assert all(abs(shares[choice] / len(members) - 0.2) < 0.04 for choice in range(5))


@pytest.mark.parametrize(
    ("rule", "fixed", "message"),
    [
        (clusters.ByOperation(edges=0), {}, "edges must be 1 to 6 in nasbench201, not 0"),
        (clusters.ByOperation(edges=7), {}, "edges must be 1 to 6 in nasbench201, not 7"),
        (clusters.ByOperation(edges=6), {2: 1}, "edges must be 1 to 5"),
        (clusters.ByOperation(at=()), {}, "must name different decisions"),
        (clusters.ByOperation(at=(1, 1)), {}, "must name different decisions"),
        (clusters.ByOperation(at=(6,)), {}, "decision 6 does not distinguish subnets"),
        (clusters.ByOperation(at=(-1,)), {}, "decision -1 does not distinguish subnets"),
        (clusters.ByOperation(at=(0, 2)), {2: 1}, r"decision 2 does not.*possible: \[0, 1, 3, 4, 5\]"),
        (clusters.Random(clusters=0), {}, "1 to the number of subnets, 15625, not 0"),
        (clusters.Random(clusters=15_626), {}, "15625, not 15626"),
        (clusters.Random(clusters=6), dict.fromkeys(range(5), 0), "1 to the number of subnets, 5, not 6"),
        (clusters.ByFirstLayer(), dict.fromkeys(range(6), 0), "nasbench201 has no free decision"),
        (clusters.ByLastLayer(), dict.fromkeys(range(6), 0), "nasbench201 has no free decision"),
    ],
)
def test_what_cannot_be_clustered_is_refused(rule: Any, fixed: dict[int, int], message: str) -> None:
    with pytest.raises(InvalidConfiguration, match=message):
        rule.bind(nasbench201(), fixed, random.Random(0))
