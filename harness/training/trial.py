"""One trial: a configuration in, a result and its cost out. Train, rank, judge, search; retrain; and the references.

`result` is deterministic: the same configuration gives the same bytes wherever it ran (at equal
thread counts, on one kind of hardware), and however often it was interrupted and resumed from its
checkpoint. `cost` is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from harness.components.benchmark import Benchmark, benchmark_for
from harness.components.dataset import DataSet
from harness.components.proxy import Finder, NetworkProxy, NotApplicable, Proxy
from harness.components.registries import DATASETS, PROXIES
from harness.components.space import Architecture, Space
from harness.documents import finite
from harness.errors import Diverged, InvalidConfiguration
from harness.schema import OBSERVED, UNRANKED
from harness.stores.checkpoints import Checkpoint
from harness.study.configuration import COMPONENTS, RunConfig
from harness.study.judging import (
    Prediction,
    Predictions,
    Whole,
    candidate_architectures,
    ranked_architectures,
    result_of,
    selected_architectures,
)
from harness.study.parallel import check_ranks
from harness.training.cost import Meter
from harness.training.observers.curves import Observers
from harness.training.profiling import phase
from harness.training.proxies import ProxyScene, as_predictions
from harness.training.ranks import ALONE, Ranks
from harness.training.stages.rank import predict, validation_loss
from harness.training.stages.retrain import retrain, with_valid
from harness.training.stages.search import (
    WHOLE,
    Scorer,
    Scores,
    SearchProgress,
    documents,
    history_document,
    inherited,
    search,
)
from harness.training.stages.train import Progress, Supernets, build_supernets, has_own_score, train
from harness.training.state import Points, Stateless, TrialState


@dataclass(frozen=True)
class Outcome:
    """The outcome of a trial. A run that diverged has no predictions."""

    result: dict[str, Any]
    cost: dict[str, object]
    predictions: Predictions
    """Predictions on all ranking images: of the ranked architectures, and of those that a search scored."""
    supernets: Supernets | None
    rough: Scores = field(default_factory=dict)
    """Predictions on fewer images, by their number: what a search scored at lower costs."""
    searched: dict[str, Any] | None = None
    """All scores of a search, in order (`harness.training.stages.search.history_document`); None without a search."""


@dataclass(frozen=True)
class Watch:
    """Progress callbacks; each defaults to a no-op."""

    epoch: Callable[[Progress], None] = lambda progress: None
    metric: Callable[[str, int, float], None] = lambda name, step, value: None
    """A point of a curve: its name, step and value, in the order of steps."""
    ranking: Callable[[int, int], None] = lambda done, total: None
    searching: Callable[[SearchProgress], None] = lambda progress: None
    restored: Callable[[list[dict[str, Any]]], None] = lambda points: None
    """Called once, before all others, when the trial resumes from a checkpoint: with all points up to there,
    each with its name, step, value and timestamp (UTC). `metric` is not called for them again."""


def run_trial(
    config: RunConfig,
    device: torch.device | str = "cpu",
    watch: Watch | None = None,
    checkpoint: Checkpoint | None = None,
    ranks: Ranks = ALONE,
) -> Outcome:
    """Train the configuration's supernets, rank, and compare with the ground truth.

    All `ranks` call it with equal arguments and get equal outcomes; only the first one's is stored.

    With a checkpoint, the trial resumes from the stored state and saves its state: whenever a save is due,
    between any two steps or evaluations, and after each supernet. The caller removes the checkpoint when
    the outcome is stored. Raises `CheckpointNotWritten`.
    """
    check_ranks(config, ranks.size)
    watch = watch or Watch()
    meter = Meter(torch.device(device), ranks=ranks.size)
    dataset, benchmark = _inputs(config)
    ranked = ranked_architectures(config, benchmark)  # before training: an unsuitable benchmark is refused at once
    points = Points(watch.metric)
    observer = Observers(config, dataset, benchmark, meter, points, ranks=ranks)
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
            supernets = train(config, dataset, meter, report, observer, state, ranks)
            ask = partial(predict, known=known, keep=keep, ranks=ranks)
            predictions = ask(supernets, ranked, dataset, config.rank, meter, watch.ranking)
            scorer = Scorer(config, supernets, dataset, meter, watch.searching, ranks, also=predictions)
            if state:
                scorer.scores, scorer.keep = state.scores, state.evaluated
            found = _found(scorer)
    except Diverged as error:
        meter.stage("train")
        return Outcome(_diverged(error) | {OBSERVED: observer.points}, meter.json(ranks), {}, None)
    result = result_of(predictions, supernets, benchmark, config.dataset, config.rank, config.seed)
    result |= _loss(config, supernets, dataset, benchmark, meter) | found | {OBSERVED: observer.points}
    return _outcome(result, meter, predictions, supernets, scorer)


def retrain_trial(
    config: RunConfig,
    architecture: Architecture,
    device: torch.device | str = "cpu",
    watch: Watch | None = None,
    checkpoint: Checkpoint | None = None,
    ranks: Ranks = ALONE,
) -> Outcome:
    """Train the architecture that a search has found as a stand-alone network.

    The result has its accuracy beside the looked-up one. Checkpoints as in `run_trial`.
    """
    check_ranks(config, ranks.size)
    watch = watch or Watch()
    meter = Meter(torch.device(device), ranks=ranks.size)
    dataset, benchmark = _inputs(config)
    points = Points(watch.metric)
    observer = Observers(config, dataset, benchmark, meter, points)
    state = TrialState(checkpoint, meter, points, observer, watch.restored) if checkpoint else None

    def report(progress: Progress) -> None:
        points("train_loss", progress.epoch, progress.loss)
        watch.epoch(progress)

    truth = None if benchmark is None else config.rank.truth_in(benchmark, config.dataset)
    looked_up = None if benchmark is None or truth is None else float(truth[benchmark.space.index(architecture)])
    found = {"top1": list(architecture), "top1_accuracy": looked_up}
    try:
        with checkpoint.asked_often() if checkpoint else nullcontext():
            networks, top1, top5 = retrain(config, architecture, dataset, meter, report, state, ranks)
    except Diverged as error:
        meter.stage("train")
        nothing: dict[str, Any] = {"retrained_accuracy": None, "retrained_top5": None, OBSERVED: {}}
        return Outcome(_diverged(error) | found | nothing, meter.json(ranks), {}, None)
    measured = {"retrained_accuracy": top1, "retrained_top5": top5, **_size(networks.space, architecture)}
    return Outcome({**UNRANKED, **found, **measured, OBSERVED: {}}, meter.json(ranks), {}, networks)


def _size(space: Space, architecture: Architecture) -> dict[str, int]:
    """The counts of the network that was retrained, if the space counts networks of a trial's own settings."""
    if type(space).at is Space.at:
        return {}
    counts = {"parameters", "flops"} & set(space.complexity_counts)
    return {f"retrained_{count}": space.complexity(architecture, count) for count in sorted(counts, reverse=True)}


