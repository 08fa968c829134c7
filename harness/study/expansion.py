"""Expands a study under a preset into the requests for its trials. Imports no torch."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.components.method import Method
from harness.components.preset import FromPreset, Preset, Times
from harness.components.registries import SEARCHES, SPACES
from harness.components.registry import Registry
from harness.components.search import Search
from harness.errors import InvalidConfiguration
from harness.study.configuration import COMPONENTS, Retraining, RunConfig, default_name
from harness.study.edges import split_rng
from harness.study.fingerprints import HERE, Fingerprints, Recorded, are_here, can_be_judged
from harness.study.reader import unknown_option
from harness.study.study import Request, Study
from harness.study.trial import Trial

WHICH, TRUTH = "retrain.which", "rank.truth"

SOME_ROWS = ("network", "search", "retrain")
"""Sections whose keys hold only in some rows: where the space has such a setting, or the row has such a stage."""


def expand(
    study: Study,
    preset: Preset,
    seeds: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    known: Fingerprints = HERE,
) -> list[Request]:
    """All requests of a study under a preset.

    An override of a component's option applies to the rows whose component has it, and rows that set an
    overridden key to another value are left out: they are about something else. An override that fits no
    row is an error. Raises `InvalidConfiguration` for anything that cannot run.
    """
    overrides = dotted(overrides or {})
    requests = []
    unused = {key for key in overrides if _component_option(key) or key.partition(".")[0] in SOME_ROWS}
    common = {"space": study.space} if study.space and "space" not in preset.settings else {}
    rows = [
        (number, {**common, **_scaled(dotted(row.settings), preset)})
        for number, row in enumerate(study.rows)
        if row.source == "runs"
    ]
    kept = [(n, own) for n, own in rows if all(overrides.get(key, value) == value for key, value in own.items())]
    if not kept:
        _explain(study, preset, overrides)
        clashing = sorted({key for _, own in rows for key in own if key in overrides})
        raise InvalidConfiguration(
            f"every row of study {study.name} sets {', '.join(clashing)} to another value than the override"
        )
    default = RunConfig().json()
    for number, settings in kept:
        for dataset in preset.datasets:
            if preset.trained_on not in (None, dataset) and any(key.startswith("retrain.") for key in settings):
                continue  # a network retrained on one data set has no accuracy on another
            configs, fitting = _configured(copy.deepcopy(default), preset, study, dataset, settings, overrides)
            points = {key: count for key, count in study.rows[number].points.items() if key not in overrides}
            unused -= fitting
            trials = [Trial.of(_with_curves(config, points), known) for config in configs]
            devices = study.rows[number].devices
            for seed in range(preset.seeds if seeds is None else seeds):
                requests += [
                    Request(study.name, number, dataset, seed, one.with_seed(seed), bool(overrides), devices)
                    for one in trials
                ]
    if unused:
        _explain_options(unused, [request.trial.config for request in requests])
        _explain(study, preset, overrides)
        raise InvalidConfiguration(f"no row of study {study.name} has {', '.join(sorted(unused))}")
    return requests


def _scaled(settings: Mapping[str, Any], preset: Preset) -> dict[str, Any]:
    """The settings with the preset's values in the place of their names."""

    def value(of: Any) -> Any:
        if isinstance(of, list | tuple):
            return [value(one) for one in of]
        return of.of(preset) if isinstance(of, FromPreset) else of

    return {key: value(own) for key, own in settings.items()}


def _multiplied(key: str, own: Any, given: Mapping[str, Any], document: Mapping[str, Any], method: str) -> Any:
    """A row's value; one that is relative is multiplied by what the preset says, or else by the default."""
    if not isinstance(own, Times):
        return own
    section, _, option = key.partition(".")
    known = given if key in given else {key: document.get(section, {}).get(option)}
    if known[key] is None and section == "method":
        known = {key: getattr(COMPONENTS["method"].get(method), option, None)}
    if isinstance(known[key], bool) or not isinstance(known[key], int | float):
        raise InvalidConfiguration(f"a row multiplies {key} by {own.factor:g}, but it is {known[key]!r}, not a number")
    return float(f"{known[key] * own.factor:.12g}")  # 0.1 × 0.4 is 0.04, as in a preset that says so


