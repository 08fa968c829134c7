"""The decisions of the space: what matters in them, their text, and what methods make of them."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.components.discovery import component
from harness.components.registries import CLUSTER_RULES, METHODS, SCHEDULES, SPACES
from harness.environment import PROJECT
from harness.errors import InvalidConfiguration
from harness.study.configuration import RunConfig

SPACE: Any = SPACES.get("darts")()
WITH_NONE: Any = SPACES.get("darts-none")()
ALL: Any = SPACE.at(SPACE.Network(inputs="all"))
PUBLISHED = (
    "Genotype(normal=[('sep_conv_3x3', 0), ('sep_conv_3x3', 1), ('sep_conv_3x3', 0), ('sep_conv_3x3', 1), "
    "('sep_conv_3x3', 1), ('skip_connect', 0), ('skip_connect', 0), ('dil_conv_3x3', 2)], normal_concat=[2, 3, 4, 5], "
    "reduce=[('max_pool_3x3', 0), ('max_pool_3x3', 1), ('skip_connect', 2), ('max_pool_3x3', 1), ('max_pool_3x3', 0), "
    "('skip_connect', 2), ('skip_connect', 2), ('max_pool_3x3', 1)], reduce_concat=[2, 3, 4, 5])"
)
"""DARTS_V2, as it was published: inputs of a node in either order."""

both = pytest.mark.parametrize("space", [SPACE, WITH_NONE], ids=["seven", "eight"])


def whole(space: Any) -> st.SearchStrategy[tuple[int, ...]]:
    """Any tuple of decisions, those that do not matter included."""
    return st.tuples(*(st.integers(0, count - 1) for count in space.choices))


def test_decisions_and_architectures() -> None:
    cell = (1, 7, 7, 3, 7, 7, 7, 6, 7, 7, 7, 7, 10, 7, 7, 7, 7, 7)
    assert SPACE.choices == cell * 2 and not SPACE.enumerable
    assert SPACE.size == (1 * 3 * 6 * 10 * 7**8) ** 2 and WITH_NONE.size == (180 * 8**8) ** 2
    assert [len(layer) for layer in SPACE.layers] == [3, 4, 5, 6] * 2
    assert sorted(itertools.chain(*SPACE.layers)) == list(range(36))
    assert len(SPACE.operation_decisions) == 28 and SPACE.split == SPACE.operation_decisions[0] == 1


@both
@given(data=st.data())
@settings(max_examples=30)
def test_only_canonical_architectures_are_printed_and_numbered(space: Any, data: st.DataObject) -> None:
    one = data.draw(whole(space))
    same = space.canonical(one)
    assert space.canonical(same) == same == space.function_class(one) == space.network_class(one)
    assert space.parse(space.format(one)) == same and space.format(same) == space.format(one)
    assert space.index(one) == space.index(same) < space.size and space.architecture(space.index(one)) == same
    assert space.complexity(one) == space.complexity(same)
    differing = [decision for decision in range(36) if one[decision] != same[decision]]
    assert not any(space.matters(one, decision) for decision in differing)


@given(data=st.data())
@settings(max_examples=30)
def test_what_matters_is_what_the_text_says(data: st.DataObject) -> None:
    one, decision = data.draw(whole(SPACE)), data.draw(st.integers(0, 35))
    texts = {SPACE.format((*one[:decision], choice, *one[decision + 1 :])) for choice in range(SPACE.choices[decision])}
    assert (len(texts) > 1) == (SPACE.matters(one, decision) and SPACE.choices[decision] > 1)


def test_the_published_text_is_read_in_either_order_and_form() -> None:
    one = SPACE.parse(PUBLISHED)
    text = SPACE.format(one)
    assert text.startswith("Genotype(normal=[('sep_conv_3x3', 0), ('sep_conv_3x3', 1), ('sep_conv_3x3', 0), ")
    assert text.endswith("('max_pool_3x3', 1), ('skip_connect', 2)], reduce_concat=range(2, 6))")
    assert SPACE.parse(text) == one and WITH_NONE.format(WITH_NONE.parse(text)) == text


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("('sep_conv_3x3', 1), ('skip_connect', 0)", "('sep_conv_3x3', 1), ('skip_connect', 1)", "node 4 .* the same"),
        ("('skip_connect', 0), ('dil_conv_3x3', 2)", "('skip_connect', 0), ('dil_conv_3x3', 5)", "of 0 to 4"),
        ("dil_conv_3x3", "conv_7x1_1x7", "normal: edge 7 has the operation 'conv_7x1_1x7'; allowed: max_pool_3x3"),
        ("('sep_conv_3x3', 0), ", "", "normal has 6 edges; a genotype has 8, two per node"),
        ("normal_concat=[2, 3, 4, 5]", "normal_concat=[3, 4, 5]", "normal_concat is .* all nodes are concatenated"),
        ("reduce_concat=[2, 3, 4, 5]", "cost=3", "has the fields normal, normal_concat, reduce, reduce_concat"),
        ("Genotype(", "print(", "is not a genotype; expected Genotype"),
        ("('dil_conv_3x3', 2)", "__import__('os')", "normal must be a list of"),
        ("('dil_conv_3x3', 2)", "('dil_conv_3x3', '2')", "must be a number"),
        ("normal=[", "normal=", "is not a genotype"),
    ],
)  # fmt: skip
def test_other_texts_are_refused(old: str, new: str, message: str) -> None:
    assert old in PUBLISHED
    with pytest.raises(InvalidConfiguration, match=message):
        SPACE.parse(PUBLISHED.replace(old, new))


def test_none_is_an_operation_of_the_other_space() -> None:
    text = PUBLISHED.replace("dil_conv_3x3", "none")
    with pytest.raises(InvalidConfiguration, match="'none'; allowed: max_pool_3x3"):
        SPACE.parse(text)
    one = WITH_NONE.parse(text)
    assert "'none'" in WITH_NONE.format(one) and WITH_NONE.is_connected(one)
    assert not WITH_NONE.is_connected((0,) * 36)
    edges = [edge for wiring in WITH_NONE.wiring(one).values() for edge in wiring.edges]
    assert len(edges) == 15  # of 16: none is not drawn


def test_drawing_is_uniform_over_pairs_and_operations() -> None:
    """The rule of randomNAS; edges that are not taken are 0."""
    rng, pairs, operations = random.Random(0), Counter[int](), Counter[int]()
    for _ in range(3000):
        one = SPACE.sample(rng)
        assert SPACE.canonical(one) == one
        pairs[one[12]] += 1
        operations[one[35]] += SPACE.matters(one, 35)
    assert set(pairs) == set(range(10)) and max(pairs.values()) < 1.3 * min(pairs.values())
    assert set(operations) == set(range(7)) and max(operations.values()) < 1.5 * min(operations.values())
    assert SPACE.sample(rng, {1: 4, 35: 6})[1::34] == (4, 6)


def test_steps_of_searches_change_what_matters() -> None:
    rng = random.Random(1)
    one, other = SPACE.sample(rng), SPACE.sample(rng)
    for child in (SPACE.mutate(one, rng, 0.3), SPACE.crossover(one, other, rng), *SPACE.distinct(3, rng)):
        assert SPACE.canonical(child) == child
    assert SPACE.crossover(one, one, rng) == one and SPACE.mutate(one, rng, 1e-9) == one
    near = set(SPACE.neighbours(one, 1))
    assert len(near) == 2 * (2 + 5 + 9 + 8 * 6) and one not in near
    assert SPACE.neighbour(one, 1, rng) in near and {SPACE.canonical(each) for each in near} == near
    revealed = Counter(SPACE.mutate(SPACE.canonical((0,) * 36), rng, 0.5)[8] for _ in range(300))
    assert len(revealed) == 7  # an edge that becomes taken does not always begin with the same operation


def test_momentum_of_an_edge_that_may_be_absent_has_a_cluster_more() -> None:
    by_operation = CLUSTER_RULES.get("operation")
    first = by_operation(at=(1,)).bind(SPACE, {}, random.Random(0))
    assert first.count == 7 and first.decisions == (1,)
    last = by_operation(at=(17,)).bind(SPACE, {}, random.Random(0))  # node 3 from node 2, of 10 pairs in 4
    assert last.count == 8 and last.decisions == (12, 17)
    rng, met = random.Random(0), Counter[int]()
    for _ in range(2000):
        path = SPACE.sample(rng)
        met[last.of(path)] += 1
        assert last.of(path) == (path[17] if SPACE.matters(path, 17) else 7)
    assert set(met) == set(range(8)) and 0.55 < met[7] / 2000 < 0.65
    assert by_operation(at=(17,)).bind(ALL, {}, random.Random(0)).count == 7
    drawn = {by_operation().bind(SPACE, {}, random.Random(seed)).decisions[-1] for seed in range(200)}
    assert drawn <= set(SPACE.operation_decisions) and len(drawn) > 20
    node = CLUSTER_RULES.get("first-layer")().bind(SPACE, {}, random.Random(0))
    assert node.count == 49 and node.decisions == (1, 2)


def test_fair_paths_stay_in_one_cluster_of_such_an_edge() -> None:
    clustering = CLUSTER_RULES.get("operation")(at=(17,)).bind(SPACE, {}, random.Random(0))
    fair, rng = component("methods.fairnas"), random.Random(0)
    assert METHODS.get("fairnas")().paths_per_step(SPACE) == 10
    for _ in range(20):
        held = {decision: rng.randrange(SPACE.choices[decision]) for decision in clustering.decisions}
        assert len({clustering.of(path) for path in fair.fair_paths(SPACE, rng, held)}) == 1


@pytest.mark.parametrize("space", [SPACE, ALL], ids=["two", "all"])
def test_calr_spans_the_paths_that_are_trained(space: Any) -> None:
    ratio = SCHEDULES.get("calr")(gamma_prime=4.0).decay_ratio(space)
    _, smallest, _, largest = space.extremes()
    assert ratio(smallest) == pytest.approx(4) and ratio(largest) == pytest.approx(1 / 4)
    changed = list(largest)
    unused = next(one for one in SPACE.operation_decisions if not SPACE.matters(largest, one)) if space is SPACE else 17
    changed[unused] = 0 if space is ALL else 3
    assert (ratio(tuple(changed)) > 0.2501) == (space is ALL)  # an edge that does not run does not count


def test_darts_discretises_to_the_two_strongest_edges_of_a_node() -> None:
    weights = [[0.1] * count for count in WITH_NONE.choices]
    for decision in (9, 10):  # node 2 of the normal cell, from places 1 and 2
        weights[decision][5] = 0.4
    weights[8][0] = weights[11][0] = 0.9  # none is strong and does not count
    weights[11][3] = 0.3
    one = WITH_NONE.strongest(weights)
    assert WITH_NONE.canonical(one) == one and one[7] == WITH_NONE.parse(WITH_NONE.format(one))[7]
    assert "('sep_conv_5x5', 1), ('sep_conv_5x5', 2)" in WITH_NONE.format(one) and "none" not in WITH_NONE.format(one)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"inputs": "three"}, "network.inputs is 'three'; allowed: 'two'"),
        ({"batch_norm": "group"}, "network.batch_norm is 'group'; allowed: 'batch-statistics'"),
        ({"depth": 2}, "network.depth must be at least 3, one normal and two reduction cells, not 2"),
        ({"width": 0}, "network.width must be at least 1"),
    ],
)
def test_settings_are_checked(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfiguration, match=message):
        RunConfig.from_json({"space": "darts", "benchmark": None, "network": wrong})


def test_both_cells_are_drawn() -> None:
    drawing, values = component("reports.render.drawing"), component("reports.figure_values")
    wirings = SPACE.wiring(SPACE.parse(PUBLISHED))
    assert list(wirings) == ["normal cell", "reduction cell"]
    assert sorted(wirings["normal cell"].edges)[:2] == [(0, 2, "sep 3"), (0, 3, "sep 3")]
    panels = tuple(values.GraphPanel(name, wiring) for name, wiring in wirings.items())
    assert drawing.draw(values.FigureValue("darts", "cells", "Cells", "", panels, (), ()), "svg")


def test_planning_imports_no_torch() -> None:
    script = (
        "import random, sys\n"
        "from harness.components.registries import SPACES\n"
        "space = SPACES.get('darts')()\n"
        "one = space.sample(random.Random(0))\n"
        "space.complexity(one, 'flops'), space.extremes(), space.wiring(one), space.parse(space.format(one))\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
