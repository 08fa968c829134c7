"""How long a plan takes where nothing has run yet: a few seconds of its own trainings, measured. Does not import torch.

Trials that differ only in what costs no time (seed, schedule, epochs) are alike; of each kind one is measured, the
largest kinds first.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from harness.data.inspection import image_counts
from harness.documents import canonical
from harness.execution.effort import effort
from harness.execution.executors.executor import Answered, Job, Stopping
from harness.execution.executors.local import LocalExecutor
from harness.execution.executors.slots import Slots
from harness.execution.plan import missing_inputs
from harness.execution.states import Work

TARGET = "harness.execution.calibration_job:measure"
LEAST, SECONDS, CAP = 2.0, 4.0, 10.0
"""Seconds of measuring, at least and at most, and of all of it: a process that starts slowly measures for less time."""
KINDS = 6
"""The most kinds of trials that are measured."""


@dataclass
class _Alike:
    """Trials that take equally long per image."""

    work: list[Work] = field(default_factory=list)
    images: int = 0
    """Images of all their trainings."""


@dataclass(frozen=True)
class Estimate:
    """About how long some trials take one after the other."""

    seconds: float | None
    """None if nothing could be measured."""
    without: tuple[str, ...] = ()
    """What is not in it, and why."""


def estimate(work: Iterable[Work], slots: Slots, cap: float | None = None) -> Estimate:
    """Estimate the trainings and rankings of this work by measuring short ones. Trials without data are left out."""
    kinds, problems = _kinds(work)
    if not kinds:
        return Estimate(None, tuple(problems))
    measured, errors = _measure([kind.work[0] for kind in kinds[:KINDS]], slots, CAP if cap is None else cap)
    problems += errors
    if not measured:
        return Estimate(None, tuple(problems))
    configs = [one.trial.config for kind in kinds for one in kind.work]
    if any(config.search is not None and config.retrain is None for config in configs):
        problems.append("searches: how many architectures they score is not known before")
    if any(config.observe.judges for config in configs):
        problems.append("curves that are measured during training")
    total = 0.0
    for number, kind in enumerate(kinds):
        if number < KINDS and number not in measured:
            continue  # its own error says why
        alike = [measured[number]] if number in measured else list(measured.values())
        training = sum(one["training"] for one in alike) / len(alike)
        ranking = sum(one.get("ranking", 0.0) * one.get("evaluations", 0) for one in alike) / len(alike)
        total += kind.images * training + len(kind.work) * ranking
    return Estimate(total, tuple(problems))


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
        document, retrain = config.json(), config.json().get("retrain", {})
        alike = [document[key] for key in ("space", "dataset", "network", "method", "rank", "benchmark")]
        alike += [document["train"][key] for key in ("batch_size", "weighting")] + [config.train.precision]
        alike += [retrain.get(key) for key in ("batch_size", "network")]
        kind = kinds.setdefault(canonical(alike), _Alike())
        kind.work.append(one)
        known = effort(config, counts)
        kind.images += known.images if known else 0
    missing = dict.fromkeys(dataset for (dataset, _), there in here.items() if not there)
    problems = [f"{dataset}: images or ground truth are missing" for dataset in missing]
    return sorted(kinds.values(), key=lambda kind: -kind.images), problems


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
    executor = LocalExecutor(slots, target=TARGET, grace=1.0)
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
