"""`harness explain`: what a configuration key, component, metric, preset, study or term is, from the code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from harness.cli._explained_preset import explained_presets
from harness.cli._help import Command
from harness.cli.list import kinds, show_kinds
from harness.errors import UnknownName

if TYPE_CHECKING:
    from harness.study.explanation import Explained

INDENT = "  "


@click.command("explain", cls=Command, example="harness explain train.batch_size")
@click.argument("word", metavar="[NAME]", nargs=-1)
@click.option("--space", help="Only the preset of that name, of this space.")
def command(word: tuple[str, ...], space: str | None) -> None:
    """Explain a key, component, metric, preset, study or term; list them.

    Without NAME it lists all components, metrics, presets and studies, and with a kind of them (methods) that kind.
    A key comes with its default and what is allowed (train.batch_size, or all of train), a component with its options
    (cosine), a metric or column with how it is computed (kendall_tau), a preset with its settings, or with its
    differences from the preset that it is based on, and why (official), a study with its rows and columns, a term
    (MS, CaLR, τ, CB) with its meaning. Everything of that name is shown.
    """
    name = " ".join(word)
    if not word or name in kinds():
        show_kinds(word)
        return
    shown = [*explained_presets(name, space)]
    if space is None:
        from harness.components.discovery import component
        from harness.study.explanation import explained

        terms = component("reports.paper.terms").meanings(name)
        shown += [[heading, *(line for text in texts for line in _wrapped(text, INDENT))] for heading, *texts in terms]
        shown += [[*_lines(one)] for one in explained(name)]
    if not shown:
        raise _unknown(name)
    click.echo("\n\n".join("\n".join(lines) for lines in shown))


def _lines(one: Explained, depth: int = 0) -> Iterator[str]:
    yield f"{INDENT * depth}{one.heading}"
    inner = INDENT * (depth + 1)
    yield from _wrapped(one.text, inner)
    labels = {label: text for label, text in one.facts.items() if text}
    for label, text in labels.items():
        yield from _wrapped(text, inner, f"{label:<10}")
    for option in one.options:
        yield ""
        yield from _lines(option, depth + 1)


def _wrapped(text: str, indent: str, label: str = "") -> Iterator[str]:
    import textwrap

    rest = indent + " " * len(label)
    whole = textwrap.TextWrapper(110, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False)
    for number, paragraph in enumerate(text.split("\n\n")):
        whole.initial_indent = rest if number else indent + label
        yield from whole.wrap(" ".join(paragraph.split()))


def _unknown(word: str) -> UnknownName:
    import difflib

    from harness.components.discovery import why_missing
    from harness.components.preset import quick_summaries
    from harness.study.explanation import known

    names = {name.lower(): name for name in sorted(known() | set(quick_summaries()))}
    near = [names[one] for one in difflib.get_close_matches(word.lower(), names, n=3)]
    question = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
    text = f"nothing is named {word!r}{question} `harness explain` lists all components, metrics and presets"
    return UnknownName(text).because(why_missing(word))
