"""The presets of the AutoFormer space.

`tiny`, `demo` and `small` use its reduced form (`autoformer-reduced`), for machines without GPUs. `paper` follows the
recipe of AutoFormer on ImageNet, which the paper says it follows. S, M and L are the limits of parameters of the
searches; those of the reduced form lie as far between its smallest and its largest network as the paper's do.

Neither the paper nor released code says how CaLR and MS meet AdamW. These are our choices, all of them options:

- CaLR begins after the warm-up and ends at the recipe's least rate: final + (1 − final)·(1 − t/T)^γ (`schedule.final`).
- γ' is 3, as on the paper's other space of ImageNet (`schedule.gamma_prime`).
- MS separates both means of AdamW and its step counts. Decoupled decay has the rate of the subnet.
- Clusters are those of the first block, 4 of them (`clusters.name`; `embedding` gives 3).
"""

from __future__ import annotations

from harness.components.preset import Preset, register

SPACE = "autoformer"

COMMON = {
    "benchmark": None,
    "optimiser.name": "adamw",
    "optimiser.weight_decay": 0.05,
    "optimiser.clip": None,
    "schedule.gamma_prime": 3.0,
    "schedule.final": 0.01,
    "train.label_smoothing": 0.1,
    "rank.top1": False,
    "search.probability": 0.2,  # and twice that for embedding and depth
}
"""What all presets share. Nothing is ranked by a table of truth: there is none."""

REDUCED = {**COMMON, "space": "autoformer-reduced"}

REDUCED_LIMITS = {"S": 28_000, "M": 41_000, "L": 54_000}

TINY = register(
    Preset(
        "tiny",
        "seconds per trial, for tests",
        seeds=2,
        datasets=("digits-16",),
        space=SPACE,
        settings={
            **REDUCED,
            "network.patch_size": 8,
            "network.drop_path": 0.1,
            "train.epochs": 2,
            "train.batch_size": 512,
            "train.warmup_steps": 2,
            "train.order": "repeated",
            "optimiser.learning_rate": 3e-3,
            "rank.images": 64,
            "rank.batch_size": 64,
            "search.population": 4,
            "search.generations": 2,
            "search.parents": 2,
            "search.mutations": 2,
            "search.crossovers": 1,
        },
        values=REDUCED_LIMITS,
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
            "network.drop_path": 0.0,
            "train.epochs": 40,
            "train.batch_size": 64,
            "train.warmup_epochs": 2,
            "optimiser.learning_rate": 3e-3,
            "rank.images": 256,
            "rank.batch_size": 256,
            "search.population": 10,
            "search.generations": 4,
            "search.parents": 4,
            "search.mutations": 4,
            "search.crossovers": 4,
        },
        values=REDUCED_LIMITS,
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
            "network.drop_path": 0.05,
            "train.epochs": 30,
            "train.batch_size": 128,
            "train.warmup_epochs": 3,
            "optimiser.learning_rate": 3e-3,
            "rank.images": 1000,
            "rank.batch_size": 250,
            "search.population": 20,
            "search.generations": 6,
            "search.parents": 6,
            "search.mutations": 8,
            "search.crossovers": 8,
        },
        values=REDUCED_LIMITS,
    )
)

PAPER = register(
    Preset(
        "paper",
        "AutoFormer's recipe on ImageNet, which the paper follows; subnets are used without retraining",
        seeds=1,  # the paper prints no deviations
        datasets=("imagenet",),
        space=SPACE,
        settings={
            **COMMON,
            "network.patch_size": 16,
            "network.pooling": "mean",
            "network.relative_distance": 14,
            "network.drop_path": 0.1,
            "train.epochs": 500,
            "train.batch_size": 1024,
            "train.first_step": 1,
            "train.precision": "float16",
            # The recipe's colour jitter is not here: timm leaves it out where RandAugment is on.
            "train.augment": [
                {"name": "resized-crop", "interpolation": "bicubic"},
                "flip",
                "timm-rand-augment",
                {"name": "erasing", "probability": 0.25, "fill": "noise"},
                "mixing",
            ],
            "train.order": "repeated",
            "train.warmup_epochs": 20,
            "train.least_rate": 1e-3,  # warm-up begins at 1e-6
            "optimiser.learning_rate": 1e-3,  # 5e-4 per 512 images
            "optimiser.inactive": "untouched",
            "schedule.complexity": "parameters",
            "rank.batch_size": 128,
            "rank.precision": "float16",  # as the training; scores of searches, too
            "search.population": 50,
            "search.generations": 20,
            "search.parents": 10,
            "search.mutations": 25,
            "search.crossovers": 25,
        },
        values={"S": 6_000_000, "M": 7_500_000, "L": 9_000_000},
    )
)
