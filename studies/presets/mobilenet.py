"""The presets of the MobileNet space.

`tiny`, `demo` and `small` use its reduced form (`mobilenet-reduced`), for machines without GPUs, and give every method
equal passes. `paper` follows the paper on ImageNet. S, M and L are the limits of FLOPs (multiply-adds) of the searches.
The limits of the reduced form lie as far between its smallest and its largest network as the paper's do.
"""

from __future__ import annotations

from harness.components.preset import Hours, Preset, register

from ._compared import EVERYWHERE

SPACE = "mobilenet"

REDUCED = {
    "space": "mobilenet-reduced",
    "benchmark": None,
    "optimiser.weight_decay": 4e-5,
    "schedule.gamma_prime": 3.0,
    "rank.top1": False,
    "retrain.label_smoothing": 0.1,
    "retrain.weight_decay": 4e-5,
}
"""What the reduced presets share. Nothing is ranked by a table of truth: there is none."""

REDUCED_LIMITS = {"S": 850_000, "M": 1_000_000, "L": 1_200_000}

TINY = register(
    Preset(
        "tiny",
        "seconds per trial, for tests",
        seeds=2,
        datasets=("digits-16",),
        space=SPACE,
        settings={
            **REDUCED,
            "network.width_multiplier": 0.5,
            "train.epochs": 3,
            "train.batch_size": 512,
            "optimiser.learning_rate": 0.1,
            "rank.images": 64,
            "rank.batch_size": 64,
            "rank.calibration": 1,
            "search.population": 4,
            "search.generations": 2,
            "search.parents": 2,
            "search.mutations": 2,
            "search.crossovers": 1,
            "retrain.epochs": 1,
            "retrain.batch_size": 512,
        },
        values={"S": 300_000, "M": 340_000, "L": 400_000},
        by_method=EVERYWHERE,
        equal_passes=True,
    )
)

DEMO = register(
    Preset(
        "demo",
        "the embedded digits on 16×16 pixels, the reduced space, seconds per trial",
        seeds=3,
        datasets=("digits-16",),
        space=SPACE,
        settings={
            **REDUCED,
            "train.epochs": 6,
            "train.batch_size": 32,
            "optimiser.learning_rate": 0.05,
            "rank.images": 256,
            "rank.batch_size": 128,
            "rank.calibration": 2,
            "search.population": 10,
            "search.generations": 4,
            "search.parents": 4,
            "search.mutations": 4,
            "search.crossovers": 4,
            "retrain.epochs": 5,
            "retrain.batch_size": 32,
            "retrain.learning_rate": 0.05,
        },
        values=REDUCED_LIMITS,
        by_method=EVERYWHERE,
        equal_passes=True,
    )
)

SMALL = register(
    Preset(
        "small",
        "real CIFAR-10 at 16×16 and the reduced space, minutes per trial on a CPU",
        seeds=3,
        datasets=("cifar10-16",),
        space=SPACE,
        settings={
            **REDUCED,
            "train.epochs": 9,
            "train.batch_size": 64,
            "optimiser.learning_rate": 0.045,
            "rank.images": 1000,
            "rank.batch_size": 250,
            "rank.calibration": 4,
            "search.population": 20,
            "search.generations": 6,
            "search.parents": 6,
            "search.mutations": 8,
            "search.crossovers": 8,
            "retrain.epochs": 6,
            "retrain.batch_size": 128,
            "retrain.learning_rate": 0.1,
            "retrain.warmup_epochs": 1,
        },
        by_dataset={"cifar10-16": {"retrain.with_valid": True}},
        values=REDUCED_LIMITS,
        by_method=EVERYWHERE,
        equal_passes=True,
    )
)

SHORT = {"retrain.epochs": 240}
"""The paper retrains for 240 epochs, not 480, where it chooses γ'. It does not say for how long in Table M, whose
accuracies are those of such a training."""

# Table 1 of the paper: GPU hours of supernet training on four A5000, without and with CaLR and MS. Whether these are
# hours of one GPU or of all four is not said. FairNAS passes seven paths per step, FSNAS has seven supernets.
TRAINED = {"spos": (150, 157.0, 159.0), "fairnas": (75 * 7, 364.0, 369.0), "fsnas": (100 * 7, 740.0, 744.0)}
HOURS = [
    Hours(
        hours,
        passes,
        "Table 1 of the paper, supernets alone, taken for hours of one A5000",
        {"dataset": "imagenet", "method.name": method, **settings},
        published=hours,
    )
    for method, (passes, plain, ours) in TRAINED.items()
    for hours, settings in ((plain, {}), (ours, {"schedule.name": "calr", "clusters.name": "first-layer"}))
]

PAPER = register(
    Preset(
        "paper",
        "as the paper describes it, on ImageNet; retrained by the recipe of ZenNAS and ZiCo without teacher and SE",
        seeds=1,  # the paper prints no deviations
        datasets=("imagenet",),
        space=SPACE,
        settings={
            "benchmark": None,
            "network.stage1_width": 24,
            "network.batch_norm": "tracked",
            "train.epochs": 150,
            "train.batch_size": 512,
            "train.first_step": 1,
            "train.weighting": "algorithm-2",
            "train.augment": ["resized-crop", "flip"],
            "optimiser.learning_rate": 0.045,
            "optimiser.momentum": 0.9,
            "optimiser.nesterov": False,
            "optimiser.weight_decay": 4e-5,
            "optimiser.clip": None,
            "optimiser.inactive": "untouched",
            "schedule.gamma_prime": 3.0,
            "schedule.complexity": "parameters",
            # As SPOS calibrates and scores: 200 batches of 128 training images, then 8,000 images.
            "rank.images": 8000,
            "rank.batch_size": 128,
            "rank.calibration": 200,
            "rank.calibration_images": "augmented",
            "rank.top1": False,
            "search.population": 50,
            "search.mutation": "resample",
            "search.generations": 20,
            "search.parents": 10,
            "search.mutations": 25,
            "search.crossovers": 25,
            "search.probability": 0.1,
            "retrain.epochs": 480,
            "retrain.batch_size": 512,
            "retrain.learning_rate": 0.2,  # 0.1 per 256 images
            "retrain.momentum": 0.9,
            "retrain.weight_decay": 4e-5,
            "retrain.warmup_epochs": 5,
            "retrain.label_smoothing": 0.1,
            "retrain.augment": [
                {"name": "resized-crop", "interpolation": "bicubic"},
                "flip",
                "auto-augment",
                "lighting",
                {"name": "erasing", "fill": "mean"},
                {"name": "mixup", "alpha": 0.2},
            ],
            "retrain.network.norm_momentum": 0.01,
        },
        # The 50 images per class that rank in the search are training images of ImageNet: retraining uses all of them.
        by_dataset={"imagenet": {"retrain.with_valid": True}},
        by_method={"fairnas": {"train.epochs": 75}, "fsnas": {"train.epochs": 100}} | EVERYWHERE,
        by_study={"mobilenet_gamma_grid": SHORT, "mobilenet_layer_selection": SHORT},
        values={"S": 330_000_000, "M": 400_000_000, "L": 475_000_000},
        hours=HOURS,
    )
)
