"""References: what is judged beside a study's rows and trains no supernet: the registered proxies. Imports no torch.

A reference is judged as the study judges its runs: same space, benchmark, data set, network, ranking and seeds. `run`
makes them (`harness.work.references`) and reports read them, both from the list that is made here. A store keeps
each under a key that covers everything that it depends on, including the ground truth.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from harness.components.benchmark import benchmark_for
from harness.components.preset import Preset
from harness.components.registries import PROXIES
from harness.documents import canonical, problem
from harness.errors import DataError
from harness.schema import ReferenceDocument
from harness.study.configuration import COMPONENTS
from harness.study.expansion import dotted, expand_stored
from harness.study.fingerprints import Recorded
from harness.study.layout import Row
from harness.study.overrides import as_typed
from harness.study.study import Study
from harness.study.trial import Trial, version

if TYPE_CHECKING:
    from harness.stores.store import Store

VERSION = 1
"""Must change when the meaning of a reference changes."""

TRAINS = (*COMPONENTS, "search", "retrain")
"""Sections that affect training, searching and retraining only; references do none of these."""


@dataclass(frozen=True, eq=False)
class Reference:
    """One reference of a study: a predictor, judged on one data set with one seed."""

    name: str
    """The name of its proxy."""
    trial: Trial
    """Its configuration; nothing of it is trained."""
    dataset: str
    seed: int
    group: tuple[tuple[str, Any], ...]
    """The settings by which it differs from the references of the study's other rows; empty where all share one."""

    @cached_property
    def key(self) -> str:
        """The key that it is stored under. Raises `DataError` if the benchmark cannot be read."""
        config = self.trial.config
        benchmark = benchmark_for(str(config.benchmark), config.space)
        # The ranking's key covers the truth that judges; this one is kept for the keys of stored references.
        known = config.dataset in benchmark.datasets
        truth = benchmark.accuracies(config.dataset if known else config.rank.truth_of(config.dataset))
        known_by = [VERSION, self.name, self.trial.identity(), self.trial.ranking_key]
        known_by.append(hashlib.sha256(truth.tobytes()).hexdigest())
        if (number := version(PROXIES, self.name)) != 1:
            known_by.append(number)
        return hashlib.sha256(canonical(known_by).encode()).hexdigest()[:32]

    @property
    def label(self) -> str:
        """Its name in tables, with the settings that distinguish its group."""
        settings = ", ".join(f"{key}={value}" for key, value in self.group)
        return f"{PROXIES.get(self.name).label}{f' ({settings})' if settings else ''}"


def reference_names(on_request: bool = True) -> list[str]:
    """The proxies in the order of rows; without `on_request` those that `run` makes unasked."""
    proxies = {name: PROXIES.get(name) for name in PROXIES.names()}
    asked = [name for name, proxy in proxies.items() if on_request or not proxy.on_request]
    return sorted(asked, key=lambda name: (proxies[name].order, name))


def references_of(
    study: Study,
    preset: Preset,
    runs: Callable[[], Iterable[Recorded]],
    seeds: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    on_request: bool = True,
) -> list[Reference]:
    """All references of a study, in the order of groups and proxies. Studies that no table judges have none.

    Rows that differ in space, data set, benchmark or network have references of their own. Settings of `rank` count
    where all rows of a group share them. `on_request` is as for `reference_names`.
    """
    overrides = dotted(overrides or {})
    plain = {key: value for key, value in overrides.items() if key.partition(".")[0] not in TRAINS}
    found = []
    for settings, group in _groups(study, overrides):
        alone = Study("references", "", [Row({"": ""}, settings)], [], space=study.space)
        judged = [one for one in expand_stored(alone, preset, runs, seeds, plain) if one.trial.config.benchmark]
        for name in reference_names(on_request):
            found += [Reference(name, one.trial, one.dataset, one.seed, group) for one in judged]
    return found


def stored_result(store: Store, reference: Reference) -> dict[str, Any] | None:
    """The reference's result; None if it is not stored, or damaged. One that is not applicable has ranked nothing.

    Raises what `Reference.key` raises, unless the store says without the benchmark which one it is.
    """
    document = stored_document(store, reference)
    return None if document is None else document["result"]


def stored_document(store: Store, reference: Reference) -> dict[str, Any] | None:
    """What is stored of the reference; None if nothing is, or it is damaged."""
    try:
        document = store.recall(reference.key)
    except DataError:  # the benchmark is not here: by its configuration, if only one table has judged that
        asked = {"reference": reference.name, "cell": reference.trial.json()}
        known = [one for one in store.remembered().values() if one and {key: one.get(key) for key in asked} == asked]
        if len(known) != 1:
            raise
        document = known[0]
    return None if document is None or problem(ReferenceDocument, document) is not None else document


def command_for(study: Study, preset: Preset, seeds: int | None, overrides: Mapping[str, Any], store: str) -> str:
    """The command that makes the references of a report with these options."""
    words = ["python", "-m", "harness", "run", study.name, "--preset", preset.name]
    words += [] if seeds is None else ["--seeds", str(seeds)]
    words += ["--references-only"]
    words += ["--store", store] if store and "://" not in store and store != "runs" else []
    words += ["with", *as_typed(overrides)] if overrides else []
    return shlex.join(words)


def _groups(study: Study, overrides: Mapping[str, Any]) -> list[tuple[dict[str, Any], tuple[tuple[str, Any], ...]]]:
    """The settings that the rows of each group share, and those that distinguish the group from the others.

    Rows that set an overridden key to another value are left out, as in the study's expansion.
    """
    settings = [dotted(row.settings) for row in study.rows if row.source == "runs"]
    kept = [own for own in settings if all(overrides.get(key, value) == value for key, value in own.items())]
    groups: dict[str, list[dict[str, Any]]] = {}
    for own in kept:
        groups.setdefault(canonical(_about(own)), []).append(own)
    everything = [_about(rows[0]) for rows in groups.values()]
    shared = {key for key in everything[0] if all(one.get(key) == everything[0][key] for one in everything)}
    found = []
    for about, rows in zip(everything, groups.values(), strict=True):
        ranked = {key: value for key, value in rows[0].items() if key.startswith("rank.")}
        common = {key: value for key, value in ranked.items() if all(own.get(key) == value for own in rows)}
        found.append(({**about, **common}, tuple((key, about[key]) for key in about if key not in shared)))
    return found


def _about(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that say of which networks, images and truth a row is."""
    return {
        key: value
        for key, value in sorted(settings.items())
        if key in ("space", "dataset", "benchmark") or key.startswith("network.")
    }
