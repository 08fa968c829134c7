"""One cell: a configuration in, a result and its cost out. Train, rank, judge; and the references.

`result` is deterministic: the same configuration gives the same bytes wherever it ran (at equal
thread counts, on one kind of hardware). `cost` is measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from harness.benchmarks import Benchmark
from harness.config import RunConfig
from harness.cost import Meter
from harness.data import DataSet
from harness.errors import InvalidConfiguration
from harness.registries import BENCHMARKS, DATASETS
from harness.seeds import chance
from harness.space import Architecture
from harness.stages.rank import Predictions, candidate_architectures, judge, predict, selected_architectures
from harness.stages.train import Progress, Supernets, build_supernets, train

REFERENCES = {
    "parameters": "the number of parameters as the prediction",
    "untrained": "the supernet with its initial weights",
    "random": "random numbers",
}


@dataclass(frozen=True)
class Outcome:
    """What a cell gave."""

    result: dict[str, Any]
    cost: dict[str, object]
    predictions: Predictions
    supernets: Supernets


def run_cell(
    config: RunConfig,
    device: torch.device | str = "cpu",
    report: Callable[[Progress], None] = lambda progress: None,
) -> Outcome:
    """Train the configuration's supernets, rank, and compare with the ground truth."""
    meter = Meter(torch.device(device))
    dataset, benchmark = _inputs(config)
    ranked = _ranked(config, benchmark)  # before training: a benchmark that does not fit is refused at once
    supernets = train(config, dataset, meter, report)
    predictions = predict(supernets, ranked, dataset, config.rank, meter)
    return Outcome(_result(config, predictions, supernets, benchmark), meter.json(), predictions, supernets)


def run_reference(config: RunConfig, reference: str, device: torch.device | str = "cpu") -> Outcome:
    """The same judgement of a predictor that trained nothing: one of `REFERENCES`."""
    if reference not in REFERENCES:
        raise InvalidConfiguration(f"no reference {reference!r}; there are {', '.join(REFERENCES)}")
    meter = Meter(torch.device(device))
    dataset, benchmark = _inputs(config)
    supernets = build_supernets(config, dataset, meter.device)
    ranked = _ranked(config, benchmark)
    if reference == "untrained":
        predictions = predict(supernets, ranked, dataset, config.rank, meter)
    elif reference == "parameters":
        predictions = {architecture: float(benchmark.space.complexity(architecture)) for architecture in ranked}
    else:
        dice = chance(config.seed, "random reference")
        predictions = {architecture: dice.random() for architecture in ranked}
    return Outcome(_result(config, predictions, supernets, benchmark), meter.json(), predictions, supernets)


def _inputs(config: RunConfig) -> tuple[DataSet, Benchmark]:
    dataset = DATASETS.get(config.dataset)()
    benchmark = BENCHMARKS.get(config.benchmark)()
    if benchmark.space.name != config.space:
        raise InvalidConfiguration(
            f"benchmark {config.benchmark!r} is about {benchmark.space.name}, the configuration about {config.space}"
        )
    return dataset, benchmark


def _ranked(config: RunConfig, benchmark: Benchmark) -> list[Architecture]:
    """Selected and candidate architectures, each once, by number."""
    space = benchmark.space
    wanted = {*selected_architectures(benchmark, config.dataset, config.rank)}
    return sorted(wanted.union(candidate_architectures(space, config.rank)), key=space.index)


def _result(config: RunConfig, predictions: Predictions, supernets: Supernets, benchmark: Benchmark) -> dict[str, Any]:
    judgement = judge(predictions, supernets, benchmark, config.dataset, config.rank)
    return {
        # Null where it is undefined: NaN is no JSON, and not equal to itself.
        "kendall_tau": None if math.isnan(judgement.kendall_tau) else judgement.kendall_tau,
        "selected": judgement.selected,
        "top1": list(judgement.top1),
        "top1_accuracy": judgement.top1_accuracy,
        "ranked": len(predictions),
    }
