"""Every stored document as a type, with one line of meaning per key.

Readers check what they read against these types (`problem` and `parsed` of `harness.documents`) and keep the dictionary
that was read, with the keys of a newer version. The columns of `harness.results` and
their dtypes derive from these types (`harness.study.columns`), and so do the metrics that a study may show
(`harness.study.metrics`): a key that is added to `Result` or `Cost` appears there without another edit.

A key that is neither `NotRequired` nor in a class with `total=False` is one that every version has written: a document
without it is damaged. A number that is not finite is null in every stored document. Of the harness only
`harness.documents` is imported.
"""

# No `from __future__ import annotations`: TypedDict does not see `NotRequired` in annotations that are text.
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, Required, TypedDict, get_args

import msgspec

from harness.documents import Newest, keys

SCHEMA = 2
"""Version of all documents of a run. Older ones are read; a newer one is refused, and the message says so.

1: run ids without the suffix that distinguishes the attempts of two machines. 2: with it.
"""

PANEL = "panel"
"""The key of a ranking's result that holds its panel."""

OBSERVED = "observed"
"""The key of a result that holds the curves; they are not columns (`harness.results.metrics` reads curves)."""

ASKED = "asked"
"""The key of `info.json` that holds the run's naming."""

CLAIMS = 1
"""Version of a stored claim."""

MANIFESTS = 2
"""Version of an archive's manifest. 1: without references. 2: with them."""

Json = dict[str, Any]
Number = Annotated[str, "a whole number as text", msgspec.Meta(pattern=r"^[0-9]{1,1000}\Z")]

if TYPE_CHECKING:
    Time = str
else:
    Time = datetime  # msgspec checks that the text is a time in ISO format


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

    top1_accuracy_predicted: Annotated[float | None, "the true accuracy of the best predicted, in %", Needs("top1")]
    top1_accuracy_random: Annotated[float | None, "expected best of `top1_of` random candidates, in %", Needs("top1")]
    top1_of: Annotated[int | None, "how many winners, one per supernet, top-1 is the best of by truth", Needs("top1")]
    kendall_tau_by_accuracy: Annotated[float | None, "the same τ by validation accuracy, whatever `rank.by` is"]
    kendall_tau_by_loss: Annotated[float | None, "the same τ by validation loss, where losses are stored"]
    partial_tau: Annotated[float | None, "the same τ given the number of parameters"]
    blended_tau: Annotated[float | None, "the same τ of the mean of ranks by prediction and by number of parameters"]
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
    valid_loss: Annotated[float | None, "mean cross-entropy of the selected architectures", Needs("valid_loss")]
    found: Annotated[list[Json], "what the search, or the method, has found, the best first: architectures and scores"]
    scored: Annotated[dict[str, int], "how many architectures the search has scored, by images; 0 means all"]
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
    gpu: Annotated[str, "the model of the GPU that computed, if one did"]
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


class Owner(TypedDict):
    """The process that made a run, or holds a claim (`harness.owner`)."""

    host: Annotated[str, "the machine's name"]
    pid: Annotated[int, "the process's number"]
    started: Annotated[int | None, "when it started, in kernel ticks"]
    boot: NotRequired[Annotated[str | None, "the id of the machine's boot"]]
    pid_namespace: NotRequired[Annotated[str | None, "its PID namespace"]]


class Named(TypedDict):
    """A component: its name, with its options beside it."""

    name: Annotated[str, "the name"]


class RankedOn(TypedDict):
    """What readers need of the section `rank`."""

    images: Annotated[int | None, "the number of images ranked on; null for all"]
    batch_size: Annotated[int, "images per batch"]


class Config(TypedDict):
    """What readers need of a configuration; `harness.study.configuration` defines all of it."""

    seed: Annotated[int, "the seed"]
    space: Annotated[str, "the space"]
    dataset: Annotated[str, "the data set"]
    method: Annotated[Named, "the method"]
    optimiser: Annotated[Json, "the optimiser"]
    rank: Annotated[RankedOn, "how it is ranked"]
    observe: Annotated[Json, "what is observed"]
    benchmark: NotRequired[Annotated[str | None, "the benchmark that judges"]]


class TrialText(TypedDict):
    """A trial as text (`harness.study.trial.Trial.json`)."""

    config: Annotated[Config, "the configuration"]
    parent: Annotated[str | None, "the search that the trial starts from: its key and its ranking's"]
    images: NotRequired[Annotated[str | None, "the fingerprint of its images"]]
    recorded: NotRequired[Annotated[dict[str, str], "versions of the user's code that take the place of today's"]]
    recorded_start: NotRequired[Annotated[dict[str, str], "the same of the trial that it starts from"]]


