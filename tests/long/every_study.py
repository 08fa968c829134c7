"""A store with a run for every trial of every study, with invented values: in seconds, without any training."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from harness.components.preset import get_preset, presets_of
from harness.components.registries import SPACES
from harness.study import layout
from harness.study.catalogue import all_studies
from harness.study.expansion import expand
from harness.study.study import Request, Study
from tests.stored_runs import store_run

STEPS = range(1, 5)
PREFIX = "supernet."
"""Before metrics of the trial that a retraining starts from."""


def store_every_study(folder: Path, preset: str) -> int:
    """Store a run of each trial under the preset; how many there are."""
    known: dict[str, tuple[Request, set[str]]] = {}
    for study in all_studies():
        if preset not in presets_of(study.about):
            continue
        names = set(_metrics(study))
        for request in expand(study, get_preset(preset, study.about)):
            _, named = known.setdefault(request.trial.key, (request, set()))
            named |= names
    for request, names in known.values():
        _store(folder, request, preset, names)
    return len(known)


def _metrics(study: Study) -> Iterator[str]:
    """What the study's table and its curves show."""
    for column in study.columns:
        yield column.metric.removeprefix(PREFIX)
        if isinstance(column.reference, str):
            yield column.reference
    for figure in study.figures:
        for panel in figure.panels:
            if isinstance(panel, layout.Curves):
                yield from (line.metric for line in panel.lines)


def _store(folder: Path, request: Request, preset: str, names: set[str]) -> None:
    rng = random.Random(request.trial.key)
    architecture = list(SPACES.get(request.trial.config.space)().sample(rng))
    flat = sorted(name for name in names if "." not in name)
    store_run(
        folder,
        request,
        rng.uniform(0.4, 0.6),
        rng.uniform(60, 70),
        preset=preset,
        cost={
            "stage_seconds": {"train": rng.uniform(2, 40)},
            "training_memory_bytes": rng.randrange(2**25, 2**26),
            "sampling_passes": 0,
        },
        more={
            "retrained_accuracy": rng.uniform(60, 70),
            "retrained_parameters": rng.randrange(10**5, 10**6),
            "retrained_flops": rng.randrange(10**6, 10**7),
            "complexity_bias": rng.uniform(0.4, 0.6),
            "complexity_convergence": rng.uniform(-0.2, 0.2),
            "top1": architecture,
        },
        observed={name: [[step, rng.random()] for step in STEPS] for name in flat},
    )
