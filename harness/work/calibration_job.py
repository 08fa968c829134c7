"""The job that measures how fast a configuration trains and ranks, in seconds. Imported in training processes only.

Each part is done with more and more images until its time is used up. The time per image is the slope between the first
and the last measurement, so that what is done once does not count.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from harness.components.benchmark import benchmark_for
from harness.components.dataset import DataSet
from harness.components.registries import DATASETS
from harness.components.space import Architecture
from harness.data import devices
from harness.documents import one_line
from harness.study.configuration import RunConfig
from harness.study.judging import ranked_architectures
from harness.training.allocator import keep_freed_memory
from harness.training.cost import Meter
from harness.training.precision import fix_arithmetic
from harness.training.stages.rank import predict
from harness.training.stages.retrain import retrain
from harness.training.stages.train import Supernets, build_supernets, train
from harness.work.jobs import Answered

Timed = Callable[[int], tuple[float, int]]
"""Does so much work; gives the seconds that it took and the units that were done."""


def measure(document: Mapping[str, Any], progress: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Measure each of the configurations; each is reported as soon as it is known.

    A report has its "number", and "training" (seconds per image of a pass), "ranking" (seconds per evaluation) and
    "evaluations" (how many the ranking needs); or an "error".
    """
    from harness.work.compute import terminable

    try:
        with terminable():
            torch.set_num_threads(document["threads"])
            keep_freed_memory()
            device = devices.chosen(document["device"])
            least, most = document["seconds"]
            seconds = max(least, min(most, document["until"] - time.time())) / len(document["configs"])
            for number, config in enumerate(document["configs"]):
                try:
                    found = _measured(RunConfig.from_json(config), device, seconds)
                except Exception as error:  # one configuration that cannot be trained does not hide the others
                    found = {"error": one_line(error)}
                progress({"number": number, **found})
    except KeyboardInterrupt:
        return {"status": Answered.INTERRUPTED}
    return {"status": Answered.DONE}


def _measured(config: RunConfig, device: str, seconds: float) -> dict[str, Any]:
    fix_arithmetic((config.retrain or config.train).precision)
    dataset: DataSet = DATASETS.get(config.dataset)()
    if config.retrain is not None:
        return {"training": _slope(lambda count: _retrained(config, dataset, device, count), seconds)}
    training = _slope(lambda count: _trained(config, dataset, device, count), seconds / 2)
    benchmark = None if config.benchmark is None else benchmark_for(config.benchmark, config.space)
    ranked = ranked_architectures(config, benchmark)
    supernets = build_supernets(config, dataset, torch.device(device))
    needed = len({(supernets.part_of(one), supernets.space.function_class(one)) for one in ranked})
    if not ranked:
        return {"training": training, "ranking": 0.0, "evaluations": 0}
    ranking = _slope(lambda count: _ranked(config, dataset, supernets, ranked, device, count), seconds / 2)
    return {"training": training, "ranking": ranking, "evaluations": needed}


def _slope(timed: Timed, seconds: float) -> float:
    """Seconds per unit, from as much work as fits into the time. The first round warms up, and does not count."""
    until = time.monotonic() + seconds
    took, units = timed(1)
    if time.monotonic() >= until:
        return took / max(1, units)
    first = last = timed(1)
    count = 2
    while time.monotonic() + 2 * last[0] < until:
        last = timed(count)
        if last[1] <= first[1]:  # there is no more to do
            break
        count *= 2
    if last[1] > first[1] and last[0] > first[0]:
        return (last[0] - first[0]) / (last[1] - first[1])
    return last[0] / max(1, last[1])


def _trained(config: RunConfig, dataset: DataSet, device: str, batches: int) -> tuple[float, int]:
    """Train one epoch of so many batches."""
    settings = replace(config.train, epochs=1, warmup_epochs=0, warmup_steps=0)
    few = replace(dataset, train=dataset.train.head(batches * settings.batch_size))
    meter = Meter(torch.device(device))
    train(config.with_valid(train=settings), few, meter)
    return meter.stages["train"], meter.images


def _retrained(config: RunConfig, dataset: DataSet, device: str, batches: int) -> tuple[float, int]:
    """Train one epoch of a random architecture."""
    assert config.retrain is not None
    settings = replace(config.retrain, epochs=1, with_valid=False)
    batch = settings.batch_size
    few = replace(dataset, train=dataset.train.head(batches * batch), test=dataset.test.head(batch))
    meter = Meter(torch.device(device))
    space = build_supernets(config, dataset, meter.device).space
    retrain(config.with_valid(retrain=settings), space.sample(random.Random(0)), few, meter)
    return meter.stages["train"], meter.images


def _ranked(
    config: RunConfig, dataset: DataSet, supernets: Supernets, ranked: Sequence[Architecture], device: str, count: int
) -> tuple[float, int]:
    """Rank so many architectures."""
    # Evenly spaced, because neighbours are alike in size.
    some = ranked[:: max(1, len(ranked) // count)][:count]
    meter = Meter(torch.device(device))
    predict(supernets, some, dataset, config.rank, meter)
    return meter.stages["rank"], meter.evaluations
