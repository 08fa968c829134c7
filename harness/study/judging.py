"""Judges predictions by a table of truth: which architectures are ranked, and what a ranking is worth. No torch.

Stored predictions, and predictions from elsewhere, are judged by the same functions as a ranking that was just made.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from harness.components.benchmark import Benchmark
from harness.components.method import Method, Part
from harness.components.registries import METRICS, SPACES
from harness.components.selection import RULES
from harness.components.space import Architecture, Space
from harness.documents import finite
from harness.metrics import (
    against_null,
    blended_tau,
    complexity_bias,
    complexity_convergence,
    expected_best,
    kendall_tau,
    matched_null,
    neutral_complexity_bias,
    partial_tau,
)
from harness.schema import PANEL, UNRANKED, needing
from harness.seeds import derive, make_rng
from harness.study.configuration import COMPONENTS, Ranking, RunConfig
from harness.study.panel import panel


class Prediction(NamedTuple):
    """What a supernet predicts for an architecture, from one evaluation."""

    accuracy: float
    """In percent; or the score of a method that has its own."""
    loss: float | None = None
    """Mean cross-entropy; None where it was not measured."""


Predictions = dict[Architecture, Prediction]


def scores(predictions: Mapping[Architecture, Prediction], by: str) -> dict[Architecture, float]:
    """What the architectures are ranked by, higher is better: accuracy, or the loss times −1 where it is known."""
    if by == "accuracy":
        return {architecture: one.accuracy for architecture, one in predictions.items()}
    # Scores of other origin have no loss: they rank as they are.
    return {a: one.accuracy if one.loss is None else -one.loss for a, one in predictions.items()}


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


@dataclass(frozen=True)
class Divided:
    """Predictors of the parts of a space: several supernets without their networks."""

    space: Space
    parts: Sequence[Part]
    found: Sequence[Architecture] = ()

    def part_of(self, architecture: Architecture) -> int:
        return next(number for number, part in enumerate(self.parts) if architecture in part)


def selected_architectures(benchmark: Benchmark, dataset: str, ranking: Ranking) -> list[Architecture]:
    """The architectures that Kendall's τ is computed over, for supernets that were trained on `dataset`."""
    numbers = RULES[ranking.selection](ranking.selecting_in(benchmark, dataset), ranking.bins)
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
    truth = ranking.truth_in(benchmark, dataset)
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
    top1_accuracy_predicted: float | None = None
    """That of the candidate with the best prediction: unlike top-1 of several supernets, no truth chooses it."""
    top1_of: int = 0
    """How many winners, one per supernet, the truth chooses top-1 from; 0 where that is not known."""
    top1_accuracy_random: float | None = None
    """The expected best of so many random candidates by truth: what the same choice gives without any training."""
    tau_by: Mapping[str, float] = field(default_factory=dict)
    """Kendall's τ by accuracy and, where all losses are known, by loss; `kendall_tau` is one of them."""
    complexity_bias: float | None = None
    """CB; this and the next six are None if not requested."""
    neutral_complexity_bias: float | None = None
    """The CB of random numbers."""
    complexity_convergence: float | None = None
    """C³."""
    complexity_bias_null: float | None = None
    """The mean CB of the null that is matched to the predictions (`harness.metrics.matched_null`)."""
    complexity_bias_z: float | None = None
    """CB less that mean, in standard deviations of the null: above 0 the supernet is unfair to large networks."""
    complexity_convergence_null: float | None = None
    complexity_convergence_z: float | None = None
    """The same of C³: below 0 the supernet is unfair to large networks."""
    blended_tau: float | None = None
    """Kendall's τ of the mean of the ranks by prediction and by the number of parameters."""
    partial_tau: float | None = None
    """Kendall's τ given the number of parameters; None without a table of truth."""
    own: Mapping[str, float] = field(default_factory=dict)
    """Registered metrics, by name."""


