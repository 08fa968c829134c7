"""Measurements of a trial during training, without disturbing it.

Several supernets are trained one after the other. A value over all of them is taken at the same epoch of each, so it
is known once the last supernet reaches that epoch; its step is the number of epochs of all supernets until then.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from harness.components.benchmark import Benchmark
from harness.components.dataset import DataSet
from harness.components.registries import OBSERVATIONS
from harness.components.space import Architecture, Space
from harness.data.loading import evaluation_batches
from harness.documents import finite
from harness.metrics import kendall_tau
from harness.seeds import derive, make_rng
from harness.study.configuration import RunConfig
from harness.study.curves import AVERAGED, JUDGED_BY, SIZES
from harness.study.judging import Predictions, scores, selected_architectures
from harness.study.trial import Trial
from harness.training.cost import Meter
from harness.training.observers.similarity import IMAGES, pairs_by_distance, similarity_by_distance
from harness.training.ranks import ALONE, Ranks
from harness.training.stages.rank import predict
from harness.training.stages.train import Progress, Supernets
from harness.training.state import TrialState, packed, unpacked


@dataclass
class Observers:
    """All observations that a configuration requests. Called after every epoch of every supernet."""

    config: RunConfig
    dataset: DataSet
    benchmark: Benchmark | None
    meter: Meter
    metric: Callable[[str, int, float], None]
    points: dict[str, list[list[float | int | None]]] = field(default_factory=dict)
    """The curves so far: step and value, by name."""
    trial: TrialState | None = None
    ranks: Ranks = ALONE
    _predictions: dict[int, Predictions] = field(default_factory=dict)
    """By epoch, predictions of the supernets that have reached it; deleted once τ is known."""
    _measured: dict[str, dict[int, list[float]]] = field(default_factory=dict)
    """By name and epoch, values that the steps measured; one value per supernet."""
    _last: dict[str, list[float]] = field(default_factory=dict)
    """By the end of a curve's name, τ after each of the last epochs, if their mean is requested."""
    _subnets: dict[str, dict[str, Architecture]] = field(default_factory=dict)
    """By the end of a curve's name, the observed subnets by size."""

    def __call__(self, supernets: Supernets, progress: Progress) -> None:
        observe = self.config.observe
        if _is_due(observe.kendall_tau_every, progress) or _is_last(observe.average_last, progress):
            self._observe_tau(supernets, progress)
        if _is_due(observe.subnets_every, progress):
            self._observe_subnets(supernets, progress)
        if _is_due(observe.similarity_every, progress):
            found = self._similarity(supernets, progress)
            progress = replace(progress, measured={**progress.measured, **found})
        self._observe_steps(progress)
        for name in observe.own:
            self._observe_own(name, supernets, progress)

    @cached_property
    def _judges(self) -> dict[str, RunConfig]:
        """By the end of a curve's name, the configuration that judges: the run's own, without an end, and, where it
        names a truth, that of every other data set of the benchmark: one training answers for all of them."""
        config, judges = self.config, {"": self.config}
        if config.rank.truth is not None and self.benchmark is not None:
            for dataset in self.benchmark.datasets:
                if dataset != config.rank.truth:
                    other = config.with_valid(rank=replace(config.rank, truth=dataset))
                    judges[JUDGED_BY + Trial(other).ranking_key_here()] = other
        return judges

    @cached_property
    def _selected(self) -> dict[str, list[Architecture]]:
        """By the same ends, the architectures that τ is taken over."""
        assert self.benchmark is not None
        choose = partial(selected_architectures, self.benchmark, self.config.dataset)
        return {end: choose(judge.rank) for end, judge in self._judges.items()}

    def _observe_tau(self, supernets: Supernets, progress: Progress) -> None:
        """Kendall's τ on the selected architectures."""
        assert self.benchmark is not None, "τ without a table of truth"  # a plan refuses that
        self.meter.stage("train")
        selected = self._selected
        together = dict.fromkeys(architecture for chosen in selected.values() for architecture in chosen)
        own = [architecture for architecture in together if supernets.part_of(architecture) == progress.part]
        predictions = self._predictions.setdefault(progress.epoch, {})
        keep = partial(self.trial.evaluated, predictions) if self.trial else None
        ask = partial(predict, stage="observe", known=predictions, keep=keep, ranks=self.ranks)
        with undisturbed(supernets):
            found = ask(supernets, own, self.dataset, self.config.rank, self.meter)
        predictions.update(found)
        if progress.part == progress.parts - 1:
            number, score = self.benchmark.space.index, scores(predictions, self.config.rank.by)
            for end, judge in self._judges.items():
                truth = judge.rank.truth_in(self.benchmark, judge.dataset)
                chosen = selected[end]
                true = [float(truth[number(a)]) for a in chosen]
                guessed = [score[a] for a in chosen]
                tau = kendall_tau(guessed, true)
                if _is_due(self.config.observe.kendall_tau_every, progress):
                    step, best = progress.epoch * progress.parts, true[int(np.argmax(guessed))]
                    self._point(f"kendall_tau{end}", step, tau)
                    self._point(f"selected_top1{end}", step, best)
                    self._point(f"selected_regret{end}", step, max(true) - best)
                if _is_last(self.config.observe.average_last, progress):
                    self._average(end, tau, progress)
            del self._predictions[progress.epoch]

    def _average(self, end: str, tau: float, progress: Progress) -> None:
        """Means of τ over the last epoch, the last two, and so on, once the last τ is known."""
        last = self._last.setdefault(end, [])
        last.append(tau)
        if progress.epoch == progress.epochs:
            for count in range(1, len(last) + 1):
                self._point(f"{AVERAGED}{end}", count, statistics.fmean(last[-count:]))

    def _observe_subnets(self, supernets: Supernets, progress: Progress) -> None:
        """Validation loss and accuracy of a small, a medium and a large subnet, in the supernet that holds each."""
        self.meter.stage("train")
        step = progress.epoch * progress.parts
        for end, judge in self._judges.items():
            if end not in self._subnets:
                self._subnets[end] = observed_subnets(supernets.space, self.benchmark, judge)
            for size, architecture in self._subnets[end].items():
                if supernets.part_of(architecture) != progress.part:
                    continue
                with undisturbed(supernets):
                    loss, accuracy = self._validate(supernets.networks[progress.part], architecture)
                self._point(f"valid_loss_{size}{end}", step, loss)
                self._point(f"valid_accuracy_{size}{end}", step, accuracy)
        self.meter.stage("observe")

    @torch.no_grad()
    def _validate(self, network: torch.nn.Module, architecture: Architecture) -> tuple[float, float]:
        network.eval()
        rank = self.config.rank
        split = self.dataset.valid.head(rank.images)
        losses, hits, total = [], [], 0
        for images, labels in evaluation_batches(self.dataset, split, rank.batch_size, self.meter.device):
            logits = network(images, architecture)
            losses.append(functional.cross_entropy(logits, labels, reduction="sum"))
            hits.append((logits.argmax(1) == labels).sum())
            total += len(labels)
        return float(torch.stack(losses).double().sum()) / total, 100 * float(torch.stack(hits).sum()) / total

    def _observe_steps(self, progress: Progress) -> None:
        """Values that the epoch's steps measured: the mean over the supernets."""
        for name, value in progress.measured.items():
            by_epoch = self._measured.setdefault(name, {})
            by_epoch.setdefault(progress.epoch, []).append(value)
        if progress.part == progress.parts - 1:
            for name, by_epoch in self._measured.items():
                if values := by_epoch.pop(progress.epoch, None):
                    self._point(name, progress.epoch * progress.parts, statistics.fmean(values))

    def _similarity(self, supernets: Supernets, progress: Progress) -> dict[str, float]:
        """The similarity of the supernet's gradients, by the number of decisions in which subnets differ."""
        self.meter.stage("train")
        part = supernets.parts[progress.part]
        pairs = pairs_by_distance(supernets.space, part, make_rng(self.config.seed, "similarity", progress.part))
        split = self.dataset.train.head(IMAGES)
        images, labels = next(iter(evaluation_batches(self.dataset, split, IMAGES, self.meter.device)))
        with undisturbed(supernets):
            found = similarity_by_distance(supernets.networks[progress.part], pairs, images, labels)
        self.meter.stage("observe")
        return found

    def _observe_own(self, name: str, supernets: Supernets, progress: Progress) -> None:
        """A registered observation: a function of the supernets, the progress and the data set, numbers by name."""
        self.meter.stage("train")
        with undisturbed(supernets), torch.no_grad():
            found = OBSERVATIONS.get(name)(supernets, progress, self.dataset)
        for key, value in found.items():
            self._point(key, progress.part * progress.epochs + progress.epoch, float(value))
        self.meter.stage("observe")

    def _point(self, name: str, step: int, value: float) -> None:
        self.points.setdefault(name, []).append([step, finite(value)])
        self.metric(name, step, value)

    def state(self) -> dict[str, Any]:
        """The observations so far, to be stored."""
        return {
            "points": self.points,
            "predictions": {epoch: packed(found) for epoch, found in self._predictions.items()},
            "measured": self._measured,
            "last": self._last,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.points = state["points"]
        self._predictions = {epoch: unpacked(found) for epoch, found in state["predictions"].items()}
        self._measured = state["measured"]
        self._last = state.get("last", {})


def observed_subnets(space: Space, benchmark: Benchmark | None, config: RunConfig) -> dict[str, Architecture]:
    """One subnet per third of the range of complexity: the one of median accuracy there, by size.

    Such subnets differ in accuracy, and a larger one is better as a rule. So a ranking that prefers the smaller
    one is visibly wrong. Without a table of truth: the smallest, the largest, and the median of a fixed sample.
    """
    if benchmark is None:
        _, smallest, _, largest = space.extremes()
        drawn = space.distinct(min(space.size, 101), random.Random(derive(0, "observed subnets", space.name)))
        drawn.sort(key=lambda architecture: (space.complexity(architecture), architecture))
        return dict(zip(SIZES, (smallest, drawn[len(drawn) // 2], largest), strict=True))
    truth = config.rank.truth_in(benchmark, config.dataset)
    complexity = np.array([space.complexity(architecture) for architecture in space], dtype=np.float64)
    edges = np.linspace(complexity.min(), complexity.max(), len(SIZES) + 1)
    thirds = np.clip(np.searchsorted(edges, complexity, side="left"), 1, len(SIZES))
    chosen = {}
    for number, size in enumerate(SIZES, start=1):
        members = np.flatnonzero(thirds == number)
        if len(members):
            ordered = members[np.argsort(truth[members], kind="stable")]
            chosen[size] = space.architecture(int(ordered[len(ordered) // 2]))
    return chosen


def _is_due(every: int, progress: Progress) -> bool:
    return bool(every) and progress.epoch % every == 0


def _is_last(count: int, progress: Progress) -> bool:
    return progress.epoch > progress.epochs - count


@contextmanager
def undisturbed(supernets: Supernets) -> Iterator[None]:
    """Context that restores the networks' modes (training or evaluation) and the state of the global rng."""
    modes = [network.training for network in supernets.networks]
    with torch.random.fork_rng(devices=[]):
        yield
    for network, mode in zip(supernets.networks, modes, strict=True):
        network.train(mode)
