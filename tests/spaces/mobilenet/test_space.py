"""The decisions of the space: its layers, its text, its settings, and what methods make of them."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.components.discovery import component
from harness.components.registries import CLUSTER_RULES, METHODS, SCHEDULES, SPACES
from harness.environment import PROJECT
from harness.errors import InvalidConfiguration
from harness.study.configuration import RunConfig

SPACE: Any = SPACES.get("mobilenet")()
REDUCED: Any = SPACES.get("mobilenet-reduced")()
NOT_SKIPPED = {0, 4, 8, 12, 16, 20}

both = pytest.mark.parametrize("space", [SPACE, REDUCED], ids=["whole", "reduced"])


def test_layers_and_their_choices() -> None:
    assert len(SPACE.choices) == 21 and SPACE.size == 6**6 * 7**15 and not SPACE.enumerable
    assert {layer for layer, count in enumerate(SPACE.choices) if count == 6} == NOT_SKIPPED
    assert SPACE.layers == tuple((layer,) for layer in range(21))
    assert REDUCED.choices == (4, 3, 4, 5, 5, 4, 5, 5) and REDUCED.enumerable


@both
@given(data=st.data())
def test_text_comes_back_as_it_was(space: Any, data: st.DataObject) -> None:
    architecture = data.draw(st.tuples(*(st.integers(0, count - 1) for count in space.choices)))
    text = space.format(architecture)
    assert space.parse(text) == architecture and len(text.split()) == len(space.choices)
    theirs = " ".join("Zero" if word == "skip" else word.replace("e", "_MBConv") for word in text.split())
    assert space.parse(theirs) == architecture
    assert space.architecture(space.index(architecture)) == architecture


def test_text_says_kernel_expansion_and_skip() -> None:
    assert REDUCED.format((0, 2, 1, 4, 2, 3, 0, 4)) == "3x3e3 skip 3x3e6 skip 5x5e3 5x5e6 3x3e3 skip"
    with pytest.raises(InvalidConfiguration, match=r"has 2 layers; an architecture of mobilenet-reduced has 8"):
        REDUCED.parse("3x3e3 skip")
    with pytest.raises(InvalidConfiguration, match=r"layer 0 of mobilenet cannot be 'skip'; allowed: 3x3e3, .*7x7e6$"):
        SPACE.parse("skip " * 21)
    with pytest.raises(InvalidConfiguration, match=r"layer 2 of mobilenet-reduced cannot be '7x7e3'"):
        REDUCED.parse("3x3e3 skip 7x7e3 skip skip 3x3e3 skip skip")


def test_new_networks_are_equal_where_only_the_places_of_skips_differ() -> None:
    skip = 6
    one = (0, skip, 1, 2, *(0,) * 16, 3)
    other = (0, 1, skip, 2, *(0,) * 16, 3)
    swapped = (0, 2, skip, 1, *(0,) * 16, 3)
    assert SPACE.network_class(one) == SPACE.network_class(other) == (0, 1, 2, skip, *(0,) * 16, 3)
    assert SPACE.network_class(swapped) != SPACE.network_class(one)
    assert SPACE.function_class(one) == one != other == SPACE.canonical(other)  # in a supernet their weights differ


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"stage1_width": 28}, "network.stage1_width must be 24 or 32, not 28"),
        ({"batch_norm": "group"}, "network.batch_norm is 'group'; allowed: 'tracked'"),
        ({"width_multiplier": 0}, "network.width_multiplier must be above 0"),
        ({"norm_momentum": 0.0}, "network.norm_momentum must be in"),
        ({"squeeze": -1}, "network.squeeze must be from 0 to 1"),
        ({"width": 16}, "no configuration key 'network.width'"),
    ],
)
def test_settings_are_checked(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfiguration, match=message):
        RunConfig.from_json({"space": "mobilenet", "benchmark": None, "network": wrong})


def test_momentum_is_separated_by_the_first_or_the_last_layer() -> None:
    counts = {}
    for name in ("first-layer", "last-layer"):
        clustering = CLUSTER_RULES.get(name)().bind(SPACE, {}, random.Random(0))
        counts[name] = clustering.count, clustering.decisions
        assert clustering.of((0,) * 21) != clustering.of((5,) * 21)
    assert counts == {"first-layer": (6, (0,)), "last-layer": (6, (20,))}


def test_few_shot_splits_the_first_layer_that_has_all_choices() -> None:
    fsnas: Any = METHODS.get("fsnas")
    parts = fsnas().parts(SPACE, random.Random(5))
    assert [part.fixed for part in parts] == [{1: choice} for choice in range(7)]
    assert [part.fixed for part in fsnas().parts(REDUCED, random.Random(5))] == [{1: choice} for choice in range(3)]
    assert [part.fixed for part in fsnas(split=20).parts(SPACE, random.Random(5))] == [{20: c} for c in range(6)]
    # With momentum separation the clusters are those of another layer.
    assert CLUSTER_RULES.get("first-layer")().bind(SPACE, parts[0].fixed, random.Random(0)).decisions == (0,)


def test_fair_paths_of_layers_with_six_and_seven_choices() -> None:
    fair = component("methods.fairnas")
    rng, extra = random.Random(0), Counter[int]()
    assert METHODS.get("fairnas")().paths_per_step(SPACE) == 7
    for _ in range(300):
        paths = fair.fair_paths(SPACE, rng, {})
        for layer, count in enumerate(SPACE.choices):
            times = Counter(path[layer] for path in paths)
            assert set(times) == set(range(count))  # every operation of every layer, at least once
            assert sorted(times.values()) == [1] * 5 + [2] if count == 6 else [1] * 7
        extra[Counter(path[0] for path in paths).most_common(1)[0][0]] += 1
    assert min(extra.values()) > 30 and len(extra) == 6  # and the sixfold layers' seventh path is uniform


@pytest.mark.parametrize("count", ["parameters", "flops"])
def test_calr_spans_the_space(count: str) -> None:
    ratio = SCHEDULES.get("calr")(gamma_prime=3.0, complexity=count).decay_ratio(SPACE)
    _, smallest, _, largest = SPACE.extremes(count)
    assert ratio(smallest) == pytest.approx(3) and ratio(largest) == pytest.approx(1 / 3)


def test_planning_imports_no_torch() -> None:
    script = (
        "import random, sys\n"
        "from harness.components.registries import SPACES\n"
        "from harness.study.configuration import RunConfig\n"
        "for name in ('mobilenet', 'mobilenet-reduced'):\n"
        "    RunConfig.from_json({'space': name, 'benchmark': None})\n"
        "    space = SPACES.get(name)()\n"
        "    one = space.sample(random.Random(0))\n"
        "    space.complexity(one, 'flops'), space.extremes(), space.wiring(one), space.network_class(one)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
