"""The run configuration as typed values: defaults, validation, canonical JSON. Imports no torch.

A configuration is read from plain JSON types (`RunConfig.from_json`); every mistake in it, nested ones
too, is an `InvalidConfiguration` that says where it is and what is allowed. Components (method,
schedule, cluster rule, sampler) are named, with their options beside the name; the options are the
fields of the component's dataclass, so a new component needs no edit here.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from harness.components.preset import default_preset
from harness.components.registries import BENCHMARKS, CLUSTER_RULES, DATASETS, METHODS, SAMPLERS, SCHEDULES, SPACES
from harness.components.registry import Registry
from harness.components.space import NetworkSettings
from harness.errors import UnknownName
from harness.study.reader import Component, as_component, as_type, hints, read, require

T = TypeVar("T")


@dataclass(frozen=True)
class Network:
    """The supernet's size; what width and depth mean is the space's business."""

    width: int = 16
    depth: int = 5
    batch_norm: str = "batch-statistics"

    def __post_init__(self) -> None:
        NetworkSettings(width=self.width, depth=self.depth, batch_norm=self.batch_norm)  # checks them


@dataclass(frozen=True)
class Training:
    """How long and with what batches, and the points where the paper and its code differ."""

    epochs: int = 250
    batch_size: int = 64
    first_step: int = 1
    """t of the first step: 1 in the paper's algorithms, 0 in the released code."""
    weighting: str = "algorithm-2"
    """How paths of one step with different learning rates are combined; see `harness.training.supernet`."""
    label_smoothing: float = 0.0
    precision: str = "float32"
    """What passes are computed in: float32, bfloat16 or float16; see `harness.training.precision`."""

    def __post_init__(self) -> None:
        require(self.epochs >= 1, f"train.epochs must be at least 1, not {self.epochs}")
        require(self.batch_size >= 1, f"train.batch_size must be at least 1, not {self.batch_size}")
        require(self.first_step in (0, 1), f"train.first_step must be 0 or 1, not {self.first_step}")
        require(
            self.weighting in ("algorithm-2", "loss"),
            f"train.weighting is {self.weighting!r}; allowed: algorithm-2, loss",
        )
        require(0 <= self.label_smoothing < 1, f"train.label_smoothing must be in [0, 1), not {self.label_smoothing}")
        require(
            self.precision in ("float32", "bfloat16", "float16"),
            f"train.precision is {self.precision!r}; allowed: float32, bfloat16, float16",
        )


@dataclass(frozen=True)
class Optimiser:
    """Settings of SGD. `inactive` says what happens to parameters that a step does not use.

    "untouched": their gradient is None and they stay as they are (Algorithms 1 to 3 update W(α)).
    "decay": their gradient is zero once they have had one, so weight decay and momentum go on (the
    released code under its pinned version of torch).
    """

    learning_rate: float = 0.025
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 5e-4
    clip: float | None = 5.0
    inactive: str = "untouched"

    def __post_init__(self) -> None:
        require(self.learning_rate > 0, f"optimiser.learning_rate must be above 0, not {self.learning_rate}")
        require(0 <= self.momentum < 1, f"optimiser.momentum must be in [0, 1), not {self.momentum}")
        require(self.weight_decay >= 0, f"optimiser.weight_decay must not be negative, not {self.weight_decay}")
        require(
            self.clip is None or self.clip > 0,
            f"optimiser.clip must be above 0, or null for no clipping, not {self.clip}",
        )
        require(
            self.inactive in ("untouched", "decay"),
            f"optimiser.inactive is {self.inactive!r}; allowed: untouched, decay",
        )


@dataclass(frozen=True)
class Ranking:
    """Which architectures are ranked, on what, and how the ranking is judged.

    `candidates`: "all", or how many random ones (the same for every run, whatever the truth says).
    The architectures that the selection rule picks are always ranked too.
    """

    images: int | None = None
    """How many validation images; null for all."""
    batch_size: int = 256
    candidates: int | None = None
    """How many random architectures compete for top-1; null for the whole space."""
    truth: str | None = None
    """The data set of the benchmark whose accuracies judge the ranking; null for the one trained on."""
    selection: str = "equal-width"
    """How the architectures for Kendall's τ are selected; see `harness.components.selection`."""
    selection_on: str | None = None
    """The data set whose accuracies select them; null for the one that judges."""
    bins: int = 400
    top1: bool = True
    """Whether the best-ranked architecture is looked up."""
    top_share: float | None = None
    """CB and C³ over this share of the best architectures by truth; null for neither."""
    top_sample: int | None = None
    """Over how many of these, a fixed random sample; null for all of them."""
    complexity: str = "parameters"
    """How the complexity in CB and C³ is counted: one of the space's counts."""

    def truth_of(self, dataset: str) -> str:
        """What judges a supernet that was trained on that data set."""
        return self.truth or dataset

    def selects_on(self, dataset: str) -> str:
        """By whose accuracies architectures are selected for a supernet that was trained on that data set."""
        return self.selection_on or self.truth_of(dataset)

    @property
    def left_out(self) -> tuple[str, ...]:
        """The results that are not asked for."""
        return () if self.top1 else ("top1", "top1_accuracy")

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
        require(self.bins >= 2, f"rank.bins must be at least 2, not {self.bins}")
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
    """What is measured while training goes on. A stored run without it must be trained again to have it."""

    kendall_tau_every: int = 0
    """Kendall's τ on the selected architectures after every so many epochs; 0 for never."""
    subnets_every: int = 0
    """Validation loss and accuracy of a small, a medium and a large subnet after every so many epochs."""
    spread: bool = False
    """How much gradients and momentum buffers vary over the steps of each epoch; see `training/observers/spread.py`."""
    gradient_similarity: bool = False
    """Cosines between the first layer's gradients of a step's paths; see `training/observers/similarity.py`."""

    def __post_init__(self) -> None:
        for name in ("kendall_tau_every", "subnets_every"):
            every = getattr(self, name)
            require(every >= 0, f"observe.{name} must not be negative, not {every}")

    def union(self, other: Observe) -> Observe:
        """The least that holds both: τ after every 2 and every 3 epochs is τ after each."""
        return Observe(
            kendall_tau_every=math.gcd(self.kendall_tau_every, other.kendall_tau_every),
            subnets_every=math.gcd(self.subnets_every, other.subnets_every),
            spread=self.spread or other.spread,
            gradient_similarity=self.gradient_similarity or other.gradient_similarity,
        )

    @property
    def judges(self) -> bool:
        """Whether what is observed depends on how the run is ranked and judged."""
        return bool(self.kendall_tau_every or self.subnets_every)


