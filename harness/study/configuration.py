"""The run configuration as typed values: defaults, validation, canonical JSON. Imports no torch.

A configuration is read from plain JSON types (`RunConfig.from_json`); every mistake in it, nested ones
too, is an `InvalidConfiguration` that says where it is and what is allowed. Components (method,
schedule, cluster rule, sampler, optimiser) are named, with their options beside the name; the options are the
fields of the component's dataclass, so a new component needs no edit here.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from harness.components.benchmark import Benchmark, is_benchmark
from harness.components.option import added, document
from harness.components.preset import default_name as default_name
from harness.components.registries import (
    AUGMENTATIONS,
    BENCHMARKS,
    CLUSTER_RULES,
    DATASETS,
    METHODS,
    METRICS,
    OBSERVATIONS,
    OPTIMISERS,
    SAMPLERS,
    SCHEDULES,
    SEARCHES,
    SPACES,
)
from harness.components.registry import Registry
from harness.components.space import Network as Network
from harness.errors import InvalidConfiguration
from harness.schema import left_out
from harness.study.reader import Component, as_component, as_type, complete, hints, read, require, require_precision
from harness.study.retraining import SHUFFLED as SHUFFLED
from harness.study.retraining import Retraining as Retraining
from harness.study.retraining import complete_group, complete_order

T = TypeVar("T")


@dataclass(frozen=True)
class Training:
    """Length and batches of training, and the settings in which the paper and its code differ."""

    epochs: int = 250
    """Epochs of each supernet."""
    batch_size: int = 64
    """Images per step."""
    first_step: int = 1
    """t of the first step: 1 in the paper's algorithms, 0 in the released code."""
    weighting: str = "algorithm-2"
    """How paths of one step with different learning rates are combined; see `harness.training.supernet`."""
    label_smoothing: float = 0.0
    """The share of the label that is spread over all classes."""
    precision: str = added("float32")
    """The number format of the passes: float32, tf32, bfloat16 or float16; see `harness.training.precision`."""
    augment: tuple[Component, ...] = added(())
    """Transforms and batch augmentations in this order, beside the data set's own crops and mirroring."""
    order: Component = added(SHUFFLED)
    """The order of samples, where the method has none of its own."""
    warmup_epochs: int = added(0)
    """Epochs over which the learning rate rises linearly to what the schedule says."""
    warmup_steps: int = added(0)
    """Steps that are added to these epochs."""
    least_rate: float = added(0.0)
    """The learning rate, relative to the initial one, below which no schedule goes."""
    weights: str | None = added(None)
    """Weights that supernets start from: a name of `harness weights list`, after `with` also a run; null for random
    ones."""
    bn_group: int | None = added(None)
    """Images of a batch whose statistics batch normalisation takes together in training; null for the whole batch."""
    draw: str = added("random")
    """How a seed draws edges, for splits and for clusters: random, or turns: six seeds have all of six edges."""
    with_valid: bool = added(False)
    """Whether supernets train on the validation images, too; the test images then rank in their place."""

    def __post_init__(self) -> None:
        require(self.draw in ("random", "turns"), f"train.draw is {self.draw!r}; allowed: random, turns")
        object.__setattr__(self, "augment", complete(self.augment, AUGMENTATIONS, "train.augment"))
        complete_order(self, "train.order")
        least = 0 if self.weights else 1
        require(self.epochs >= least, f"train.epochs must be at least {least}, not {self.epochs}")
        require(
            self.weights is None or re.fullmatch(r"[\w.-]+-[0-9a-f]{12}", self.weights) is not None,
            f"train.weights is {self.weights!r}; a name of `harness weights list` ends with 12 digits of a hash; a run "
            "may be named after `with` alone",
        )
        require(self.batch_size >= 1, f"train.batch_size must be at least 1, not {self.batch_size}")
        complete_group(self, "train")
        require(self.first_step in (0, 1), f"train.first_step must be 0 or 1, not {self.first_step}")
        require(
            self.weighting in ("algorithm-2", "loss"),
            f"train.weighting is {self.weighting!r}; allowed: algorithm-2, loss",
        )
        for name in ("warmup_epochs", "warmup_steps"):
            require(getattr(self, name) >= 0, f"train.{name} must not be negative, not {getattr(self, name)}")
        require(0 <= self.least_rate <= 1, f"train.least_rate must be from 0 to 1, not {self.least_rate}")
        require(0 <= self.label_smoothing < 1, f"train.label_smoothing must be in [0, 1), not {self.label_smoothing}")
        require_precision(self.precision, "train.precision")


