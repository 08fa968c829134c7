"""Settings and columns that the paper's studies share. Not a study: its name begins with an underscore."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from harness.study import Column, Request, Series

METHODS = [("spos", "SPOS"), ("fairnas", "FairNAS"), ("fsnas", "FSNAS")]
CALR: dict[str, Any] = {"schedule.name": "calr"}
NO_FLOOR: dict[str, Any] = {"schedule.final": 0.0}
"""CaLR ends at 0 (Eq. 3), also where a preset's cosine has a floor."""
MS: dict[str, Any] = {"clusters.name": "operation"}
OURS = CALR | MS
"""CaLR and MS together, which the paper calls "Ours"."""

TAU = Column("Kendall's τ", "kendall_tau", digits=3)
TOP1 = Column("Top-1 acc. (%)", "top1_accuracy", digits=2)
PREDICTED = Column(
    "Top-1 by prediction (%)",
    "top1_accuracy_predicted",
    digits=2,
    best=None,
    remark="The looked-up accuracy of the best predicted candidate: no truth chooses among supernets.",
)
PARTIAL = Column(
    "Partial τ",
    "partial_tau",
    digits=3,
    best=None,
    remark="Kendall's τ given the number of parameters: what the ranking knows beyond size.",
)
MEMORY = Column(
    "Peak memory (MB)",
    "training_memory_bytes",
    digits=0,
    best=None,
    scale=2**-20,
    each_dataset=False,
    remark="That of the training steps, without what is held to measure them; allocated on the device, or "
    "on a CPU the growth of the process's resident set, what libraries take at their first use included. MB are 2²⁰ "
    "bytes.",
)
HOURS = Column(
    "Training (h)",
    "stage_seconds.train",
    digits=4,
    best=None,
    scale=1 / 3600,
    each_dataset=False,
    remark="Wall time of supernet training alone, on whatever the runs ran on.",
)


def decay_ratios(requests: Sequence[Request], variants: Mapping[str, Mapping[str, Any]]) -> list[Series]:
    """γ over millions of parameters, for variants of CaLR: its options, by the label of the line.

    All other options are those of the study's own rows with CaLR.
    """
    from harness.components.registries import SCHEDULES, SPACES

    space: Any = SPACES.get(requests[0].trial.config.space)()
    schedules = [request.trial.config.schedule for request in requests]
    common = next((schedule.options for schedule in schedules if schedule.name == "calr"), {})
    # A space that cannot be listed is shown by its ends and a fixed sample.
    shown = space if space.enumerable else [*space.extremes()[1::2], *space.distinct(200, random.Random(0))]
    by_size = {space.complexity(architecture): architecture for architecture in shown}
    sizes = sorted(by_size)
    series = []
    for label, options in variants.items():
        ratio = SCHEDULES.get("calr")(**{**common, **options}).decay_ratio(space)
        series.append(Series(label, [size / 1e6 for size in sizes], [ratio(by_size[size]) for size in sizes]))
    return series
