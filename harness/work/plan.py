"""The work to do: requested trials compared with stored runs. Does not import torch.

Studies overlap: a trial that several studies request is one piece of work, with the union of their
observations. Nothing here runs or writes anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, get_type_hints

from harness.components.benchmark import benchmark_for, open_benchmark
from harness.components.clustering import ClusterRule
from harness.components.dataset import fingerprint, inputs_of
from harness.components.method import Method, check_clusters, sampler_of
from harness.components.preset import Preset, get_preset
from harness.components.registries import SEARCHES, SPACES
from harness.components.schedule import Schedule
from harness.components.search import Search, counted_settings
from harness.components.selection import RULES
from harness.components.space import Space, network_settings, short
from harness.data.inspection import image_counts
from harness.documents import canonical
from harness.errors import DataError, InvalidConfiguration
from harness.schema import Naming, Result
from harness.seeds import make_rng
from harness.stores.stored import StoredRun
from harness.study.configuration import COMPONENTS, RunConfig, with_names
from harness.study.expansion import expand_stored, found_by_search, parents
from harness.study.fingerprints import are_here, can_be_judged
from harness.study.layout import Row
from harness.study.metrics import check_asked
from harness.study.naming import SEARCH, is_start, naming, row_name
from harness.study.overrides import Filter, matching
from harness.study.parallel import check_ranks
from harness.study.study import Request, Study
from harness.study.trial import Trial
from harness.work.slots import Slots
from harness.work.states import Work, stand

RESULTS = frozenset(get_type_hints(Result))
"""The keys of a result that no registered metric may have."""


@dataclass(frozen=True)
class Plan:
    """All work of some studies, each trial once, in this order: all rows of the first seed, then of the next."""

    work: tuple[Work, ...]
    studies: tuple[Study, ...]

    @property
    def states(self) -> Counter[str]:
        return Counter(work.state for work in self.work)

    @property
    def shared(self) -> int:
        """Number of requests whose trial another row or study requests, too."""
        return sum(len({(r.study, r.row) for r in work.requests}) - 1 for work in self.work)

    @property
    def naming(self) -> dict[str, Naming]:
        """By run, what the studies call it."""
        return {work.run.id: work.naming for work in self.work if work.run is not None and work.naming is not None}

    @property
    def searches(self) -> int:
        """Number of different searches that are requested of the trained supernets."""
        supernets = [work for work in self.work if work.trial.start is None]
        return sum(trial.config.search is not None for work in supernets for trial in work.rankings.values())

    def require_images(self, retry: str | None = None) -> None:
        """Raise `DataError` unless images and ground truth of all work to run are present and correct."""
        require_inputs(work.trial for work in self.work if work.kind(retry))

    def require_ranks(self, slots: Slots, retry: str | None = None) -> None:
        """As `require_ranks`, for all work to run."""
        require_ranks((work for work in self.work if work.kind(retry)), slots)

    def of(self, study: Study) -> Plan:
        """The part of one study, with its own requests only."""
        asked = ((work, [r for r in work.requests if r.study == study.name]) for work in self.work)
        return Plan(tuple(stand(w.label, own, list(w.attempts)) for w, own in asked if own), (study,))


@dataclass(frozen=True)
class Asked:
    """Which trials a command is about: studies, their scale and seeds, and what is changed or left out."""

    studies: Sequence[Study]
    preset: str
    seeds: int | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    only: Filter = field(default_factory=dict)
    keep: Callable[[Study, Request], bool] | None = None
    """Which requests count; None for all."""

    def plan(self, runs: Sequence[StoredRun], check: bool = True) -> Plan:
        """Compare with stored runs; see `make_plan`."""
        return make_plan(
            self.studies,
            self.preset,
            runs,
            seeds=self.seeds,
            overrides=self.overrides,
            only=self.only,
            keep=self.keep,
            check=check,
        )


def make_plan(
    studies: Sequence[Study],
    preset: Preset | str,
    runs: Sequence[StoredRun],
    *,
    seeds: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    only: Filter | None = None,
    keep: Callable[[Study, Request], bool] | None = None,
    check: bool = True,
) -> Plan:
    """The plan of these studies. A preset's name is looked up in each study's space.

    With `check`, raises `InvalidConfiguration` for any trial that could not run. Neither images nor ground
    truth need to be present.
    """
    presets = {study.name: get_preset(preset, study.about) if isinstance(preset, str) else preset for study in studies}
    requests: list[Request] = []
    for study in studies:
        own = expand_stored(study, presets[study.name], lambda: runs, seeds, overrides)
        if check and "rank.metrics" not in (overrides or {}):
            check_asked(study, (request.trial.config for request in own))
        requests += own if keep is None else [request for request in own if keep(study, request)]
    requests = chosen(requests, only or {})
    by_key: dict[str, list[Request]] = {}
    for request in sorted([*parents(requests), *requests], key=lambda request: request.seed):
        by_key.setdefault(request.trial.key, []).append(request)
    attempts: dict[str, list[StoredRun]] = {}
    for run in runs:
        attempts.setdefault(run.key, []).append(run)
    by_name = {study.name: study for study in studies}

    def row(request: Request) -> Row:
        return by_name[request.study].rows[request.row]

    def name(request: Request, kind: str = "") -> str:
        return row_name(row(request), request, presets[request.study], kind)

    checks = _Checks()
    work = []
    for key, same in by_key.items():
        # Named after a request for the trial itself, if there is one, not for a trial that starts from it.
        named = next((one for one in same if not is_start(row(one), one)), same[0])
        label = _label(named, name(named), len({(one.study, one.row) for one in same}) - 1)
        if check:
            # Trials that differ only in what is measured or searched are one, but each of these may be impossible.
            for config in {one.trial.ranking_key: one.trial.config for one in same}.values():
                checks.check(label, config)
        names = {
            one.trial.ranking_key: _label(one, name(one, SEARCH))
            for one in reversed(same)
            if one.trial.config.search is not None and one.trial.start is None
        }
        asking: dict[str, str] = {}
        for one in (named, *same):
            asking.setdefault(one.study, name(one))
        called = naming(by_name[named.study], named, asking)
        work.append(replace(stand(label, same, attempts.get(key, []), named), names=names, naming=called))
    return Plan(tuple(work), tuple(studies))


def chosen(requests: Sequence[Request], only: Filter) -> list[Request]:
    """The requests whose trials have these values."""
    fitting = matching([with_names(request.trial.config.json()) for request in requests], only)
    return [request for request, fits in zip(requests, fitting, strict=True) if fits]


def require_ranks(todo: Iterable[Work], slots: Slots) -> None:
    """Raise `UserError` for work that cannot be done by as many ranks as the slots, or its rows, ask for."""
    for work in todo:
        slots.check(slots.ranks, work.devices, work.label)
        try:
            check_ranks(work.trial.config, slots.size(slots.ranks, work.devices))
        except InvalidConfiguration as error:
            raise InvalidConfiguration(f"{work.label}: {error}") from error


def require_inputs(trials: Iterable[Trial]) -> None:
    """Raise `DataError` unless images and ground truth of these trials are present and correct. Names all that lack."""
    if problems := missing_inputs(trials):
        raise DataError("\n".join(problems))


def missing_inputs(trials: Iterable[Trial]) -> list[str]:
    """What is wrong with images and ground truth of these trials, and how to get them: one line each."""
    needed = {(trial.config.dataset, trial.config.benchmark) for trial in trials}
    checks: list[Callable[[], object]] = [
        *(partial(open_benchmark, name) for name in sorted({name for _, name in needed if name is not None})),
        *(partial(fingerprint, name) for name in sorted({name for name, _ in needed})),
    ]
    problems = []
    for check in checks:
        try:
            check()
        except DataError as error:
            problems.append(str(error))
    return problems


def _label(request: Request, name: str, others: int = 0) -> str:
    """The trial's name for readers, as "STUDY/METHOD OPTION seed 0"; "+2" behind it if two other rows request it."""
    return f"{request.study}/{name} seed {request.seed}" + (f" +{others}" if others else "")