@dataclass(frozen=True)
class Ranking:
    """Which architectures are ranked, on what, and how the ranking is judged.

    Random candidates are the same for every run and do not depend on the truth.
    The architectures that the selection rule picks are always ranked too.
    """

    images: int | None = None
    """How many validation images; null for all."""
    batch_size: int = 256
    """Images per evaluation; batch statistics depend on it."""
    candidates: int | None = None
    """How many random architectures compete for top-1; null for the whole space."""
    truth: str | None = None
    """The data set of the benchmark whose accuracies judge the ranking; null for the one trained on."""
    selection: str = "equal-width"
    """How the architectures for Kendall's τ are selected; see `harness.components.selection`."""
    selection_on: str | None = None
    """The data set whose accuracies select them; null for the one that judges."""
    bins: int = 400
    """How many bins or chunks the selection has."""
    top1: bool = True
    """Whether the best-ranked architecture is looked up."""
    top_share: float | None = None
    """CB and C³ over this share of the best architectures by truth; null for neither."""
    top_sample: int | None = None
    """The number of these in a fixed random sample; null for all of them."""
    complexity: str = "parameters"
    """How the complexity in CB and C³ is counted: one of the space's counts."""
    calibration: int = added(0)
    """Training batches that set the statistics of batch normalisation for each architecture; 0 for none."""
    calibration_images: str = added("plain")
    """Which these are: the first training images as they are (plain), or batches with the training's augmentation."""
    metrics: tuple[str, ...] = added(())
    """Registered metrics over the architectures that Kendall's τ is taken over; each is a key of the result."""
    valid_loss: bool = added(False)
    """Whether the supernet's mean loss on the ranking's images is measured, over the architectures of Kendall's τ."""
    by: str = added("accuracy")
    """What architectures are ranked by on the validation images: accuracy, or loss as in Eq. 2. Both are stored."""
    truth_split: str = added("test")
    """The images that the judging accuracies are of, in selections too: test, or valid to choose options by."""
    precision: str = added("float32")
    """The number format of evaluations, as for training. float32 rounds to TF32 where the training does."""

    def truth_of(self, dataset: str) -> str:
        """The data set whose truth judges a supernet that was trained on `dataset`."""
        return self.truth or dataset

    def selects_on(self, dataset: str) -> str:
        """The data set whose accuracies select architectures for a supernet that was trained on `dataset`."""
        return self.selection_on or self.truth_of(dataset)

    def truth_in(self, benchmark: Benchmark, dataset: str) -> npt.NDArray[np.float64]:
        """The accuracies that judge a supernet that was trained on `dataset`."""
        return benchmark.accuracies(self.truth_of(dataset), self.truth_split)

    def selecting_in(self, benchmark: Benchmark, dataset: str) -> npt.NDArray[np.float64]:
        """The accuracies that select architectures for a supernet that was trained on `dataset`."""
        return benchmark.accuracies(self.selects_on(dataset), self.truth_split)

    @property
    def left_out(self) -> tuple[str, ...]:
        """The results that are not requested."""
        return left_out(self)

    def __post_init__(self) -> None:
        require(self.images is None or self.images >= 1, f"rank.images must be at least 1, not {self.images}")
        require(self.batch_size >= 1, f"rank.batch_size must be at least 1, not {self.batch_size}")
        require(
            self.candidates is None or self.candidates >= 1,
            f"rank.candidates must be at least 1, or null for all, not {self.candidates}",
        )
        require(
            self.selection in ("equal-width", "equal-count"),
            f"rank.selection is {self.selection!r}; allowed: equal-width, equal-count",
        )
        require(self.by in ("accuracy", "loss"), f"rank.by is {self.by!r}; allowed: accuracy, loss")
        require(
            self.truth_split in ("test", "valid"), f"rank.truth_split is {self.truth_split!r}; allowed: test, valid"
        )
        require(self.bins >= 2, f"rank.bins must be at least 2, not {self.bins}")
        require_precision(self.precision, "rank.precision")
        require(self.calibration >= 0, f"rank.calibration must not be negative, not {self.calibration}")
        require(
            self.calibration_images in ("plain", "augmented"),
            f"rank.calibration_images is {self.calibration_images!r}; allowed: plain, augmented",
        )
        for name in self.metrics:
            METRICS.get(name)
        require(
            self.top_share is None or 0 < self.top_share <= 1,
            f"rank.top_share must be above 0 and at most 1, or null, not {self.top_share}",
        )
        require(
            self.top_sample is None or self.top_sample >= 2,
            f"rank.top_sample must be at least 2, or null for all, not {self.top_sample}",
        )


