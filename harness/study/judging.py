"""Judges predictions by a table of truth: which architectures are ranked, and what a ranking is worth. No torch.

Stored predictions, and predictions from elsewhere, are judged by the same functions as a ranking that was just made.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from harness.components.benchmark import Benchmark
from harness.components.registries import METRICS, SPACES
from harness.components.selection import RULES
from harness.components.space import Architecture, Space
from harness.documents import finite
from harness.metrics import complexity_bias, complexity_convergence, kendall_tau, neutral_complexity_bias
from harness.seeds import derive
from harness.stores.quantities import needing
from harness.stores.schema import PANEL, UNRANKED
from harness.study.configuration import Ranking, RunConfig
from harness.study.panel import panel

Predictions = dict[Architecture, float]
"""Predicted accuracy in percent."""


class Parts(Protocol):
    """Who predicts: several supernets, each for its part of a space, or one."""

    @property
    def space(self) -> Space: ...

    @property
    def found(self) -> Sequence[Architecture]:
        """What a method itself has found with them, the best of each first."""

    def part_of(self, architecture: Architecture) -> int:
        """The number of the part that holds the architecture."""


@dataclass(frozen=True)
class Whole:
    """One predictor of a whole space."""

    space: Space
    found: Sequence[Architecture] = ()

    def part_of(self, architecture: Architecture) -> int:
        return 0


def selected_architectures(benchmark: Benchmark, dataset: str, ranking: Ranking) -> list[Architecture]:
    """The architectures that Kendall's τ is computed over, for supernets that were trained on `dataset`."""
    numbers = RULES[ranking.selection](benchmark.accuracies(ranking.selects_on(dataset)), ranking.bins)
    return [benchmark.space.architecture(int(number)) for number in numbers]


def candidate_architectures(space: Space, ranking: Ranking) -> list[Architecture]:
    """The architectures that compete for top-1: all, or a fixed random sample drawn without the ground truth."""
    if ranking.candidates is None and not ranking.top1 and not space.enumerable:
        return []
    if ranking.candidates is None or ranking.candidates >= space.size:
        return list(space)
    return space.distinct(ranking.candidates, random.Random(derive(0, "top-1 candidates", space.name)))


def top_architectures(benchmark: Benchmark, dataset: str, ranking: Ranking) -> list[Architecture]:
    """The architectures that CB and C³ are computed over: the best by truth, or a fixed random sample of these.

    Ties at the threshold go to the lowest numbers. Empty if CB and C³ are not requested.
    """
    if ranking.top_share is None:
        return []
    truth = benchmark.accuracies(ranking.truth_of(dataset))
    count = math.ceil(len(truth) * ranking.top_share)
    numbers = np.argsort(-truth, kind="stable")[:count].tolist()
    if ranking.top_sample is not None and ranking.top_sample < count:
        numbers = random.Random(derive(0, "top sample", benchmark.space.name)).sample(numbers, ranking.top_sample)
    return [benchmark.space.architecture(number) for number in sorted(numbers)]


def ranked_architectures(config: RunConfig, benchmark: Benchmark | None) -> list[Architecture]:
    """Selected and candidate architectures, each once, by number. Without a table of truth none is selected."""
    if benchmark is None and config.rank.candidates is None and not config.rank.top1:
        return []  # nobody asks for a ranking: a search follows
    if benchmark is None:
        return candidate_architectures(SPACES.get(config.space)(), config.rank)
    space = benchmark.space
    wanted = {
        *selected_architectures(benchmark, config.dataset, config.rank),
        *candidate_architectures(space, config.rank),
        *top_architectures(benchmark, config.dataset, config.rank),
    }
    return sorted(wanted, key=space.index)


@dataclass(frozen=True)
class Judgement:
    """How good a ranking is."""

    kendall_tau: float | None
    """None without a table of truth."""
    selected: int
    top1: Architecture | None
    """The best-ranked architecture; None if not requested."""
    top1_accuracy: float | None
    """Its stand-alone accuracy, looked up; None without a table of truth."""
    complexity_bias: float | None = None
    """CB; this and the next two are None if not requested."""
    neutral_complexity_bias: float | None = None
    """The CB of errors that are independent of size."""
    complexity_convergence: float | None = None
    """C³."""
    own: Mapping[str, float] = field(default_factory=dict)
    """Registered metrics, by name."""


