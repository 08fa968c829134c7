"""A registry's names, suggestions, collisions and lazy targets; and the errors they are told with."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.components.registry import Registry
from harness.errors import (
    BrokenComponent,
    Diverged,
    HarnessError,
    InvalidConfiguration,
    NameCollision,
    UnknownName,
    UserError,
    with_notes,
)

Schedule = Callable[[int], float]


def halving(step: int) -> float:
    """Half as large each step.

    A second paragraph.
    """
    return float(0.5**step)


def constant(step: int) -> float:
    return 1.0


def test_a_decorated_thing_is_returned_unchanged_and_found_by_name() -> None:
    schedules: Registry[Schedule] = Registry("schedule")
    assert schedules.register("halving")(halving) is halving
    schedules.register("constant")(constant)
    assert schedules.get("halving") is halving
    assert schedules.names() == ["constant", "halving"]
    assert "halving" in schedules
    assert "cosine" not in schedules


def test_an_entry_knows_its_place_and_its_first_docstring_line() -> None:
    schedules: Registry[Schedule] = Registry("schedule")
    line = sys._getframe().f_lineno + 1
    schedules.register("halving")(halving)
    schedules.register("constant", summary="Always one")(constant)
    entries = dict(schedules.items())
    assert list(entries) == ["constant", "halving"]  # as `list` shows them
    assert entries["halving"].summary == "Half as large each step."
    assert entries["constant"].summary == "Always one"
    assert entries["halving"].origin == f"{__file__}:{line}"
    assert entries["halving"].module == __name__


def test_an_unknown_name_gets_a_suggestion_and_the_known_names() -> None:
    schedules: Registry[Schedule] = Registry("schedule")
    schedules.register("halving")(halving)
    schedules.register("constant")(constant)
    with pytest.raises(UnknownName) as caught:
        schedules.get("Halvng")
    assert "no schedule is named 'Halvng'; did you mean 'halving'?" in str(caught.value)
    assert "Known: constant, halving" in str(caught.value)
    with pytest.raises(UnknownName) as caught:
        schedules.get("xyz")
    assert "did you mean" not in str(caught.value)


def test_an_empty_registry_says_that_nothing_is_known() -> None:
    with pytest.raises(UnknownName, match="Known: none"):
        Registry[Schedule]("schedule").get("halving")


def test_a_collision_names_both_places() -> None:
    schedules: Registry[Schedule] = Registry("schedule")
    first = sys._getframe().f_lineno + 1
    schedules.register("halving")(halving)
    with pytest.raises(NameCollision) as caught:
        schedules.register("halving")(constant)
    assert f"{__file__}:{first}" in str(caught.value)
    assert f"{__file__}:{first + 2}" in str(caught.value)
    schedules.register("constant")(constant)
    assert schedules.get("constant") is constant
    with pytest.raises(NameCollision, match="two schedule registrations are named 'halving'"):
        schedules.get("halving")


def test_the_same_place_may_register_twice() -> None:
    schedules: Registry[Schedule] = Registry("schedule")
    for _ in range(2):
        schedules.register("halving")(halving)
    assert schedules.names() == ["halving"]


def test_the_decorator_without_a_name_is_explained() -> None:
    schedules: Registry[Schedule] = Registry("schedule")
    with pytest.raises(InvalidConfiguration, match=r'@register\("name"\)'):
        schedules.register(halving)  # type: ignore[call-overload]


def test_a_lazy_target_is_imported_only_by_get(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lazy_target_of_a_test.py").write_text("def schedule(step):\n    return 7.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    schedules: Registry[Schedule] = Registry("schedule")
    schedules.register("seven", lazy="lazy_target_of_a_test:schedule", summary="Seven")
    assert schedules.names() == ["seven"]
    assert dict(schedules.items())["seven"].summary == "Seven"
    assert "seven" in schedules
    assert "lazy_target_of_a_test" not in sys.modules
    try:
        assert schedules.get("seven")(0) == 7.0
        assert schedules.get("seven") is schedules.get("seven")
    finally:
        sys.modules.pop("lazy_target_of_a_test", None)


@pytest.mark.parametrize("target", ["no_colon", ":attribute", "module:"])
def test_a_malformed_lazy_target_is_refused_at_once(target: str) -> None:
    with pytest.raises(InvalidConfiguration, match="module:attribute"):
        Registry[Schedule]("schedule").register("x", lazy=target)


@pytest.mark.parametrize("target", ["no_such_module_anywhere:x", "math:no_such_attribute"])
def test_a_lazy_target_that_is_not_there_names_the_registering_file(target: str) -> None:
    schedules: Registry[Schedule] = Registry("schedule")
    schedules.register("x", lazy=target)
    with pytest.raises(BrokenComponent) as caught:
        schedules.get("x")
    assert __file__ in str(caught.value)
    assert target in with_notes(caught.value)


def test_lookups_prepare_and_registrations_do_not() -> None:
    calls: list[str] = []
    schedules: Registry[Schedule] = Registry("schedule", lambda: calls.append("prepared"))
    schedules.register("halving")(halving)
    assert calls == []
    schedules.get("halving")
    schedules.names()
    schedules.items()
    assert "halving" in schedules
    assert calls == ["prepared"] * 4


def test_errors_are_users_errors_but_for_divergence() -> None:
    assert issubclass(UnknownName, UserError)
    assert issubclass(BrokenComponent, UserError)
    assert issubclass(Diverged, HarnessError)
    assert not issubclass(Diverged, UserError)


def test_divergence_survives_a_process_boundary() -> None:
    error = pickle.loads(pickle.dumps(Diverged(step=12, loss=float("inf"))))
    assert (error.step, error.loss) == (12, float("inf"))
    assert str(error) == "training diverged at step 12: the loss is inf"