def rank_again(
    config: RunConfig,
    weights: Callable[[], list[dict[str, Any]]],
    known: Mapping[int, Prediction],
    device: torch.device | str = "cpu",
    watch: Watch | None = None,
    found: Sequence[Mapping[str, Any]] = (),
    checkpoint: Checkpoint | None = None,
    ranks: Ranks = ALONE,
) -> Outcome:
    """Make the ranking and search that the configuration requests now, with the stored weights of a run of this trial.

    `known` are predictions of the same weights on the same images, by architecture number; `weights` is
    called only if some predictions, or losses to rank by, are missing. `found` is what the method itself found
    when it was trained.
    Checkpoints as in `run_trial`; they hold scores alone.
    """
    watch = watch or Watch()
    meter = Meter(torch.device(device), ranks=ranks.size)
    dataset, benchmark = _inputs(config)
    supernets = build_supernets(config, dataset, meter.device)
    if config.search is None:
        supernets = replace(supernets, found=tuple(tuple(one["architecture"]) for one in found))
    space = supernets.space
    ranked = ranked_architectures(config, benchmark)
    scores_itself = has_own_score(config.method.build(COMPONENTS["method"], "method"))
    if config.rank.by == "loss" and not scores_itself:
        known = {number: one for number, one in known.items() if one.loss is not None}
    missing = [architecture for architecture in ranked if space.index(architecture) not in known]
    if missing or config.search is not None or config.rank.valid_loss:
        if scores_itself:
            raise InvalidConfiguration(
                f"method {config.method.name} scores architectures by what it learned in training, which is lost; "
                "only the architectures that it has ranked can be judged again"
            )
        stored = weights()
        if len(stored) != len(supernets.networks):
            raise InvalidConfiguration(
                f"the run has {len(stored)} supernets, which split while training went on; only the architectures that "
                "it has ranked can be judged again"
            )
        for network, own in zip(supernets.networks, stored, strict=True):
            network.load_state_dict(own)
    state = None
    if checkpoint is not None:
        state = TrialState(checkpoint, meter, Points(watch.metric), Stateless(), watch.restored)
        state.start(Stateless())
    before = state.predictions if state else {}
    keep = partial(state.evaluated, before) if state else None
    with checkpoint.asked_often() if checkpoint else nullcontext():
        ranks.agree({"rankings": len(before)}, "when the ranking begins")
        ask = partial(predict, known=before, keep=keep, ranks=ranks)
        new = ask(supernets, missing, dataset, config.rank, meter, watch.ranking)
        before |= new
        predictions = {a: new[a] if a in new else known[space.index(a)] for a in ranked}
        also = {space.architecture(number): one for number, one in known.items()} | predictions
        scorer = Scorer(config, supernets, dataset, meter, watch.searching, ranks, also=also)
        if state:
            scorer.scores, scorer.keep = state.scores, state.evaluated
        searched = {} if config.search is None else _found(scorer)
    result = result_of(predictions, supernets, benchmark, config.dataset, config.rank, config.seed)
    result |= _loss(config, supernets, dataset, benchmark, meter) | searched
    if config.search is None and found:
        result["found"] = [dict(one) for one in found]
    return _outcome(result, meter, predictions, supernets, scorer)


