"""The settings of a preset, and its differences from another, as lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.components.preset import Difference, Preset

INDENT = "  "


def explained_presets(name: str, space: str | None) -> list[list[str]]:
    """The lines of each preset of that name (`NAME` or `SPACE/NAME`): of one space, or of all that have it.

    Raises `UnknownName` for a space that does not have it.
    """
    from harness.components.preset import get_preset
    from harness.components.registries import PRESETS

    if space is not None:
        return [_lines(get_preset(name, space))]
    places = [key for key in PRESETS.names() if key == name or (key.rpartition("/")[2] == name and "/" in key)]
    return [_lines(PRESETS.get(key), "/" in key and len(places) > 1) for key in places]


def _lines(found: Preset, with_space: bool = False) -> list[str]:
    from harness.components.preset import get_preset

    base = get_preset(found.differs_from, found.space) if found.differs_from else None
    rest = _differences(found, base) if base else _settings(found)
    return [*_heading(found, with_space), "", *rest]


def _heading(preset: Preset, with_space: bool) -> Iterator[str]:
    yield f"{preset.name}: {preset.summary}" + (f" (preset of {preset.space})" if with_space else "")
    lines = {
        "data sets": ", ".join(preset.datasets),
        "trained on": preset.trained_on or "each on its own",
        "truth": preset.benchmark or "the embedded benchmark of the same name",
        "seeds": str(preset.seeds),
    }
    yield from (f"{INDENT}{label:10}  {text}" for label, text in lines.items())
    if preset.equal_passes:
        yield f"{INDENT}{'epochs':10}  divided by a method's supernets and paths per step: all make equal passes"


def _settings(preset: Preset) -> Iterator[str]:
    for heading, settings in {"": preset.settings, **preset.by_method}.items():
        yield f"for {heading}, instead" if heading else "settings; a study's rows override them"
        yield from (f"{INDENT}{text}" for text in _assignments(settings))


def _differences(preset: Preset, base: Preset) -> Iterator[str]:
    different = [one for one in preset.differences if _changes(one, base)]
    yield f"It differs from `{base.name}` in {len(different)} ways; see `harness explain {base.name}` for the rest."
    for one in different:
        yield ""
        yield one.name
        yield from _block({base.name: one.other, preset.name: one.own, "why": one.why})
        yield from _block({"set by": "; ".join(_changes(one, base))})
    yield ""
    yield "The same in both:"
    for one in preset.differences:
        if not _changes(one, base):
            yield ""
            yield one.name
            yield from _block({"both": one.other, "why": one.why})


def _changes(difference: Difference, base: Preset) -> list[str]:
    """The options of a difference, with their values in the other preset."""
    changes = []
    if difference.trained_on:
        changes.append(f"supernets trained on {difference.trained_on}, rank.truth each data set")
    for method, settings in {"": difference.settings, **difference.by_method}.items():
        known = {**base.settings, **base.by_method.get(method, {})}
        for key, text in zip(settings, _assignments(settings), strict=True):
            before = _shown(known[key] if key in known else _default(key, method))
            changes.append(f"{text} ({base.name}: {before})" + (f" for {method}" if method else ""))
    return changes


def _default(key: str, method: str) -> Any:
    """The default for a key that a preset does not set: that of the method's option, or of the configuration."""
    from harness.components.registries import METHODS
    from harness.documents import flatten
    from harness.study.configuration import RunConfig

    if method and key.startswith("method."):
        return getattr(METHODS.get(method)(), key.removeprefix("method."))
    return flatten(RunConfig().json())[key]


def _assignments(settings: Mapping[str, Any]) -> list[str]:
    """Settings as key=value, in the syntax of `with`."""
    return [f"{key}={_shown(value)}" for key, value in settings.items()]


def _shown(value: Any) -> str:
    import json

    return value if isinstance(value, str) else json.dumps(value)


def _block(lines: Mapping[str, str]) -> Iterator[str]:
    """Labelled text, wrapped."""
    import textwrap

    for label, text in lines.items():
        start = f"{INDENT}{label:10}"
        yield from textwrap.wrap(text, 110, initial_indent=start, subsequent_indent=" " * len(start))
