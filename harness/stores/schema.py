"""What is stored: every document of a run as a type, with one line of meaning per key.

This is the one place that says what a result contains; `harness.stores.records` says what is kept beside runs. Readers
check what they read against these types (`harness.stores.shapes`), the columns of `harness.results` and their dtypes
derive from them (`harness.stores.quantities`), and so do the metrics that a study may show (`harness.study.metrics`): a
key that is added to `Result` or `Cost` appears there without another edit. Of the house only
`harness.stores.trial_text` is imported.

A class without `total=False` lists the keys that every version has written: a document without one of them is damaged.
Keys that are not listed here, those of a newer version, are kept as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from harness.stores.trial_text import TIME, Json, Number, Owner, TrialText

SCHEMA = 2
"""Version of all documents of a run. Older ones are read; a newer one is refused, and the message says so.

1: run ids without the suffix that distinguishes the attempts of two machines. 2: with it.
"""

PANEL = "panel"
"""The key of a ranking's result that holds its panel."""

OBSERVED = "observed"
"""The key of a result that holds the curves; they are no columns (`harness.results.metrics` reads curves)."""


@dataclass(frozen=True)
class Shown:
    """The type of a key's column in `harness.results`, where it is not the stored type."""

    kind: type


@dataclass(frozen=True)
class Needs:
    """The setting of the section `rank` without which the key is not computed."""

    setting: str


Points = dict[str, list[tuple[int, float | None]]]
"""Curves by name: lists of step and value; a value that is not a finite number is None."""


class Divergence(TypedDict):
    """Why a training ended early."""

    step: Annotated[int, "the step whose loss was not finite"]
    loss: Annotated[str | None, "that loss: not a finite number, and so stored as text", Shown(float)]


class Judgement(TypedDict):
    """The keys of every result."""

    kendall_tau: Annotated[float | None, "Kendall's τ between prediction and truth over the selected architectures"]
    top1_accuracy: Annotated[float | None, "the true accuracy of what is ranked or found first, in %", Needs("top1")]
    selected: Annotated[int, "the number of architectures that τ is taken over"]
    ranked: Annotated[int, "the number of architectures that were ranked"]
    top1: Annotated[list[int] | None, "the architecture ranked or found first, one number per decision", Needs("top1")]
    diverged: Annotated[Divergence | None, "whether training diverged; there is no ranking then"]


class RankedSet(TypedDict):
    """Kendall's τ-b over those of a set of architectures that were predicted."""

    tau: Annotated[float | None, "Kendall's τ over those that were predicted; missing below 20 or without an order"]
    count: Annotated[int, "how many these are"]


class SelectedSet(RankedSet):
    """The same over selected architectures, and how much it depends on which they are."""

    tied: Annotated[int, "how many of these have an equal in the table that the rule left out"]
    varied: Annotated[int, "how many of these have such an equal that was predicted"]
    lowest: Annotated[float | None, "the lowest τ over 200 tie-breaks that take equals at random"]
    highest: Annotated[float | None, "the highest τ over these tie-breaks"]
    error: Annotated[float | None, "τ's standard deviation over 200 bootstrap samples of the architectures"]
    ceiling: Annotated[float | None, "τ of a predictor that knows the truth without its noise, where that is known"]


class RankedFirst(TypedDict):
    """The k architectures that are ranked first, and the same for a random order."""

    count: Annotated[int, "k"]
    precision: Annotated[float, "the share of these that is among the k best by truth"]
    precision_random: Annotated[float, "the same for a random order"]
    best_rank: Annotated[float, "the best true rank of these, from 1 on"]
    best_rank_random: Annotated[float, "the same for a random order"]
    worst_rank: Annotated[float, "the worst true rank of these"]
    worst_rank_random: Annotated[float, "the same for a random order"]
    regret: Annotated[float, "how much the best of these is below the best of all that were predicted, in points"]
    regret_random: Annotated[float, "the same for a random order"]


