"""Tables on disk: the round trip, every kind of damage, and what a table says of its own reliability."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.components.registries import BENCHMARKS, SPACES
from harness.errors import DataError, UnknownName
from harness.metrics import kendall_tau
from harness.truth.reliability import Reliability, agreement, reliability
from harness.truth.table import FORMAT, Table, TableBenchmark


def same(first: Table, second: Table) -> bool:
    return (
        all(np.array_equal(getattr(first, name), getattr(second, name)) for name in ("classes", "valid", "test"))
        and {key: second.provenance.get(key) for key in first.provenance} == first.provenance
    )


@pytest.fixture
def file(tmp_path: Path, toy_table: Table) -> Path:
    path = tmp_path / "a folder" / "made.npz"
    toy_table.write(path)
    return path


def stored(path: Path) -> dict[str, Any]:
    """The arrays of a table's file, to be put back changed."""
    with np.load(path) as found:
        return dict(found)


def refused(path: Path) -> str:
    with pytest.raises(DataError) as refusal:
        Table.read(path)
    assert str(refusal.value).startswith(f"{path}: ")
    return str(refusal.value)


def test_round_trip(file: Path, toy_table: Table) -> None:
    found = Table.read(file)
    assert same(toy_table, found) and found.seeds == 2
    assert found.provenance["format"] == FORMAT and found.provenance["checksum"] == toy_table.checksum()
    assert [other.name for other in file.parent.iterdir()] == ["made.npz"]
    found.write(file)  # over itself
    assert same(found, Table.read(file))


def test_any_damaged_byte_is_noticed(file: Path, toy_table: Table) -> None:
    """Or does not matter: a zip file has dates and other fields that nobody reads."""
    whole = file.read_bytes()
    refusals = 0
    for place in range(0, len(whole), 3):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            assert same(toy_table, Table.read(file)), f"byte {place} of {len(whole)}"
        except DataError as refusal:
            assert str(refusal).startswith(f"{file}: ")
            refusals += 1
    assert refusals > len(whole) / 3 / 2


def test_a_truncated_file_is_refused(file: Path) -> None:
    whole = file.read_bytes()
    for length in (0, 1, 10, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:length])
        assert "not a readable benchmark table" in refused(file)


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    assert "no such table; make it with `harness benchmark build`" in refused(tmp_path / "none.npz")


def test_a_folder_a_text_and_another_array_are_no_tables(tmp_path: Path) -> None:
    assert "not a readable benchmark table" in refused(tmp_path)
    (tmp_path / "text.npz").write_text("accuracy: 94.37")
    assert "not a readable benchmark table" in refused(tmp_path / "text.npz")
    np.save(tmp_path / "array.npy", np.arange(3))
    assert "not a readable benchmark table" in refused(tmp_path / "array.npy")
    np.savez(tmp_path / "other.npz", images=np.arange(3))
    assert "not a readable benchmark table" in refused(tmp_path / "other.npz")


def test_changed_numbers_do_not_match_the_checksum(file: Path) -> None:
    arrays = stored(file)
    arrays["test"][3, 1] += 1
    np.savez_compressed(file, **arrays)
    assert "do not match their checksum" in refused(file)


def test_numbers_of_another_shape_are_refused(file: Path) -> None:
    """The checksum is one of bytes: nine rows of two are also six of three."""
    arrays = stored(file)
    np.savez_compressed(file, **{**arrays, "valid": arrays["valid"].reshape(6, 3)})
    assert "(9,) classes" in refused(file)


@pytest.mark.parametrize(
    ("provenance", "message"),
    [
        ({"format": FORMAT + 1, "checksum": "?"}, f"newer version (format {FORMAT + 1}, known: {FORMAT})"),
        ({"format": FORMAT}, "checksum"),
        ({"checksum": "?"}, "no format number"),
        ({"format": "new"}, "no format number"),
        ([], "no format number"),
    ],
)
def test_what_the_provenance_must_say(file: Path, provenance: object, message: str) -> None:
    np.savez_compressed(file, **{**stored(file), "provenance": np.array(json.dumps(provenance))})
    assert message in refused(file)


def test_a_missing_class_is_named(toy_project: Path, toy_table: Table) -> None:
    lacking = Table(toy_table.classes[:-1], toy_table.valid[:-1], toy_table.test[:-1], toy_table.provenance)
    with pytest.raises(DataError) as refusal:
        TableBenchmark("half.npz", SPACES.get("toy")(), lacking)
    assert "half.npz" in str(refusal.value) and "(2, 1, 1)" in str(refusal.value) and "8 classes" in str(refusal.value)