def _configured(
    document: dict[str, Any],
    preset: Preset,
    study: Study,
    dataset: str,
    settings: Mapping[str, Any],
    overrides: Mapping[str, Any],
) -> tuple[list[RunConfig], set[str]]:
    """The configurations of a row on one of the preset's data sets, and the overrides that apply to it.

    There is one configuration, or one per architecture that `retrain.which` names. The row's settings take precedence
    over the preset's, and overrides over both. Options of components, in presets and overrides, apply to the rows whose
    component has them.
    """
    asked = {**dotted(preset.settings), **settings, **overrides}
    method = asked.get("method.name", document["method"]["name"])
    by_method = dotted(preset.by_method.get(method, {}))
    if study.equal_passes:
        by_method.pop("train.epochs", None)
    places = preset.places(dataset)
    trained_on = places["dataset"]
    by_dataset = dotted(
        {**preset.by_dataset.get(trained_on, {}), **preset.by_dataset.get(f"{trained_on}/{method}", {})}
    )
    by_study = dotted(preset.by_study.get(study.name, {}))
    given = {**places, **dotted(preset.settings), **by_method, **by_dataset, **by_study}
    settings = {key: _multiplied(key, own, given, document, method) for key, own in settings.items()}
    merged = {**given, **settings, **overrides}
    if merged["benchmark"] is None and TRUTH not in {**settings, **overrides}:
        merged.pop(TRUTH, None)  # the preset judges by a table, which this row does not have
    _for_space(document, merged.get("space", document["space"]))
    network = {field.name for field in dataclasses.fields(SPACES.get(document["space"]).Network)}
    names = {section: merged.get(f"{section}.name", _name(document, section)) for section in COMPONENTS}

    def fits(key: str) -> bool:
        section, _, option = key.partition(".")
        if section in ("retrain", "search") and document.get(section) is None:
            return False
        if section == "network":  # the preset may be that of another space
            return option in network
        if section == "search":
            option = option.partition(".")[0]
            return option == "name" or option in _options(SEARCHES, merged["search.name"])
        if key.startswith("retrain.schedule.") and not key.endswith(".name"):
            schedule = merged.get("retrain.schedule.name", default_name("schedule.name"))
            return key.rpartition(".")[2] in _options(COMPONENTS["schedule"], schedule)
        return not _component_option(key) or option in _options(COMPONENTS[section], names[section])

    def meant(key: str) -> bool:
        """Whether to apply the key. A row's option without its component must fail unless an override replaced it."""
        return fits(key) or (key in settings and f"{key.partition('.')[0]}.name" not in overrides)

    if any(key.startswith("retrain.") for key in settings):
        document["retrain"] = RunConfig(retrain=Retraining()).json()["retrain"] | {"network": {}}
        if any(key.startswith("retrain.teacher.") for key in merged):
            document["retrain"]["teacher"] = {}
    else:  # the preset's settings of retraining are only for rows that retrain
        merged = {key: value for key, value in merged.items() if not key.startswith("retrain.")}
    if merged.get("search.name") is not None:
        document["search"] = {"name": merged["search.name"], "limits": {}}
    else:
        merged = {key: value for key, value in merged.items() if not key.startswith("search.")}
    several = merged.pop(WHICH) if names_several(merged.get(WHICH)) else None
    apply(document, {key: value for key, value in merged.items() if meant(key)})
    config = RunConfig.from_json({**document, "seed": 0})
    if (preset.equal_passes or study.equal_passes) and "train.epochs" not in {**by_method, **settings}:
        config = config.with_valid(train=replace(config.train, epochs=_share(config)))
    return _each_retrained(config, several), {key for key in overrides if fits(key)}


def names_several(which: Any) -> bool:
    """Whether a row's `retrain.which` names several architectures: a list of numbers, or "all"."""
    return which == "all" or isinstance(which, list | tuple)


def _each_retrained(config: RunConfig, several: Any) -> list[RunConfig]:
    """One configuration per architecture that is retrained: each is the trial that its number alone would give."""
    if several is None or config.retrain is None:
        return [config]
    if several == "all":
        method: Method = config.method.build(COMPONENTS["method"], "method")
        if config.search is None and type(method).found is not Method.found:
            raise InvalidConfiguration(
                f"{WHICH} is 'all', but how many architectures {config.method.name} finds is not known before it has "
                "run: list their numbers, as [0, 1]"
            )
        several = range(found_by_search(config))
    numbers = list(several)
    if not numbers or len(set(map(str, numbers))) < len(numbers) or any(type(one) is not int for one in numbers):
        raise InvalidConfiguration(
            f"{WHICH} must be a number from 0 on, a list of different ones, or 'all', not {several!r}"
        )
    return [config.with_valid(retrain=replace(config.retrain, which=number)) for number in numbers]


def found_by_search(config: RunConfig) -> int:
    """How many architectures the configuration's search finds; 1 without a search."""
    if config.search is None:
        return 1
    search: Search = config.search.build(SEARCHES, "search")
    method: Method = config.method.build(COMPONENTS["method"], "method")
    parts = method.parts(SPACES.get(config.space)(), split_rng(config))
    return search.keep * (len(parts) if search.each_supernet else 1)


