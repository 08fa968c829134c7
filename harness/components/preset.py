"""A preset is a named scale, one for each space that has it. Knows no particular preset.

Presets are ordinary configuration, which `with key=value` can override. They are registered by files in
`studies/presets/`, ours and the user's, and in the user's `presets/`, under their space and name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.components.discovery import load_presets, why_missing
from harness.components.registries import PRESETS
from harness.errors import InvalidConfiguration, UnknownName

ByName = Mapping[str, Mapping[str, Any]]

HOUR = 3600.0
"""Seconds."""

_DEFAULT = "default"
_NAMING = {"Preset": 0, "with_differences": 1}
"""What makes a preset, and the position of the preset's name among its arguments."""


@dataclass(frozen=True)
class Difference:
    """One difference between two presets: what each does, how that is known, and the settings behind it.

    A difference without settings is something that might differ but does not.
    """

    name: str
    other: str
    """What the other preset does."""
    own: str
    """What this one does."""
    why: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings that make the difference, as dotted configuration keys."""
    by_method: ByName = field(default_factory=dict)
    """The same, for rows of one method only."""
    trained_on: str | None = None
    """The one data set that supernets are trained on (`Preset.trained_on`)."""


@dataclass(frozen=True)
class FromPreset:
    """A value of a row's setting that each preset defines: `{"search.limits.flops": [None, FromPreset("S")]}`."""

    name: str

    def of(self, preset: Preset) -> Any:
        if self.name not in preset.values:
            known = ", ".join(preset.values) or "none"
            raise InvalidConfiguration(
                f"preset {preset.name} of {preset.space} has no value {self.name!r} for a row; it has: {known}"
            )
        return preset.values[self.name]


@dataclass(frozen=True)
class Times:
    """A value of a row's setting relative to that of its preset: `{"optimiser.learning_rate": Times(0.4)}`."""

    factor: float


@dataclass(frozen=True)
class Hours:
    """What one supernet training took elsewhere, or should take: `plan` estimates with it what no stored run shows."""

    hours: float
    """Device-hours of the training."""
    passes: float
    """How often the training images were passed: epochs × paths per step × supernets."""
    source: str
    """Where it is published or how it is modelled, on which device, and what it leaves out."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings of the trials that it holds for, as dotted configuration keys. `dataset` is always one of them."""
    ranking: float = 0.0
    """Device-hours of the ranking after the training, where a table judges it; the same for every training."""
    published: float | None = None
    """Device-hours of the training in the paper, if it has any."""


@dataclass(frozen=True)
class Preset:
    """A scale of one space. `settings` are dotted configuration keys.

    Options of a component apply to the rows that have the component. A row's own settings take precedence.
    """

    name: str
    summary: str
    seeds: int
    datasets: tuple[str, ...]
    """The data sets that a study reports on."""
    space: str = ""
    """The space of the studies that it is for. The setting `space` may name another one: a reduced form of it."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    by_method: ByName = field(default_factory=dict)
    """Settings for the rows of one method only; they take precedence over `settings`."""
    by_dataset: ByName = field(default_factory=dict)
    """Settings for training on one data set only, or by one method on it ("DATASET/METHOD"); they take precedence over
    `settings` and `by_method`."""
    by_study: ByName = field(default_factory=dict)
    """Settings for one study only (the paper made a table with a shorter retraining); they precede all of these."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Values that rows refer to by name (`FromPreset`): limits of a search, which depend on the scale."""
    benchmark: str | None = None
    """The source of the ground truth; None for the benchmark that has the data set's name."""
    trained_on: str | None = None
    """The one data set that all supernets are trained on, whichever judges them; None to train on each."""
    equal_passes: bool = False
    """Whether `train.epochs` is divided by the passes that a method makes per epoch."""
    differs_from: str | None = None
    """The preset of the same space that this one is derived from, if it is defined by differences."""
    hours: Sequence[Hours] = ()
    """Published durations of its trainings; of several that fit a trial, the one with the most settings holds."""
    differences: Sequence[Difference] = ()
    """The differences from that preset, in order; `harness explain` prints them."""

    def places(self, dataset: str) -> dict[str, Any]:
        """Settings that say what to train on and what judges it, if the report is on `dataset`."""
        places: dict[str, Any] = {"dataset": self.trained_on or dataset, "benchmark": self.benchmark or dataset}
        return places | ({"rank.truth": dataset} if self.trained_on else {})

    def with_differences(self, differences: Iterable[Difference], name: str, summary: str) -> Preset:
        """This preset with the settings of these differences, under another name."""
        made = tuple(differences)
        settings, by_method = dict(self.settings), {method: dict(own) for method, own in self.by_method.items()}
        trained_on = self.trained_on
        for difference in made:
            settings |= difference.settings
            for method, own in difference.by_method.items():
                by_method.setdefault(method, {}).update(own)
            trained_on = difference.trained_on or trained_on
        return replace(
            self,
            name=name,
            summary=summary,
            settings=settings,
            by_method=by_method,
            trained_on=trained_on,
            differs_from=self.name,
            differences=made,
        )


