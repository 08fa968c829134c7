"""The garbage collector comes back, whatever happened while it was away."""

from __future__ import annotations

import gc

import pytest

from harness import collector


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
