"""Images and tables that are not here: what stored runs say of them is a value, and no process remembers anything."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harness.components.code import RecordedCode
from harness.errors import DataError
from harness.stores.checkpoints import Checkpoint
from harness.stores.directory.store import DirectoryStore
from harness.study import trial
from harness.study.configuration import COMPONENTS, RunConfig
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
    key: str = ""
    rankings: dict[str, dict[str, Any]] = field(default_factory=dict)
    code: dict[str, RecordedCode] = field(default_factory=dict)

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


def test_the_versions_of_retraining_and_of_its_schedule_are_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    config = RunConfig.from_json(CONFIG | {"schedule": "calr", "retrain": {"schedule": "cosine"}})

    def keys() -> tuple[str, str]:
        """Of the retraining, and of the search before it."""
        child = Trial(config, parent="p", given="aa")
        return child.key, child.start.key if child.start else ""

    child, start = keys()
    monkeypatch.setattr(trial, "RETRAINING_VERSION", trial.RETRAINING_VERSION + 1)
    other, same = keys()
    assert other != child and same == start
    monkeypatch.undo()
    assert keys() == (child, start)
    monkeypatch.setattr(COMPONENTS["schedule"].get("cosine"), "version", 99, raising=False)
    other, same = keys()
    assert other != child and same == start


def test_the_lengths_of_hashes_and_the_form_of_ids_stay(tmp_path: Path) -> None:
    """Folders, claims and checkpoints are found by them."""
    one = known(Run("aa", "r1"))
    assert re.fullmatch("[0-9a-f]{64}", one.key)
    digits = Trial(RunConfig.from_json({}))
    assert re.fullmatch("[0-9a-f]{16}", digits.ranking_key)
    run = DirectoryStore(tmp_path).create(digits, "tiny", {})
    assert re.fullmatch(rf"{digits.key[:16]}-1-[0-9a-f]{{8}}", run.id)
    checkpoint = Checkpoint(tmp_path, digits, threads=1, device="cpu")
    assert re.fullmatch(rf"{digits.key[:16]}-[0-9a-f]{{16}}\.\w+", checkpoint.path.name)
