"""A trial and its identity: what is trained, identified by a hash. Imports no torch.

The identity is the SHA-256 of the canonical JSON of all that determines the trained weights: configuration,
seed, the versions of the components, and the images of a data set that is read from files. Settings of
measurements are not part of it, so that tables share trials.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from harness.components.benchmark import fingerprint, open_benchmark
from harness.components.own_code import code_version, files_of, is_ours
from harness.components.registries import AUGMENTATIONS, DATASETS, METRICS, OBSERVATIONS, ORDERS, SEARCHES, SPACES
from harness.components.registry import Registry
from harness.documents import canonical
from harness.errors import DataError
from harness.study.configuration import COMPONENTS, SHUFFLED, UNNAMED, Observe, RunConfig
from harness.study.fingerprints import HERE, KNOWN_BY_MEANING, Fingerprints
from harness.study.versions import Recorded, settled

TRAINING_VERSION = 1
"""Increased when the engine's training gets another meaning for the same configuration.

Not needed if only the order of sums changes, as on another kind of machine: weights then differ as between two such
machines. The commit in a run's record repeats the run byte for byte.
"""

RETRAINING_VERSION = 1
"""The same for retraining."""

DECAY_VERSION = 2
"""The same for `optimiser.inactive=decay`: 1 was without the operations of a path that cannot reach the output."""

OBSERVING = "observation"
"""The part of an observation: what is only measured is not part of an identity."""

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
    recorded: Recorded = ()
    """By part, the versions of the user's code that take the place of today's: those of a stored run whose code is
    the same, or is declared to be (`harness.study.versions`)."""
    recorded_start: Recorded = ()
    """The same of the trial that this one starts from."""
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
        config = self.config.with_valid(retrain=None, observe=Observe())
        return Trial(config, given=self.given, known=self.known, recorded=self.recorded_start)

    def with_seed(self, seed: int) -> Trial:
        """The same trial with another seed: that of a stored run, if one is known that has the same code.

        Fast: everything that does not depend on the seed is shared.
        """
        return settled(self.today, seed, self.known)

    @property
    def today(self) -> Trial:
        """The trial, with any seed, under today's versions: what those with other seeds and versions are made from."""
        like = self._like or self
        return vars(like).get("_today", like)  # type: ignore[no-any-return]

    def twin(self, seed: int, start: Trial | None) -> Trial:
        """The same trial with another seed and, if it retrains, another start."""
        parent = self.parent if start is None else start.search
        of_start = () if start is None else start.recorded
        one = Trial(self.config.with_valid(seed=seed), parent, self.given, self.known, self.recorded, of_start)
        vars(one).update(_like=self, start=start)
        return one

    def under(self, recorded: Recorded, start: Trial | None) -> Trial:
        """The same trial under versions that were recorded, and with that start."""
        parent = self.parent if start is None else start.search
        of_start = () if start is None else start.recorded
        one = Trial(self.config, parent, self.given, self.known, recorded, of_start)
        vars(one).update(_today=self, start=start)
        return one

    @cached_property
    def own_code(self) -> dict[str, str]:
        """By part, the version of today's code of the user's own components; those of ranking and search, too."""
        if self._like:
            return self._like.own_code
        found = {}
        for part, (registry, name) in self.parts.items():
            if not part.startswith(OBSERVING) and isinstance(number := version(registry, name), str):
                found[part] = number
        return found

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
            "space": self._version("space", SPACES, self.config.space),
            "dataset": self._version("dataset", DATASETS, self.config.dataset),
        }
        for key, registry in COMPONENTS.items():
            number = self._version(key, registry, getattr(self.config, key).name)
            if key in UNNAMED and "name" not in document[key] and number == 1:
                continue  # as before the component had a name
            versions[key] = number
        if self.config.optimiser.options.get("inactive") == "decay":
            versions["optimiser.inactive"] = DECAY_VERSION
        if self.config.retrain is not None:
            versions["retrain"] = RETRAINING_VERSION
            schedule = self.config.retrain.schedule.name
            versions["retrain schedule"] = self._version("retrain schedule", COMPONENTS["schedule"], schedule)
        for name, (registry, component) in self._of_the_data.items():
            versions[name] = self._version(name, registry, component)
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

    def _version(self, part: str, registry: Registry[Any], name: str) -> int | str:
        number = version(registry, name)
        return dict(self.recorded).get(part, number) if isinstance(number, str) else number

    @property
    def parts(self) -> dict[str, tuple[Registry[Any], str]]:
        """All components of the trial by the part that they play."""
        named = {key: (registry, getattr(self.config, key).name) for key, registry in COMPONENTS.items()}
        named |= {"space": (SPACES, self.config.space), "dataset": (DATASETS, self.config.dataset)}
        named |= {f"metric {name}": (METRICS, name) for name in self.config.rank.metrics}
        named |= {f"{OBSERVING} {name}": (OBSERVATIONS, name) for name in self.config.observe.own}
        if self.config.search is not None:
            named["search"] = (SEARCHES, self.config.search.name)
        if self.config.retrain is not None:
            named["retrain schedule"] = (COMPONENTS["schedule"], self.config.retrain.schedule.name)
        return named | self._of_the_data

    def sources(self) -> dict[str, Path]:
        """The source files of the trial's components and what these import from the user's folder, by name."""
        found: dict[str, Path] = {}
        for registry, name in self.parts.values():
            entry = registry.entries[name]
            if is_ours(entry.file):
                found["-".join(entry.file.parts[-2:])] = entry.file
            elif entry.file.is_file():
                found |= {own.replace("/", "-"): file for own, file in files_of(entry).items()}
        return {name: file for name, file in sorted(found.items()) if file.is_file()}

    def own_files(self) -> dict[str, str]:
        """By part, the name of the file of the user's own component in her folder."""
        entries = {part: registry.entries[name] for part, (registry, name) in self.parts.items()}
        return {part: next(iter(files_of(entries[part]))) for part in self.own_code}

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
        pairs = {"recorded": dict(self.recorded), "recorded_start": dict(self.recorded_start)}
        recorded = {key: versions for key, versions in pairs.items() if versions}
        return {"config": self.config.json(), "parent": self.parent, **images, **recorded}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Trial:
        own, start = (tuple(sorted(document.get(key, {}).items())) for key in ("recorded", "recorded_start"))
        config = RunConfig.from_json(document["config"])
        return cls(config, document["parent"], document.get("images"), recorded=own, recorded_start=start)

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
            numbers = {name: self._version(f"metric {name}", METRICS, name) for name in rank.metrics}
            known_by.append({"metrics": numbers})
        if config.search is not None:
            number = self._version("search", SEARCHES, config.search.name)
            known_by.append({"search": config.json()["search"], "version": number})
            if config.search.options.get("limits"):
                known_by.append("limits at the size of the network")  # once at the space's published size
        return hashlib.sha256(canonical(known_by).encode()).hexdigest()[:16]


def version(registry: Registry[Any], name: str) -> int | str:
    """The version of a component: it differs when the meaning of the component differs.

    Our components carry a number that changes with their meaning (`version`, 1 unless set). Others may
    change without one: for them it is the version of their code (`harness.components.own_code`).
    """
    component = registry.get(name)
    entry = registry.entries[name]
    if not is_ours(entry.file):
        with suppress(OSError):  # registered by hand, without a file
            return code_version(entry)
    return int(getattr(component, "version", 1))
