"""Settings and columns that the studies of the MobileNet space share. Not a study, as its underscore says."""

from typing import Any

from harness.study import Column, FromPreset

SPACE = "mobilenet"
SIZES = ("S", "M", "L")
"""Limits of FLOPs, which presets define: 330, 400 and 475 M in the paper."""

CALR: dict[str, Any] = {"schedule.name": "calr"}
MS: dict[str, Any] = {"clusters.name": "first-layer"}
OURS = CALR | MS
"""CaLR and MS together, which the paper calls "Ours". MS clusters by the first searchable layer."""


def found(size: str, method: str = "spos") -> dict[str, Any]:
    """Settings of a row that searches under a limit and retrains what it finds.

    FSNAS searches each of its sub-supernets and retrains what is found in each; the row shows the best of them.
    """
    settings = {
        "method.name": method,
        "search.name": "evolution",
        "search.limits.flops": [None, FromPreset(size)],
        "retrain.which": 0,
    }
    return settings | ({"search.each_supernet": True, "retrain.which": "all"} if method == "fsnas" else {})


TOP1 = Column("Top-1 (%)", "retrained_accuracy", digits=2, remark="On the test images, after retraining.")
PARAMETERS = Column("Params. (M)", "retrained_parameters", digits=2, best=None, scale=1e-6)
FLOPS = Column(
    "FLOPs (M)",
    "retrained_flops",
    digits=2,
    best=None,
    scale=1e-6,
    remark="Multiply-adds of convolutions and linear layers for one image, as mobile papers count FLOPs.",
)
MEMORY = Column(
    "Peak memory (MB)",
    "supernet.training_memory_bytes",
    digits=0,
    best=None,
    scale=2**-20,
    each_dataset=False,
    remark="That of the supernet's training steps; on a CPU the growth of the process's resident set.",
)
HOURS = Column(
    "Training (h)",
    "supernet.stage_seconds.train",
    digits=4,
    best=None,
    scale=1 / 3600,
    each_dataset=False,
    remark="Wall time of supernet training alone, on whatever the runs ran on.",
)