def register(preset: Preset) -> Preset:
    """Register a preset under its space and name. Raises `InvalidConfiguration` for one that names no space."""
    if not preset.space:
        raise InvalidConfiguration(f"preset {preset.name!r} names no space: Preset({preset.name!r}, …, space=…)")
    PRESETS.register(f"{preset.space}/{preset.name}", summary=preset.summary, stacklevel=2)(preset)
    return preset


def register_default(preset: Preset) -> Preset:
    """Register the default preset. There is only one.

    Its `settings` are the defaults of the configuration (space, data set, benchmark and the names of components);
    its `name` is the scale of commands that do not name one.
    """
    PRESETS.register(_DEFAULT, summary=preset.summary, stacklevel=2)(preset)
    return preset


def default_preset() -> Preset:
    """The preset given to `register_default`. Raises `UnknownName` if there is none."""
    found: Preset = PRESETS.get(_DEFAULT)
    return found


def presets_of(space: str | None = None) -> dict[str, Preset]:
    """The presets of a space (of the default one for None) by name.

    A space without presets has those of the default space, so that a user's own space can use them.
    """
    own = _registered(space or default_preset().space)
    return own or _registered(default_preset().space)


def get_preset(name: str, space: str | None = None) -> Preset:
    """The preset of that name for a space. Raises `UnknownName`."""
    found = presets_of(space)
    if name not in found:
        if (key := f"{space or default_preset().space}/{name}") in PRESETS.collisions:
            PRESETS.get(key)
        everywhere = _names()
        kind = f"preset of {space}" if name in everywhere else "preset"
        known = found if name in everywhere else everywhere
        raise UnknownName.among(kind, name, known).because(why_missing(name))
    return found[name]


def check_preset(name: str, others: Iterable[str] = ()) -> None:
    """Raise `UnknownName` unless a space has a preset of that name, or it is one of the others."""
    if name not in (known := {*_names(), *others}):
        raise UnknownName.among("preset", name, known).because(why_missing(name))


def _names() -> set[str]:
    return {key.rpartition("/")[2] for key in PRESETS.names() if key != _DEFAULT}


def quick_summaries() -> dict[str, str]:
    """The presets that are in files of their own, each with its summary, without loading other components.

    For help texts and completion: files of the user are read, not run.
    """
    named = {name: "" for file in load_presets() for name in _names_in(file)}
    ours = {key.rpartition("/")[2]: entry.summary for key, entry in PRESETS.entries.items() if key != _DEFAULT}
    return dict(sorted({**named, **ours}.items()))


def _names_in(file: Path) -> Iterator[str]:
    """The names in calls of `Preset` and `with_differences`."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):  # the commands that load the file report it
        return
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if called in _NAMING:
            values = [*call.args[_NAMING[called] :][:1], *(one.value for one in call.keywords if one.arg == "name")]
            yield from (one.value for one in values if isinstance(one, ast.Constant) and isinstance(one.value, str))


def _registered(space: str) -> dict[str, Preset]:
    prefix = f"{space}/"
    keys = [key for key in PRESETS.names() if key.startswith(prefix) and key not in PRESETS.collisions]
    return {key.removeprefix(prefix): PRESETS.get(key) for key in keys}


def default_name(key: str) -> str:
    """The value of the default preset at that key: the name of a space, data set, benchmark or component."""
    return str(default_preset().settings[key])