@dataclass
class _Checks:
    """Rejects trials that could not run. Trials that are equal in what matters are checked once."""

    seen: set[str] = field(default_factory=set)
    spaces: dict[str, Space] = field(default_factory=dict)
    inputs: dict[str, dict[str, int] | None] = field(default_factory=dict)

    def check(self, label: str, config: RunConfig) -> None:
        """Reject incompatible components now, not when the trial starts."""
        document = config.json()
        try:
            if self._is_new({**document, "seed": 0}):
                self._check_components(config)
            if self._is_new([document[key] for key in ("space", "dataset", "benchmark", "rank", "observe")]):
                _check_ranking(config)
        except InvalidConfiguration as error:
            raise InvalidConfiguration(f"{label}: {error}") from error

    def _check_components(self, config: RunConfig) -> None:
        # One instance for all trials, because it caches slow results.
        space = self._space(config)
        method: Method = config.method.build(COMPONENTS["method"], "method")
        _check_search(config, method, space)
        self._check_limits(config, space)
        schedule: Schedule = config.schedule.build(COMPONENTS["schedule"], "schedule")
        rule: ClusterRule = config.clusters.build(COMPONENTS["clusters"], "clusters")
        sampler = sampler_of(method, space, config.sampler.build(COMPONENTS["sampler"], "sampler"))
        schedule.bind(space)
        method.check_schedule(schedule)
        for part in method.parts(space, make_rng(config.seed, "split")):
            clustering = rule.bind(space, part.fixed, make_rng(config.seed, "clusters"))
            method.check(space, clustering, sampler)
            source = sampler.bind(space, part.fixed)
            check_clusters(method, space, part, clustering, source, make_rng(config.seed, "tried paths"))

    def _space(self, config: RunConfig) -> Space:
        """The space with the counts of the configuration's networks; without the images, of their published size."""
        key = canonical([config.space, vars(config.network), config.dataset])
        if key not in self.spaces:
            space = SPACES.get(config.space)()
            if type(space).at is not Space.at:  # otherwise the counts are the same for all
                inputs = self._inputs(config.dataset)
                space = space.at(config.network if inputs is None else network_settings(config.network, **inputs))
            self.spaces[key] = space
        return self.spaces[key]

    def _check_limits(self, config: RunConfig, space: Space) -> None:
        """Reject limits that no network keeps. Counts need the size of images: where these are not here, later."""
        if config.search is None or not config.search.options.get("limits") or not are_here(config.dataset):
            return
        if (inputs := self._inputs(config.dataset)) is not None:
            search: Search = config.search.build(SEARCHES, "search")
            search.check_limits(search.limits_in(space, counted_settings(space, config.network, inputs)))

    def _inputs(self, dataset: str) -> dict[str, int] | None:
        """What networks get of the data set's images. Kept, since reading the images may take long."""
        if dataset not in self.inputs:
            self.inputs[dataset] = inputs_of(dataset)
        return self.inputs[dataset]

    def _is_new(self, document: Any) -> bool:
        text = canonical(document)
        known = text in self.seen
        self.seen.add(text)
        return not known


