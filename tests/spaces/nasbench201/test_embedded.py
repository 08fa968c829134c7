"""What the shipped table must be worth: it is the ground truth of everything that runs without a download."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness.cli import main
from harness.components.discovery import component
from harness.components.registries import BENCHMARKS, DATASETS
from harness.training.stages.standalone import StandaloneRecipe
from harness.truth.build import BuildPlan, progress
from harness.truth.reliability import Reliability, reliability
from harness.truth.table import TableBenchmark


@pytest.fixture(scope="module")
def embedded() -> TableBenchmark:
    found = BENCHMARKS.get("digits")()
    assert isinstance(found, TableBenchmark)
    return found


@pytest.fixture(scope="module")
def worth(embedded: TableBenchmark) -> Reliability:
    return reliability(embedded.space, embedded.table)


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
    assert worth.on_selected.split_half >= 0.7


def test_larger_networks_are_hardly_better_on_it(worth: Reliability) -> None:
    assert round(worth.on_all.parameters, 3) == 0.079 and round(worth.on_selected.parameters, 3) == 0.172


def test_it_was_made_on_the_data_set_that_is_shipped(embedded: TableBenchmark) -> None:
    dataset = DATASETS.get("digits")()
    assert embedded.table.provenance["data_checksum"] == dataset.checksum()
    images = {split: len(getattr(dataset, split)) for split in ("train", "valid", "test")}
    assert embedded.table.provenance["images"] == images


def test_it_is_small() -> None:
    assert component("spaces.nasbench201.benchmark.official").EMBEDDED.stat().st_size < 500_000


def test_the_table_of_polar_digits_says_how_to_finish_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    official = component("spaces.nasbench201.benchmark.official")
    monkeypatch.setattr(official, "POLAR", tmp_path / "package" / "digits-polar.npz")
    monkeypatch.setenv("HARNESS_BENCHMARKS", str(tmp_path))
    assert main(["benchmark", "info", "digits-polar"]) == 2
    message = capsys.readouterr().err
    assert "not finished" in message and f"`{official.BUILD_POLAR} --out {tmp_path / 'digits-polar.npz'}`" in message
    # As soon as the file exists, in either place, it is the benchmark.
    for place in (tmp_path / "digits-polar.npz", official.POLAR):
        place.parent.mkdir(exist_ok=True)
        shutil.copy(official.EMBEDDED, place)
        assert main(["benchmark", "info", "digits-polar"]) == 0
        assert capsys.readouterr().out.startswith("benchmark       digits-polar\n")
        place.unlink()


def test_its_stored_pieces_are_of_the_build_that_the_message_names() -> None:
    """So the command continues with them instead of refusing them."""
    official = component("spaces.nasbench201.benchmark.official")
    made = progress(Path(__file__).parents[3] / official.BUILD_POLAR.rpartition(" ")[2])
    assert official.BUILD_POLAR.startswith("harness benchmark build --data digits-polar --seeds 4 --epochs 4 ")
    recipe = StandaloneRecipe(width=4, depth=1, epochs=4, batch_size=64)
    assert made.plan == BuildPlan.make("nasbench201", "digits-polar", recipe, seeds=4, seed=0)
    assert made.total == 5044 and made.table.valid.max() <= 1024 and made.table.test.max() <= 2000
