"""How long a plan takes where nothing has run yet: a few seconds of its own trainings, measured. Does not import torch.

Trials that differ only in what costs no time (seed, schedule, epochs) are alike; of each kind one is measured, the
largest kinds first.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from harness.data.inspection import image_counts
from harness.work.effort import effort, kind_of
from harness.work.jobs import Answered, Job, Stopping
from harness.work.plan import missing_inputs
from harness.work.processes import Processes
from harness.work.slots import Slots
from harness.work.states import Work

TARGET = "harness.work.calibration_job:measure"
LEAST, SECONDS, CAP = 2.0, 4.0, 10.0
"""Seconds of measuring, at least and at most, and of all of it: a process that starts slowly measures for less time."""
KINDS = 6
"""The most kinds of trials that are measured."""


@dataclass
class _Alike:
    """Trials that take equally long per image."""

    work: list[Work] = field(default_factory=list)
    images: list[int] = field(default_factory=list)
    """Images of each training."""


@dataclass(frozen=True)
class Estimate:
    """About how long some trials take."""

    by_key: Mapping[str, float] = field(default_factory=dict)
    """Seconds of each trial by its key; without those that could not be measured."""
    without: tuple[str, ...] = ()
    """What is not in it, and why."""


def estimate(work: Iterable[Work], slots: Slots, cap: float | None = None) -> Estimate:
    """Estimate the trainings and rankings of this work by measuring short ones. Trials without data are left out."""
    kinds, problems = _kinds(work)
    if not kinds:
        return Estimate(without=tuple(problems))
    measured, errors = _measure([kind.work[0] for kind in kinds[:KINDS]], slots, CAP if cap is None else cap)
    problems += errors
    if not measured:
        return Estimate(without=tuple(problems))
    configs = [one.trial.config for kind in kinds for one in kind.work]
    if any(config.search is not None and config.retrain is None for config in configs):
        problems.append("searches: how many architectures they score is not known before")
    if any(config.observe.judges for config in configs):
        problems.append("curves that are measured during training")
    by_key: dict[str, float] = {}
    for number, kind in enumerate(kinds):
        if number < KINDS and number not in measured:
            continue  # its own error says why
        alike = [measured[number]] if number in measured else list(measured.values())
        training = sum(one["training"] for one in alike) / len(alike)
        ranking = sum(one.get("ranking", 0.0) * one.get("evaluations", 0) for one in alike) / len(alike)
        by_key |= {
            one.trial.key: images * training + ranking for one, images in zip(kind.work, kind.images, strict=True)
        }
    return Estimate(by_key, tuple(problems))


def _kinds(work: Iterable[Work]) -> tuple[list[_Alike], list[str]]:
    """The kinds of trials that can be measured, those with the most images first; and why others cannot."""
    kinds: dict[str, _Alike] = {}
    here: dict[tuple[str, str | None], bool] = {}
    counts = cache(image_counts)
    for one in work:
        config = one.trial.config
        needs = config.dataset, config.benchmark
        if needs not in here:
            here[needs] = not missing_inputs([one.trial])
        if not here[needs]:
            continue
        kind = kinds.setdefault(kind_of(config.json()), _Alike())
        known = effort(config, counts)
        kind.work.append(one)
        kind.images.append(known.images if known else 0)
    missing = dict.fromkeys(dataset for (dataset, _), there in here.items() if not there)
    problems = [f"{dataset}: images or ground truth are missing" for dataset in missing]
    return sorted(kinds.values(), key=lambda kind: -sum(kind.images)), problems


def _measure(work: list[Work], slots: Slots, cap: float) -> tuple[dict[int, dict[str, Any]], list[str]]:
    """The measurements of these trials by number, and what went wrong."""
    document = {
        "configs": [one.trial.config.json() for one in work],
        "seconds": [LEAST, SECONDS],
        "until": time.time() + cap,
        "threads": 1,
        "device": slots.device,
    }
    found: dict[int, dict[str, Any]] = {}
    problems: list[str] = []
    executor = Processes(slots, target=TARGET, grace=1.0)
    for event in executor.execute([Job(0, document, timeout=cap, device=slots.device)], Stopping()):
        if event.kind == "progress" and "error" in event.data:
            problems.append(f"{work[event.data['number']].label}: {event.data['error']}")
        elif event.kind == "progress":
            found[event.data["number"]] = dict(event.data)
        elif event.kind == "finished" and event.data["status"] != Answered.DONE:
            unknown = [one.label for number, one in enumerate(work) if number not in found]
            reason = f"a step takes longer than {cap:g} s" if len(unknown) == len(work) else f"{cap:g} s were over"
            problems.append(f"{unknown[0] if unknown else 'the last'}: not measured, {reason}")
    return found, problems