class Panel(TypedDict, total=False):
    """Many measures of one ranking (`harness.study.panel`), to six decimals. What cannot be computed is left out."""

    all: Annotated[RankedSet, "all architectures"]
    selected: Annotated[SelectedSet, "the run's own selection"]
    equal_width: Annotated[SelectedSet, "the best of each equal-width bin of the accuracies that judge"]
    equal_count: Annotated[SelectedSet, "the best of each equal-count chunk of the accuracies that judge"]
    best_1_percent: Annotated[RankedSet, "the true best 1 %"]
    best_5_percent: Annotated[RankedSet, "the true best 5 %"]
    best_10_percent: Annotated[RankedSet, "the true best 10 %"]
    best_30_percent: Annotated[RankedSet, "the true best 30 %"]
    partial_tau: Annotated[float | None, "Kendall's τ given the number of parameters, over all that were predicted"]
    spearman: Annotated[float | None, "Spearman's ρ over all that were predicted"]
    weighted_tau: Annotated[float | None, "weighted τ (scipy, hyperbolic) over all that were predicted"]
    sparse_tau_truth: Annotated[float | None, "sparse τ: the truth cut down to 0.1 points"]
    sparse_tau_prediction: Annotated[float | None, "sparse τ: the prediction rounded to 0.1 points"]
    sparse_tau_both: Annotated[float | None, "sparse τ: the truth cut down and the prediction rounded to 0.1 points"]
    at_1: Annotated[RankedFirst, "the one that is ranked first"]
    at_10: Annotated[RankedFirst, "the 10 ranked first"]
    at_100: Annotated[RankedFirst, "the 100 ranked first"]
    at_1_percent: Annotated[RankedFirst, "the 1 % ranked first"]
    at_5_percent: Annotated[RankedFirst, "the 5 % ranked first"]
    at_10_percent: Annotated[RankedFirst, "the 10 % ranked first"]
    at_30_percent: Annotated[RankedFirst, "the 30 % ranked first"]


class Ranked(Judgement, total=False):
    """The result of one ranking of a run's weights."""

    kendall_tau_by_accuracy: Annotated[float | None, "the same τ by validation accuracy, whatever `rank.by` is"]
    kendall_tau_by_loss: Annotated[float | None, "the same τ by validation loss, where losses are stored"]
    partial_tau: Annotated[float | None, "the same τ given the number of parameters"]
    complexity_bias: Annotated[
        float | None, "CB: the share of wrongly ordered pairs whose larger one is ranked too low", Needs("top_share")
    ]
    neutral_complexity_bias: Annotated[float | None, "CB of random numbers", Needs("top_share")]
    complexity_convergence: Annotated[
        float | None, "C³: Kendall's τ between complexity and predicted over true accuracy", Needs("top_share")
    ]
    complexity_bias_null: Annotated[float | None, "mean CB of a null matched to the predictions", Needs("top_share")]
    complexity_bias_z: Annotated[
        float | None, "CB above it in deviations; > 0: unfair to the large", Needs("top_share")
    ]
    complexity_convergence_null: Annotated[float | None, "mean C³ of that null", Needs("top_share")]
    complexity_convergence_z: Annotated[float | None, "C³ above it; < 0: unfair to the large", Needs("top_share")]
    valid_loss: Annotated[
        float | None,
        "mean cross-entropy on the ranking's images of the architectures that τ is over",
        Needs("valid_loss"),
    ]
    found: Annotated[list[Json], "what the search, or the method, has found, the best first: architectures and scores"]
    scored: Annotated[dict[str, int], "how many architectures the search has scored, by images; 0 stands for all"]
    found_accuracy: Annotated[float, "the test accuracy of the best found, with its supernet's weights, in %"]
    found_parameters: Annotated[int, "the parameters of that architecture's network, where the space counts them"]
    found_flops: Annotated[int, "its multiply-adds for one image, where the space counts them"]
    panel: Annotated[Panel, "panel"]


class Result(Ranked, total=False):
    """The result of a run: deterministic, the same bytes wherever and however the trial ran."""

    retrained_accuracy: Annotated[float | None, "the test accuracy of the retrained architecture, in %"]
    retrained_top5: Annotated[float | None, "the share of test images whose class is among its first 5 answers, in %"]
    retrained_parameters: Annotated[int, "the parameters of the retrained network, where the space counts them"]
    retrained_flops: Annotated[int, "its multiply-adds for one image, where the space counts them"]
    observed: Annotated[Points, "the curves observed during training"]


class Measured(TypedDict):
    """The key of every cost."""

    wall_seconds: Annotated[float, "seconds from start to end, over all attempts"]


