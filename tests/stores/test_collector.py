"""The garbage collector comes back, whatever happened while it was away."""

from __future__ import annotations

import gc

import pytest

from harness.stores import collector


def test_it_is_away_inside_and_back_afterwards() -> None:
    assert gc.isenabled()
    with pytest.raises(ValueError), collector.paused():
        with collector.paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
        raise ValueError
    assert gc.isenabled()


def test_who_lives_without_it_goes_on_so() -> None:
    gc.disable()
    try:
        with collector.paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_is_made_meanwhile_is_old_afterwards_and_what_others_froze_stays_frozen() -> None:
    with collector.paused():
        made: list[list[int]] = [[] for _ in range(5000)]
    young = {id(one) for generation in (0, 1) for one in gc.get_objects(generation)}
    assert young.isdisjoint(map(id, made))
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with collector.paused():
            pass
        assert gc.get_freeze_count() == frozen
    finally:
        gc.unfreeze()