class Naming(TypedDict):
    """What studies call a run (`harness.study.naming`): in its `info.json`, and in the database."""

    rows: Annotated[dict[str, str], "by study that asks for it, the name of its row; the first to ask comes first"]
    metrics: Annotated[list[str], "the metrics that the first of these rows shows, in the order of its columns"]
    ranking: Annotated[str | None, "the key of the ranking that gives them"]


NOBODY: Naming = {"rows": {}, "metrics": [], "ranking": None}
"""The naming of a run that no known study asks for."""


class Versioned(TypedDict):
    """The key of every document that the harness writes into a run's directory."""

    schema: Annotated[int, "the version of this schema", Newest(SCHEMA)]


class TrialDocument(Versioned):
    """`cell.json`: what the run is about, written first."""

    key: Annotated[str, "the trial's key: the hash of its identity"]
    attempt: Annotated[int, "the number of the attempt, from 1 on"]
    run_id: Annotated[str, "the run's id, and the name of its directory"]
    cell: Annotated[TrialText, "the trial"]
    identity: Annotated[Json, "everything that determines the trained weights"]
    preset: Annotated[str, "the preset that the trial was expanded under"]
    overrides: Annotated[Json, "the overrides of the command"]
    owner: Annotated[Owner, "the process that made the run"]
    ranking: NotRequired[Annotated[str, "the key of the ranking that is made with the run"]]
    code: NotRequired[Annotated[dict[str, str], "by part, the version of the user's own code; older runs have none"]]


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


class RunDocument(TypedDict, total=False):
    """Our part of `run.json`; the rest is Sacred's."""

    status: Required[Annotated[str, "Sacred's status: RUNNING, COMPLETED, INTERRUPTED, FAILED"]]
    start_time: Annotated[Time | None, "when the run began"]
    stop_time: Annotated[Time | None, "when it ended"]
    heartbeat: Annotated[Time | None, "when its process last wrote"]
    progress: Annotated[Json | None, "stage, step, steps, loss, tau and device at the last heartbeat"]
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


class PredictionsDocument(Versioned):
    """`predictions.json`, and the predictions of a further ranking."""

    images: Annotated[int | None, "the number of images ranked on; null for all"]
    batch_size: Annotated[int, "images per batch; batch statistics depend on it"]
    accuracies: Annotated[dict[Number, float | None], "the predicted accuracy by the architecture's number"]
    losses: NotRequired[Annotated[dict[Number, float | None], "the mean cross-entropy on the same images"]]
    calibration: NotRequired[Annotated[int, "training batches that calibrated each architecture"]]
    calibration_images: NotRequired[Annotated[str, "which images these batches hold, unless plain"]]
    precision: NotRequired[Annotated[str, "the number format of the evaluations, unless float32"]]
    rough: NotRequired[Annotated[dict[str, Json], "by number of images, accuracies on fewer images"]]
    searched: NotRequired[Annotated[Searched, "the scores of the search that was made with the ranking"]]


class CompletionDocument(Versioned):
    """`completion.json`, written last: a run without it is not done."""

    metrics: Annotated[dict[str, int], "the number of points of each curve"]
    files: Annotated[dict[str, str], "the SHA-256 of each file"]
    sizes: Annotated[dict[str, int], "the size of each file in bytes"]


class RankingText(TypedDict):
    """The configuration of a ranking."""

    rank: Annotated[Json, "the section rank"]
    benchmark: Annotated[str | None, "the benchmark that judges"]


class RankingDocument(Versioned):
    """`rankings/KEY.json`: another ranking of the same weights."""

    result: Annotated[Ranked, "what the ranking gave"]
    files: Annotated[dict[str, str], "the SHA-256 of its predictions"]
    ranking: NotRequired[Annotated[RankingText, "how it was made"]]
    recomputed: NotRequired[Annotated[bool, "whether it replaces an earlier one"]]
    cost: NotRequired[Annotated[Json, "as in `Cost`; empty where nothing was computed"]]
    checksum: NotRequired[Annotated[str, "the SHA-256 of the rest as canonical JSON; earlier versions wrote none"]]


