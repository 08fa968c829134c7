"""What a name means: a key, a component, a metric, a study. All of it comes from the code. Imports no torch.

Keys and their defaults are fields of dataclasses, metrics and columns are keys of stored documents, components are
those of the registries: whatever is added there is explained here without another edit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

from harness import metrics
from harness.components.described import Option, docstring, options, shown
from harness.components.registries import (
    AUGMENTATIONS,
    METRICS,
    OBSERVATIONS,
    ORDERS,
    PRESETS,
    REGISTRIES,
    SCHEDULES,
    SEARCHES,
    SPACES,
)
from harness.components.registry import Registry
from harness.components.space import short
from harness.errors import UserError, with_notes
from harness.schema import PANEL, Cost, Result, needing
from harness.study.columns import column_meanings, number_names, open_sections
from harness.study.configuration import COMPONENTS, NAMES, Ranking, RunConfig, default_name
from harness.study.curves import CURVES, curve_of
from harness.study.expansion import dotted
from harness.study.reader import Component, hints

NAMED: Mapping[str, Registry[Any]] = {
    **COMPONENTS,
    **NAMES,
    "search": SEARCHES,
    "train.order": ORDERS,
    "retrain.schedule": SCHEDULES,
    "train.augment": AUGMENTATIONS,
    "retrain.augment": AUGMENTATIONS,
    "rank.metrics": METRICS,
    "observe.own": OBSERVATIONS,
}
"""The configuration keys whose values are names of components."""


@dataclass(frozen=True)
class Explained:
    """One meaning of a name."""

    heading: str
    text: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Labels and values; those without a value are left out."""
    options: Sequence[Explained] = ()


def explained(name: str) -> list[Explained]:
    """All meanings of a name but those of presets: keys, components, metrics, studies; empty if it has none."""
    every = keys()
    exact = every.get(name, every.get(f"{name}.name", []))
    found = [*exact, *_section(name, every), *_components(name), *_metrics(name), *_studies(name)]
    return found or [one for key, ones in every.items() if key.endswith(f".{name}") for one in ones]


def known() -> set[str]:
    """Every name that can be explained, but those of presets."""
    every = keys()
    names = {*every, *(key.rpartition(".")[2] for key in every), *(key.partition(".")[0] for key in every)}
    components = {name for registry in REGISTRIES.values() if registry is not PRESETS for name in registry.names()}
    measured = {*columns(), *number_names(), PANEL, *(curve.name for curve in CURVES)}
    return (names | components | measured) - {"name"}


def numbers() -> dict[str, str]:
    """The metrics that every run may have, with their meanings; a star stands for keys that differ from run to run."""
    meanings = columns()
    every = {name: meanings[name.replace(".", "_")] for name in number_names()}
    found = {name: text for name, text in every.items() if not name.startswith(f"{PANEL}.")}
    found |= {f"{PANEL}.*": f"many measures of the ranking; `harness explain {PANEL}` lists them"}
    return found | {f"{name}.*": meanings[f"{name}_*"] for name in open_sections()}


def relative(path: str) -> str:
    """A path as the user sees it: without the current directory."""
    return path.removeprefix(f"{Path.cwd()}/")


def columns() -> dict[str, str]:
    """The columns of result and cost with their meanings."""
    return {name: text for kind in (Result, Cost) for name, text in column_meanings(kind).items()}


def keys() -> dict[str, list[Explained]]:
    """Every configuration key; several meanings where components share an option's name."""
    found: dict[str, list[Explained]] = {}
    for key, one in _all_keys():
        found.setdefault(key, []).append(one)
    return found


def _all_keys() -> Iterator[tuple[str, Explained]]:
    for option in options(RunConfig):
        kind, section = hints(RunConfig)[option.name], section_of(option.name)
        if option.name == "network":
            yield from _network_keys("network")
        elif section is not None and section is not Component:
            for inner in options(section):
                yield from _key(f"{option.name}.{inner.name}", inner, hints(section)[inner.name])
        else:
            yield from _key(option.name, option, kind)


