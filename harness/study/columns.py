"""The columns of the data frame of runs: names, types and meanings. Imports neither torch nor pandas.

All but the columns of the run itself follow from the types of the configuration, the result and the cost, and the
meanings are the texts beside their fields: what is added there is a column without another edit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from harness.components.optimiser import Optimiser
from harness.components.option import meanings
from harness.components.registries import SEARCHES
from harness.documents import keys
from harness.schema import OBSERVED, PANEL, Cost, Result, Shown, described
from harness.study.configuration import COMPONENTS, RunConfig, default_name
from harness.study.reader import Component, hints

RUN: dict[str, tuple[type, str]] = {
    "run_id": (str, "the run's id, and the name of its directory"),
    "key": (str, "the trial's key: the hash of its identity"),
    "attempt": (int, "the number of the attempt, from 1 on"),
    "status": (str, "done, failed, interrupted, running or lost"),
    "superseded": (bool, "whether a newer done run of the same trial exists"),
    "invalid": (str, "why the run must not be counted; missing for a valid run"),
    "preset": (str, "the preset that the trial was expanded under"),
    "overridden": (bool, "whether the configuration was changed by the command"),
    "source": (str, "a short hash of the code of the run's own components; missing if all of them are shipped"),
    "host": (str, "the machine that made the run"),
    "commit": (str, "the harness's commit; with changed files, `-dirty` behind it"),
    "started": (datetime, "when the run began, in UTC"),
    "stopped": (datetime, "when it ended, in UTC; missing if it has not"),
    "path": (str, "the run's directory; missing for a run that only the database holds"),
}
STUDY: dict[str, tuple[type, str]] = {
    "study": (str, "the study's name; of all runs, the first study that asked for each"),
    "row": (int, "the number of the study's row, from 0 on; only if a study was asked for"),
    "made_for": (str, "the labels of that row; only if no study was asked for"),
    "label_*": (object, "the row's labels, ordered as in the study; only if a study was asked for"),
}


@dataclasses.dataclass(frozen=True)
class Described:
    """A column; a star in its name stands for what differs from run to run."""

    name: str
    part: str
    """What it belongs to: run, study, configuration, result or cost."""
    kind: type
    meaning: str


def configured() -> dict[str, type]:
    """The columns that every configuration has, and their types."""
    kinds: dict[str, type] = {}
    for key, kind in get_type_hints(RunConfig).items():
        if any(map(dataclasses.is_dataclass, get_args(kind))):
            continue  # a section that only some configurations have
        if key == "network":  # that of the default space; others may have settings of their own
            kind = type(_unset().network)
        if not dataclasses.is_dataclass(kind):
            kinds[key] = next(iter(get_args(kind)), kind)
            continue
        own_hints = get_type_hints(kind)
        # Options differ from component to component; every component has a name, and optimisers share some options.
        own = {"name": str} if "options" in own_hints else _named(own_hints)
        own |= get_type_hints(Optimiser) if key == "optimiser" else {}
        kinds |= {f"{key}_{name}": next(iter(get_args(hint)), hint) for name, hint in own.items()}
    return kinds


def describe() -> list[Described]:
    """Every column of `harness.results.runs`, in its order; then the options that only some components have."""
    found = [Described(name, "run", kind, text) for name, (kind, text) in RUN.items()]
    found += [Described(name, "study", kind, text) for name, (kind, text) in STUDY.items()]
    texts, kinds = _configuration_meanings(), configured()
    found += [Described(name, "configuration", kind, texts.pop(name)[1]) for name, kind in kinds.items()]
    found += [Described(name, "configuration", kind, text) for name, (kind, text) in texts.items()]
    for part, document in (("result", Result), ("cost", Cost)):
        own = document_columns(document)
        for name, text in column_meanings(document).items():
            found.append(Described(name, part, own.get(name, float), text))
    return found


def defaults() -> dict[str, Any]:
    """By column, the value of a configuration in which nothing is set."""
    found: dict[str, Any] = {}
    for key, value in _unset().json().items():
        found |= {f"{key}_{name}": item for name, item in value.items()} if isinstance(value, dict) else {key: value}
    return found


def _unset() -> RunConfig:
    """A configuration in which nothing is set; where a default name is refused, as two files have it, another is."""
    refused = {key: one for key, one in COMPONENTS.items() if default_name(f"{key}.name") in one.collisions}
    others: dict[str, Any] = {}
    for key, one in refused.items():
        others[key] = Component(next(name for name in one.names() if name not in one.collisions))
    return RunConfig(**others)


def document_columns(kind: Any) -> dict[str, type]:
    """The columns of a document of that type and their types: nested keys are joined by underscores.

    A section that may be null also has a column that says whether it is there. Curves have none, and keys that differ
    from run to run (the stages of `stage_seconds`) have theirs where they occur.
    """
    return {name: shown for name, shown, _ in _columns(kind)}


def column_meanings(kind: Any) -> dict[str, str]:
    """The meaning of every column; a star stands for keys that differ from run to run."""
    found = {name: meaning for name, _, meaning in _columns(kind)}
    return found | {f"{key}_*": text for key, text in described(kind).items() if key in open_sections()}


def _columns(kind: Any, about: str = "") -> Iterator[tuple[str, type, str]]:
    """Name, type and meaning of every column; the meanings begin with what the document is about."""
    before = f"{about}: " if about else ""
    for key, hint in keys(kind).items():
        plain, meaning, *notes = get_args(hint)
        choices = [one for one in _alternatives(plain) if one is not NoneType]
        if is_typeddict(choices[0]):
            optional = len(choices) < len(_alternatives(plain))
            if optional:
                yield key, bool, meaning
            inside = _columns(choices[0], "" if optional else meaning)
            yield from ((f"{key}_{inner}", own, text) for inner, own, text in inside)
        elif get_origin(choices[0]) is not dict:
            shown = next((note.kind for note in notes if isinstance(note, Shown)), None)
            yield key, shown or (choices[0] if choices[0] in (float, int, str, bool) else object), before + meaning


def flat(kind: Any, document: Mapping[str, Any]) -> dict[str, Any]:
    """A document of that type with each section that may be null as two: whether it is there, and its keys.

    Curves are left out. The rest, keys that the type does not know included, stays as it is.
    """
    sections = _sections(kind)
    found: dict[str, Any] = {}
    for key, value in document.items():
        if key in sections:
            found[key] = value is not None
            found |= {f"{key}_{inner}": item for inner, item in (value or {}).items()}
        elif key != OBSERVED:
            found[key] = value
    return found


@lru_cache(maxsize=1)
def number_names() -> tuple[str, ...]:
    """The keys of result and cost that hold one number, as a study's columns name them: dots between nested keys."""
    return tuple(key for kind in (Result, Cost) for key in _numbers(kind))