@dataclass(frozen=True)
class Retraining:
    """How the best-ranked architecture is trained as a network of its own, at the supernet's width and depth.

    The schedule is the default preset's unless one is named.
    """

    schedule: Component = Component("")
    epochs: int = 200
    batch_size: int = 256
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    with_valid: bool = False
    """Whether the images that ranked are trained on, too: where the benchmark's training set holds both."""

    def __post_init__(self) -> None:
        named = self.schedule if self.schedule.name else replace(self.schedule, name=default_name("schedule.name"))
        built = named.build(SCHEDULES, "retrain.schedule")
        object.__setattr__(self, "schedule", Component(named.name, dataclasses.asdict(built)))
        for name in ("epochs", "batch_size"):
            require(getattr(self, name) >= 1, f"retrain.{name} must be at least 1, not {getattr(self, name)}")
        require(self.learning_rate > 0, f"retrain.learning_rate must be above 0, not {self.learning_rate}")
        require(0 <= self.momentum < 1, f"retrain.momentum must be in [0, 1), not {self.momentum}")
        require(self.weight_decay >= 0, f"retrain.weight_decay must not be negative, not {self.weight_decay}")


@dataclass(frozen=True)
class RunConfig:
    """Everything that one run is determined by.

    A name that is not given is the one that the default preset has.
    """

    space: str = ""
    dataset: str = ""
    benchmark: str = ""
    method: Component = Component("")
    schedule: Component = Component("")
    clusters: Component = Component("")
    sampler: Component = Component("")
    network: Network = Network()
    train: Training = Training()
    optimiser: Optimiser = Optimiser()
    rank: Ranking = Ranking()
    observe: Observe = Observe()
    retrain: Retraining | None = None
    """Not None in a trial that starts from the search of the same configuration without it."""
    seed: int = 0

    def __post_init__(self) -> None:
        # Checked before anything runs, and typed and complete whichever way it was made: configurations
        # that mean the same are equal, as objects and as text.
        for key, kind in hints(RunConfig).items():
            value = getattr(self, key)
            if key in NAMES and value == "":
                value = default_name(key)
            if key in COMPONENTS:
                component = as_component(value, key)
                component = component if component.name else replace(component, name=default_name(f"{key}.name"))
                value = Component(component.name, dataclasses.asdict(component.build(COMPONENTS[key], key)))
            elif dataclasses.is_dataclass(value) and isinstance(value, kind):
                value = read(type(value), vars(value), key)
            else:
                value = as_type(kind, value, key)
            object.__setattr__(self, key, value)
        for key, registry in NAMES.items():
            if (name := getattr(self, key)) not in registry:
                raise UnknownName.among(registry.kind, name, registry.names())

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> RunConfig:
        return read(cls, document, "")

    def with_valid(self, **values: Any) -> RunConfig:
        """The same with other values, of the right types and checked by themselves: the rest is not checked again."""
        changed = object.__new__(RunConfig)
        vars(changed).update(vars(self), **values)
        return changed

    def json(self) -> dict[str, Any]:
        """Plain JSON types, components flattened to their name and all their options.

        Without retraining, and in full precision, there is no word of these: configurations that were stored before
        they existed stay as they are.
        """
        plain = dataclasses.asdict(self)
        for key in COMPONENTS:
            plain[key] = _flat(plain[key])
        if self.train.precision == Training.precision:
            del plain["train"]["precision"]
        if self.retrain is None:
            del plain["retrain"]
        else:
            plain["retrain"]["schedule"] = _flat(plain["retrain"]["schedule"])
        document: dict[str, Any] = json.loads(json.dumps(plain))
        return document

    def canonical(self) -> str:
        """Canonical JSON: equal configurations give equal text."""
        return json.dumps(self.json(), sort_keys=True, separators=(",", ":"), allow_nan=False)


def default_name(key: str) -> str:
    """What the default preset has at that key: the name of a space, data set, benchmark or component."""
    return str(default_preset().settings[key])


def _flat(component: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": component["name"], **component["options"]}


COMPONENTS: dict[str, Registry[Any]] = {
    "method": METHODS,
    "schedule": SCHEDULES,
    "clusters": CLUSTER_RULES,
    "sampler": SAMPLERS,
}
NAMES: dict[str, Registry[Any]] = {"space": SPACES, "dataset": DATASETS, "benchmark": BENCHMARKS}
