"""NAS-Bench-201 on paper: numbers, strings, counts, neighbours, classes. No network is run here.

The expected figures are those of the benchmark and of independent counts, to the digit; the networks'
own counts are compared with these formulas in `test_nasbench201_networks.py`.
"""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import product
from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.components.discovery import component
from harness.components.registries import SPACES
from harness.components.space import Architecture
from harness.errors import InvalidConfiguration
from tests.official_files import string_key

cell = component("spaces.nasbench201.cell")
classes = component("spaces.nasbench201.classes")

SPACE = SPACES.get("nasbench201")()
NONE, SKIP, CONV1X1, CONV3X3, POOL = range(5)
EDGES = [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]

architectures = st.tuples(*[st.integers(0, 4)] * 6)


@pytest.fixture(scope="module")
def function_classes() -> dict[Architecture, Architecture]:
    return {architecture: SPACE.function_class(architecture) for architecture in SPACE}


@pytest.fixture(scope="module")
def network_classes() -> dict[Architecture, Architecture]:
    return {architecture: SPACE.network_class(architecture) for architecture in SPACE}


# --- numbers ------------------------------------------------------------------------------------


def test_the_space_holds_five_to_the_sixth_architectures_in_order_of_their_numbers() -> None:
    assert SPACE.size == 15_625
    assert [SPACE.index(architecture) for architecture in SPACE] == list(range(15_625))


@pytest.mark.parametrize(
    ("architecture", "number"),
    [
        ((0, 0, 0, 0, 0, 0), 0),
        ((0, 0, 0, 0, 0, 1), 1),
        ((0, 0, 0, 0, 1, 0), 5),
        ((1, 0, 0, 0, 0, 0), 3125),
        ((3, 3, 3, 3, 3, 3), 11_718),
        ((4, 4, 4, 4, 4, 4), 15_624),
    ],
)
def test_the_number_is_base_five_with_the_first_edge_most_significant(architecture: Architecture, number: int) -> None:
    assert SPACE.index(architecture) == number
    assert SPACE.architecture(number) == architecture


@settings(deadline=None)
@given(number=st.integers(0, 15_624))
def test_number_and_architecture_are_inverse(number: int) -> None:
    assert SPACE.index(SPACE.architecture(number)) == number


@pytest.mark.parametrize("number", [-1, 15_625])
def test_a_number_outside_the_space_is_refused_with_the_range(number: int) -> None:
    with pytest.raises(InvalidConfiguration, match=f"0 to 15624, not {number}"):
        SPACE.architecture(number)


@pytest.mark.parametrize(
    ("architecture", "message"),
    [
        ((0, 0, 0, 0, 0), "has 5 decisions; an architecture of nasbench201 has 6"),
        ((0, 0, 0, 0, 0, 0, 0), "has 7 decisions"),
        ((0, 0, 5, 0, 0, 0), "decision 2 of nasbench201 takes 0 to 4, not 5"),
        ((0, 0, 0, 0, 0, -1), "decision 5 of nasbench201 takes 0 to 4, not -1"),
    ],
)
@pytest.mark.usefixtures("function_classes", "network_classes")
def test_every_use_of_a_tuple_outside_the_space_is_refused(architecture: Architecture, message: str) -> None:
    uses = (SPACE.check, SPACE.index, SPACE.format, SPACE.complexity, SPACE.function_class, SPACE.network_class)
    for use in uses:
        with pytest.raises(InvalidConfiguration, match=message):
            use(architecture)


def test_samples_are_uniform_and_keep_the_fixed_decisions() -> None:
    rng = random.Random(0)
    samples = [SPACE.sample(rng, fixed={0: 3, 4: 1}) for _ in range(2000)]
    assert {sample[0] for sample in samples} == {3}
    assert {sample[4] for sample in samples} == {1}
    for decision in (1, 2, 3, 5):
        counts = [sum(sample[decision] == choice for sample in samples) for choice in range(5)]
        assert min(counts) > 320  # 400 expected; 320 is 4.5 standard deviations away
    assert len(set(samples)) > 550  # of 625: the free decisions are independent