def judge(
    predictions: Mapping[Architecture, float],
    supernets: Parts,
    benchmark: Benchmark | None,
    dataset: str,
    ranking: Ranking,
) -> Judgement:
    """Compare predictions of supernets that were trained on `dataset` with the ground truth.

    Top-1: the best-ranked of each supernet's candidates (ties to the lowest number), of these the one
    with the best looked-up accuracy, as the paper does for several sub-supernets. Without a table of truth, it is the
    one with the best predicted accuracy. A method that finds architectures itself has that of each supernet instead.
    """
    if benchmark is None:
        best = _winners(predictions, supernets, ranking) if ranking.top1 else []
        # What a method has found itself need not be among those that are ranked.
        return Judgement(None, 0, max(best, key=lambda one: predictions.get(one, 0.0)) if best else None, None)
    space = benchmark.space
    selected = selected_architectures(benchmark, dataset, ranking)
    truth = benchmark.accuracies(ranking.truth_of(dataset))
    tau = kendall_tau([predictions[a] for a in selected], np.array([truth[space.index(a)] for a in selected]))
    own = _measured(selected, predictions, benchmark, truth, ranking) if ranking.metrics else {}
    judgement = Judgement(tau, len(selected), None, None, own=own)
    if top := top_architectures(benchmark, dataset, ranking):
        guessed, true = [predictions[a] for a in top], [float(truth[space.index(a)]) for a in top]
        complexity = [float(space.complexity(a, ranking.complexity)) for a in top]
        judgement = replace(
            judgement,
            complexity_bias=complexity_bias(guessed, true, complexity),
            neutral_complexity_bias=neutral_complexity_bias(true, complexity),
            complexity_convergence=complexity_convergence(guessed, true, complexity),
        )
    if not ranking.top1:
        return judgement
    winner = max(_winners(predictions, supernets, ranking), key=lambda one: truth[space.index(one)])
    return replace(judgement, top1=winner, top1_accuracy=float(truth[space.index(winner)]))


def lacks(config: RunConfig, result: Mapping[str, Any] | None) -> bool:
    """Whether a ranking is not stored (None), or was stored by a version that made no panel."""
    if result is None:
        return True
    return config.benchmark is not None and result["diverged"] is None and PANEL not in result


def completed(
    config: RunConfig, result: Mapping[str, Any], known: Mapping[int, float], benchmark: Benchmark
) -> dict[str, Any] | None:
    """A stored result with its panel. `known` are predictions by number; None if these are not all."""
    space, wanted = benchmark.space, ranked_architectures(config, benchmark)
    predictions = {one: known[number] for one in wanted if (number := space.index(one)) in known}
    if len(predictions) < len(wanted):
        return None
    return {**result, PANEL: panel(predictions, benchmark, config.dataset, config.rank)}


def result_of(
    predictions: Mapping[Architecture, float],
    supernets: Parts,
    benchmark: Benchmark | None,
    dataset: str,
    ranking: Ranking,
) -> dict[str, Any]:
    """What is stored of a ranking (`harness.stores.schema.Ranked`)."""
    judgement = judge(predictions, supernets, benchmark, dataset, ranking)
    return {
        **UNRANKED,  # for the order of its keys
        "kendall_tau": None if judgement.kendall_tau is None else finite(judgement.kendall_tau),
        "selected": judgement.selected,
        "top1": judgement.top1 and list(judgement.top1),
        "top1_accuracy": judgement.top1_accuracy,
        "ranked": len(predictions),
        **_fairness(judgement),
        **{name: finite(value) for name, value in judgement.own.items()},
        **({} if benchmark is None else {PANEL: panel(predictions, benchmark, dataset, ranking)}),
    }


def _fairness(judgement: Judgement) -> dict[str, float | None]:
    """CB and C³, if requested."""
    if judgement.neutral_complexity_bias is None:
        return {}
    return {name: finite(getattr(judgement, name)) for name in needing("top_share")}


def _measured(
    selected: Sequence[Architecture],
    predictions: Mapping[Architecture, float],
    benchmark: Benchmark,
    truth: npt.NDArray[np.float64],
    ranking: Ranking,
) -> dict[str, float]:
    """The registered metrics that are requested."""
    space = benchmark.space
    guessed = np.array([predictions[a] for a in selected])
    true = np.array([truth[space.index(a)] for a in selected])
    complexity = np.array([float(space.complexity(a, ranking.complexity)) for a in selected])
    return {name: float(METRICS.get(name)(guessed, true, complexity)) for name in ranking.metrics}


def _winners(predictions: Mapping[Architecture, float], supernets: Parts, ranking: Ranking) -> list[Architecture]:
    """What the method has found with each supernet, else the best-ranked candidates; ties go to the lowest number."""
    winners: dict[int, Architecture] = {}
    for architecture in supernets.found:
        winners.setdefault(supernets.part_of(architecture), architecture)
    if winners:
        return list(winners.values())
    for architecture in candidate_architectures(supernets.space, ranking):
        part = supernets.part_of(architecture)
        if part not in winners or predictions[architecture] > predictions[winners[part]]:
            winners[part] = architecture
    return list(winners.values())