class Summary(TypedDict):
    """All that lists, plans and tables need of a run: in the index of a directory, and in the database."""

    id: Annotated[str, "the run's id"]
    key: Annotated[str, "the trial's key"]
    attempt: Annotated[int, "the number of the attempt"]
    cell: Annotated[TrialText, "the trial"]
    preset: Annotated[str, "the preset"]
    overrides: Annotated[Json, "the overrides"]
    recorded: Annotated[str, "how the run ended (done, failed, interrupted), or open if it has not"]
    owner: Annotated[Owner, "the process that made the run"]
    heartbeat: Annotated[Time | None, "when that process last wrote"]
    result: Annotated[Result | None, "the result of a done run"]
    cost: Annotated[Cost | None, "the cost of a done run"]
    rankings: Annotated[dict[str, Ranked], "what each ranking gave, by its key"]
    start_time: Annotated[Time | None, "when the run began"]
    stop_time: Annotated[Time | None, "when it ended"]
    fail_trace: Annotated[list[str] | None, "the traceback of a failed run"]
    ranking: NotRequired[Annotated[str | None, "the key of the ranking that was made with the run"]]
    asked: NotRequired[Annotated[dict[str, RankingText], "how the further rankings were made"]]
    recomputed: NotRequired[Annotated[list[str], "the keys of rankings that replace earlier ones"]]
    commit: NotRequired[Annotated[str | None, "the harness's commit; with changed files, `-dirty` behind it"]]
    rows: NotRequired[Annotated[dict[str, str], "by study that asked for the run, the name of its row"]]
    invalid: NotRequired[Annotated[str | None, "why the run must not be counted"]]
    code: NotRequired[Annotated[dict[str, tuple[str, str]], "the user's own code, by part (`recorded_code`)"]]


class InvalidDocument(Versioned):
    """`invalid.json`: the run is kept, and never counted."""

    reason: Annotated[str, "why"]


class AbsentDocument(Versioned):
    """`absent.json`: what was left out when the run was copied."""

    files: Annotated[dict[str, str], "the SHA-256 of each file left out"]


class ReferenceDocument(TypedDict):
    """A reference in `references/KEY.json`, or in the database: the result of a predictor without training."""

    reference: Annotated[str, "which predictor"]
    cell: Annotated[TrialText, "the trial whose ranking it is compared with"]
    result: Annotated[Ranked, "what its ranking gave"]
    cost: NotRequired[Annotated[dict[str, float], "measured: seconds of its predictions, without judging them"]]
    inapplicable: NotRequired[Annotated[str, "why it has no meaning for these networks; the result is empty then"]]


class ImportedDocument(TypedDict):
    """Predictions from elsewhere, beside the references: judged when they are shown."""

    imported: Annotated[str, "the name that they were given"]
    space: Annotated[str, "the space of the architectures"]
    dataset: Annotated[str, "the data set that they are about"]
    source: Annotated[str, "the name of the file that they were read from"]
    sha256: Annotated[str, "the SHA-256 of that file"]
    accuracies: Annotated[dict[Number, float], "the predicted accuracy by the architecture's number"]


class AcceptedDocument(TypedDict):
    """Versions of a user's code that are declared equal, beside the references."""

    accepted: Annotated[str, "the file, by its name in the user's folder"]
    versions: Annotated[list[str], "the versions (`harness.components.code`)"]
    reason: Annotated[str, "why they are equal"]
    time: Annotated[Time, "when they were declared equal"]


class Point(TypedDict):
    """One line of `metrics.jsonl`."""

    name: Annotated[str, "the curve"]
    step: Annotated[int, "the step"]
    value: Annotated[float | None, "the value; null if it is not a finite number"]
    timestamp: Annotated[Time, "when it was measured"]


class CurveColumns(TypedDict):
    """One curve of `metrics.json`, as columns of equal length."""

    steps: Annotated[list[int], "the steps"]
    values: Annotated[list[float | None], "the values; null where one is not a finite number"]
    timestamps: Annotated[list[Time], "when they were measured"]


CurvesDocument = dict[str, CurveColumns]
"""`metrics.json`: every curve by its name."""


class ClaimDocument(TypedDict):
    """A claim, in a directory or in the database."""

    schema: Annotated[int, "the version of claims", Newest(CLAIMS)]
    attempt: Annotated[int, "the number of the attempt"]
    owner: Annotated[Owner | None, "the process that holds it; null if none does"]
    held: Annotated[bool, "whether it is held"]
    lease: Annotated[float, "seconds without renewal after which it expires"]
    token: Annotated[str | None, "what distinguishes this claim from all others"]