class Cost(Measured, total=False):
    """The cost of a run: measured, never compared."""

    passes: Annotated[int, "forward-backward passes of single paths"]
    images: Annotated[int, "images in these passes"]
    forward_passes: Annotated[int, "forward passes of training without a backward one, as those of a teacher"]
    forward_images: Annotated[int, "images in these"]
    sampling_passes: Annotated[int, "passes made only to choose paths, data or splits"]
    sampling_images: Annotated[int, "images in these"]
    sampling_seconds: Annotated[float, "seconds of choosing paths and data; the stage train includes them"]
    evaluations: Annotated[int, "architectures evaluated"]
    peak_memory_bytes: Annotated[int, "the most memory in use"]
    stage_seconds: Annotated[dict[str, float], "seconds of each stage: train, observe, rank, retrain"]
    training_memory_bytes: Annotated[int, "the most memory in use in training steps, without what observing needs"]
    memory_kind: Annotated[str, "what the memory counts: device allocations, or growth of the process"]
    device: Annotated[str, "the device that computed"]
    resumed: Annotated[int, "how many times the trial went on from a checkpoint"]
    threads: Annotated[int, "the threads of the process"]
    arithmetic: Annotated[str, "how products of float32 are computed, and how cuDNN chooses its algorithms"]
    ranks: Annotated[int, "the processes that trained together, if several; memory is their sum"]
    peak_memory_per_rank: Annotated[list[int], "the most memory in use in each of them"]


UNRANKED: Judgement = {
    "kendall_tau": None,
    "selected": 0,
    "top1": None,
    "top1_accuracy": None,
    "ranked": 0,
    "diverged": None,
}
"""The result of a run that ranked nothing, in the order in which results are written."""


class Versioned(TypedDict):
    """The key of every document that the harness writes into a run's directory."""

    schema: Annotated[int, "the version of this schema"]


class Started(Versioned):
    """The keys of every `cell.json`."""

    key: Annotated[str, "the trial's key: the hash of its identity"]
    attempt: Annotated[int, "the number of the attempt, from 1 on"]
    run_id: Annotated[str, "the run's id, and the name of its directory"]
    cell: Annotated[TrialText, "the trial"]
    identity: Annotated[Json, "everything that determines the trained weights"]
    preset: Annotated[str, "the preset that the trial was expanded under"]
    overrides: Annotated[Json, "the overrides of the command"]
    owner: Annotated[Owner, "the process that made the run"]


class TrialDocument(Started, total=False):
    """`cell.json`: what the run is about, written first."""

    ranking: Annotated[str, "the key of the ranking that is made with the run"]


class Experiment(TypedDict, total=False):
    """What readers need of Sacred's description of an experiment."""

    repositories: Annotated[list[Json], "the commit, and whether files were changed"]
    dependencies: Annotated[list[str], "packages and their versions"]


class Gpus(TypedDict, total=False):
    """The GPUs of a machine."""

    gpus: Annotated[list[Any], "one entry per GPU"]


class Host(TypedDict, total=False):
    """What readers need of Sacred's description of a machine."""

    os: Annotated[list[str | None], "the operating system"]
    gpus: Annotated[Gpus | None, "its GPUs"]


class Recorded(TypedDict):
    """The key of every `run.json`."""

    status: Annotated[str, "Sacred's status: RUNNING, COMPLETED, INTERRUPTED, FAILED"]


class RunDocument(Recorded, total=False):
    """Our part of `run.json`; the rest is Sacred's."""

    start_time: Annotated[str | None, "when the run began", TIME]
    stop_time: Annotated[str | None, "when it ended", TIME]
    heartbeat: Annotated[str | None, "when its process was last heard of", TIME]
    fail_trace: Annotated[list[str] | None, "the traceback of a failed run, line by line; how a lost one died"]
    experiment: Annotated[Experiment | None, "the experiment, as Sacred describes it"]
    host: Annotated[Host | None, "the machine, as Sacred describes it"]


class ResultDocument(Versioned):
    """`result.json`."""

    result: Annotated[Result, "deterministic"]
    cost: Annotated[Cost, "measured"]


class Searched(TypedDict):
    """All scores of a search, in the order in which it asked for them, as columns of equal length."""

    architectures: Annotated[list[Number], "the architecture's number, as text"]
    generations: Annotated[list[int | None], "its generation, from 0 on; null for a search without generations"]
    images: Annotated[list[int], "the score's cost: the number of images looked at"]
    accuracies: Annotated[list[float | None], "the predicted accuracy, in %"]
    counts: Annotated[dict[str, list[float]], "by count, that of the stand-alone network that limits count"]


class Predicted(Versioned):
    """The keys of all predictions."""

    images: Annotated[int | None, "the number of images ranked on; null for all"]
    batch_size: Annotated[int, "images per batch; batch statistics depend on it"]
    accuracies: Annotated[dict[Number, float | None], "the predicted accuracy by the architecture's number"]


