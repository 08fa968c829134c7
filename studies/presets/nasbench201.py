"""The presets of NAS-Bench-201.

`tiny` is for tests, `demo` for the embedded benchmark, `small` for real images on a CPU. These give every
method equal passes: `epochs` is for a method with one supernet and one path per step, other methods get
their share. `paper` follows the paper, `official` follows its released code where they differ.
"""

from __future__ import annotations

from harness.components.preset import Hours, Preset, register

from ._compared import ALL_IMAGES, COMPARED, EVERYWHERE, RELEASED, SHORT
from ._paper_and_code import DIFFERENCES

SPACE = "nasbench201"

FOURFOLD = {**EVERYWHERE, "sumnas": EVERYWHERE["sumnas"] | {"method.inner_rate": 0.2}}
"""For presets whose rate is four times that of the paper: the inner rate of SUMNAS stays twice the rate of SPOS."""

# Hours of training on CIFAR-10 on one RTX 2080 Ti: from shapes, launches and published rates (docs/gpus.md), and by
# Table 2 of the paper, which has as many with CaLR and MS. Epochs are those of `paper`; FairNAS passes five paths per
# step, FSNAS trains five supernets.
TRAINED = {"spos": (250, 0.3, 2.67), "fairnas": (200 * 5, 1.1, 5.13), "fsnas": (300 * 5, 1.7, 16.04)}
RANKED = 3.2
"""Hours of ranking all 7,548 classes of architectures by 25,000 images of 32×32 pixels, by the same model."""
ON_OTHERS = {
    "cifar10": (1.0, RANKED, ""),
    "cifar100": (2.0, RANKED * 5_000 / 25_000, ", by the number of images from CIFAR-10"),
    # 151,700 images in the place of 25,000 to train on, 3,000 to rank by, of 16×16 pixels in the place of 32×32.
    "imagenet16-120": (
        151_700 / 25_000 / 4,
        RANKED * 3_000 / 25_000 / 4,
        ", by the number and the size of images from CIFAR-10",
    ),
}
HOURS = [
    Hours(
        factor * hours,
        passes,
        f"modelled, not measured: training and ranking on one RTX 2080 Ti{how}",
        {"dataset": dataset, "method.name": method},
        ranking,
        published if dataset == "cifar10" else None,
    )
    for dataset, (factor, ranking, how) in ON_OTHERS.items()
    for method, (passes, hours, published) in TRAINED.items()
]

TINY = register(
    Preset(
        "tiny",
        "half a second per trial, for tests",
        seeds=2,
        datasets=("digits",),
        space=SPACE,
        settings={
            "network.width": 4,
            "network.depth": 1,
            "train.epochs": 5,
            "train.batch_size": 512,
            "optimiser.learning_rate": 0.1,
            "rank.images": 64,
            "rank.candidates": 10,
            "rank.bins": 20,
            "rank.top_sample": 20,
            "retrain.epochs": 1,
            "retrain.batch_size": 512,
        },
        by_method=FOURFOLD | SHORT,
        equal_passes=True,
    )
)

DEMO = register(
    Preset(
        "demo",
        "the embedded benchmark, seconds per trial",
        seeds=3,
        datasets=("digits",),
        space=SPACE,
        settings={
            "network.width": 4,
            "network.depth": 1,
            "train.epochs": 20,
            "train.batch_size": 64,
            "optimiser.learning_rate": 0.1,
            "rank.images": 256,
            "rank.candidates": 200,
            "rank.top_sample": 500,
            # The same as for the embedded table of ground truth.
            "retrain.epochs": 2,
            "retrain.batch_size": 64,
        },
        by_method=FOURFOLD | SHORT,
        equal_passes=True,
    )
)

SMALL = register(
    Preset(
        "small",
        "real CIFAR-10 at 16×16 and the official benchmark, a reduced network, minutes per trial on a CPU",
        seeds=3,
        datasets=("cifar10-16",),
        space=SPACE,
        settings={
            "network.width": 8,
            "network.depth": 1,
            "train.epochs": 60,
            "train.batch_size": 64,
            "optimiser.learning_rate": 0.025,
            "rank.images": 1000,
            "rank.candidates": 300,
            "rank.selection_on": "imagenet16-120",
            "rank.top_sample": 500,
            "retrain.epochs": 20,
            "retrain.batch_size": 256,
        },
        by_dataset={"cifar10-16": {"retrain.with_valid": True}},
        benchmark="nasbench201",
        by_method=EVERYWHERE,
        equal_passes=True,
    )
)

PAPER = register(
    Preset(
        "paper",
        "as the paper describes it, on the official benchmark",
        seeds=3,
        datasets=("cifar10", "cifar100", "imagenet16-120"),
        space=SPACE,
        settings={
            "network.width": 16,
            "network.depth": 5,
            "network.batch_norm": "batch-statistics",
            "train.epochs": 250,
            "train.batch_size": 64,
            "train.first_step": 1,
            "train.weighting": "algorithm-2",
            "optimiser.learning_rate": 0.025,
            "optimiser.momentum": 0.9,
            "optimiser.nesterov": True,
            "optimiser.weight_decay": 5e-4,
            "optimiser.clip": 5.0,
            "optimiser.inactive": "untouched",
            "schedule.gamma_prime": 4.0,
            "schedule.complexity": "parameters",
            "rank.images": None,
            "rank.batch_size": 256,
            "rank.candidates": None,
            "rank.selection": "equal-count",
            "rank.bins": 400,
            "rank.by": "loss",
            "rank.top1": True,
            "rank.top_sample": None,
            "retrain.epochs": 200,
            "retrain.batch_size": 256,
            "retrain.learning_rate": 0.1,
            "retrain.momentum": 0.9,
            "retrain.weight_decay": 5e-4,
        },
        # The benchmark trains its networks on all 50,000 images of CIFAR-10, the halves of the supernet's split.
        by_dataset={"cifar10": {"retrain.with_valid": True}, **ALL_IMAGES},
        by_method={"fairnas": {"train.epochs": 200}, "fsnas": {"train.epochs": 300, "method.split": None}, **COMPARED},
        benchmark="nasbench201",
        hours=HOURS,
    )
)


OFFICIAL = register(
    PAPER.with_differences(
        (*DIFFERENCES, *RELEASED), "official", "as the authors' released code does it where it differs from the paper"
    )
)
