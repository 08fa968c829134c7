"""The decisions of the space: its layers, its text, its mutation and crossover, and what methods make of them."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.components.discovery import component
from harness.components.registries import CLUSTER_RULES, SCHEDULES, SPACES
from harness.components.search import Limits
from harness.environment import PROJECT
from harness.errors import InvalidConfiguration
from harness.study.configuration import RunConfig

SPACE: Any = SPACES.get("autoformer")()
REDUCED: Any = SPACES.get("autoformer-reduced")()


def test_layers_and_their_choices() -> None:
    assert SPACE.choices == (3, 3, *(2,) * 28) and len(SPACE.layers) == 14
    assert SPACE.layers[0] == (2, 3) and SPACE.layers[-1] == (28, 29)  # embedding and depth are in none
    assert not SPACE.enumerable and REDUCED.enumerable
    assert len({REDUCED.canonical(one) for one in REDUCED}) == 4_032 == 3 * (4**3 + 4**4 + 4**5)


@given(data=st.data())
def test_text_says_all_that_matters(data: st.DataObject) -> None:
    architecture = data.draw(st.tuples(*(st.integers(0, count - 1) for count in SPACE.choices)))
    assert SPACE.parse(SPACE.format(architecture)) == SPACE.canonical(architecture)
    assert SPACE.function_class(architecture) == SPACE.canonical(SPACE.canonical(architecture))
    assert len(SPACE.wiring(architecture).blocks) == len(SPACE.transformer(architecture).heads) + 2


def test_text_and_wrong_text() -> None:
    assert REDUCED.format((1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1, 1)) == "28 3h4 4h3.5 3h3.5"
    for wrong in ("", "28", "30 3h4 3h4 3h4", "28 3h4 3h4 3h3", "28 " + "3h4 " * 6, "28 3x4 3h4 3h4"):
        with pytest.raises(
            InvalidConfiguration, match=r"is not an architecture of autoformer-reduced, .* MLP ratio 3.5"
        ):
            REDUCED.parse(wrong)


def test_mutation_is_autoformers() -> None:
    """Each decision is drawn anew with 0.2, embedding and depth with 0.4; what is drawn may be what it was."""
    rng, parent = random.Random(0), SPACE.canonical((0, 2, *(0,) * 28))
    children = [SPACE.mutate(parent, rng, 0.2) for _ in range(4000)]

    def share(decision: int, among: list[Any]) -> float:
        return float(sum(child[decision] != parent[decision] for child in among) / len(among))

    assert share(0, children) == pytest.approx(0.4 * 2 / 3, abs=0.03)
    assert share(1, children) == pytest.approx(0.4 * 2 / 3, abs=0.03)
    assert share(2, children) == share(2, children) == pytest.approx(0.2 / 2, abs=0.03)
    assert all(SPACE.canonical(child) == child for child in children)
    grown = [SPACE.mutate((0, 0, *(0,) * 28), rng, 0.2) for _ in range(4000)]
    assert share(28, [child for child in grown if child[1] == 2]) == pytest.approx(0.5, abs=0.08)  # new blocks: random


def test_only_architectures_of_one_depth_are_crossed() -> None:
    evolution: Any = component("methods.evolution")
    rng = random.Random(3)
    parents = [SPACE.canonical((0, depth, *(choice,) * 28)) for depth in (0, 2) for choice in (0, 1)]
    for _ in range(50):
        child = evolution._crossed(parents, SPACE, rng)
        one, other = (parent for parent in parents if parent[1] == child[1])
        assert all(gene in genes for gene, genes in zip(child, zip(one, other, strict=True), strict=True))
    assert not SPACE.crossable(parents[0], parents[-1])


def test_parents_that_cannot_be_crossed_have_no_child() -> None:
    class Alone(type(SPACE)):  # type: ignore[misc]
        def crossable(self, one: Any, other: Any) -> bool:
            return False

    parents = [SPACE.sample(random.Random(seed)) for seed in range(3)]
    assert component("methods.evolution")._crossed(parents, Alone(), random.Random(0)) in parents


def test_evolution_keeps_both_limits() -> None:
    search: Any = component("methods.evolution").Evolution(
        population=12, generations=4, parents=4, mutations=6, crossovers=4, probability=0.2, keep=20
    )
    limits = Limits(SPACE, {"parameters": (6_500_000, 7_500_000)})
    found = search.find(
        lambda asked, batches=None, generation=None: [float(SPACE.complexity(one)) for one in asked],
        SPACE,
        random.Random(0),
        limits,
    )
    assert len(found) == 20 and all(6_500_000 <= SPACE.complexity(one.architecture) <= 7_500_000 for one in found)


def test_clusters_are_those_of_the_first_block_or_of_the_embedding() -> None:
    by_block, by_embedding = (
        CLUSTER_RULES.get(name)().bind(SPACE, {}, random.Random(0)) for name in ("first-layer", "embedding")
    )
    assert (by_block.count, by_block.decisions) == (4, (2, 3))
    assert (by_embedding.count, by_embedding.decisions) == (3, (0,))
    assert [by_embedding.of((one, *(0,) * 29)) for one in range(3)] == [0, 1, 2]
    with pytest.raises(InvalidConfiguration, match="needs a space with an embedding dimension .* nasbench201 has none"):
        CLUSTER_RULES.get("embedding")().bind(SPACES.get("nasbench201")(), {}, random.Random(0))


def test_calr_spans_the_space_and_ends_at_the_least_rate() -> None:
    schedule = SCHEDULES.get("calr")(gamma_prime=3.0, final=0.01)
    ratio, factor = schedule.decay_ratio(SPACE), schedule.bind(SPACE)
    _, smallest, _, largest = SPACE.extremes()
    assert ratio(smallest) == pytest.approx(3) and ratio(largest) == pytest.approx(1 / 3)
    for one in (smallest, largest):
        assert factor(one, 0.0) == 1.0 and factor(one, 1.0) == pytest.approx(0.01)
        assert factor(one, 0.5) == pytest.approx(0.01 + 0.99 * 0.5 ** ratio(one))
    with pytest.raises(InvalidConfiguration, match=r"schedule.final must be in \[0, 1\], not 2"):
        SCHEDULES.get("calr")(final=2)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"patch_size": 0}, "network.patch_size must be at least 1"),
        ({"pooling": "max"}, "network.pooling is 'max'; allowed: 'mean'"),
        ({"relative_distance": -1}, "network.relative_distance must be at least 1, or 0"),
        ({"drop_path": 1.0}, "network.drop_path must be from 0 to below 1"),
        ({"width": 16}, "no configuration key 'network.width'"),
    ],
)
def test_settings_are_checked(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfiguration, match=message):
        RunConfig.from_json({"space": "autoformer", "benchmark": None, "network": wrong})


def test_planning_imports_no_torch() -> None:
    script = (
        "import random, sys\n"
        "from harness.components.registries import SPACES\n"
        "from harness.study.configuration import RunConfig\n"
        "for name in ('autoformer', 'autoformer-reduced'):\n"
        "    RunConfig.from_json({'space': name, 'benchmark': None})\n"
        "    space = SPACES.get(name)()\n"
        "    one = space.sample(random.Random(0))\n"
        "    space.complexity(one, 'flops'), space.extremes(), space.wiring(one)\n"
        "    space.mutate(one, random.Random(0), 0.5)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
