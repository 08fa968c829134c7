"""`harness explain`: the settings of a preset, and its differences from another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from harness.cli._help import Command

if TYPE_CHECKING:
    from harness.components.preset import Difference, Preset

INDENT = "  "


@click.command("explain", cls=Command, example="harness explain official")
@click.argument("preset")
@click.option("--space", help="Space of the preset.  [default: the default preset's space]")
def command(preset: str, space: str | None) -> None:
    """Show the settings of PRESET, or its differences from the preset that it is based on, and why."""
    from harness.components.preset import get_preset

    found = get_preset(preset, space)
    base = get_preset(found.differs_from, found.space) if found.differs_from else None
    for line in [*_heading(found), "", *(_differences(found, base) if base else _settings(found))]:
        click.echo(line)


def _heading(preset: Preset) -> Iterator[str]:
    yield f"{preset.name}: {preset.summary}"
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
            before = _shown(known[key] if key in known else _default(key))
            changes.append(f"{text} ({base.name}: {before})" + (f" for {method}" if method else ""))
    return changes


def _default(key: str) -> Any:
    """The configuration's default for a key that a preset does not set."""
    from harness.documents import flatten
    from harness.study.configuration import RunConfig

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