def judge(
    predictions: Mapping[Architecture, Prediction],
    supernets: Parts,
    benchmark: Benchmark | None,
    dataset: str,
    ranking: Ranking,
    seed: int = 0,
) -> Judgement:
    """Compare predictions of supernets that were trained on `dataset` with the ground truth.

    Top-1: the best-ranked of each supernet's candidates (ties to the lowest number), of these the one
    with the best looked-up accuracy, as the paper does for several sub-supernets. Without a table of truth, it is the
    one with the best predicted accuracy. A method that finds architectures itself has that of each supernet instead.
    The seed, that of the trial, draws the matched nulls of CB and C³.
    """
    score = scores(predictions, ranking.by)
    if benchmark is None:
        best = _winners(score, supernets, ranking) if ranking.top1 else []
        return Judgement(None, 0, _best_predicted(best, score) if best else None, None)
    space = benchmark.space
    selected = selected_architectures(benchmark, dataset, ranking)
    truth = ranking.truth_in(benchmark, dataset)
    true_accuracies = np.array([truth[space.index(a)] for a in selected])
    taus = _taus(selected, predictions, true_accuracies)
    sizes = [float(space.complexity(a)) for a in selected]
    beyond_size = partial_tau([score[a] for a in selected], true_accuracies, sizes)
    blended = blended_tau([score[a] for a in selected], true_accuracies, sizes)
    own = _measured(selected, score, benchmark, truth, ranking) if ranking.metrics else {}
    tau = taus.get(ranking.by, taus["accuracy"])
    judgement = Judgement(tau, len(selected), None, None, tau_by=taus, own=own, partial_tau=beyond_size)
    judgement = replace(judgement, blended_tau=blended)
    if top := top_architectures(benchmark, dataset, ranking):
        guessed, true = [score[a] for a in top], [float(truth[space.index(a)]) for a in top]
        accuracies = [predictions[a].accuracy for a in top]
        complexity = [float(space.complexity(a, ranking.complexity)) for a in top]
        bias, convergence = (
            complexity_bias(guessed, true, complexity),
            complexity_convergence(accuracies, true, complexity),
        )
        nulls = (matched_null(one, true, _null_rng(seed)) for one in (guessed, accuracies))
        biases, convergences = (
            [measure(row, true, complexity) for row in null]
            for measure, null in zip((complexity_bias, complexity_convergence), nulls, strict=True)
        )
        bias_null, bias_z = against_null(bias, biases)
        convergence_null, convergence_z = against_null(convergence, convergences)
        judgement = replace(
            judgement,
            complexity_bias=bias,
            neutral_complexity_bias=neutral_complexity_bias(true, complexity),
            complexity_convergence=convergence,
            complexity_bias_null=bias_null,
            complexity_bias_z=bias_z,
            complexity_convergence_null=convergence_null,
            complexity_convergence_z=convergence_z,
        )
    if not ranking.top1:
        return judgement
    winners = _winners(score, supernets, ranking)
    winner, predicted = max(winners, key=lambda one: truth[space.index(one)]), _best_predicted(winners, score)
    candidates = [float(truth[space.index(one)]) for one in candidate_architectures(space, ranking)]
    return replace(
        judgement,
        top1=winner,
        top1_accuracy=float(truth[space.index(winner)]),
        top1_accuracy_predicted=float(truth[space.index(predicted)]),
        top1_of=len(winners),
        top1_accuracy_random=expected_best(candidates, min(len(winners), len(candidates))),
    )


def lacks(config: RunConfig, result: Mapping[str, Any] | None) -> bool:
    """Whether a ranking is not stored (None), or was stored by a version that measured less."""
    if result is None:
        return True
    wanted = {PANEL, "partial_tau"} | ({"top1_accuracy_predicted"} if config.rank.top1 else set())
    return config.benchmark is not None and result["diverged"] is None and not wanted <= result.keys()


def completed(
    config: RunConfig, result: Mapping[str, Any], known: Mapping[int, Prediction], benchmark: Benchmark
) -> dict[str, Any] | None:
    """A stored result with what later versions measure of the same predictions.

    `known` are predictions by number; None if these are not all.
    """
    space, wanted = benchmark.space, ranked_architectures(config, benchmark)
    predictions = {one: known[number] for one in wanted if (number := space.index(one)) in known}
    if len(predictions) < len(wanted):
        return None
    supernets = _supernets(config, space, result)
    judgement = judge(predictions, supernets or Whole(space), benchmark, config.dataset, config.rank, config.seed)
    more = _top1(judgement) | _by(judgement) | _fairness(judgement)
    if supernets is None:  # the best prediction is the same for any parts; how many there were is not known
        more = {key: value for key, value in more.items() if key not in ("top1_of", "top1_accuracy_random")}
    return {**more, **result, PANEL: panel(scores(predictions, config.rank.by), benchmark, config.dataset, config.rank)}


