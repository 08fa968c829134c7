"""The default configuration, and the preset of commands that name none."""

from __future__ import annotations

from harness.components.preset import Preset, register_default

register_default(
    Preset(
        space="nasbench201",
        name="demo",
        summary="the default configuration; commands that name no preset use `demo`",
        seeds=3,
        datasets=("digits",),
        settings={
            "space": "nasbench201",
            "dataset": "digits",
            "benchmark": "digits",
            "method.name": "spos",
            "schedule.name": "cosine",
            "clusters.name": "none",
            "sampler.name": "uniform",
            "optimiser.name": "sgd",
        },
    )
)
