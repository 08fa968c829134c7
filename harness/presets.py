"""Scale is a preset: ordinary configuration under a name, which `with key=value` can override.

`tiny` is for tests, `demo` for the embedded benchmark. Both give every method equal passes: `epochs` is
what a method with one supernet and one path a step gets, others get their share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.errors import UnknownName


@dataclass(frozen=True)
class Preset:
    """A scale. `settings` are dotted configuration keys."""

    name: str
    summary: str
    seeds: int
    datasets: tuple[str, ...]
    """The data sets that a study runs on; each has a benchmark of the same name."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    equal_passes: bool = False
    """Whether `train.epochs` is divided by the passes that a method makes per epoch."""


PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            "tiny",
            "half a second a cell, for tests",
            seeds=2,
            datasets=("digits",),
            settings={
                "network.width": 4,
                "network.depth": 1,
                "train.epochs": 5,
                "train.batch_size": 512,
                "optimiser.learning_rate": 0.1,
                "rank.images": 64,
                "rank.candidates": 10,
                "rank.bins": 20,
            },
            equal_passes=True,
        ),
        Preset(
            "demo",
            "the embedded benchmark, seconds a cell",
            seeds=3,
            datasets=("digits",),
            settings={
                "network.width": 4,
                "network.depth": 1,
                "train.epochs": 20,
                "train.batch_size": 64,
                "optimiser.learning_rate": 0.1,
                "rank.images": 256,
                "rank.candidates": 200,
            },
            equal_passes=True,
        ),
    )
}


def get_preset(name: str) -> Preset:
    """The preset of that name. Raises `UnknownName`."""
    if name not in PRESETS:
        raise UnknownName.among("preset", name, PRESETS)
    return PRESETS[name]
