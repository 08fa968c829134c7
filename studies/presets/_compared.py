"""Training settings of the methods that the paper compares with, by method, for the preset `paper` of NAS-Bench-201.

Each value is the published one: epochs, batch and rates of the method's own paper or public code. Where nothing is
published for this space, the preset's own settings hold. Options of the methods themselves have their papers' values
as defaults.
"""

from __future__ import annotations

from typing import Any

EVERYWHERE: dict[str, dict[str, Any]] = {
    "sandwich": {"optimiser.clip": None, "optimiser.clip_value": 1.0, "train.label_smoothing": 0.1},
    # The outer optimiser, which moves to the mean of what the paths' own steps have reached. No momentum is published
    # for it, and the inner steps are the ones that clip.
    "sumnas": {
        "optimiser.learning_rate": 1.0,
        "optimiser.momentum": 0.0,
        "optimiser.weight_decay": 4e-5,
        "optimiser.clip": None,
    },
}
"""Settings that belong to a method at every scale and in every space."""

COMPARED: dict[str, dict[str, Any]] = {
    "sumnas": EVERYWHERE["sumnas"] | {"train.epochs": 250, "train.batch_size": 256},
    "pa-da": {
        "train.epochs": 250,
        "train.batch_size": 256,
        "optimiser.learning_rate": 0.05,
        "optimiser.nesterov": False,
        "optimiser.weight_decay": 2.5e-4,
    },
    # Nothing is published for NAS-Bench-201: the settings of SPOS.
    "greedynas": {"train.epochs": 250},
    "shiftnas-reading": {"train.epochs": 250},
    "cream": {"train.epochs": 250},
    "sandwich": EVERYWHERE["sandwich"] | {"train.epochs": 250},
    # The benchmark's settings for random sampling, whose rate ends at 0.001.
    "nsas": {"train.epochs": 250, "schedule.final": 0.04},
}
