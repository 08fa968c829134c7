"""The embedded data sets: handwritten digits under noise, and of either contrast.

The 1,797 real 8×8 digits (UCI "Optical Recognition of Handwritten Digits", the copy that scikit-learn
carries, CC BY 4.0) are packaged as `digits.npz`, so no other library is needed. Plain digits are too
easy to distinguish architectures, so each image is a digit under strong noise; larger digits, a larger
canvas (the digit at a random place of it), clutter (strokes of other digits behind it) and inverted
contrast are options. Of the recipes that were tried, noise on the plain canvas distinguished architectures most
reliably for its training time; with random contrast on a larger canvas larger networks are better. Every image
is a function of the recipe alone. Splits are made by digit: no digit of the training images appears in a
validation or test image.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

SOURCE = Path(__file__).with_name("digits.npz")


@dataclass(frozen=True)
class Recipe:
    """How the images are made. The version changes whenever the same numbers give different images."""

    canvas: int = 8
    size: int = 8
    """The side of a digit on the canvas; they are enlarged by linear interpolation."""
    noise: float = 0.4
    clutter: int = 0
    clutter_size: int = 4
    inverted: bool = False
    """Whether the contrast of an image is inverted, with probability one half: dark digits on bright ground."""
    train: int = 1536
    valid: int = 512
    test: int = 1000
    seed: int = 20250
    version: int = 1


LARGE = Recipe(canvas=16, size=14, noise=0.6)
"""The recipe of `digits-16`, for spaces that need larger images."""

POLAR = Recipe(canvas=10, noise=0.25, inverted=True, train=8192, valid=1024, test=2000)
"""The recipe of `digits-polar`, on which larger networks are better."""

MIDDLE = 0.3
"""The brightness, from 0 to 1, that inverting the contrast leaves as it is."""


def make(recipe: Recipe) -> dict[str, tuple[Bytes, Bytes]]:
    """The splits `train`, `valid`, `test` as (images N×1×canvas×canvas, labels)."""
    with np.load(SOURCE) as stored:
        digits, labels = _enlarged(stored["images"], recipe.size), stored["labels"]
    order = np.random.default_rng(recipe.seed).permutation(len(digits))
    parts = {"train": order[:1000], "valid": order[1000:1400], "test": order[1400:]}
    splits = {}
    for number, (split, members) in enumerate(parts.items()):
        rng = np.random.default_rng([recipe.seed, number])
        splits[split] = _images(digits, labels, members, getattr(recipe, split), recipe, rng)
    return splits


def _enlarged(digits: Bytes, size: int) -> npt.NDArray[np.float32]:
    """The digits with that side. Whole numbers up to the last division, so that all machines give the same."""
    last = digits.shape[1] - 1
    steps = size - 1
    below, part = np.divmod(np.arange(size) * last, steps)
    above, part = np.minimum(below + 1, last), part.astype(np.int64)
    whole = digits.astype(np.int64)
    rows = whole[:, below] * (steps - part)[:, None] + whole[:, above] * part[:, None]
    both = rows[:, :, below] * (steps - part) + rows[:, :, above] * part
    enlarged: npt.NDArray[np.float32] = (both / steps**2).astype(np.float32)
    return enlarged


def _images(
    digits: npt.NDArray[np.float32],
    labels: Bytes,
    members: npt.NDArray[np.int64],
    count: int,
    recipe: Recipe,
    rng: np.random.Generator,
) -> tuple[Bytes, Bytes]:
    chosen = members[np.arange(count) % len(members)]
    side = digits.shape[1]
    canvas = np.zeros((count, recipe.canvas, recipe.canvas), np.float32)
    for image, digit in enumerate(chosen):
        for _ in range(recipe.clutter):
            size = recipe.clutter_size
            top, left = rng.integers(0, side - size + 1, 2)
            patch = digits[rng.choice(members), top : top + size, left : left + size]
            y, x = rng.integers(0, recipe.canvas - size + 1, 2)
            place = canvas[image, y : y + size, x : x + size]
            np.maximum(place, patch, out=place)
        y, x = rng.integers(0, recipe.canvas - side + 1, 2)
        place = canvas[image, y : y + side, x : x + side]
        np.maximum(place, digits[digit], out=place)
    canvas /= 16
    if recipe.inverted:
        canvas = (canvas - MIDDLE) * rng.choice(np.array([-1, 1], np.float32), (count, 1, 1))
    noisy = canvas + recipe.noise * rng.standard_normal(canvas.shape, np.float32)
    pixels = np.clip(np.rint(noisy * 160 + (128 if recipe.inverted else 48)), 0, 255).astype(np.uint8)
    return pixels[:, None], labels[chosen]