def result_of(
    predictions: Mapping[Architecture, Prediction],
    supernets: Parts,
    benchmark: Benchmark | None,
    dataset: str,
    ranking: Ranking,
    seed: int = 0,
) -> dict[str, Any]:
    """What is stored of a ranking (`harness.schema.Ranked`)."""
    judgement = judge(predictions, supernets, benchmark, dataset, ranking, seed)
    score = scores(predictions, ranking.by)
    return {
        **UNRANKED,  # for the order of its keys
        "kendall_tau": None if judgement.kendall_tau is None else finite(judgement.kendall_tau),
        "selected": judgement.selected,
        "top1": judgement.top1 and list(judgement.top1),
        "top1_accuracy": judgement.top1_accuracy,
        "ranked": len(predictions),
        **_top1(judgement),
        **_by(judgement),
        **_fairness(judgement),
        **{name: finite(value) for name, value in judgement.own.items()},
        **({} if benchmark is None else {PANEL: panel(score, benchmark, dataset, ranking)}),
    }


def _taus(
    selected: Sequence[Architecture], predictions: Mapping[Architecture, Prediction], truth: npt.NDArray[np.float64]
) -> dict[str, float]:
    """Kendall's τ by accuracy, and by loss where all losses are known."""
    found = {"accuracy": kendall_tau([predictions[a].accuracy for a in selected], truth)}
    losses = [loss for a in selected if (loss := predictions[a].loss) is not None]
    if losses and len(losses) == len(selected):
        found["loss"] = kendall_tau([-loss for loss in losses], truth)
    return found


def _top1(judgement: Judgement) -> dict[str, float | int | None]:
    """What top-1 is to be compared with; empty without a table of truth."""
    if judgement.top1_accuracy_predicted is None:
        return {}
    return {name: getattr(judgement, name) for name in needing("top1") if name not in UNRANKED}


def _supernets(config: RunConfig, space: Space, result: Mapping[str, Any]) -> Parts | None:
    """The parts of a stored run, as its method draws them; None if they came from splits while it trained."""
    method: Method = config.method.build(COMPONENTS["method"], "method")
    if type(method).divide is not Method.divide:
        return None
    own = [tuple(one["architecture"]) for one in result.get("found") or () if one["score"] is None]
    return Divided(space, method.parts(space, make_rng(config.seed, "split")), own)


def _by(judgement: Judgement) -> dict[str, float | None]:
    """τ by accuracy and by loss, and given the number of parameters; empty without a table of truth."""
    if judgement.partial_tau is None:
        return {}
    taus = {f"kendall_tau_by_{name}": finite(tau) for name, tau in judgement.tau_by.items()}
    blended = {} if judgement.blended_tau is None else {"blended_tau": finite(judgement.blended_tau)}
    return {**taus, "partial_tau": finite(judgement.partial_tau), **blended}


def _null_rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(derive(seed, "matched null"))


def _fairness(judgement: Judgement) -> dict[str, float | None]:
    """CB and C³, if requested."""
    if judgement.neutral_complexity_bias is None:
        return {}
    return {name: finite(getattr(judgement, name)) for name in needing("top_share")}


def _measured(
    selected: Sequence[Architecture],
    score: Mapping[Architecture, float],
    benchmark: Benchmark,
    truth: npt.NDArray[np.float64],
    ranking: Ranking,
) -> dict[str, float]:
    """The registered metrics that are requested."""
    space = benchmark.space
    guessed = np.array([score[a] for a in selected])
    true = np.array([truth[space.index(a)] for a in selected])
    complexity = np.array([float(space.complexity(a, ranking.complexity)) for a in selected])
    return {name: float(METRICS.get(name)(guessed, true, complexity)) for name in ranking.metrics}


def _best_predicted(winners: Sequence[Architecture], score: Mapping[Architecture, float]) -> Architecture:
    """The winner with the best prediction. What a method has found itself need not be among those that are ranked."""
    return max(winners, key=lambda one: score.get(one, -math.inf))


def _winners(score: Mapping[Architecture, float], supernets: Parts, ranking: Ranking) -> list[Architecture]:
    """What the method has found with each supernet, else the best-ranked candidates; ties go to the lowest number."""
    winners: dict[int, Architecture] = {}
    for architecture in supernets.found:
        winners.setdefault(supernets.part_of(architecture), architecture)
    if winners:
        return list(winners.values())
    for architecture in candidate_architectures(supernets.space, ranking):
        part = supernets.part_of(architecture)
        if part not in winners or score[architecture] > score[winners[part]]:
            winners[part] = architecture
    return list(winners.values())