def run_reference(config: RunConfig, reference: str, device: torch.device | str = "cpu") -> Outcome:
    """Judge a proxy in the same way, by its name in `PROXIES`. Raises `NotApplicable`."""
    ((_, outcome),) = run_references(config, [reference], device)
    if isinstance(outcome, NotApplicable):
        raise outcome
    return outcome


def run_references(
    config: RunConfig,
    references: Sequence[str],
    device: torch.device | str = "cpu",
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Iterator[tuple[str, Outcome | NotApplicable]]:
    """Judge several proxies, one after the other; those of stand-alone networks share the networks.

    The cost of an outcome is the seconds of its predictions alone.
    """
    proxies: dict[str, Proxy] = {name: PROXIES.get(name)() for name in references}
    dataset, benchmark = _inputs(config)
    if benchmark is None:
        raise InvalidConfiguration("references are judged by a table of truth; the configuration names no benchmark")
    together = [one for one in proxies.values() if isinstance(one, NetworkProxy)]
    scene = ProxyScene(config, dataset, benchmark, device, together, report)
    ranked = ranked_architectures(config, benchmark)
    for name, proxy in proxies.items():
        begun = time.perf_counter()
        found, predictions = None, {}
        try:
            if isinstance(proxy, Finder):
                found = proxy.find(scene)
            else:
                predictions = as_predictions(proxy.predict(scene, ranked))
        except NotApplicable as error:
            yield name, error
            continue
        seconds = time.perf_counter() - begun
        if found is not None:
            best = {"top1": found.architecture and list(found.architecture), "top1_accuracy": found.accuracy}
            result = {**UNRANKED, **best, "ranked": found.count}
            yield name, Outcome(result, {"seconds": round(seconds, 3)}, {}, None)
            continue
        if isinstance(proxy, NetworkProxy):
            seconds = scene.seconds[type(proxy)]
        supernets = scene.supernets if proxy.supernet else Whole(scene.space)
        result = result_of(predictions, supernets, benchmark, config.dataset, config.rank, config.seed)
        if proxy.supernet:
            result |= _loss(config, scene.supernets, dataset, benchmark, scene.meter)
        yield name, Outcome(result, {"seconds": round(seconds, 3)}, predictions, None)


def _inputs(config: RunConfig) -> tuple[DataSet, Benchmark | None]:
    with phase("data"):
        dataset = DATASETS.get(config.dataset)()
        if config.train.with_valid and config.retrain is None:
            dataset = replace(with_valid(dataset), valid=dataset.test)
    return dataset, None if config.benchmark is None else benchmark_for(config.benchmark, config.space)


def _found(scorer: Scorer) -> dict[str, Any]:
    """What was found, for the result: by the search, else by the method itself; empty if neither found anything."""
    if scorer.config.search is None:
        own = scorer.supernets.found
        return {"found": [{"architecture": list(one), "score": None} for one in own]} if own else {}
    found = search(scorer)
    scored = {str(cost): len(scores) for cost, scores in sorted(scorer.asked.items())}
    asked = bool(scorer.config.search.options.get("test_accuracy"))
    tested = inherited(scorer, found[0].architecture) if asked and found else {}
    return {"found": documents(found), "scored": scored, **tested}


def _outcome(
    result: dict[str, Any], meter: Meter, predictions: Predictions, supernets: Supernets, scorer: Scorer
) -> Outcome:
    rough = {cost: scores for cost, scores in scorer.asked.items() if cost != WHOLE}
    searched = None if scorer.config.search is None else history_document(scorer)
    known = predictions | scorer.asked.get(WHOLE, {})
    return Outcome(result, meter.json(scorer.ranks), known, supernets, rough, searched)


def _loss(
    config: RunConfig, supernets: Supernets, dataset: DataSet, benchmark: Benchmark | None, meter: Meter
) -> dict[str, float | None]:
    """The validation loss, if requested. Without a table of truth it is taken over the candidates."""
    if not config.rank.valid_loss:
        return {}
    if benchmark is None:
        architectures = candidate_architectures(supernets.space, config.rank)
    else:
        architectures = selected_architectures(benchmark, config.dataset, config.rank)
    found = validation_loss(supernets, architectures, dataset, config.rank, meter) if architectures else None
    return {"valid_loss": None if found is None else finite(found)}


def _diverged(error: Diverged) -> dict[str, Any]:
    """The result of a run that diverged. The loss is text, because it is not a finite number."""
    return {**UNRANKED, "diverged": {"step": error.step, "loss": str(error.loss)}}
