"""The rule for options that are added later: at their default, they are not in the text that identifies a trial."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from harness.components.described import shown
from harness.components.method import Method
from harness.components.option import added, document
from harness.components.registries import METHODS
from harness.study.configuration import RunConfig


@dataclass(frozen=True)
class Before(Method):
    """A method as runs were stored with it."""

    size: int = 2

    def paths(self, training: Any) -> list[Any]:
        return [training.source.draw(training.rng)]


@dataclass(frozen=True)
class After(Before):
    """The same method with two more options."""

    later: float = added(0.5)
    more: tuple[int, ...] = added((1, 2))


@pytest.fixture
def methods() -> Iterator[None]:
    METHODS.register("before")(Before)
    METHODS.register("after")(After)
    yield
    del METHODS.entries["before"], METHODS.entries["after"]


def method(**options: Any) -> dict[str, Any]:
    text: dict[str, Any] = RunConfig.from_json({"method": {"name": "after", **options}}).json()["method"]
    return {key: value for key, value in text.items() if key != "name"}


def test_an_option_that_is_added_later_is_in_the_text_only_where_it_says_something(methods: None) -> None:
    before = RunConfig.from_json({"method": "before"}).json()["method"]
    assert method() == method(later=0.5) == method(more=[1, 2]) == {"size": before["size"]}
    assert method(later=0.25) == {"size": 2, "later": 0.25}
    assert method(more=[3]) == {"size": 2, "more": [3]}


@pytest.mark.parametrize("options", [{}, {"later": 0.25}, {"more": [3], "size": 7}])
def test_a_text_without_the_option_is_read_back_with_its_default(methods: None, options: dict[str, Any]) -> None:
    config = RunConfig.from_json({"method": {"name": "after", **options}})
    again = RunConfig.from_json(config.json())
    assert again == config and again.canonical() == config.canonical()
    built: After = again.method.build(METHODS, "method")
    assert (built.later, built.more) == (options.get("later", 0.5), tuple(options.get("more", (1, 2))))


def test_a_value_is_shown_as_it_is_typed() -> None:
    assert [shown(value) for value in ("τ", {"Größe": 1}, None)] == ["τ", '{"Größe": 1}', "null"]


def test_sections_follow_the_same_rule() -> None:
    plain, half = RunConfig().json(), RunConfig.from_json({"train": {"precision": "bfloat16"}}).json()
    assert "precision" not in plain["train"] and half["train"]["precision"] == "bfloat16"
    assert "retrain" not in plain and "retrain" in RunConfig.from_json({"retrain": {}}).json()
    assert document({"a": [After(later=1.0)]}) == {"a": [{"size": 2, "later": 1.0}]}