class ArchivedFile(TypedDict):
    """A file of an archive."""

    sha256: Annotated[str, "its SHA-256"]
    size: Annotated[int, "its size in bytes"]


class ArchivedRun(TypedDict):
    """A run of an archive."""

    files: Annotated[dict[str, ArchivedFile], "its files by name"]
    absent: Annotated[dict[str, str], "the SHA-256 of files that were left out"]


class ManifestDocument(TypedDict):
    """`manifest.json` of an archive."""

    schema: Annotated[int, "the version of manifests", Newest(MANIFESTS)]
    study: Annotated[str, "the study whose runs these are"]
    preset: Annotated[str, "its preset"]
    missing: Annotated[list[str], "what the study needs and the archive does not have"]
    runs: Annotated[dict[str, ArchivedRun], "the runs by id"]
    checksum: Annotated[str, "the SHA-256 of the rest"]
    references: NotRequired[Annotated[dict[str, ArchivedFile], "references by key"]]


class Entry(TypedDict):
    """The keys of every file of a mirrored run."""

    name: Annotated[str, "its name"]
    size: Annotated[int, "its size in bytes"]
    sha256: Annotated[str, "its SHA-256"]
    modified: Annotated[int, "when it was changed, in microseconds since 1970"]


class TextEntry(Entry):
    """A small file, in the run's document itself."""

    text: Annotated[str, "its content"]


class FileEntry(Entry):
    """A larger file."""

    id: Annotated[Any, "its id in GridFS; null if it is not in the database"]


class Seal(TypedDict):
    """What shows that a summary is the one that was written (`harness.stores.mongo.seal`)."""

    files: Annotated[str, "SHA-256 over the names and checksums of the files that it was made from"]
    summary: Annotated[str, "SHA-256 over that, the run's id, the mark, the problems and the summary"]


class Projected(TypedDict):
    """What readers need of every mirrored run."""

    run_id: Annotated[str, "the run's id"]
    cell16: Annotated[str, "the first 16 digits of the trial's key"]
    summary: Annotated[str, "the summary (`Summary`), as JSON"]
    invalid: Annotated[str | None, "why the run must not be counted"]
    problems: Annotated[list[tuple[str, str]], "places in the run that cannot be used, and reasons"]
    seal: NotRequired[Annotated[Seal, "its checksums"]]


class Listed(TypedDict, total=False):
    """The files of a mirrored run."""

    documents: Annotated[list[TextEntry], "small files"]
    files: Annotated[list[FileEntry], "larger files"]


class MirroredState(TypedDict):
    """What shows how new a mirrored run is."""

    run_id: Annotated[str, "the run's id"]
    revision: Annotated[int, "how new it is (`harness.stores.mongo.snapshot`)"]
    added: NotRequired[Annotated[list[str], "names of files added after completion"]]


class MirroredDocument(Projected, Listed, MirroredState, total=False):
    """`harness` of a run's document in the database."""

    schema: Annotated[int, "the version of the run's documents"]
    origin: Annotated[str, "the SHA-256 of `cell.json`"]
    version: Annotated[int, "how often the document was written"]
    shown: Annotated[str, "what lists show it by, as JSON (`harness.stores.mongo.listing`); older documents have none"]


def described(kind: Any) -> dict[str, str]:
    """The meaning of every key, in order."""
    return {key: notes[0] for key, notes in _notes(kind)}


def needing(setting: str) -> tuple[str, ...]:
    """The keys of a result that are computed only with that setting of `rank`."""
    return tuple(key for key, notes in _notes(Result) if Needs(setting) in notes)


def left_out(rank: Any) -> tuple[str, ...]:
    """The keys of a result that these settings of `rank` do not ask for."""
    needs = {key: next((note for note in notes if isinstance(note, Needs)), None) for key, notes in _notes(Result)}
    return tuple(key for key, need in needs.items() if need and getattr(rank, need.setting) in (None, False))


def title(naming: Naming, otherwise: str) -> str:
    """The name of a run: that of the first row that asked for it, as "STUDY: LABELS OF THE ROW"."""
    return next((f"{study}: {row}" for study, row in naming["rows"].items()), otherwise)


def _notes(kind: Any) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Every key with its meaning and what else is noted about it."""
    return ((key, get_args(hint)[1:]) for key, hint in keys(kind).items())
