"""How images are divided: as stored, or as the benchmark's own files say."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.data.cifar import CIFAR10, CIFAR100
from harness.data.fashion_mnist import FASHION_MNIST
from harness.data.imagenet16 import IMAGENET16_120
from harness.data.splits import STORED, Division, drawn, shuffled
from harness.errors import DataError
from tests.data.formats import write_split

DIVISIONS = [CIFAR10.division, CIFAR100.division, IMAGENET16_120.division, FASHION_MNIST.division]
FOUR = Division("four", 3, 1, "four.txt", ("xvalid", "xtest"))

# All that was trained on these data sets was trained on these divisions.
DIGESTS = {
    "cifar10": "dd517cf792116484",
    "cifar100": "62eb0176e1514421",
    "imagenet16-120": "055f182a904701cd",
    "fashion-mnist": "27ce10f91848d070",
}


@pytest.mark.parametrize("division", DIVISIONS, ids=lambda division: division.name)
def test_the_stored_division_is_fixed(division: Division) -> None:
    first, second = division.indices(None)
    assert (len(first), len(second)) == (division.first, division.second)
    assert np.array_equal(np.sort(np.concatenate([first, second])), np.arange(len(first) + len(second)))
    assert hashlib.sha256(first.astype("<i8").tobytes()).hexdigest()[:16] == DIGESTS[division.name]
    # Drawn at random: every tenth of the images gives its share to both.
    shares = np.histogram(first, 10, (0, len(first) + len(second)))[0] / len(first)
    assert shares.min() > 0.08 and shares.max() < 0.12


def test_the_stored_division_is_the_one_that_was_drawn() -> None:
    with np.load(STORED) as stored:
        assert sorted(stored) == sorted(division.name for division in DIVISIONS)
    for division in DIVISIONS[1:3]:
        member = drawn(division.name, division.first + division.second, division.first)
        assert np.array_equal(np.flatnonzero(member), division.indices(None)[0])


def test_the_sizes_are_the_papers() -> None:
    assert [(d.first, d.second) for d in DIVISIONS] == [
        (25_000, 25_000),
        (5_000, 5_000),
        (3_000, 3_000),
        (50_000, 10_000),
    ]


def test_other_sizes_are_drawn() -> None:
    first, second = FOUR.indices(None)
    assert len(first) == 3 and sorted([*first, *second]) == [0, 1, 2, 3]
    assert [part.tolist() for part in FOUR.indices(None)] == [first.tolist(), second.tolist()]


def test_an_order_of_names_is_that_of_their_hashes() -> None:
    names = ["a/1.png", "a/2.png", "b/1.png"]
    order = shuffled(names)
    digests = [hashlib.sha256(names[position].encode()).hexdigest() for position in order]
    assert digests == sorted(digests) and sorted(order) == [0, 1, 2]


def test_a_file_in_the_benchmarks_format(tmp_path: Path) -> None:
    write_split(file := tmp_path / "four.txt", {"xvalid": [3, 0, 2], "xtest": [1]})
    assert json.loads(file.read_text())["xtest"] == ["int", ["1"]]
    first, second = FOUR.indices(file)
    assert (first.tolist(), second.tolist()) == ([3, 0, 2], [1])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not a split file"),
        ("[]", "not a split file"),
        (
            {"train": ["int", ["0"]]},
            'not a split file of the form {"xvalid": ["int", [indices]], "xtest": …} (no key \'xvalid\')',
        ),
        ({"xvalid": ["int", ["0", "a", "2"]], "xtest": ["int", ["3"]]}, "not a split file"),
        ({"xvalid": ["float", ["0", "1", "2"]], "xtest": ["int", ["3"]]}, "its type is 'float'"),
        ({"xvalid": ["int", ["0", "1"]], "xtest": ["int", ["2", "3"]]}, "lists 2 and 2 images; four has 3 and 1"),
        ({"xvalid": ["int", ["0", "1", "1"]], "xtest": ["int", ["3"]]}, "every index from 0 to 3 once"),
        ({"xvalid": ["int", ["0", "1", "4"]], "xtest": ["int", ["3"]]}, "every index from 0 to 3 once"),
        ({"xvalid": ["int", ["0", "1", "-2"]], "xtest": ["int", ["3"]]}, "every index from 0 to 3 once"),
        ({"xvalid": ["int", ["0", "1", "1" * 30]], "xtest": ["int", ["3"]]}, "not a split file"),
    ],
)
def test_split_files_that_are_refused(tmp_path: Path, content: Any, message: str) -> None:
    file = tmp_path / "four.txt"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(DataError) as raised:
        FOUR.indices(file)
    assert str(raised.value).startswith(f"{file}: ") and message in str(raised.value)
