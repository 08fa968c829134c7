"""What users type after `with` and `--only`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.documents import flatten
from harness.errors import InvalidConfiguration, UnknownName
from harness.study.catalogue import find_studies
from harness.study.overrides import matching, parse_only, parse_updates
from harness.work.plan import make_plan

CONFIGS: list[dict[str, Any]] = [
    {"method": {"name": "spos"}, "clusters": {"name": "none"}, "seed": 0, "rate": 0.5},
    {"method": {"name": "spos"}, "clusters": {"name": "operation", "edges": 1}, "seed": 1, "rate": 0.5},
    {"method": {"name": "fairnas"}, "clusters": {"name": "none"}, "seed": 0, "rate": None},
]


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("a=1", 1),
        ("a=-1.5e-3", -0.0015),
        ("a=spos", "spos"),
        ("a='1'", "1"),
        ("a=True", True),
        ("a=true", True),
        ("a=None", None),
        ("a=null", None),
        ("a=(1,2)", [1, 2]),
        ("a={'name':'spos'}", {"name": "spos"}),
        ("a=", ""),
        ("a=x=y", "x=y"),
        ("a=__import__('os')", "__import__('os')"),
    ],
)
def test_a_value_is_a_literal_or_else_a_string(word: str, value: object) -> None:
    assert parse_updates([word]) == {"a": value}


def test_a_number_that_is_too_large_is_refused() -> None:
    updates = parse_updates([f"train.epochs={'9' * 4000}"])
    with pytest.raises(InvalidConfiguration) as caught:
        make_plan(find_studies("ablation_calr_ms"), "tiny", [], seeds=1, overrides=updates)
    assert str(caught.value) == "train.epochs is too large a number; allowed: up to 9,223,372,036,854,775,807"


@given(st.dictionaries(st.from_regex(r"[a-z]+(\.[a-z]+)?", fullmatch=True), st.integers() | st.booleans()))
def test_updates_come_back_as_they_were(updates: dict[str, object]) -> None:
    updates.pop("seed", None)
    assert parse_updates(f"{key}={value!r}" for key, value in updates.items()) == updates


@pytest.mark.parametrize("word", ["epochs", "=3", "--jobs=2", "a={1,2}", "a=b'x'", "a=1j", "seed=3"])
def test_words_that_are_no_updates_are_refused(word: str) -> None:
    with pytest.raises(InvalidConfiguration, match=word.partition("=")[0] or "not an override"):
        parse_updates([word])


def test_a_filter_takes_several_values_of_a_key_and_several_keys() -> None:
    assert parse_only(["method.name=spos,fairnas,seed=0", "rate=1"]) == {
        "method.name": ["spos", "fairnas"],
        "seed": ["0"],
        "rate": ["1"],
    }
    with pytest.raises(InvalidConfiguration, match="expected key=value"):
        parse_only(["spos"])


@pytest.mark.parametrize(
    ("only", "chosen"),
    [
        ([], [True, True, True]),
        (["method.name=spos"], [True, True, False]),
        (["method_name=spos,seed=0"], [True, False, False]),
        (["method.name=spos,fairnas"], [True, True, True]),
        (["clusters.edges=1"], [False, True, False]),
        (["rate=0.50"], [True, True, False]),
        (["rate=None"], [False, False, True]),
    ],
)
def test_configurations_are_chosen_by_their_values(only: list[str], chosen: list[bool]) -> None:
    assert matching(CONFIGS, parse_only(only)) == chosen


def test_a_filter_that_chooses_nothing_says_what_there_is() -> None:
    with pytest.raises(UnknownName, match="'method.nme'; did you mean 'method.name'"):
        matching(CONFIGS, {"method.nme": ["spos"]})
    with pytest.raises(InvalidConfiguration, match="no trial has it; existing values: fairnas, spos"):
        matching(CONFIGS, {"method.name": ["spso"]})
    with pytest.raises(InvalidConfiguration, match="no trial has all of these"):
        matching(CONFIGS, {"method.name": ["fairnas"], "seed": ["1"]})


def test_nested_keys_are_joined_by_dots() -> None:
    assert flatten({"a": {"b": {"c": 1}}, "d": [1]}) == {"a.b.c": 1, "d": [1]}