# --- strings ------------------------------------------------------------------------------------


def test_the_benchmarks_string_of_a_known_architecture() -> None:
    text = "|nor_conv_3x3~0|+|none~0|avg_pool_3x3~1|+|skip_connect~0|nor_conv_1x1~1|nor_conv_3x3~2|"  # every operation
    assert SPACE.parse(text) == (CONV3X3, NONE, POOL, SKIP, CONV1X1, CONV3X3)
    assert SPACE.format((CONV3X3, NONE, POOL, SKIP, CONV1X1, CONV3X3)) == text


@settings(deadline=None)
@given(architecture=architectures)
def test_parse_undoes_format(architecture: Architecture) -> None:
    assert SPACE.parse(SPACE.format(architecture)) == architecture


GOOD = "|none~0|+|none~0|skip_connect~1|+|none~0|skip_connect~1|nor_conv_3x3~2|"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param(GOOD.replace("nor_conv_3x3", "nor_conv_5x5"), id="wrong operation"),
        pytest.param(GOOD.replace("|none~0|+", "|None~0|+"), id="capital letter"),
        pytest.param(GOOD.replace("|none~0|+", "| none~0|+"), id="blank before an operation"),
        pytest.param(GOOD.replace("3x3~2", "3x3~1"), id="wrong node"),
        pytest.param(GOOD.replace("3x3~2", "3x3~02"), id="node with a leading zero"),
        pytest.param(GOOD.replace("3x3~2", "3x3~²"), id="another character for two"),
        pytest.param(GOOD.replace("3x3~2", "3x3"), id="no node"),
        pytest.param(GOOD.replace("|nor_conv_3x3~2|", "|"), id="missing edge"),
        pytest.param(GOOD.partition("+")[2], id="missing node"),
        pytest.param(GOOD.replace("nor_conv_3x3", ""), id="missing operation"),
        pytest.param(GOOD[:-1], id="missing last bar"),
        pytest.param(GOOD[1:], id="missing first bar"),
        pytest.param(GOOD.replace("+", "", 1), id="missing plus"),
        pytest.param(GOOD.replace("|none~0|+", "none~0||+"), id="operation before its bar"),
        pytest.param(GOOD.replace("|none~0|+|none~0|", "||+|none~0none~0|"), id="operations in the wrong place"),
        pytest.param(GOOD + "none~3|", id="one edge more"),
        pytest.param(GOOD + "x", id="junk at the end"),
        pytest.param(GOOD + "\n", id="newline at the end"),
        pytest.param("\n" + GOOD, id="newline at the start"),
        pytest.param(GOOD.replace("+", "+\n", 1), id="newline inside"),
        pytest.param(GOOD + GOOD, id="twice"),
    ],
)
def test_a_string_that_is_no_architecture_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidConfiguration) as refusal:
        SPACE.parse(text)
    message = str(refusal.value)
    assert repr(text) in message
    assert "expected |op~0|+|op~0|op~1|+|op~0|op~1|op~2|" in message or "avg_pool_3x3" in message


def test_an_unknown_operation_is_named_and_the_known_ones_are_listed() -> None:
    with pytest.raises(
        InvalidConfiguration, match="unknown operation 'nor_conv_7x7'.*none, skip_connect, nor_conv_1x1"
    ):
        SPACE.parse(GOOD.replace("nor_conv_3x3", "nor_conv_7x7"))


@settings(deadline=None)
@given(architecture=architectures, source=st.data())
def test_only_what_format_writes_is_read(architecture: Architecture, source: st.DataObject) -> None:
    """Moves one piece of a good string elsewhere, or drops or doubles it."""
    text = SPACE.format(architecture)
    start = source.draw(st.integers(0, len(text)))
    end = source.draw(st.integers(start, min(start + 16, len(text))))
    rest = text[:start] + text[end:]
    place = source.draw(st.integers(0, len(rest)))
    changed = rest[:place] + text[start:end] * source.draw(st.integers(0, 2)) + rest[place:]
    try:
        read = SPACE.parse(changed)
    except InvalidConfiguration:
        return
    assert SPACE.format(read) == changed