def _with_curves(config: RunConfig, points: Mapping[str, int]) -> RunConfig:
    """The configuration with these curves observed, at about that many evenly spaced epochs, including the last."""
    epochs = config.train.epochs
    if not points or not epochs:
        return config
    divisors = [every for every in range(1, epochs + 1) if epochs % every == 0]
    document = config.json()
    apply(
        document,
        {
            key: max(every for every in divisors if epochs // every >= min(count, epochs))
            for key, count in points.items()
        },
    )
    return RunConfig.from_json(document)


def expand_stored(
    study: Study,
    preset: Preset,
    runs: Callable[[], Iterable[Recorded]],
    seeds: int | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> list[Request]:
    """Like `expand`, for commands that only read.

    Missing images and tables of ground truth are assumed to be those of the stored runs. A trial of a user's own code
    is that of the stored run with the same code.
    """
    requests = expand(study, preset, seeds, overrides)
    if any(request.trial.own_code for request in requests):
        return expand(study, preset, seeds, overrides, Fingerprints.of(runs()))
    configs = [request.trial.config for request in requests]
    judged = all(map(can_be_judged, {one.benchmark for one in configs}))
    if judged and all(map(are_here, {one.dataset for one in configs})):
        return requests
    return expand(study, preset, seeds, overrides, Fingerprints.of(runs()))


def parents(requests: Iterable[Request]) -> list[Request]:
    """Requests of the same studies and rows for the trials that these start from."""
    return [replace(request, trial=start) for request in requests if (start := request.trial.start) is not None]


def _explain_options(unused: Iterable[str], configs: Sequence[RunConfig]) -> None:
    """Raise the error for an option that no component of the study's rows has: lists the options that they have."""
    for key in filter(_component_option, sorted(unused)):
        section, _, option = key.partition(".")
        names = dict.fromkeys(getattr(config, section).name for config in configs)
        raise unknown_option(key, option, [(COMPONENTS[section], name) for name in names])


def _explain(study: Study, preset: Preset, overrides: Mapping[str, Any]) -> None:
    """Raise the configuration's own error for an override that is invalid in itself."""
    settings = {**_scaled(dotted(study.rows[0].settings), preset), **overrides}
    settings = {
        key: value
        for key, value in settings.items()
        if not isinstance(value, Times) and (key != WHICH or not names_several(value))
    }
    document = RunConfig(retrain=Retraining()).json()
    document["retrain"] |= {"network": {}, "teacher": {}}
    if not any(key.startswith("retrain.teacher.") for key in settings):
        del document["retrain"]["teacher"]
    _for_space(document, str(settings.get("space", study.space or document["space"])))
    if any(key.startswith("search.") for key in settings):
        document["search"] = {"limits": {}}
    apply(document, settings)
    RunConfig.from_json(document)


def dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by dotted keys; a component that is given as a bare name gets the key `name`."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat |= dotted({f"{key}.{inner}": innermost for inner, innermost in value.items()})
        else:
            named = key.rpartition(".")[2] in COMPONENTS or key == "search"
            flat[f"{key}.name" if named else key] = value
    return flat


_ORDERS = (["train", "order"], ["retrain", "order"])
"""Components inside a section, which are left out of stored configurations while they have their default."""


def apply(document: dict[str, Any], settings: Mapping[str, Any]) -> None:
    """Set dotted keys of a nested configuration; a component that gets another name loses its options."""
    for key, value in sorted(dotted(settings).items(), key=lambda item: not item[0].endswith(".name")):
        *outer, last = key.split(".")
        place = document
        for depth, part in enumerate(outer):
            inner = place.get(part)
            if outer[: depth + 1] in _ORDERS and not isinstance(inner, dict):  # left out by default, or a bare name
                inner = place[part] = {} if inner is None else {"name": inner}
            if not isinstance(inner, dict):
                section = ".".join(outer[: depth + 1])
                sections = [name for name, value in place.items() if isinstance(value, dict)]
                raise InvalidConfiguration(
                    f"no configuration section {section!r} (in {key}); sections: {', '.join(sections)}"
                    if sections
                    else f"{section} is a value and has no keys (in {key})"
                    + (f"; other keys there: {', '.join(place)}" if place else "")
                )
            place = inner
        named = last == "name" and bool(outer)
        if named and outer[-1] in COMPONENTS:
            renamed = _name({outer[-1]: place}, outer[-1]) != value
        else:
            renamed = named and outer in _ORDERS and place.get("name") != value
        if renamed:
            place.clear()
        place[last] = value


def _share(config: RunConfig) -> int:
    """The epochs that make as many passes as `train.epochs` with one path per step on one supernet."""
    return config.train.epochs and max(1, round(config.train.epochs / passes_per_step(config)))


def passes_per_step(config: RunConfig) -> float:
    """Passes of single paths that all supernets of the configuration's method make together, each in one step.

    On average over the epochs, where supernets split.
    """
    method: Method = config.method.build(COMPONENTS["method"], "method")
    space = SPACES.get(config.space)()
    parts = len(method.parts(space, split_rng(config)))
    return method.supernets_per_epoch(parts) * method.paths_per_step(space)


def _for_space(document: dict[str, Any], space: str) -> None:
    """Make the document one of that space, whose network may have settings of its own."""
    if document["space"] != space:
        document |= {"space": space, "network": {}}


def _name(document: Mapping[str, Any], section: str) -> Any:
    """The name of a component; that of the default preset where the text leaves it out."""
    return document[section].get("name") or default_name(f"{section}.name")


def _component_option(key: str) -> bool:
    section, _, option = key.partition(".")
    return section in COMPONENTS and option not in ("", "name")


def _options(registry: Registry[Any], name: Any) -> Mapping[str, Any]:
    """The options of a component of that name. Raises `UnknownName`."""
    return getattr(registry.get(name), "__dataclass_fields__", {}) if isinstance(name, str) else {}