def _key(key: str, option: Option, kind: Any) -> Iterator[tuple[str, Explained]]:
    """A key with all that is below it."""
    registry = NAMED.get(key)
    if registry is None:
        yield key, _explained_key(key, option)
        if key == "retrain.network":
            yield from _network_keys(key)
    elif _takes_value(key):
        yield key, _explained_key(key, option, registry, several=get_origin(kind) is tuple)
    else:
        below = [(f"{key}.{own.name}", own, name) for name in registry.names() for own in _options_of(registry, name)]
        named = _explained_key(f"{key}.name", option, registry)
        owners: dict[str, list[str]] = {}
        for path, _, name in below:
            owners.setdefault(path, []).append(name)
        listed = "; ".join(f"{path} ({', '.join(names)})" for path, names in owners.items())
        yield f"{key}.name", replace(named, facts={**named.facts, "options": listed})
        for path, own, name in below:
            yield path, _explained_key(path, own, heading=f"{path} ({registry.kind} {name})")


def _network_keys(key: str) -> Iterator[tuple[str, Explained]]:
    for space in SPACES.names():
        for own in _network_of(space):
            heading = f"{key}.{own.name} (space {space})"
            yield f"{key}.{own.name}", _explained_key(f"{key}.{own.name}", own, heading=heading)


def _network_of(space: str) -> list[Option]:
    try:
        return options(SPACES.get(space).Network)
    except (UserError, AttributeError):  # a lazy target that does not import, or is not a space
        return []


def _explained_key(
    key: str, option: Option, registry: Registry[Any] | None = None, several: bool = False, heading: str = ""
) -> Explained:
    """A key; `registry` holds the components that it names, one or several."""
    facts = {"type": option.kind, "default": option.default or "", "allowed": "; ".join(option.allowed)}
    if registry is not None:
        names = ", ".join(registry.names()) or "none is registered"
        facts |= {"type": f"names ({registry.kind})" if several else f"name ({registry.kind})", "allowed": names}
        facts |= {} if several else {"default": _default_name(key)}
    return Explained(heading or key, option.meaning, {**facts, "presets": "; ".join(_set_by(key))})


def _default_name(key: str) -> str:
    """The name that a configuration has at a key by default."""
    place = key.removesuffix(".name")
    if place in COMPONENTS or place in NAMES:
        return default_name(key)
    section, _, name = place.partition(".")
    kind = section_of(section)
    value = getattr(kind(), name) if name and kind else None
    return value.name if isinstance(value, Component) else shown(value)


@cache
def _settings(count: int) -> Mapping[str, list[str]]:
    """What presets set, by key; `count` is the number of presets, so that new ones are seen."""
    found: dict[str, list[str]] = {}
    for name, preset in [(name, PRESETS.get(name)) for name in PRESETS.names() if "/" in name]:
        for key, value in dotted(preset.settings).items():
            found.setdefault(key, []).append(f"{name} {shown(value)}")
        for method, own in preset.by_method.items():
            for key, value in dotted(own).items():
                found.setdefault(key, []).append(f"{name} {shown(value)} for {method}")
    return found


def _set_by(key: str) -> list[str]:
    return _settings(len(PRESETS.names())).get(key, [])


def _section(name: str, every: Mapping[str, list[Explained]]) -> list[Explained]:
    """All keys of a section, as one."""
    inside = [one for key, ones in every.items() if key.startswith(f"{name}.") for one in ones]
    if not inside or f"{name}.name" in every:
        return []
    return [Explained(f"{name} (section of the configuration)", docstring(section_of(name)), options=inside)]


def section_of(key: str) -> Any:
    """The dataclass of a section of the configuration; None for a key without one."""
    kind = hints(RunConfig).get(key)
    return next((one for one in (kind, *get_args(kind)) if dataclasses.is_dataclass(one)), None)


def _components(name: str) -> Iterator[Explained]:
    for registry in REGISTRIES.values():
        if registry is not PRESETS and name in registry:
            yield _component(registry, name)