class PredictionsDocument(Predicted, total=False):
    """`predictions.json`, and the predictions of a further ranking."""

    losses: Annotated[dict[Number, float | None], "the mean cross-entropy on the same images, to 6 decimals"]
    calibration: Annotated[int, "training batches that calibrated each architecture"]
    rough: Annotated[dict[str, Json], "by number of images, accuracies on fewer images"]
    searched: Annotated[Searched, "the scores of the search that was made with the ranking"]


class CompletionDocument(Versioned):
    """`completion.json`, written last: a run without it is not done."""

    metrics: Annotated[dict[str, int], "the number of points of each curve"]
    files: Annotated[dict[str, str], "the SHA-256 of each file"]
    sizes: Annotated[dict[str, int], "the size of each file in bytes"]


class RankingText(TypedDict):
    """The configuration of a ranking."""

    rank: Annotated[Json, "the section rank"]
    benchmark: Annotated[str | None, "the benchmark that judges"]


class RankedLater(Versioned):
    """The keys of every further ranking."""

    result: Annotated[Ranked, "what the ranking gave"]
    files: Annotated[dict[str, str], "the SHA-256 of the predictions beside it"]


class RankingDocument(RankedLater, total=False):
    """`rankings/KEY.json`: another ranking of the same weights."""

    ranking: Annotated[RankingText, "how it was made"]
    recomputed: Annotated[bool, "whether it replaces an earlier one"]
    cost: Annotated[Json, "as in `Cost`; empty where nothing was computed"]
    checksum: Annotated[str, "the SHA-256 of the rest as canonical JSON; earlier versions wrote none"]


class Summarised(TypedDict):
    """The keys of every summary."""

    id: Annotated[str, "the run's id"]
    key: Annotated[str, "the trial's key"]
    attempt: Annotated[int, "the number of the attempt"]
    cell: Annotated[TrialText, "the trial"]
    preset: Annotated[str, "the preset"]
    overrides: Annotated[Json, "the overrides"]
    recorded: Annotated[str, "how the run ended (done, failed, interrupted), or open if it has not"]
    owner: Annotated[Owner, "the process that made the run"]
    heartbeat: Annotated[str | None, "when that process was last heard of", TIME]
    result: Annotated[Result | None, "the result of a done run"]
    cost: Annotated[Cost | None, "the cost of a done run"]
    rankings: Annotated[dict[str, Ranked], "what each ranking gave, by its key"]
    start_time: Annotated[str | None, "when the run began", TIME]
    stop_time: Annotated[str | None, "when it ended", TIME]
    fail_trace: Annotated[list[str] | None, "the traceback of a failed run"]


class Summary(Summarised, total=False):
    """All that lists, plans and tables need of a run: in the index of a directory, and in the database."""

    ranking: Annotated[str | None, "the key of the ranking that was made with the run"]
    asked: Annotated[dict[str, RankingText], "how the further rankings were made"]
    recomputed: Annotated[list[str], "the keys of rankings that replace earlier ones"]
    invalid: Annotated[str | None, "why the run must not be counted"]


@dataclass(frozen=True)
class Curve:
    """A curve that a run may observe, and the setting that asks for it."""

    name: str
    """Its name; a star stands for what varies: the size of a subnet, the number of a path."""
    setting: str
    meaning: str
    judged: bool = False
    """Whether the ranking of the run measures it: another ranking gives another curve."""
    ends: tuple[str, ...] = ()
    """What may stand in the place of the star; empty for whole numbers."""


JUDGED_BY = "@"
"""What stands before the key of a ranking in the name of a curve that another ranking than the run's own measures."""

SIZES = ("small", "medium", "large")
"""The subnets whose curves are observed: one per third of the range of complexity."""

CURVES = (
    Curve("kendall_tau", "observe.kendall_tau_every", "Kendall's τ over the selected architectures", judged=True),
    Curve("valid_loss_*", "observe.subnets_every", "validation loss of a small, medium, large subnet", True, SIZES),
    Curve("valid_accuracy_*", "observe.subnets_every", "validation accuracy of these subnets, in %", True, SIZES),
    Curve("gradient_spread", "observe.spread", "mean standard deviation of gradients over an epoch's steps"),
    Curve("momentum_spread", "observe.spread", "the same of momentum buffers"),
    Curve("mgcs_*", "observe.gradient_similarity", "similarity of a path's first-layer gradient to the first path's"),
)
