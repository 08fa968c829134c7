"""One trial: a configuration in, a result and its cost out. Train, rank, judge, retrain; and the references.

`result` is deterministic: the same configuration gives the same bytes wherever it ran (at equal
thread counts, on one kind of hardware), and however often it was interrupted and resumed from its
checkpoint. `cost` is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from harness.components.benchmark import Benchmark, benchmark_for
from harness.components.dataset import DataSet
from harness.components.registries import DATASETS
from harness.components.space import Architecture
from harness.documents import finite
from harness.errors import Diverged, InvalidConfiguration
from harness.seeds import make_rng
from harness.stores.checkpoints import Checkpoint
from harness.study.configuration import RunConfig
from harness.training.cost import Meter
from harness.training.observers.curves import Observers
from harness.training.profiling import phase
from harness.training.stages.rank import (
    Judgement,
    Predictions,
    candidate_architectures,
    judge,
    predict,
    selected_architectures,
    top_architectures,
)
from harness.training.stages.retrain import retrain
from harness.training.stages.train import Progress, Supernets, build_supernets, train
from harness.training.state import Points, TrialState

REFERENCES = {
    "parameters": "the number of parameters as the prediction",
    "untrained": "the supernet with its initial weights",
    "random": "random numbers",
}


@dataclass(frozen=True)
class Outcome:
    """The outcome of a trial. A run that diverged has no predictions."""

    result: dict[str, Any]
    cost: dict[str, object]
    predictions: Predictions
    supernets: Supernets | None


@dataclass(frozen=True)
class Watch:
    """Progress callbacks; each defaults to a no-op."""

    epoch: Callable[[Progress], None] = lambda progress: None
    metric: Callable[[str, int, float], None] = lambda name, step, value: None
    """A point of a curve: its name, step and value, in the order of steps."""
    ranking: Callable[[int, int], None] = lambda done, total: None
    restored: Callable[[list[dict[str, Any]]], None] = lambda points: None
    """Called once, before all others, when the trial resumes from a checkpoint: with all points up to there,
    each with its name, step, value and timestamp (UTC). `metric` is not called for them again."""


def run_trial(
    config: RunConfig,
    device: torch.device | str = "cpu",
    watch: Watch | None = None,
    checkpoint: Checkpoint | None = None,
) -> Outcome:
    """Train the configuration's supernets, rank, and compare with the ground truth.

    With a checkpoint, the trial resumes from the stored state and saves its state: whenever a save is due,
    between any two steps or evaluations, and after each supernet. The caller removes the checkpoint when
    the outcome is stored. Raises `CheckpointNotWritten`.
    """
    watch = watch or Watch()
    meter = Meter(torch.device(device))
    dataset, benchmark = _inputs(config)
    ranked = _ranked(config, benchmark)  # before training, so that an unsuitable benchmark is refused at once
    points = Points(watch.metric)
    observer = Observers(config, dataset, benchmark, meter, points)
    state = None
    if checkpoint is not None:
        state = observer.trial = TrialState(checkpoint, meter, points, observer, watch.restored)

    def report(progress: Progress) -> None:
        points("train_loss", progress.part * progress.epochs + progress.epoch, progress.loss)
        watch.epoch(progress)

    known = state.predictions if state else {}
    keep = partial(state.evaluated, known) if state else None
    try:
        with checkpoint.asked_often() if checkpoint else nullcontext():
            supernets = train(config, dataset, meter, report, observer, state)
            predictions = predict(supernets, ranked, dataset, config.rank, meter, watch.ranking, known=known, keep=keep)
    except Diverged as error:
        meter.stage("train")
        return Outcome(_diverged(error) | {"observed": observer.points}, meter.json(), {}, None)
    result = _result(config, predictions, supernets, benchmark) | {"observed": observer.points}
    return Outcome(result, meter.json(), predictions, supernets)


def retrain_trial(
    config: RunConfig,
    architecture: Architecture,
    device: torch.device | str = "cpu",
    watch: Watch | None = None,
    checkpoint: Checkpoint | None = None,
) -> Outcome:
    """Train the architecture that a search has found as a stand-alone network.

    The result has its accuracy beside the looked-up one. Checkpoints as in `run_trial`.
    """
    watch = watch or Watch()
    meter = Meter(torch.device(device))
    dataset, benchmark = _inputs(config)
    points = Points(watch.metric)
    observer = Observers(config, dataset, benchmark, meter, points)
    state = TrialState(checkpoint, meter, points, observer, watch.restored) if checkpoint else None

    def report(progress: Progress) -> None:
        points("train_loss", progress.epoch, progress.loss)
        watch.epoch(progress)

    looked_up = benchmark.accuracy(architecture, config.rank.truth_of(config.dataset))
    found = {"top1": list(architecture), "top1_accuracy": looked_up}
    try:
        with checkpoint.asked_often() if checkpoint else nullcontext():
            networks, accuracy = retrain(config, architecture, dataset, meter, report, state)
    except Diverged as error:
        meter.stage("train")
        return Outcome(_diverged(error) | found | {"retrained_accuracy": None, "observed": {}}, meter.json(), {}, None)
    result = _UNRANKED | found | {"retrained_accuracy": accuracy, "observed": {}}
    return Outcome(result, meter.json(), {}, networks)


def rank_again(
    config: RunConfig,
    weights: Callable[[], list[dict[str, Any]]],
    known: Mapping[int, float],
    device: torch.device | str = "cpu",
    watch: Watch | None = None,
) -> Outcome:
    """Make the ranking that the configuration requests now, with the stored weights of a run of this trial.

    `known` are predictions of the same weights on the same images, by architecture number; `weights` is
    called only if some predictions are missing.
    """
    watch = watch or Watch()
    meter = Meter(torch.device(device))
    dataset, benchmark = _inputs(config)
    space = benchmark.space
    supernets = build_supernets(config, dataset, meter.device)
    ranked = _ranked(config, benchmark)
    missing = [architecture for architecture in ranked if space.index(architecture) not in known]
    if missing:
        stored = weights()
        if len(stored) != len(supernets.networks):
            raise InvalidConfiguration(
                f"the run has {len(stored)} supernets, which split while training went on; only the architectures that "
                "it has ranked can be judged again"
            )
        for network, state in zip(supernets.networks, stored, strict=True):
            network.load_state_dict(state)
    new = predict(supernets, missing, dataset, config.rank, meter, watch.ranking)
    predictions = {a: new[a] if a in new else known[space.index(a)] for a in ranked}
    return Outcome(_result(config, predictions, supernets, benchmark), meter.json(), predictions, supernets)


def run_reference(config: RunConfig, reference: str, device: torch.device | str = "cpu") -> Outcome:
    """Judge a predictor without training in the same way: one of `REFERENCES`."""
    if reference not in REFERENCES:
        raise InvalidConfiguration(f"no reference is named {reference!r}. Known: {', '.join(REFERENCES)}")
    meter = Meter(torch.device(device))
    dataset, benchmark = _inputs(config)
    supernets = build_supernets(config, dataset, meter.device)
    ranked = _ranked(config, benchmark)
    if reference == "untrained":
        predictions = predict(supernets, ranked, dataset, config.rank, meter)
    elif reference == "parameters":
        predictions = {architecture: float(benchmark.space.complexity(architecture)) for architecture in ranked}
    else:
        rng = make_rng(config.seed, "random reference")
        predictions = {architecture: rng.random() for architecture in ranked}
    return Outcome(_result(config, predictions, supernets, benchmark), meter.json(), predictions, supernets)


def _inputs(config: RunConfig) -> tuple[DataSet, Benchmark]:
    with phase("data"):
        dataset = DATASETS.get(config.dataset)()
    return dataset, benchmark_for(config.benchmark, config.space)


def _ranked(config: RunConfig, benchmark: Benchmark) -> list[Architecture]:
    """Selected and candidate architectures, each once, by number."""
    space = benchmark.space
    wanted = {
        *selected_architectures(benchmark, config.dataset, config.rank),
        *candidate_architectures(space, config.rank),
        *top_architectures(benchmark, config.dataset, config.rank),
    }
    return sorted(wanted, key=space.index)


def _result(config: RunConfig, predictions: Predictions, supernets: Supernets, benchmark: Benchmark) -> dict[str, Any]:
    judgement = judge(predictions, supernets, benchmark, config.dataset, config.rank)
    return {
        "kendall_tau": finite(judgement.kendall_tau),
        "selected": judgement.selected,
        "top1": judgement.top1 and list(judgement.top1),
        "top1_accuracy": judgement.top1_accuracy,
        "ranked": len(predictions),
        "diverged": None,
        **_fairness(judgement),
    }


def _fairness(judgement: Judgement) -> dict[str, float | None]:
    """CB and C³, if requested."""
    if judgement.neutral_complexity_bias is None:
        return {}
    names = ("complexity_bias", "neutral_complexity_bias", "complexity_convergence")
    return {name: finite(getattr(judgement, name)) for name in names}


_UNRANKED = {
    "kendall_tau": None,
    "selected": 0,
    "top1": None,
    "top1_accuracy": None,
    "ranked": 0,
    "diverged": None,
}
"""The result of a run that ranked nothing."""


def _diverged(error: Diverged) -> dict[str, Any]:
    """The result of a run that diverged. The loss is text, because it is not a finite number."""
    return _UNRANKED | {"diverged": {"step": error.step, "loss": str(error.loss)}}