# --- counts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "fixed", "per_conv1x1", "per_conv3x3", "largest"),
    [
        ("parameters", 73_306, 28_000, 243_040, 1_531_546),
        ("parameters-released", 72_752, 26_880, 241_920, 1_524_272),
        ("flops", 7_783_050, 3_932_160, 35_389_440, 220_119_690),
    ],
)
def test_counts_to_the_digit(count: str, fixed: int, per_conv1x1: int, per_conv3x3: int, largest: int) -> None:
    assert SPACE.complexity_range(count) == (fixed, largest)
    assert SPACE.complexity((NONE,) * 6, count) == fixed
    assert SPACE.complexity((CONV3X3,) * 6, count) == largest
    for architecture in SPACE:
        n1, n3 = architecture.count(CONV1X1), architecture.count(CONV3X3)
        assert SPACE.complexity(architecture, count) == fixed + per_conv1x1 * n1 + per_conv3x3 * n3


def test_there_are_28_different_parameter_counts() -> None:
    assert len({SPACE.complexity(architecture) for architecture in SPACE}) == 28


def test_an_unknown_way_of_counting_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        InvalidConfiguration, match="'latency' is unknown; allowed: parameters, parameters-released, flops"
    ):
        SPACE.complexity((0,) * 6, "latency")
    assert SPACE.complexity_counts == ("parameters", "parameters-released", "flops")


# --- neighbours ---------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", range(7))
def test_all_neighbours_each_once(changes: int) -> None:
    base = (3, 0, 4, 1, 2, 2)
    found = list(SPACE.neighbours(base, changes))
    assert len(found) == len(set(found)) == comb(6, changes) * 4**changes
    for neighbour in found:
        assert SPACE.check(neighbour) == neighbour
        assert sum(a != b for a, b in zip(base, neighbour, strict=True)) == changes


@settings(deadline=None, max_examples=30)
@given(architecture=architectures, changes=st.integers(0, 6), seed=st.integers(0, 2**32))
def test_a_random_neighbour_is_one_of_them(architecture: Architecture, changes: int, seed: int) -> None:
    assert SPACE.neighbour(architecture, changes, random.Random(seed)) in set(SPACE.neighbours(architecture, changes))


def test_random_neighbours_reach_every_neighbour_alike() -> None:
    rng = random.Random(1)
    counts: dict[Architecture, int] = defaultdict(int)
    for _ in range(4800):
        counts[SPACE.neighbour((3, 0, 4, 1, 2, 2), 1, rng)] += 1
    assert set(counts) == set(SPACE.neighbours((3, 0, 4, 1, 2, 2), 1))
    assert min(counts.values()) > 130  # 200 expected of each of 24; 130 is 5 standard deviations away


@pytest.mark.parametrize("changes", [-1, 7])
def test_more_changes_than_decisions_are_refused(changes: int) -> None:
    message = f"nasbench201 can change 0 to 6 decisions, not {changes}"
    with pytest.raises(InvalidConfiguration, match=message):
        SPACE.neighbour((0,) * 6, changes, random.Random(0))
    with pytest.raises(InvalidConfiguration, match=message):
        list(SPACE.neighbours((0,) * 6, changes))


def test_what_is_not_an_architecture_has_no_neighbours() -> None:
    with pytest.raises(InvalidConfiguration):
        list(SPACE.neighbours((9, 0, 0, 0, 0, 0), 1))


# --- which edges and which architectures are the same ---------------------------------------------


def test_live_edges_are_those_on_a_path_from_input_to_output() -> None:
    """Against all four paths through the cell, written out."""
    number = {edge: place for place, edge in enumerate(EDGES)}
    paths = [[(3, 0)], [(1, 0), (3, 1)], [(2, 0), (3, 2)], [(1, 0), (2, 1), (3, 2)]]
    for architecture in product((NONE, CONV3X3), repeat=6):
        live = {
            number[edge] for path in paths if all(architecture[number[edge]] != NONE for edge in path) for edge in path
        }
        assert cell.live_edges(architecture) == tuple(sorted(live))


