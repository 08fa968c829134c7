"""A directory and its mirror as one: each run once, with what others have added to the mirror."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.stores.directory.run_directory import declare_invalid, write_ranking
from harness.stores.directory.store import DirectoryStore
from harness.stores.merged import MergedStore
from tests.stored_runs import NO_PREDICTIONS

from .conftest import RESULT, trial


@pytest.fixture
def mirrored(store: DirectoryStore, make_run: Callable[..., Path], tmp_path: Path) -> tuple[MergedStore, Path]:
    """One run in both places, and one in the other only; the copy of the first there."""
    path = make_run()
    make_run(seed=1)
    other = tmp_path / "other"
    shutil.copytree(store.path, other)
    shutil.rmtree(next(store.path.glob(f"{trial(1).key[:16]}-*")))
    return MergedStore(store, DirectoryStore(other)), other / path.name


def test_each_run_once(mirrored: tuple[MergedStore, Path]) -> None:
    store, copy = mirrored
    assert [run.counts for run in store.runs()] == [True, True] and len(store.ids()) == 2
    far = store.done(trial(1).key)
    assert far is not None and store.metrics(far)["train_loss"] and store.read(far, "weights.pt") == b"weights"


def test_a_run_declared_invalid_in_the_mirror_does_not_count(mirrored: tuple[MergedStore, Path]) -> None:
    store, copy = mirrored
    declare_invalid(copy, "wrong data")
    assert store.done(trial().key) is None
    assert [run.invalid for run in store.runs() if run.id == copy.name] == ["wrong data"]


def test_rankings_that_only_the_mirror_has_count_after_the_runs_own(mirrored: tuple[MergedStore, Path]) -> None:
    store, copy = mirrored
    one = trial()
    write_ranking(copy, "f" * 16, one.config.json(), RESULT, {}, NO_PREDICTIONS)
    found = store.done(one.key)
    assert found is not None and list(found.rankings) == [one.ranking_key, "f" * 16]
    assert found.own_ranking == one.ranking_key