def _check_search(config: RunConfig, method: Method, space: Space) -> None:
    """Reject a search that cannot be made, and a retraining of something that no stage finds."""
    if config.search is not None:
        search: Search = config.search.build(SEARCHES, "search")
        search.check(space)
        if config.retrain is not None and config.retrain.which >= (count := found_by_search(config)):
            kept = "search.keep, for each supernet" if search.each_supernet else "search.keep"
            raise InvalidConfiguration(
                f"retrain.which is {config.retrain.which}, but the search keeps {count} ({kept}), from 0 on"
            )
    elif config.retrain is not None and type(method).found is Method.found:
        if not config.rank.top1:
            raise InvalidConfiguration("the best-ranked architecture cannot be retrained where rank.top1 is false")
        if config.retrain.which:
            raise InvalidConfiguration(f"retrain.which is {config.retrain.which}, but a ranking has only one best")


def _check_ranking(config: RunConfig) -> None:
    """Reject a trial whose ranking could not be measured, before it is trained; as far as can be known here."""
    space = SPACES.get(config.space)()
    if config.rank.complexity not in space.complexity_counts:
        raise InvalidConfiguration(f"rank.complexity is {config.rank.complexity!r}; allowed: {space.counts_text()}")
    if taken := [name for name in config.rank.metrics if name in RESULTS]:
        raise InvalidConfiguration(f"rank.metrics: {', '.join(taken)} is a key of every result; register another name")
    if config.rank.candidates is None and config.rank.top1 and not space.enumerable:
        raise InvalidConfiguration(
            f"{space.name} has {short(space.size)} architectures, too many to rank all: set rank.candidates to a "
            "number, or rank.top1 to false"
        )
    if config.benchmark is None:
        rank = config.rank
        needs = {"rank.top_share": rank.top_share, "rank.truth": rank.truth, "rank.metrics": rank.metrics or None}
        for key, asked in needs.items():
            if asked is not None:
                raise InvalidConfiguration(f"{key} needs a table of truth, and benchmark is null")
        for name in ("kendall_tau_every", "average_last"):
            if getattr(config.observe, name):
                raise InvalidConfiguration(f"observe.{name} needs a table of truth, and benchmark is null")
    elif can_be_judged(config.benchmark):
        benchmark = benchmark_for(config.benchmark, config.space)
        config.rank.truth_in(benchmark, config.dataset)
        RULES[config.rank.selection](config.rank.selecting_in(benchmark, config.dataset), config.rank.bins)
    if config.rank.images is not None and are_here(config.dataset):
        # Not from the images themselves: loading them may decode all of ImageNet.
        there = image_counts(config.dataset)
        if there is not None and config.rank.images > there["valid"]:
            has = f"{config.dataset} has {there['valid']} to rank on"
            raise InvalidConfiguration(
                f"rank.images is {config.rank.images}; {has}: set rank.images to at most that, or to null for all"
            )