@dataclass(frozen=True)
class Observe:
    """What is measured during training. A stored run without a measurement must be trained again to get it."""

    kendall_tau_every: int = 0
    """Epochs between two measurements of Kendall's τ on the selected architectures; 0 for never."""
    subnets_every: int = 0
    """Epochs between two validations (loss and accuracy) of a small, a medium and a large subnet; 0 for never."""
    spread: bool = False
    """How much gradients and momentum buffers vary over the steps of each epoch; see `training/observers/spread.py`."""
    gradient_similarity: bool = False
    """Cosines between the first layer's gradients of a step's paths; see `training/observers/similarity.py`."""
    own: tuple[str, ...] = added(())
    """Registered observations, each made after every epoch."""
    average_last: int = added(0)
    """Epochs at the end of training after each of which Kendall's τ is measured, for its mean over them; 0 for none."""
    spread_within: bool = added(False)
    """The spread of momentum buffers within clusters, and the share of the gradients' variance between clusters: those
    of the run, or, where it has one buffer, those by operation that momentum separation would draw."""
    similarity_every: int = added(0)
    """Epochs between two measurements of the similarity of gradients by the number of decisions in which subnets
    differ; 0 for never; see `training/observers/similarity.py`."""

    def __post_init__(self) -> None:
        for name in ("kendall_tau_every", "subnets_every", "similarity_every", "average_last"):
            every = getattr(self, name)
            require(every >= 0, f"observe.{name} must not be negative, not {every}")
        for name in self.own:
            OBSERVATIONS.get(name)
        object.__setattr__(self, "own", tuple(sorted(set(self.own))))

    def union(self, other: Observe) -> Observe:
        """The smallest setting that includes both: τ every 2 epochs and τ every 3 epochs give τ every epoch."""
        return Observe(
            kendall_tau_every=math.gcd(self.kendall_tau_every, other.kendall_tau_every),
            subnets_every=math.gcd(self.subnets_every, other.subnets_every),
            spread=self.spread or other.spread,
            gradient_similarity=self.gradient_similarity or other.gradient_similarity,
            own=self.own + other.own,
            average_last=max(self.average_last, other.average_last),
            spread_within=self.spread_within or other.spread_within,
            similarity_every=math.gcd(self.similarity_every, other.similarity_every),
        )

    @property
    def judges(self) -> bool:
        """Whether the observations depend on how the run is ranked and judged."""
        return bool(self.kendall_tau_every or self.subnets_every or self.average_last)

    @property
    def evaluates(self) -> bool:
        """Whether subnets are evaluated between epochs."""
        return self.judges or bool(self.similarity_every)


