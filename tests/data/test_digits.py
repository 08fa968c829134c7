"""The embedded data set, and what a data set must fulfil."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.components.dataset import DataSet, Split
from harness.components.registries import DATASETS
from harness.data.digits import LARGE, POLAR, SOURCE, Recipe, _enlarged, make
from harness.errors import DataError

# Benchmark tables carry this checksum: whoever changes the images must build the tables again.
CHECKSUM = "52862dd4e6d08ed6df29e5a09d3c9ea224a288fb6ed42ee679036e47d4198c39"
LARGE_CHECKSUM = "30c807dc7bf45df8cdb254c6e21327e96869cbcc3145a90c76ad0d1ce333c916"
POLAR_CHECKSUM = "13f9aa60b8544587a357d5b75823b1d5d4f33b1217eca77ee86f215d8f1fa4ff"

SPLITS = ("train", "valid", "test")


@pytest.fixture(scope="module")
def digits() -> DataSet:
    loaded = DATASETS.get("digits")()
    assert isinstance(loaded, DataSet)
    return loaded


def sources(split: str) -> list[int]:
    """Which packaged digit each of a split's first images shows: without margin and noise it can be read off."""
    with np.load(SOURCE) as stored:
        numbers = {digit.tobytes(): number for number, digit in enumerate(stored["images"])}
    images, _ = make(Recipe(canvas=8, noise=0.0))[split]
    return [numbers[((image[0] - 48) // 10).tobytes()] for image in images]


def test_the_packaged_digits_are_scikit_learns() -> None:
    from sklearn.datasets import load_digits

    theirs = load_digits()
    with np.load(SOURCE) as stored:
        assert np.array_equal(stored["images"], theirs.images)
        assert np.array_equal(stored["labels"], theirs.target)
        assert len(np.unique(stored["images"], axis=0)) == 1797  # no digit is there twice


def test_the_images_are_the_same_everywhere_and_always(digits: DataSet) -> None:
    assert digits.checksum() == CHECKSUM
    assert DATASETS.get("digits")().checksum() == CHECKSUM


def test_another_seed_gives_other_images(digits: DataSet) -> None:
    images, _ = make(Recipe(seed=1))["train"]
    assert not np.array_equal(images, digits.train.images)


def test_a_checksum_covers_every_split_the_labels_and_their_use(digits: DataSet) -> None:
    seen = {digits.checksum()}
    for name in SPLITS:
        split: Split = getattr(digits, name)
        images, labels = split.images.copy(), split.labels.copy()
        images[-1, 0, 0, 0] ^= 1
        labels[-1] = (labels[-1] + 1) % 10
        for changed in (Split(images, split.labels), Split(split.images, labels)):
            change: dict[str, Any] = {name: changed}
            seen.add(replace(digits, **change).checksum())
    uses: list[dict[str, Any]] = [
        {"classes": 11},
        {"mean": (1.0,)},
        {"std": (1.0,)},
        {"crop_padding": 1},
        {"flip": True},
    ]
    for change in uses:
        seen.add(replace(digits, **change).checksum())
    assert len(seen) == 7 + 5


def test_a_known_checksum_is_not_computed_and_not_inherited(digits: DataSet) -> None:
    known = digits.with_known_checksum("known")
    assert known.checksum() == "known" and known.computed_checksum() == CHECKSUM
    assert replace(known, flip=True).checksum() == replace(digits, flip=True).checksum()


def test_no_digit_stands_in_two_splits() -> None:
    by_split = {name: set(sources(name)) for name in SPLITS}
    assert [len(by_split[name]) for name in SPLITS] == [1000, 400, 397]
    assert len(set.union(*by_split.values())) == 1797


def test_labels_are_those_of_the_digits(digits: DataSet) -> None:
    with np.load(SOURCE) as stored:
        labels = stored["labels"]
    for name in SPLITS:
        assert getattr(digits, name).labels.tolist() == labels[sources(name)].tolist()


def test_clutter_comes_from_the_same_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the digits of all other splits blotted out, cluttered validation images stay as they are."""
    recipe = Recipe(canvas=16, clutter=3, train=100, valid=100, test=1)
    original = make(recipe)
    members = sources("valid")
    with np.load(SOURCE) as stored:
        digits, labels = stored["images"], stored["labels"]
    blotted = np.full_like(digits, 16)
    blotted[members] = digits[members]
    np.savez(tmp_path / "digits.npz", images=blotted, labels=labels)
    monkeypatch.setattr("harness.data.digits.SOURCE", tmp_path / "digits.npz")
    again = make(recipe)
    assert np.array_equal(again["valid"][0], original["valid"][0])
    assert not np.array_equal(again["train"][0], original["train"][0])
    uncluttered = make(replace(recipe, clutter=0))
    assert original["valid"][0].sum() > 1.1 * uncluttered["valid"][0].sum()


def test_shapes_and_balance(digits: DataSet) -> None:
    assert (digits.classes, digits.image_channels, digits.image_size) == (10, 1, 8)
    assert [len(getattr(digits, name)) for name in SPLITS] == [1536, 512, 1000]
    for name in SPLITS:
        split: Split = getattr(digits, name)
        assert split.images.shape == (len(split), 1, 8, 8)
        shares = np.bincount(split.labels, minlength=10) / len(split)
        assert shares.min() > 0.07 and shares.max() < 0.13


def test_digits_stand_at_every_place_of_a_larger_canvas() -> None:
    """A canvas of 10 has three rows and three columns to start from."""
    images, _ = make(Recipe(canvas=10, noise=0.0))["train"]
    margins = {(int(rows.argmax()), int(columns.argmax())) for rows, columns in _ink(images)}
    assert {top for top, _ in margins} >= {0, 1, 2}
    assert len({left for _, left in margins}) >= 3


def test_the_large_digits_are_the_same_everywhere_and_always() -> None:
    large = DATASETS.get("digits-16")()
    assert large.checksum() == LARGE_CHECKSUM
    assert (large.classes, large.image_channels, large.image_size) == (10, 1, 16)
    assert [len(getattr(large, name)) for name in SPLITS] == [1536, 512, 1000]
    normalised = (large.train.images - large.mean[0]) / large.std[0]
    assert abs(normalised.mean()) < 0.05 and 0.95 < normalised.std() < 1.05


def test_polar_digits_are_the_same_everywhere_and_always() -> None:
    polar = DATASETS.get("digits-polar")()
    assert polar.checksum() == POLAR_CHECKSUM
    assert (polar.classes, polar.image_channels, polar.image_size) == (10, 1, POLAR.canvas)
    assert [len(getattr(polar, name)) for name in SPLITS] == [8192, 1024, 2000]
    normalised = (polar.train.images - polar.mean[0]) / polar.std[0]
    assert abs(normalised.mean()) < 0.05 and 0.95 < normalised.std() < 1.05


def test_half_of_the_polar_digits_are_mirror_images_in_brightness() -> None:
    """Without noise an image is a digit on dark ground, or its brightness is mirrored at the middle grey."""
    recipe = replace(POLAR, noise=0.0, train=2000)
    images, labels = make(recipe)["train"]
    plain, same = make(replace(recipe, inverted=False))["train"]
    assert labels.tolist() == same.tolist()
    bright = np.rint((plain / 160 - 0.3 - 0.3) * 160 + 128)  # 48 is the ground of plain images, 0.3 × 160
    inverted = [image.max() == 176 for image in images]
    assert all(
        np.array_equal(image, 256 - own if flipped else own)
        for image, own, flipped in zip(images, bright, inverted, strict=True)
    )
    assert 0.45 < np.mean(inverted) < 0.55
    assert abs(np.corrcoef(inverted, labels)[0, 1]) < 0.1


def test_large_digits_are_the_small_ones_enlarged_at_all_places(digits: DataSet) -> None:
    """Of 14 pixels of 16: three rows and three columns to start from. The corners of a digit keep their values."""
    images, labels = make(replace(LARGE, noise=0.0, train=300))["train"]
    plain, _ = make(Recipe(noise=0.0, train=300))["train"]
    assert labels.tolist() == digits.train.labels[:300].tolist()
    places = set()
    for large, small in zip(images[:, 0], plain[:, 0], strict=True):
        corners = small[::7, ::7]
        fits = {
            (top, left)
            for top in range(3)
            for left in range(3)
            if np.array_equal(large[top : top + 14 : 13, left : left + 14 : 13], corners)
            and large.sum() == large[top : top + 14, left : left + 14].sum() + 48 * (16 * 16 - 14 * 14)
        }
        assert fits
        places |= fits if len(fits) == 1 else set()
    assert len(places) == 9


def test_digits_of_their_own_size_are_not_changed() -> None:
    with np.load(SOURCE) as stored:
        images = stored["images"]
    assert np.array_equal(_enlarged(images, 8), images)
    assert np.array_equal(_enlarged(images, 15)[:, ::2, ::2], images)
    between = images.astype(np.float32)
    assert np.allclose(_enlarged(images, 15)[:, 1, 0], (between[:, 0, 0] + between[:, 1, 0]) / 2)


def _ink(images: Any) -> Any:
    dark = images[:, 0] > 48
    return zip(dark.any(2), dark.any(1), strict=True)


def test_normalised_images_are_on_the_scale_of_one(digits: DataSet) -> None:
    """Roughly: tables were made with these numbers, which were measured on an earlier recipe."""
    normalised = (digits.train.images - digits.mean[0]) / digits.std[0]
    assert abs(normalised.mean()) < 0.5
    assert 0.7 < normalised.std() < 1.3


def test_the_head_of_a_split(digits: DataSet) -> None:
    assert digits.valid.head(None) is digits.valid
    head = digits.valid.head(100)
    assert len(head) == 100
    assert np.array_equal(head.images, digits.valid.images[:100])
    assert np.array_equal(head.labels, digits.valid.labels[:100])


IMAGES = np.zeros((4, 3, 2, 2), np.uint8)
LABELS = np.array([0, 1, 2, 0])


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (IMAGES.astype(np.float32), LABELS, "N×C×H×W bytes, not float32"),
        (IMAGES[:, 0], LABELS, r"bytes, not uint8 of shape \(4, 2, 2\)"),
        (IMAGES, LABELS[:3], r"4 images have labels of shape \(3,\)"),
        (IMAGES, LABELS[:, None], r"4 images have labels of shape \(4, 1\)"),
        (IMAGES, LABELS.astype(np.uint8), "labels must be int64, not uint8"),
    ],
)
def test_splits_that_are_refused(images: Any, labels: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Split(images, labels)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"valid": Split(IMAGES[:, :1], LABELS)}, r"tiny: images of valid are \(1, 2, 2\), those of train \(3, 2, 2\)"),
        ({"test": Split(IMAGES[..., :1], LABELS)}, "images of test are"),
        ({"classes": 2}, "labels of train must be 0 to 1, not 2"),
        ({"test": Split(IMAGES, LABELS - 1)}, "labels of test must be 0 to 2, not -1"),
        ({"mean": (1.0,)}, "3 channels need as many means and deviations"),
        ({"std": (1.0, 1.0, 1.0, 1.0)}, "3 channels need as many means and deviations"),
        ({"std": (1.0, 0.0, 1.0)}, "deviations must be above 0"),
        ({"crop_padding": -1}, "crop_padding must not be negative"),
    ],
)
def test_data_sets_that_are_refused(changes: dict[str, Any], message: str) -> None:
    split = Split(IMAGES, LABELS)
    good = DataSet("tiny", 3, split, split, split, (1.0, 2.0, 3.0), (1.0, 1.0, 1.0))
    with pytest.raises(DataError, match=message):
        replace(good, **changes)
