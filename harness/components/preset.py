"""What a preset is: a scale under a name. Knows no particular one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ByName = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Preset:
    """A scale. `settings` are dotted configuration keys.

    Options of components are for the rows that have the component. A row's own settings come first.
    """

    name: str
    summary: str
    seeds: int
    datasets: tuple[str, ...]
    """The data sets that a study reports on."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    by_method: ByName = field(default_factory=dict)
    """Settings for the rows of one method only; they come before `settings`."""
    by_dataset: ByName = field(default_factory=dict)
    """Settings for what is trained on one data set only; they come before these two."""
    benchmark: str | None = None
    """Where the ground truth comes from; None for the benchmark that has the data set's name."""
    trained_on: str | None = None
    """The one data set that supernets are trained on, whichever judges them; None for each on its own."""
    equal_passes: bool = False
    """Whether `train.epochs` is divided by the passes that a method makes per epoch."""

    def places(self, dataset: str) -> dict[str, Any]:
        """What is trained on, and what judges, where `dataset` is reported on."""
        places: dict[str, Any] = {"dataset": self.trained_on or dataset, "benchmark": self.benchmark or dataset}
        return places | ({"rank.truth": dataset} if self.trained_on else {})
