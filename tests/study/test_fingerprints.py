"""Images and tables that are not here: what stored runs say of them is a value, and no process remembers anything."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harness.errors import DataError
from harness.study.configuration import RunConfig
from harness.study.fingerprints import NOT_HERE, Fingerprints
from harness.study.trial import Trial

CONFIG = {"dataset": "cifar10", "benchmark": "nasbench201"}


@dataclass
class Run:
    """A stored run that was made with these images and has this ranking."""

    images: str
    own_ranking: str
    counts: bool = True
    asked: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def trial(self) -> dict[str, Any]:
        return {"config": RunConfig.from_json(CONFIG).json(), "images": self.images}


@pytest.fixture(autouse=True)
def no_files(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither images nor tables are here."""
    monkeypatch.delenv("HARNESS_BENCHMARKS", raising=False)


def known(*runs: Run) -> Trial:
    return Trial.of(RunConfig.from_json(CONFIG), Fingerprints.of(runs))


def test_a_trial_is_known_by_what_it_was_made_with_and_not_by_what_was_read_before() -> None:
    unknown = Trial.of(RunConfig.from_json(CONFIG))
    assert (unknown.images, unknown.ranking_key) == (NOT_HERE, NOT_HERE)
    first, second = known(Run("aa", "r1")), known(Run("bb", "r2"))
    assert (first.images, first.ranking_key) == ("aa", "r1")
    assert (second.images, second.ranking_key) == ("bb", "r2")
    assert len({unknown.key, first.key, second.key}) == 3
    again = Trial.of(RunConfig.from_json(CONFIG))
    assert (again.key, again.ranking_key) == (unknown.key, NOT_HERE)


def test_other_seeds_and_children_are_made_with_the_same() -> None:
    first = known(Run("aa", "r1"))
    assert first.with_seed(3).images == "aa" and first.with_seed(3).key != first.key
    child = Trial.of(RunConfig.from_json(CONFIG | {"retrain": {}}), first.known)
    assert child.parent == f"{first.key}-r1"
    assert child.with_seed(3).parent == f"{first.with_seed(3).key}-r1"


def test_runs_that_do_not_agree_are_an_error_that_says_so() -> None:
    mixed = known(Run("aa", "r1"), Run("bb", "r2"))
    with pytest.raises(DataError, match="made with 2 different versions"):
        _ = mixed.images
    with pytest.raises(DataError, match="judged by 2 versions"):
        _ = mixed.ranking_key
    assert known(Run("aa", "r1"), Run("aa", "r2", counts=False)).ranking_key == "r1"
