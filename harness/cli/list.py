"""`harness list`: registered components, and the files they come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness.cli._help import Command
from harness.documents import one_line
from harness.environment import ENGINE, PROJECT
from harness.errors import BrokenComponent, UnknownName, UserError

Row = tuple[str, str, str]


@click.command("list", cls=Command, hidden=True, example="harness list methods")
@click.argument("kind", nargs=-1, metavar="[KIND]")
def command(kind: tuple[str, ...]) -> None:
    """List the known methods, spaces, studies and other components, as `harness explain` does.

    KIND shows only one kind: methods, spaces, datasets, benchmarks, importers, schedules, cluster-rules, samplers,
    orders, augmentations, searches, metrics, observations, optimisers, formats, presets or studies. Each line is a
    name, a summary, and for your own components the file. `harness explain NAME` shows details.
    """
    show_kinds(kind)


def kinds() -> list[str]:
    """The kinds of what can be listed."""
    from harness.components.registries import REGISTRIES

    return [*REGISTRIES, "studies"]


def show_kinds(words: tuple[str, ...]) -> None:
    """Print what there is of the kind that these words name, or of every kind."""
    for one in [_meant("-".join(words), kinds())] if words else kinds():
        click.echo(one)
        if one == "studies":
            _show_studies()
            continue
        rows = [*_registered_rows(one), *_built_in_rows(one)]
        click.echo("\n".join(_aligned(rows)) if rows else "  none")


def _meant(word: str, kinds: list[str]) -> str:
    """The kind that a word names: in the singular too, with any separator. Raises `UnknownName`."""
    from harness.components.registries import REGISTRIES

    forms = {kind: kind for kind in kinds} | {kind.removesuffix("s"): kind for kind in kinds} | {"study": "studies"}
    for kind, registry in REGISTRIES.items():
        forms |= {registry.kind: kind, f"{registry.kind}s": kind}
    plain = {form.replace(" ", "-"): kind for form, kind in forms.items()}
    found = plain.get(word.lower().replace("_", "-").replace(" ", "-"))
    if found is None:
        raise UnknownName.among("kind of component", word, kinds)
    return found


def _registered_rows(kind: str) -> list[Row]:
    from harness.components.registries import REGISTRIES

    return [(name, entry.summary, _place(entry.file, entry.line)) for name, entry in REGISTRIES[kind].items()]


def _built_in_rows(kind: str) -> list[Row]:
    """Metrics and observations that the engine makes itself."""
    if kind == "metrics":
        from harness.study.explanation import numbers

        return [(name, meaning, "") for name, meaning in numbers().items()]
    if kind == "observations":
        from harness.study.curves import CURVES

        return [(curve.name, f"{curve.meaning} ({curve.setting})", "") for curve in CURVES]
    return []


def _show_studies() -> None:
    """Print the studies under headings: the user's, then the paper's in its order."""
    found = _study_rows()
    if not found:
        click.echo("  none")
        return
    lines = iter(_aligned([row for rows in found.values() for row in rows], "    "))
    for heading, rows in found.items():
        click.echo(f"  {heading}")
        for _ in rows:
            click.echo(next(lines))


def _study_rows() -> dict[str, list[Row]]:
    """By heading, one row per study file. A file that cannot be loaded shows the reason in place of its docstring."""
    from harness.components.discovery import component, leave_out, load_file, study_files
    from harness.study.catalogue import studies_in

    order = component("reports.paper.order")
    rows: dict[str, list[tuple[Any, Row]]] = {heading: [] for heading in order.HEADINGS}
    places: dict[str, Path] = {}
    for file in study_files():
        heading, place = order.OWN if order.is_own_file(file) else order.BEYOND, (0, "")
        name = file.parent.name if file.name == "__init__.py" else file.stem
        try:
            held = studies_in(file)
            for one in dict.fromkeys([name, *(study.name for study in held)]):
                if (first := places.setdefault(one, file)) != file:
                    told = f"two studies are both named {one!r}: {first} and {file}"
                    click.echo(f"warning: {told}. Give the path of one, or rename one", err=True)
            heading, place = order.heading(held[0]), order.place(held[0])
            summary = (load_file(file).__doc__ or "").strip().partition("\n")[0] or held[0].title
        except BrokenComponent as error:
            leave_out(file, f"{error}. The file is left out")
            # The message begins with the place: "FILE:LINE does not import: REASON".
            summary = f"does not import: {one_line(error).replace(' does not import', '', 1)}"
        except UserError as error:
            leave_out(file, f"{error}. The file is left out")
            summary = one_line(error)
        rows[heading].append((place, (name, summary, _place(file))))
    return {heading: [row for _, row in sorted(own)] for heading, own in rows.items() if own}


def _place(file: Path, line: int | None = None) -> str:
    """Where a user's component is; empty for ours, unless the current folder is the project's."""
    here, at = Path.cwd().resolve(), f":{line}" if line else ""
    if file.is_relative_to(here):
        return f"{file.relative_to(here)}{at}"
    return "" if file.is_relative_to(PROJECT) or file.is_relative_to(ENGINE) else f"{file}{at}"


def _aligned(rows: list[Row], indent: str = "  ") -> list[str]:
    names = max(len(name) for name, _, _ in rows)
    summaries = max((len(summary) for _, summary, file in rows if file), default=0)
    return [f"{indent}{name:<{names}}  {summary:<{summaries}}  {file}".rstrip() for name, summary, file in rows]