def test_every_architecture_has_the_mean_of_its_class(toy_project: Path) -> None:
    benchmark: TableBenchmark = BENCHMARKS.get("toy")()
    for architecture in benchmark.space:
        number = benchmark.space.index(architecture) if architecture[0] else 0
        assert benchmark.accuracy(architecture, "toy") == pytest.approx(100 * (4 * number + 2) / 60)
        valid = [(4 * number + 1) // 2, (4 * number + 3) // 2]
        assert benchmark.accuracy(architecture, "toy", "valid") == pytest.approx(100 * sum(valid) / 2 / 50)
    assert benchmark.by_seed("toy").shape == (12, 2)
    with pytest.raises(UnknownName, match="no data set of benchmark toy is named 'cifar10'"):
        benchmark.accuracies("cifar10")
    with pytest.raises(UnknownName, match="no split is named 'train'"):
        benchmark.accuracies("toy", "train")


def made_up(toy_table: Table, columns: list[list[int]]) -> Reliability:
    """The reliability of the toy's table with these correct answers (of 60) per seed for its nine networks."""
    correct = np.array(columns, np.uint16).T
    return reliability(SPACES.get("toy")(), replace(toy_table, valid=correct, test=correct))


def tau_of_sizes() -> float:
    """τ of the toy's parameters with accuracies that rise with the class."""
    space = SPACES.get("toy")()
    return kendall_tau([space.complexity(one) for one in space], [0] * 4 + list(range(4, 12)))


UP = [0, 6, 12, 18, 24, 30, 36, 42, 48]


def test_reliability_of_seeds_that_agree(toy_project: Path, toy_table: Table) -> None:
    worth = made_up(toy_table, [UP, [value + 6 for value in UP]] * 2)
    assert [worth.lowest, worth.highest] == pytest.approx([5, 85])
    # Twelve architectures, the first four of one class: the 6th has 12 and 18, the 7th 18 and 24.
    assert worth.median == pytest.approx(100 * (15 + 21) / 2 / 60)
    assert worth.seed_deviation == pytest.approx(100 * math.sqrt(12) / 60)  # four values, two pairs 6 apart
    assert worth.selected == 9
    for found in (worth.on_selected, worth.on_all):
        assert [found.split_half, found.seed_pair, found.whole, found.ceiling] == pytest.approx([1] * 4)
    assert worth.on_all.parameters == pytest.approx(tau_of_sizes())


@pytest.mark.parametrize("seeds", [2, 3, 4])
def test_reliability_takes_all_ways_to_halve(seeds: int, toy_project: Path, toy_table: Table) -> None:
    """The last seed is the reverse of the others, and so strong that its half is reversed with it.

    Two halves then never agree, however the seeds are divided. Of the single seeds, only the pairs with
    the last one disagree.
    """
    weak = [20 + number for number in range(9)]
    strong = [60 - 5 * number for number in range(9)]
    worth = made_up(toy_table, [weak] * (seeds - 1) + [strong])
    assert worth.on_selected.split_half == pytest.approx(-1)
    assert worth.on_all.split_half == pytest.approx(-1)
    assert worth.on_all.whole == worth.on_all.ceiling == 0
    agreeing = math.comb(seeds - 1, 2)
    assert worth.on_selected.seed_pair == pytest.approx((2 * agreeing - math.comb(seeds, 2)) / math.comb(seeds, 2))


def test_three_seeds_are_divided_in_three_ways(toy_project: Path, toy_table: Table) -> None:
    """Two rising seeds and a weak falling one: only the division that leaves it alone disagrees."""
    falling = [20 - 2 * number for number in range(9)]
    worth = made_up(toy_table, [falling, UP, UP])
    # {0} | {1, 2}: −1. {1} | {0, 2}: +1. {2} | {0, 1}: +1.
    assert worth.on_selected.split_half == pytest.approx(1 / 3)


def test_one_seed_says_nothing_of_its_reliability(toy_project: Path, toy_table: Table) -> None:
    worth = made_up(toy_table, [UP])
    assert worth.highest == pytest.approx(80) and worth.selected == 9
    unknown = (worth.on_all.split_half, worth.on_all.seed_pair, worth.on_all.whole, worth.on_all.ceiling)
    assert all(map(math.isnan, (worth.seed_deviation, worth.signal, *unknown)))
    assert worth.on_all.parameters == pytest.approx(tau_of_sizes())


def test_the_mean_of_all_seeds_agrees_better_than_halves_and_the_truth_better_still(
    toy_project: Path, toy_table: Table
) -> None:
    """By theory: normal noise as strong as the differences between networks, two seeds."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(10_000, 1))
    first, second = (truth + rng.normal(size=(10_000, 2))).T, (truth + rng.normal(size=(10_000, 2))).T
    found = agreement(first.T, truth[:, 0])
    assert found.split_half == pytest.approx(1 / 3, abs=0.03)  # Greiner: correlation 1/2
    assert found.whole == pytest.approx(kendall_tau(first.mean(0), second.mean(0)), abs=0.03)
    assert found.ceiling == pytest.approx(kendall_tau(first.mean(0), truth[:, 0]), abs=0.03)


def test_the_signal_is_the_deviation_of_the_truth_in_standard_errors(toy_project: Path, toy_table: Table) -> None:
    worth = made_up(toy_table, [UP, [value + 6 for value in UP]] * 2)
    connected = [0] * 4 + UP[1:]  # the first four architectures are one class
    between = np.var([value + 3 for value in connected], ddof=1)
    error = 12 / 4  # four seeds, two pairs 6 apart: variance 12
    assert worth.signal == pytest.approx(math.sqrt((between - error) / error))
