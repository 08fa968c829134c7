"""The presets of the DARTS space.

`tiny`, `demo` and `small` have narrow networks of few cells, for machines without GPUs. `paper` follows the paper on
CIFAR-10, with the settings of randomNAS and DARTS where the paper refers to them.
"""

from __future__ import annotations

from harness.components.preset import Preset, register

from ._compared import FORMS, SHORT

SPACE = "darts"

FIRST_EDGE = 1
"""The decision on the operation from the first input to the first node of the normal cell.

The paper does not say which edge MS clusters by. Only the two edges of a cell's first node are in every path; clusters
by another one would need one for the paths without it, the largest of all.
"""

COMMON = {
    "benchmark": None,  # there is no table of truth
    "clusters.at": [FIRST_EDGE],
    "rank.top1": False,
    "optimiser.nesterov": False,
    "optimiser.weight_decay": 3e-4,
    "retrain.nesterov": False,
    "retrain.clip": 5.0,
    "retrain.weight_decay": 3e-4,
    "retrain.network.auxiliary": True,
    "retrain.auxiliary": 0.4,
}
"""DARTS's: plain momentum, weight decay, gradients clipped at 5 (the default of supernets), an auxiliary head."""

TINY = register(
    Preset(
        "tiny",
        "seconds per trial, for tests",
        seeds=2,
        datasets=("digits",),
        space=SPACE,
        settings={
            **COMMON,
            "network.width": 2,
            "network.depth": 3,
            "train.epochs": 2,
            "train.batch_size": 512,
            "optimiser.learning_rate": 0.1,
            "rank.images": 64,
            "rank.batch_size": 32,
            "search.samples": 4,
            "search.batches": 1,
            "search.finalists": 2,
            "retrain.epochs": 2,
            "retrain.batch_size": 512,
            "retrain.drop_path": 0.2,
            "retrain.augment": [{"name": "cutout", "length": 4}],
        },
        by_method=FORMS | SHORT,
        equal_passes=True,
    )
)

DEMO = register(
    Preset(
        "demo",
        "the embedded digits on 16×16 pixels, a narrow network of four cells, seconds per trial",
        seeds=3,
        datasets=("digits-16",),
        space=SPACE,
        settings={
            **COMMON,
            "network.width": 4,
            "network.depth": 4,
            "train.epochs": 6,
            "train.batch_size": 64,
            "optimiser.learning_rate": 0.05,
            "rank.images": 256,
            "rank.batch_size": 64,
            "search.samples": 30,
            "search.batches": 1,
            "search.finalists": 5,
            "retrain.epochs": 8,
            "retrain.batch_size": 64,
            "retrain.learning_rate": 0.05,
            "retrain.network.auxiliary": False,
            "retrain.auxiliary": 0.0,
        },
        by_method=FORMS | SHORT,
        equal_passes=True,
    )
)

SMALL = register(
    Preset(
        "small",
        "real CIFAR-10 at 16×16 and a narrow network of five cells, minutes per trial on a CPU",
        seeds=3,
        datasets=("cifar10-16",),
        space=SPACE,
        settings={
            **COMMON,
            "network.width": 8,
            "network.depth": 5,
            "train.epochs": 5,
            "train.batch_size": 64,
            "optimiser.learning_rate": 0.05,
            "rank.images": 2500,
            "rank.batch_size": 250,
            "search.samples": 150,
            "search.batches": 2,
            "search.finalists": 10,
            "retrain.epochs": 4,
            "retrain.batch_size": 96,
            "retrain.learning_rate": 0.05,
            "retrain.augment": [{"name": "cutout", "length": 8}],
        },
        by_dataset={"cifar10-16": {"retrain.with_valid": True}},
        equal_passes=True,
    )
)

PAPER = register(
    Preset(
        "paper",
        "as the paper describes it, on CIFAR-10, with the settings of randomNAS and DARTS where it refers to them",
        seeds=1,  # the paper prints no deviations
        datasets=("cifar10",),
        space=SPACE,
        settings={
            **COMMON,
            "network.width": 16,
            "network.depth": 8,
            "network.batch_norm": "batch-statistics",
            "network.inputs": "two",
            "train.epochs": 50,
            "train.batch_size": 64,
            "train.first_step": 1,
            "train.weighting": "algorithm-2",
            "optimiser.learning_rate": 0.025,
            "optimiser.momentum": 0.9,
            "optimiser.clip": 5.0,
            "optimiser.inactive": "untouched",
            "schedule.final": 0.04,  # of the cosine, which ends at 0.001 in DARTS; rows with CaLR have none
            "schedule.gamma_prime": 4.0,  # the paper gives none for this space; this is that of its other cell space
            "schedule.complexity": "parameters",
            # randomNAS: 10 batches of 64 for all, the ten best on all 25,000 images.
            "rank.images": None,
            "rank.batch_size": 64,
            "search.samples": 1000,
            "search.batches": 10,
            "search.finalists": 10,
            "retrain.epochs": 200,
            "retrain.batch_size": 96,
            "retrain.learning_rate": 0.025,
            "retrain.momentum": 0.9,
            "retrain.drop_path": 0.2,
            "retrain.augment": [{"name": "cutout", "length": 16}],
            "retrain.network.width": 36,
            "retrain.network.depth": 20,
        },
        by_dataset={"cifar10": {"retrain.with_valid": True}},
    )
)