def few_numbers() -> list[str]:
    """The same, with one name for all of the panel: a list for readers."""
    return list(dict.fromkeys(f"{PANEL}.…" if name.startswith(f"{PANEL}.") else name for name in number_names()))


def _numbers(kind: Any) -> Iterator[str]:
    for key, hint in keys(kind).items():
        for one in _alternatives(get_args(hint)[0]):
            if is_typeddict(one):
                yield from (f"{key}.{inner}" for inner in _numbers(one))
            elif one in (float, int):
                yield key


def open_sections() -> list[str]:
    """The keys of result and cost whose own keys differ from run to run, such as the seconds of each stage."""
    kinds = {key: get_args(hint)[0] for kind in (Result, Cost) for key, hint in keys(kind).items()}
    return [key for key, plain in kinds.items() if get_origin(plain) is dict and key != OBSERVED]


@lru_cache(maxsize=64)
def _sections(kind: Any) -> frozenset[str]:
    """The keys whose value is a document of its own or null."""
    hints = {key: _alternatives(get_args(hint)[0]) for key, hint in keys(kind).items()}
    return frozenset(key for key, kinds in hints.items() if NoneType in kinds and any(map(is_typeddict, kinds)))


def _alternatives(hint: Any) -> tuple[Any, ...]:
    """The types that a value may have one of."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _named(own: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a section, with `_name` behind those that are components."""
    names = {f"{key}_name": str for key, hint in own.items() if hint is Component}
    return {**{key: hint for key, hint in own.items() if hint is not Component}, **names}


def _configuration_meanings() -> dict[str, tuple[type, str]]:
    """By column, its type and the text beside the field; options also name the components that have them."""
    texts: dict[str, dict[str, list[str]]] = {}
    kinds: dict[str, type] = {}

    def add(name: str, kind: Any, text: str, component: str = "") -> None:
        kinds.setdefault(name, next(iter(get_args(kind)), kind))
        texts.setdefault(name, {}).setdefault(text.rstrip("."), []).extend([component] if component else [])

    for key, kind in hints(RunConfig).items():
        sections = [one for one in (kind, *get_args(kind)) if dataclasses.is_dataclass(one) and one is not Component]
        if key == "network":
            sections = [type(_unset().network)]
        for section in sections:
            for field in _fields(section):
                add(f"{key}_{field[0]}", *field[1:])
        if not sections:
            is_component = Component in (kind, *get_args(kind))
            name = f"{key}_name" if is_component else key
            add(name, str if is_component else kind, meanings(RunConfig).get(key, key))
    for key, registry in {**COMPONENTS, "search": SEARCHES}.items():
        for component in registry.names():
            made = registry.get(component)
            for name, kind, text in _fields(made) if dataclasses.is_dataclass(made) else ():
                shared = key == "optimiser" and name in meanings(Optimiser)
                add(f"{key}_{name}", kind, text, "" if shared else f"{key} {component}")
    return {name: (kinds[name], "; ".join(map(_with_components, own.items()))) for name, own in texts.items()}


def _with_components(own: tuple[str, list[str]]) -> str:
    text, components = own
    return f"{text} ({', '.join(components)})" if components else text


def _fields(kind: Any) -> Iterator[tuple[str, Any, str]]:
    """Name as a column, type and text of a dataclass's fields; without a text, the first line of the class's."""
    own, first_line = meanings(kind), (kind.__doc__ or "").strip().partition("\n")[0]
    for field in dataclasses.fields(kind):
        text = own.get(field.name) or f"{field.name} of: {first_line}"
        is_component = hints(kind)[field.name] is Component
        yield (f"{field.name}_name", str, text) if is_component else (field.name, hints(kind)[field.name], text)
