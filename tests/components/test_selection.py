"""Selection of the architectures that a ranking is judged on, against slow obvious references."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.components.selection import RULES, equal_count, equal_width
from harness.errors import InvalidConfiguration

# Few different values, so that ties are the rule.
accuracies = st.lists(st.integers(0, 64), min_size=1, max_size=60)
percentages = st.lists(st.floats(0, 100, allow_subnormal=False), min_size=1, max_size=60)


def best(members: list[int], values: list[float]) -> int:
    return min(members, key=lambda index: (-values[index], index))


def slow_equal_width(values: list[float], edges: list[float]) -> list[int]:
    chosen = []
    for number, (below, above) in enumerate(zip(edges, edges[1:], strict=False)):
        members = [i for i, value in enumerate(values) if below < value <= above or (number == 0 and value == below)]
        if members:
            chosen.append(best(members, values))
    return chosen


@given(accuracies, st.sampled_from([1, 2, 4, 8, 16, 64, 256]))
def test_equal_width_against_exact_arithmetic(values: list[int], bins: int) -> None:
    """With powers of two the edges are exact numbers, so that values do lie on them."""
    low, high = min(values), max(values)
    members: dict[int, list[int]] = {}
    for index, value in enumerate(values):
        place = ceil(Fraction((value - low) * bins, high - low)) if high > low else 1
        members.setdefault(max(place, 1), []).append(index)
    expected = [best(members[place], [float(v) for v in values]) for place in sorted(members)]
    assert equal_width(np.array(values, float), bins).tolist() == expected


@given(percentages, st.integers(1, 40))
def test_equal_width_against_a_walk_over_the_bins(values: list[float], bins: int) -> None:
    edges = np.linspace(min(values), max(values), bins + 1).tolist()
    assert equal_width(np.array(values), bins).tolist() == slow_equal_width(values, edges)


@given(accuracies, st.data())
def test_equal_count_against_a_sorted_list(values: list[int], data: st.DataObject) -> None:
    bins = data.draw(st.integers(1, len(values)))
    ranked = sorted(range(len(values)), key=lambda index: (values[index], -index))
    small, larger = divmod(len(values), bins)
    expected = []
    for chunk in range(bins):
        size = small + 1 if chunk < larger else small
        expected.append(ranked[size - 1])
        ranked = ranked[size:]
    assert not ranked
    assert equal_count(np.array(values, float), bins).tolist() == expected


@given(percentages, st.integers(1, 60))
def test_both_rules_ascend_and_contain_the_best(values: list[float], bins: int) -> None:
    array = np.array(values)
    for rule in (equal_width, equal_count):
        chosen = rule(array, min(bins, len(values)))
        assert chosen.dtype == np.int64
        assert len(set(chosen.tolist())) == len(chosen) <= bins
        assert (np.diff(array[chosen]) >= 0).all()
        assert chosen[-1] == np.argmax(array)


def test_edges_belong_to_the_bin_below() -> None:
    values = np.array([0.0, 1.0, 1.5, 2.0, 2.5, 4.0])
    assert equal_width(values, 4).tolist() == [1, 3, 4, 5]
    assert equal_width(values, 2).tolist() == [3, 5]


def test_the_minimum_joins_the_first_bin_and_empty_bins_are_left_out() -> None:
    assert equal_width(np.array([10.0, 0.0]), 5).tolist() == [1, 0]
    assert equal_width(np.array([10.0, 0.0, 1.9]), 5).tolist() == [2, 0]


def test_ties_go_to_the_lowest_index() -> None:
    assert equal_width(np.array([5.0, 9.0, 5.0, 9.0]), 2).tolist() == [0, 1]
    assert equal_count(np.array([5.0, 9.0, 5.0, 9.0]), 2).tolist() == [0, 1]
    assert equal_width(np.full(4, 3.0), 400).tolist() == [0]
    assert equal_count(np.full(4, 3.0), 2).tolist() == [2, 0]


def test_equal_count_makes_as_many_as_asked_for() -> None:
    values = np.random.default_rng(0).permutation(15_625).astype(float)
    chosen = equal_count(values)
    assert len(chosen) == 400
    gaps = np.diff(values[chosen])
    assert set(gaps.tolist()) == {39.0, 40.0}


def test_the_rules_have_names() -> None:
    assert set(RULES) == {"equal-width", "equal-count"}
    assert RULES["equal-width"] is equal_width and RULES["equal-count"] is equal_count


@pytest.mark.parametrize("rule", [equal_width, equal_count])
@pytest.mark.parametrize(
    ("values", "bins", "message"),
    [
        ([1.0, 2.0], 0, "at least 1, not 0"),
        ([1.0, 2.0], -3, "at least 1, not -3"),
        ([], 1, "no accuracies"),
        ([1.0, float("nan"), 2.0], 2, "accuracy 1 is nan"),
        ([1.0, 2.0, float("inf")], 2, "accuracy 2 is inf"),
    ],
)
def test_what_cannot_be_selected_from_is_refused(rule: Any, values: list[float], bins: int, message: str) -> None:
    with pytest.raises(InvalidConfiguration, match=message):
        rule(np.array(values), bins)


def test_more_chunks_than_architectures_are_refused() -> None:
    with pytest.raises(InvalidConfiguration, match="3 architectures cannot be split into 4 chunks"):
        equal_count(np.array([1.0, 2.0, 3.0]), 4)
