"""A trial and its identity: what is trained, known by a hash. Imports no torch.

The identity is the SHA-256 of the canonical JSON of all that determines the trained weights: configuration,
seed, the versions of the components, and the images of a data set that comes from files. What is only
measured is not part of it, so that tables share trials.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.components.benchmark import fingerprint
from harness.components.registries import BENCHMARKS, DATASETS, SPACES
from harness.components.registry import Registry
from harness.documents import canonical
from harness.environment import ENGINE, PROJECT
from harness.errors import DataError
from harness.study.configuration import COMPONENTS, Observe, RunConfig
from harness.study.fingerprints import KNOWN_BY_MEANING, images_of, remembered_ranking

if TYPE_CHECKING:
    pass

TRAINING_VERSION = 1
"""Changes when the engine's training means something else for the same configuration.

It need not when sums are only made in another order, as on another kind of machine: then weights differ as between
two such machines, and a run is repeated byte for byte by the commit that made it, which stands in its record.
"""

RETRAINING_VERSION = 1
"""The same for the retraining of what was found."""

MEASURED = ("rank", "benchmark", "observe")
"""Configuration that says what is measured, not what is trained."""

@dataclass(frozen=True)
class Trial:
    """A configuration with its seed, and the trial that it starts from, if any."""

    config: RunConfig
    parent: str | None = None
    """The search that this one starts from: the key of its trial, and that of its ranking."""
    given: str | None = None
    """The images, if they are not those that are here now; see `images`."""
    _like: Trial | None = field(default=None, init=False, repr=False, compare=False)
    """One that differs in its seed only, if one is known."""

    @classmethod
    def of(cls, config: RunConfig) -> Trial:
        """The trial of a configuration: one that retrains starts from the search that it names."""
        trial = cls(config)
        return trial if (start := trial.start) is None else cls(config, f"{start.key}-{start.ranking_key}")

    @cached_property
    def start(self) -> Trial | None:
        """The trial whose best-ranked architecture this one retrains; None for one that trains supernets."""
        if self.config.retrain is None:
            return None
        return Trial(self.config.with_valid(retrain=None, observe=Observe()), given=self.given)

    def with_seed(self, seed: int) -> Trial:
        """The same for another seed, at once: all that has nothing to do with the seed is this trial's."""
        if self.config.retrain is not None:  # another seed, another parent
            return replace(Trial.of(self.config.with_valid(seed=seed)), given=self.given)
        twin = Trial(self.config.with_valid(seed=seed), self.parent, self.given)
        object.__setattr__(twin, "_like", self._like or self)
        return twin

    def identity(self) -> dict[str, Any]:
        """Everything that determines the trained weights, as plain JSON types."""
        known = self._like._identity if self._like else self._identity
        return {**known, "configuration": {**known["configuration"], "seed": self.config.seed}}

    @cached_property
    def _identity(self) -> dict[str, Any]:
        document = {key: value for key, value in self.config.json().items() if key not in MEASURED}
        versions = {
            "training": TRAINING_VERSION,
            "space": version(SPACES, self.config.space),
            "dataset": version(DATASETS, self.config.dataset),
        }
        for key, registry in COMPONENTS.items():
            versions[key] = version(registry, getattr(self.config, key).name)
        if self.config.retrain is not None:
            versions["retrain"] = RETRAINING_VERSION
            versions["retrain schedule"] = version(COMPONENTS["schedule"], self.config.retrain.schedule.name)
        if self.images is not None:
            versions["images"] = self.images
        return {"configuration": document, "parent": self.parent, "versions": versions}

    @cached_property
    def images(self) -> str | None:
        """The images, known by a hash, of a data set that comes from files: other files, another trial.

        None for a data set that needs no files. Found out when it is first asked for.
        """
        if self._like:
            return self._like.images
        return self.given or images_of(self.config.dataset)

    def sources(self) -> dict[str, Path]:
        """The files that the trial's components are written in, by a name that holds folder and file."""
        named = {key: (registry, getattr(self.config, key).name) for key, registry in COMPONENTS.items()}
        named |= {"space": (SPACES, self.config.space), "dataset": (DATASETS, self.config.dataset)}
        if self.config.retrain is not None:
            named["retrain"] = (COMPONENTS["schedule"], self.config.retrain.schedule.name)
        files = {registry.entries[name].file for registry, name in named.values()}
        return {"-".join(file.parts[-2:]): file for file in sorted(files) if file.is_file()}

    @cached_property
    def key(self) -> str:
        """The trial's identity as a hexadecimal number."""
        before, behind = (self._like or self)._around_the_seed
        return hashlib.sha256(f"{before}{self.config.seed}{behind}".encode()).hexdigest()

    @cached_property
    def _around_the_seed(self) -> tuple[str, str]:
        """The canonical identity before and behind the seed: all that trials which differ in it share."""
        mark = "\0seed\0"  # stands in no configuration
        marked = {**self._identity, "configuration": {**self._identity["configuration"], "seed": mark}}
        before, behind = canonical(marked).split(canonical(mark))
        return before, behind

    def json(self) -> dict[str, Any]:
        images = {} if self.images is None else {"images": self.images}
        return {"config": self.config.json(), "parent": self.parent, **images}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Trial:
        return cls(RunConfig.from_json(document["config"]), document["parent"], document.get("images"))

    @cached_property
    def ranking_key(self) -> str:
        """What is asked of the ranking, and the truth it is judged by: not part of the trial's identity.

        A table of ground truth that changed gives another key, so no stored judgement outlives its truth.
        A table that is missing does no harm to what only reads or plans: then it is what the stored runs that
        were looked at last have for the same (`remember_rankings`). Raises `DataError` when these do not agree.
        """
        if self._like:
            return self._like.ranking_key
        try:
            return self.ranking_key_here()
        except DataError as error:
            return remembered_ranking(self.config, error)

    def ranking_key_here(self) -> str:
        """The same for what is to be stored. Raises `DataError` when the benchmark cannot be read."""
        config, rank = self.config, self.config.rank
        load = BENCHMARKS.get(config.benchmark)
        asked = {key: value for key, value in config.json()["rank"].items() if key not in KNOWN_BY_MEANING}
        truth, selection = (fingerprint(load, on(config.dataset)) for on in (rank.truth_of, rank.selects_on))
        known_by: list[Any] = [asked, config.benchmark, truth]
        # By meaning, and only where it is not the plain one: rankings that were stored before still count.
        if selection != truth:
            known_by.append({"selected by": selection})
        if not rank.top1:
            known_by.append("no top-1")
        if rank.top_share is not None:
            known_by.append({"share": rank.top_share, "sample": rank.top_sample, "by": rank.complexity})
        return hashlib.sha256(canonical(known_by).encode()).hexdigest()[:16]


def version(registry: Registry[Any], name: str) -> int | str:
    """What tells two meanings of one component apart.

    Ours carry a number that changes with their meaning (`version`, 1 unless set). Others change without
    telling: the text of the file that registers them stands for it.
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


def claim_key(trial: Trial, kind: str) -> str:
    """What a job of that kind claims: the trial, or one ranking of its weights."""
    return trial.key if kind == "train" else f"{trial.key}-{trial.ranking_key}"
