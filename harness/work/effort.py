"""How much work a trial is before it runs: passes and images of its training. Does not import torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.data.inspection import image_counts
from harness.documents import canonical
from harness.study.configuration import RunConfig
from harness.study.expansion import passes_per_step

Counts = Callable[[str], Mapping[str, int] | None]
"""By a data set's name, how many images its splits have; None if that is not known."""


@dataclass(frozen=True)
class Effort:
    """The training of a trial, as its method declares it."""

    passes: int
    """Forward-backward passes of single paths."""
    images: int
    """Images processed by these passes."""

    def __add__(self, other: Effort) -> Effort:
        return Effort(self.passes + other.passes, self.images + other.images)


NOTHING = Effort(0, 0)


def effort(config: RunConfig, counts: Counts = image_counts) -> Effort | None:
    """The effort of a trial of this configuration; None where the size of its data set is not known."""
    there = counts(config.dataset)
    if there is None:
        return None
    if config.retrain is not None:
        images = there["train"] + (there["valid"] if config.retrain.with_valid else 0)
        times, batch = float(config.retrain.epochs), config.retrain.batch_size
    else:
        images = there["train"] + (there["valid"] if config.train.with_valid else 0)
        batch = config.train.batch_size
        times = config.train.epochs * passes_per_step(config)
    return Effort(round(times * -(-images // batch)), round(times * images))


def kind_of(config: Mapping[str, Any]) -> str:
    """Identifies the kind of a configuration, given as JSON: trials of one kind take equally long per image.

    They differ only in what costs no time: seed, schedule, clusters, epochs.
    """
    train, retrain = config["train"], config.get("retrain") or {}
    alike = [config[key] for key in ("space", "dataset", "network", "method", "rank", "benchmark")]
    alike += [train.get(key) for key in ("batch_size", "weighting", "precision")]
    return canonical([*alike, *(retrain.get(key) for key in ("batch_size", "network"))])