@dataclass(frozen=True)
class RunConfig:
    """Everything that determines one run.

    A name that is not given is taken from the default preset.
    """

    space: str = ""
    """The search space."""
    dataset: str = ""
    """What supernets are trained on."""
    benchmark: str | None = ""
    """The table of truth, by its name or file (`.npz`); None where there is none."""
    method: Component = Component("")
    """How supernets are trained."""
    schedule: Component = Component("")
    """How the learning rate falls."""
    clusters: Component = Component("")
    """Which subnets share a momentum buffer (momentum separation)."""
    sampler: Component = Component("")
    """How single paths are drawn."""
    network: Any = None
    """The settings of the supernet, of the type that the space defines (`Space.Network`)."""
    train: Training = Training()
    optimiser: Component = Component("")
    """How gradients become an update. The default name is left out of stored configurations (`UNNAMED`)."""
    rank: Ranking = Ranking()
    observe: Observe = Observe()
    search: Component | None = added(None)
    """How architectures are searched with the trained supernets; None for no search but that of `rank`."""
    retrain: Retraining | None = added(None)
    """Not None in a trial that starts from the search of the same configuration without `retrain`."""
    seed: int = 0
    """Everything random is derived from it, by name."""

    def __post_init__(self) -> None:
        # Check everything before anything runs, and make it typed and complete: configurations with the same
        # meaning are equal, as objects and as text.
        for key, kind in hints(RunConfig).items():
            value = getattr(self, key)
            if key == "network":
                object.__setattr__(self, key, as_network(self.space, value, key))
                continue
            if key in NAMES and value == "":
                value = default_name(key)
            if key in COMPONENTS:
                component = as_component(value, key)
                component = component if component.name else replace(component, name=default_name(f"{key}.name"))
                value = Component(component.name, document(component.build(COMPONENTS[key], key)))
            elif key == "search" and value is not None:
                component = as_component(value, key)
                value = Component(component.name, document(component.build(SEARCHES, key)))
            elif dataclasses.is_dataclass(value) and isinstance(value, kind):
                value = read(type(value), vars(value), key)
            else:
                value = as_type(kind, value, key)
            object.__setattr__(self, key, value)
        if self.retrain is not None and self.retrain.network is not None:
            whole = _completed(self.space, self.retrain.network, self.network)
            changed = replace(self.retrain, network=None if whole == self.network else whole)
            object.__setattr__(self, "retrain", changed)
        for key, registry in NAMES.items():
            name = getattr(self, key)
            if key == "benchmark" and (name is None or is_benchmark(name)):
                continue
            if name not in registry:
                raise registry.unknown(name)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> RunConfig:
        if isinstance(document, Mapping):
            unnamed = [key for key in UNNAMED if isinstance(own := document.get(key), Mapping) and "name" not in own]
            document = {**document, **{key: {"name": "", **document[key]} for key in unnamed}}
        return read(cls, document, "")

    def with_valid(self, **values: Any) -> RunConfig:
        """A copy with other values, which must have the right types and be valid: nothing is checked again."""
        changed = object.__new__(RunConfig)
        vars(changed).update(vars(self), **values)
        return changed

    def json(self) -> dict[str, Any]:
        """Plain JSON types, components flattened to their name and their options.

        Fields and options that were added later are left out while they have their default
        (`harness.components.option`): configurations that were stored before they existed keep their text.
        """
        plain: dict[str, Any] = json.loads(json.dumps(document(self)))
        for key in COMPONENTS:
            plain[key] = _flat(plain[key])
        for key in UNNAMED:
            if plain[key]["name"] == default_name(f"{key}.name"):
                del plain[key]["name"]
        if "search" in plain:
            plain["search"] = _flat(plain["search"])
        for section in (plain["train"], plain.get("retrain", {})):
            for key in {"schedule", "order", "augment"} & set(section):
                value = section[key]
                section[key] = [_flat(one) for one in value] if isinstance(value, list) else _flat(value)
        return plain

    def canonical(self) -> str:
        """Canonical JSON: equal configurations give equal text."""
        return json.dumps(self.json(), sort_keys=True, separators=(",", ":"), allow_nan=False)


def as_network(space: str, value: Any, where: str) -> Any:
    """The settings of a network of that space, from plain JSON types or from values; None for the defaults."""
    kind = SPACES.get(space).Network
    if value is not None and not isinstance(value, Mapping) and not isinstance(value, kind | Network):
        raise InvalidConfiguration(f"{where} must be a set of keys, not {value!r}")
    return read(kind, {} if value is None else value if isinstance(value, Mapping) else vars(value), where)


def _completed(space: str, value: Any, network: Any) -> Any:
    """The settings of retrained networks: those of the supernet with the given ones in their place."""
    own = value if isinstance(value, Mapping) else vars(as_network(space, value, "retrain.network"))
    return as_network(space, {**vars(network), **own}, "retrain.network")


def unnamed() -> dict[str, str]:
    """The names of components that the text of a configuration leaves out (`UNNAMED`)."""
    return {key: default_name(f"{key}.name") for key in UNNAMED}


def with_names(config: Mapping[str, Any], names: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The text of a configuration with the names that it leaves out, for readers.

    A reader of many asks for them (`unnamed`) once: each look at a registry costs a look at the user's folders.
    """
    found = unnamed() if names is None else names
    return {**config, **{key: {"name": name, **config[key]} for key, name in found.items()}}


def _flat(component: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": component["name"], **component["options"]}


COMPONENTS: dict[str, Registry[Any]] = {
    "method": METHODS,
    "schedule": SCHEDULES,
    "clusters": CLUSTER_RULES,
    "sampler": SAMPLERS,
    "optimiser": OPTIMISERS,
}
UNNAMED = ("optimiser",)
"""Components that were added after runs were stored without their names: the default name is left out of the text."""
NAMES: dict[str, Registry[Any]] = {"space": SPACES, "dataset": DATASETS, "benchmark": BENCHMARKS}
