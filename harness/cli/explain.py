"""`harness explain`: what a preset sets, and where the released code's preset differs from the paper's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from harness.components.preset import Preset
    from harness.points import Point

INDENT = "  "


@click.command("explain")
@click.argument("preset")
def command(preset: str) -> None:
    """Show what PRESET means: its settings; for `official`, what differs from `paper`, point by point, and why."""
    from harness.presets import OFFICIAL, get_preset

    found = get_preset(preset)
    for line in [*_heading(found), "", *(_points() if found is OFFICIAL else _settings(found))]:
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
        yield f"{INDENT}{'epochs':10}  divided by a method's supernets and paths a step: all make equal passes"


def _settings(preset: Preset) -> Iterator[str]:
    for heading, settings in {"": preset.settings, **preset.by_method}.items():
        yield f"for {heading}, instead" if heading else "settings; those of a study's rows come first"
        yield from (f"{INDENT}{text}" for text in _assignments(settings))


def _points() -> Iterator[str]:
    from harness.points import POINTS

    different = [point for point in POINTS if _changes(point)]
    yield f"It differs from `paper` in {len(different)} points; all else is as `harness explain paper` shows."
    for point in different:
        yield ""
        yield point.name
        yield from _block({"paper": point.paper, "official": point.official, "why": point.why})
        yield from _block({"set by": "; ".join(_changes(point))})
    yield ""
    yield "The same in both:"
    for point in POINTS:
        if not _changes(point):
            yield ""
            yield point.name
            yield from _block({"both": point.paper, "why": point.why})


def _changes(point: Point) -> list[str]:
    """The options of a point, with what they are for the paper."""
    from harness.presets import PAPER

    changes = [f"supernets trained on {point.trained_on}, rank.truth each data set"] if point.trained_on else []
    for method, settings in {"": point.settings, **point.by_method}.items():
        paper = {**PAPER.settings, **PAPER.by_method.get(method, {})}
        for key, text in zip(settings, _assignments(settings), strict=True):
            before = _shown(paper[key] if key in paper else _default(key))
            changes.append(f"{text} (paper: {before})" + (f" for {method}" if method else ""))
    return changes


def _default(key: str) -> Any:
    """What the configuration has where a preset says nothing."""
    from harness.documents import flatten
    from harness.study.configuration import RunConfig

    return flatten(RunConfig().json())[key]


def _assignments(settings: Mapping[str, Any]) -> list[str]:
    """As `with` takes them."""
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
