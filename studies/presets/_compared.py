"""Training settings of the methods that the paper compares with, by method, for the presets of NAS-Bench-201.

`COMPARED` has epochs, batch and rates of the method's own paper or public code, for the preset `paper`. Where nothing
is published for this space, the preset's own settings hold. Options of the methods themselves follow their papers, and
their public code where a paper is silent; `RELEASED` is where both speak and differ, for the preset `official`.
"""

from __future__ import annotations

from typing import Any

from harness.components.preset import Difference

FORMS: dict[str, dict[str, Any]] = {
    "gdas": {
        "method.first_update": "weights",
        "method.temperature_falls": "epoch",
        "method.unneeded": "decay",
    },
    "cream": {"method.meta_optimiser": "sgd", "method.meta_clip": 1.0},
    "sumnas": {"method.inner_momentum_kept": True},
    "pa-da": {"method.tau": "before", "method.image_norms": "epoch", "method.unreached": "keep"},
}
"""What is published of a method where its default is another form: that of runs which were stored before."""

EVERYWHERE: dict[str, dict[str, Any]] = FORMS | {
    "sandwich": {"optimiser.clip": None, "optimiser.clip_value": 1.0, "train.label_smoothing": 0.1},
    "deps": {"train.label_smoothing": 0.1},
    # The outer optimiser, which moves to the mean of what the paths' own steps have reached. No momentum is published
    # for it, and the inner steps are the ones that clip.
    "sumnas": {
        **FORMS["sumnas"],
        "optimiser.learning_rate": 1.0,
        "optimiser.momentum": 0.0,
        "optimiser.weight_decay": 4e-5,
        "optimiser.clip": None,
    },
}
"""Settings that belong to a method at every scale and in every space."""

_FASTER = {"method.architecture_rate": 0.1}
_FEW = {
    "method.steps": 1,
    "method.batches": 1,
    "method.population": 10,
    "method.parents": 3,
    "method.mutations": 5,
    "method.crossovers": 5,
}

SHORT: dict[str, dict[str, Any]] = {
    "darts": _FASTER,
    "gdas": FORMS["gdas"] | _FASTER,
    "gm-nas": {"method.batches": 2},
    "supernet-shifting": _FEW,
}
"""Settings of trainings of a few hundred steps, where 20,000 and 100,000 are published for DARTS and GDAS: architecture
parameters can go as far as in those, the choice of a split does not cost more than the training, and an evolution has
several generations."""

ALL_IMAGES: dict[str, dict[str, Any]] = {
    f"cifar10/{method}": {"train.with_valid": True} for method in ("sumnas", "pa-da")
}
"""SUMNAS and PA&DA are published with all 50,000 training images of CIFAR-10, and rank by its test images."""

COMPARED: dict[str, dict[str, Any]] = {
    "sumnas": EVERYWHERE["sumnas"] | {"train.epochs": 250, "train.batch_size": 256},
    "pa-da": {
        **FORMS["pa-da"],
        "train.epochs": 250,
        "train.batch_size": 256,
        "optimiser.learning_rate": 0.05,
        "optimiser.nesterov": False,
        "optimiser.weight_decay": 2.5e-4,
    },
    # The rate falls from 0.025 to 0.001.
    "darts": {"train.epochs": 50, "schedule.final": 0.04},
    "gdas": FORMS["gdas"] | {"train.epochs": 250, "schedule.final": 0.04},
    # Splits after 20 and 40 epochs, then 50 more.
    "gm-nas": {
        "train.epochs": 90,
        "train.batch_size": 48,
        "optimiser.weight_decay": 1e-4,
        "schedule.final": 0.04,
    },
    # Nothing is published for NAS-Bench-201: the settings of SPOS.
    "greedynas": {"train.epochs": 250},
    "shiftnas-reading": {"train.epochs": 250},
    "supernet-shifting": {"train.epochs": 250},
    "cream": FORMS["cream"] | {"train.epochs": 250},
    "sandwich": EVERYWHERE["sandwich"] | {"train.epochs": 250},
    "deps": EVERYWHERE["deps"] | {"train.epochs": 250},
    # The benchmark's settings for random sampling, whose rate ends at 0.001.
    "nsas": {"train.epochs": 250, "schedule.final": 0.04},
}

RELEASED = (
    Difference(
        "order of DARTS's updates",
        "architecture parameters, then weights",
        "weights, then architecture parameters",
        "Algorithm 1 of DARTS has the architecture first; the benchmark's scripts have the weights first, all but the "
        "older one of the second order",
        by_method={"darts": {"method.first_update": "weights"}},
    ),
    Difference(
        "GDAS's gradient of operations that were not chosen",
        "none",
        "that of their weights, added to the output: the sum of the output's gradient",
        "the paper back-propagates only the gradient that the chosen operation gives; forward_gdas of the benchmark's "
        "code adds the weight of every other operation, 0 in the forward pass, to the output",
        by_method={"gdas": {"method.operations": "released"}},
    ),
    Difference(
        "what Cream's meta network learns from",
        "the validation loss after a simulated step of the student",
        "the training loss in every step, and the loss of four further images of the batch after a real step of the "
        "student on four",
        "the paper trains it by validation data; the released loop does not detach ρ, and takes both sets of images "
        "from the training batch",
        by_method={"cream": {"method.meta_learning": "released"}},
    ),
    Difference(
        "answers that a path brings to Cream's board",
        "its own",
        "those of its teacher",
        "the paper compares a subnet with a prioritised path; the released board stores the teacher's output once it "
        "has a path",
        by_method={"cream": {"method.board_answers": "teacher"}},
    ),
    Difference(
        "SUMNAS's fair paths",
        "drawn for each step",
        "drawn once per epoch",
        "the paper defines a step by newly drawn paths; the only public code, that of PA&DA, never clears its list of "
        "paths and takes the first ones of the epoch",
        by_method={"sumnas": {"method.paths_renewed": "epoch"}},
    ),
    Difference(
        "Cream's ρ",
        "the sigmoid of the largest score",
        "the sigmoid of the last score",
        "the released loop over the board keeps the last score, not the largest",
        by_method={"cream": {"method.last_score": True}},
    ),
)
"""Where the papers of compared methods and their public code differ."""
