"""A trial and its identity: what is trained, identified by a hash. Imports no torch.

The identity is the SHA-256 of the canonical JSON of all that determines the trained weights: configuration,
seed, the versions of the components, and the images of a data set that is read from files. Settings of
measurements are not part of it, so that tables share trials.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

from harness.components.benchmark import fingerprint, open_benchmark
from harness.components.registries import AUGMENTATIONS, DATASETS, METRICS, OBSERVATIONS, ORDERS, SEARCHES, SPACES
from harness.components.registry import Registry
from harness.documents import canonical
from harness.environment import ENGINE, PROJECT
from harness.errors import DataError
from harness.study.configuration import COMPONENTS, SHUFFLED, UNNAMED, Observe, RunConfig
from harness.study.fingerprints import HERE, KNOWN_BY_MEANING, Fingerprints

TRAINING_VERSION = 1
"""Increased when the engine's training gets another meaning for the same configuration.

Not needed if only the order of sums changes, as on another kind of machine: weights then differ as between two such
machines. The commit in a run's record repeats the run byte for byte.
"""

RETRAINING_VERSION = 1
"""The same for retraining."""

DECAY_VERSION = 2
"""The same for `optimiser.inactive=decay`: 1 was without the operations of a path that cannot reach the output."""

MEASURED = ("rank", "benchmark", "observe", "search")
"""Configuration that says what is measured or searched with trained weights, not what is trained."""


@dataclass(frozen=True)
class Trial:
    """A configuration with its seed, and the trial that it starts from, if any."""

    config: RunConfig
    parent: str | None = None
    """The search that this trial starts from: its trial key and its ranking key."""
    given: str | None = None
    """The images, if they are not the local ones; see `images`."""
    known: Fingerprints = field(default=HERE, repr=False, compare=False)
    """What stored runs say of images and tables that are not here."""
    _like: Trial | None = field(default=None, init=False, repr=False, compare=False)
    """A trial that differs only in its seed, if one is known."""

    @classmethod
    def of(cls, config: RunConfig, known: Fingerprints = HERE) -> Trial:
        """The trial of a configuration. A trial that retrains starts from the search of the same configuration."""
        trial = cls(config, known=known)
        if (start := trial.start) is None:
            return trial
        return replace(trial, parent=start.search)

    @cached_property
    def start(self) -> Trial | None:
        """The trial whose best-ranked architecture this one retrains; None for a trial that trains supernets."""
        if self.config.retrain is None:
            return None
        return Trial(self.config.with_valid(retrain=None, observe=Observe()), given=self.given, known=self.known)

    def with_seed(self, seed: int) -> Trial:
        """The same trial with another seed. Fast: everything that does not depend on the seed is shared."""
        like = self._like or self
        start = None if like.start is None else like.start.with_seed(seed)  # another seed, another parent
        parent = self.parent if start is None else start.search
        twin = Trial(self.config.with_valid(seed=seed), parent, self.given, self.known)
        vars(twin).update(_like=like, start=start)
        return twin

    def identity(self) -> dict[str, Any]:
        """Everything that determines the trained weights, as plain JSON types."""
        known = self._like._identity if self._like else self._identity
        configuration = {**known["configuration"], "seed": self.config.seed}
        return {**known, "configuration": configuration, "parent": self.parent}

    @cached_property
    def _identity(self) -> dict[str, Any]:
        document = {key: value for key, value in self.config.json().items() if key not in MEASURED}
        versions = {
            "training": TRAINING_VERSION,
            "space": version(SPACES, self.config.space),
            "dataset": version(DATASETS, self.config.dataset),
        }
        for key, registry in COMPONENTS.items():
            number = version(registry, getattr(self.config, key).name)
            if key in UNNAMED and "name" not in document[key] and number == 1:
                continue  # as before the component had a name
            versions[key] = number
        if self.config.optimiser.options.get("inactive") == "decay":
            versions["optimiser.inactive"] = DECAY_VERSION
        if self.config.retrain is not None:
            versions["retrain"] = RETRAINING_VERSION
            versions["retrain schedule"] = version(COMPONENTS["schedule"], self.config.retrain.schedule.name)
        for name, (registry, component) in self._of_the_data.items():
            versions[name] = version(registry, component)
        if self.images is not None:
            versions["images"] = self.images
        return {"configuration": document, "parent": self.parent, "versions": versions}

    @cached_property
    def _of_the_data(self) -> dict[str, tuple[Registry[Any], str]]:
        """Orders and augmentations other than the defaults, by their place in the configuration."""
        train, retrain = self.config.train, self.config.retrain
        orders = {"order": train.order, "retrain order": retrain.order if retrain else SHUFFLED}
        found = {place: (ORDERS, one.name) for place, one in orders.items() if one != SHUFFLED}
        for section, steps in (("augment", train.augment), ("retrain augment", retrain.augment if retrain else ())):
            found |= {f"{section} {number}": (AUGMENTATIONS, one.name) for number, one in enumerate(steps)}
        return found

    @cached_property
    def images(self) -> str | None:
        """Hash of the images of a data set that is read from files: other files make another trial.

        None for a data set that needs no files. Computed on first use.
        """
        if self._like:
            return self._like.images
        return self.given or self.known.images(self.config.dataset)

    def sources(self) -> dict[str, Path]:
        """The source files of the trial's components, by a name made of folder and file."""
        named = {key: (registry, getattr(self.config, key).name) for key, registry in COMPONENTS.items()}
        named |= {"space": (SPACES, self.config.space), "dataset": (DATASETS, self.config.dataset)}
        named |= {f"metric {name}": (METRICS, name) for name in self.config.rank.metrics}
        named |= {f"observation {name}": (OBSERVATIONS, name) for name in self.config.observe.own}
        if self.config.search is not None:
            named["search"] = (SEARCHES, self.config.search.name)
        if self.config.retrain is not None:
            named["retrain"] = (COMPONENTS["schedule"], self.config.retrain.schedule.name)
        named |= self._of_the_data
        files = {registry.entries[name].file for registry, name in named.values()}
        return {"-".join(file.parts[-2:]): file for file in sorted(files) if file.is_file()}

    @cached_property
    def key(self) -> str:
        """The trial's identity as a hexadecimal hash."""
        before, between, behind = (self._like or self)._around_the_seed
        parent = "null" if self.parent is None else canonical(self.parent)
        text = f"{before}{self.config.seed}{between}{parent}{behind}"
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def _around_the_seed(self) -> tuple[str, str, str]:
        """The canonical identity around the seed and the parent: the text that trials with other seeds share."""
        mark = "\0seed\0"  # occurs in no configuration
        marked = {"configuration": {**self._identity["configuration"], "seed": mark}, "parent": mark}
        before, between, behind = canonical({**self._identity, **marked}).split(canonical(mark))
        return before, between, behind

    @property
    def search(self) -> str:
        """What a trial that retrains has as its parent: the keys of this trial and of its ranking."""
        return f"{self.key}-{self.ranking_key}"

    def json(self) -> dict[str, Any]:
        images = {} if self.images is None else {"images": self.images}
        return {"config": self.config.json(), "parent": self.parent, **images}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Trial:
        return cls(RunConfig.from_json(document["config"]), document["parent"], document.get("images"))

    @cached_property
    def ranking_key(self) -> str:
        """Hash of the settings of ranking and search and of the truth that judges: not part of the trial's identity.

        A changed table of ground truth gives another key, so no stored judgement outlives its truth.
        If the table is missing, it is the key that the stored runs in `known` have for the same settings: commands
        that only read or plan still work. Raises `DataError` if these do not agree.
        """
        if self._like:
            return self._like.ranking_key
        try:
            return self.ranking_key_here()
        except DataError as error:
            return self.known.ranking(self.config, error)

    def ranking_key_here(self) -> str:
        """The ranking key of results that will be stored. Raises `DataError` if the benchmark cannot be read."""
        config, rank = self.config, self.config.rank
        asked = {key: value for key, value in config.json()["rank"].items() if key not in KNOWN_BY_MEANING}
        load = None if config.benchmark is None else partial(open_benchmark, config.benchmark)
        truth, selection = (
            None if load is None else fingerprint(load, on(config.dataset)) for on in (rank.truth_of, rank.selects_on)
        )
        known_by: list[Any] = [asked, config.benchmark, truth]
        # By meaning, and only where it is not the default: rankings that were stored before stay valid.
        if selection != truth:
            known_by.append({"selected by": selection})
        if not rank.top1:
            known_by.append("no top-1")
        if rank.top_share is not None:
            known_by.append({"share": rank.top_share, "sample": rank.top_sample, "by": rank.complexity})
        if rank.metrics:
            known_by.append({"metrics": {name: version(METRICS, name) for name in rank.metrics}})
        if config.search is not None:
            known_by.append({"search": config.json()["search"], "version": version(SEARCHES, config.search.name)})
            if config.search.options.get("limits"):
                known_by.append("limits at the size of the network")  # once at the space's published size
        return hashlib.sha256(canonical(known_by).encode()).hexdigest()[:16]


def version(registry: Registry[Any], name: str) -> int | str:
    """The version of a component: it differs when the meaning of the component differs.

    Our components carry a number that changes with their meaning (`version`, 1 unless set). Others may
    change without one: for them it is the hash of the file that registers them.
    """
    component = registry.get(name)
    file = registry.entries[name].file
    if _is_ours(file):
        return int(getattr(component, "version", 1))
    try:
        return _text_hash(file, file.stat().st_mtime_ns)
    except OSError:  # registered by hand, without a file
        return int(getattr(component, "version", 1))


@lru_cache(maxsize=256)
def _is_ours(file: Path) -> bool:
    return any(file.is_relative_to(folder) for folder in (ENGINE, PROJECT / "methods", PROJECT / "spaces"))


@lru_cache(maxsize=256)
def _text_hash(file: Path, changed: int) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]