def test_class_counts(
    function_classes: dict[Architecture, Architecture], network_classes: dict[Architecture, Architecture]
) -> None:
    assert len(set(function_classes.values())) == 7_548
    assert len(set(network_classes.values())) == 5_044
    assert len({string_key(architecture) for architecture in SPACE}) == 6_466


def test_436_string_classes_mix_different_networks(network_classes: dict[Architecture, Architecture]) -> None:
    mixed: dict[str, set[Architecture]] = defaultdict(set)
    for architecture, representative in network_classes.items():
        mixed[string_key(architecture)].add(representative)
    assert sum(len(networks) > 1 for networks in mixed.values()) == 436


def test_the_representative_is_a_fixed_point_and_the_lowest_number(
    function_classes: dict[Architecture, Architecture], network_classes: dict[Architecture, Architecture]
) -> None:
    for table in (function_classes, network_classes):
        members: dict[Architecture, list[int]] = defaultdict(list)
        for architecture, representative in table.items():
            assert table[representative] == representative
            members[representative].append(SPACE.index(architecture))
        assert all(SPACE.index(representative) == min(numbers) for representative, numbers in members.items())


def test_equal_functions_of_the_supernet_are_equal_networks(
    function_classes: dict[Architecture, Architecture], network_classes: dict[Architecture, Architecture]
) -> None:
    """Taken from the keys themselves: the table of network classes is built on this very claim."""
    for architecture in random.Random(2).sample(list(SPACE), 1500):
        representative = function_classes[architecture]
        if representative != architecture:
            assert classes.network_key(architecture) == classes.network_key(representative)
        assert network_classes[architecture] == network_classes[representative]


@pytest.mark.parametrize(
    ("first", "second", "same_function", "same_network"),
    [
        # 1←0 skip with 3←1 skip adds the same term as 3←0 skip.
        ((SKIP, 0, 0, 0, SKIP, 0), (0, 0, 0, SKIP, 0, 0), True, True),
        # A convolution out of a node that is always zero, and one into a node that nothing uses.
        ((0, 0, CONV3X3, SKIP, 0, SKIP), (0, 0, 0, SKIP, 0, 0), True, True),
        ((CONV1X1, 0, 0, SKIP, 0, 0), (0, 0, 0, SKIP, 0, 0), True, True),
        # Pooling is linear: pooling twice by two ways, and a sum pooled or its terms.
        ((POOL, 0, 0, 0, POOL, 0), (0, POOL, 0, 0, 0, POOL), True, True),
        ((SKIP, SKIP, 0, 0, POOL, POOL), (0, SKIP, 0, POOL, 0, POOL), True, True),
        # The same cell over other edges: other weights of the supernet, the same network.
        ((CONV3X3, 0, 0, 0, SKIP, 0), (0, 0, 0, CONV3X3, 0, 0), False, True),
        ((CONV1X1, 0, 0, 0, CONV3X3, 0), (0, CONV1X1, 0, 0, 0, CONV3X3), False, True),
        # A convolution twice is not two convolutions, nor is its place in the order free.
        ((CONV3X3, 0, SKIP, 0, SKIP, SKIP), (CONV3X3, 0, 0, CONV3X3, SKIP, 0), False, False),
        ((CONV1X1, 0, 0, 0, CONV3X3, 0), (CONV3X3, 0, 0, 0, CONV1X1, 0), False, False),
        # Twice the input is not the input.
        ((SKIP, 0, 0, SKIP, SKIP, 0), (0, 0, 0, SKIP, 0, 0), False, False),
    ],
)
def test_known_pairs(first: Architecture, second: Architecture, same_function: bool, same_network: bool) -> None:
    assert (SPACE.function_class(first) == SPACE.function_class(second)) is same_function
    assert (SPACE.network_class(first) == SPACE.network_class(second)) is same_network