def _component(registry: Registry[Any], name: str) -> Explained:
    entry = registry.entries[name]
    places = [key for key, own in NAMED.items() if own is registry]
    key = places[0] if places else ""
    use = f"{key}={name}" if key in NAMES else f"\"{key}=['{name}']\"" if _takes_value(key) else f"{key}.name={name}"
    facts = {"file": relative(entry.origin), "use": f"with {use}" if key else ""}
    if registry is METRICS:
        facts["study"] = f'Column("…", "{name}")'
    text = entry.summary
    inner: list[Explained] = []
    try:
        thing = registry.get(name)
    except UserError as error:  # a lazy target that does not import
        return Explained(f"{name} ({registry.kind})", text, {**facts, "problem": with_notes(error)})
    if isinstance(thing, type) or entry.summary == docstring(thing).partition("\n")[0]:
        text = docstring(thing) or text
    prefix = "" if _takes_value(key) else f"{key}."
    if registry is SPACES:
        space = thing()
        facts |= {
            "size": f"{short(space.size)} architectures",
            "choices": ", ".join(map(str, space.choices)),
            "counts": space.counts_text(),
        }
        inner = [_explained_key(f"network.{own.name}", own) for own in _network_of(name)]
    elif isinstance(thing, type):
        inner = [_explained_key(f"{prefix}{own.name}", own) for own in _options_of(registry, name)]
        facts |= {} if inner else {"options": "none"}
    return Explained(f"{name} ({registry.kind})", text, facts, inner)


def _studies(name: str) -> Iterator[Explained]:
    from harness.study.catalogue import studies_named

    for study, file in studies_named(name):
        facts = {
            "paper": study.paper,
            "rows": f"{len(study.rows)}, by {', '.join(study.rows[0].labels)}",
            "columns": ", ".join(column.metric for column in study.columns),
            "figures": ", ".join(figure.name for figure in study.figures),
            "file": relative(str(file)),
            "use": f"harness run {study.name}",
        }
        yield Explained(f"{study.name} (study)", study.title, facts)


def _options_of(registry: Registry[Any], name: str) -> list[Option]:
    try:
        thing = registry.get(name)
    except UserError:  # a lazy target that does not import: told where it is explained
        return []
    return options(thing) if isinstance(thing, type) else []


def _takes_value(key: str) -> bool:
    """Whether the key's value is a name or a list of names: no key below it."""
    return key in NAMES or key.endswith((".augment", ".metrics", ".own"))


def _metrics(name: str) -> Iterator[Explained]:
    column = name.replace(".", "_")
    meanings = columns()
    inside = [one for one in number_names() if one.startswith(f"{name}.") and name.partition(".")[0] == PANEL]
    if inside:
        text = "Measures of the ranking, each over those that were predicted."
        listed = [Explained(one, meanings[one.replace(".", "_")]) for one in inside]
        yield Explained(f"{name} (metrics)", text, {"more": "docs/measures.md"}, listed)
    if column not in meanings:
        section = next((key for key in open_sections() if column.startswith(f"{key}_")), None)
        column = f"{section}_*" if section else column
    if column in meanings:
        kind = next(one for one in (Result, Cost) if column in column_meanings(one))
        needed = [setting for setting in hints(Ranking) if name in needing(setting)]
        facts = {
            "kind": f"{'result' if kind is Result else 'cost'}: a column of `harness query` and of harness.results",
            "study": f'Column("…", "{name}")' if name in number_names() else "",
            "needs": ", ".join(f"rank.{setting}" for setting in needed),
            "how": " ".join(docstring(getattr(metrics, name, None)).split()) if hasattr(metrics, name) else "",
        }
        yield Explained(f"{name} (metric)", meanings[column], facts)
    curve = curve_of(name)
    if curve is not None:
        facts = {"asked by": curve.setting, "study": f'Line("…", "{name}") of a figure, or a column: its last value'}
        yield Explained(f"{name} (curve)", curve.meaning, facts)
