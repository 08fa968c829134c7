"""The effort of a trial that is known before it runs is what its run then counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.components.registries import DATASETS
from harness.data.inspection import counts_at_hand, image_counts
from harness.study.configuration import Retraining, RunConfig
from harness.training.trial import retrain_trial, run_trial
from harness.work.effort import Effort, effort
from tests.toy import toy_config

FAIRNAS, FSNAS = {"method": {"name": "fairnas"}}, {"method": {"name": "fsnas"}}


ALL = {"train": {"epochs": 2, "batch_size": 7, "with_valid": True}}


@pytest.mark.parametrize("more", [{}, FAIRNAS, FSNAS, {"train": {"epochs": 2, "batch_size": 7}}, ALL])
def test_passes_and_images_are_those_that_a_run_counts(toy_project: Path, more: dict[str, Any]) -> None:
    config = toy_config(**more)
    cost = run_trial(config).cost
    assert effort(config) == Effort(cost["passes"], cost["images"])  # type: ignore[arg-type]


@pytest.mark.parametrize("with_valid", [False, True])
def test_and_of_a_retraining(toy_project: Path, with_valid: bool) -> None:
    config: RunConfig = replace(toy_config(), retrain=Retraining(epochs=2, batch_size=10, with_valid=with_valid))
    cost = retrain_trial(config, (0, 1, 0)).cost
    assert effort(config) == Effort(cost["passes"], cost["images"])  # type: ignore[arg-type]


def test_a_data_set_without_its_files_may_still_be_counted(toy_project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_DATA", "no such folder")
    assert image_counts("cifar10") == {"train": 25_000, "valid": 25_000, "test": 10_000}
    assert image_counts("cifar100") == {"train": 50_000, "valid": 5_000, "test": 5_000}
    assert image_counts("cifar10-16") == image_counts("cifar10")
    assert image_counts("imagenet16-120") == {"train": 151_700, "valid": 3_000, "test": 3_000}
    assert image_counts("fashion-mnist") == {"train": 50_000, "valid": 10_000, "test": 10_000}
    assert image_counts("folder") is None and effort(replace(toy_config(), dataset="folder")) is None
    assert counts_at_hand("digits") == image_counts("digits")
    assert counts_at_hand("toy") is None and image_counts("toy") is not None  # a user's own, which may load slowly
    assert "toy" in DATASETS
