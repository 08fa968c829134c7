"""What the shipped table must be worth: it is the ground truth of everything that runs without a download."""

from __future__ import annotations

import pytest

from harness.components.discovery import component
from harness.components.registries import BENCHMARKS, DATASETS
from harness.truth.table import Reliability, TableBenchmark, reliability


@pytest.fixture(scope="module")
def embedded() -> TableBenchmark:
    found = BENCHMARKS.get("digits")()
    assert isinstance(found, TableBenchmark)
    return found


@pytest.fixture(scope="module")
def worth(embedded: TableBenchmark) -> Reliability:
    return reliability(embedded, bins=400)


def test_every_architecture_has_an_accuracy(embedded: TableBenchmark) -> None:
    assert embedded.space.name == "nasbench201"
    assert len(embedded.table.classes) == 5044
    for split in ("valid", "test"):
        accuracies = embedded.accuracies("digits", split)
        assert accuracies.shape == (15625,)
        assert ((accuracies >= 0) & (accuracies <= 100)).all()


def test_accuracies_span_fifty_points(worth: Reliability) -> None:
    assert worth.highest - worth.lowest >= 50


def test_a_hundred_bins_are_filled(worth: Reliability) -> None:
    assert worth.selected >= 100


def test_the_halves_of_the_seeds_agree_on_the_selected(worth: Reliability) -> None:
    assert worth.split_half_selected >= 0.7


def test_it_was_made_on_the_data_set_that_is_shipped(embedded: TableBenchmark) -> None:
    dataset = DATASETS.get("digits")()
    assert embedded.table.provenance["data_checksum"] == dataset.checksum()
    images = {split: len(getattr(dataset, split)) for split in ("train", "valid", "test")}
    assert embedded.table.provenance["images"] == images


def test_it_is_small() -> None:
    assert component("spaces.nasbench201.benchmark.official").EMBEDDED.stat().st_size < 500_000
