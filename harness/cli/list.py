"""`harness list`: registered components, and the files they come from."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli._help import Command
from harness.documents import one_line
from harness.errors import BrokenComponent, UnknownName, UserError

Row = tuple[str, str, str]


@click.command("list", cls=Command, example="harness list methods")
@click.argument("kind", required=False)
def command(kind: str | None) -> None:
    """List the known methods, spaces, studies and other components.

    KIND shows only one kind: methods, spaces, datasets, benchmarks, importers, schedules, cluster-rules, samplers,
    presets or studies. Each line is a name, a summary, and the file it comes from.
    """
    from harness.components.registries import REGISTRIES

    kinds = [*REGISTRIES, "studies"]
    if kind is not None and kind not in kinds:
        raise UnknownName.among("kind of component", kind, kinds)
    for one in [kind] if kind else kinds:
        rows = _study_rows() if one == "studies" else _registered_rows(one)
        click.echo(one)
        click.echo("\n".join(_aligned(rows)) if rows else "  none")


def _registered_rows(kind: str) -> list[Row]:
    from harness.components.registries import REGISTRIES

    return [(name, entry.summary, f"{_shown(entry.file)}:{entry.line}") for name, entry in REGISTRIES[kind].items()]


def _study_rows() -> list[Row]:
    """One row per study file. A file that cannot be loaded shows the reason in place of its docstring."""
    from harness.components.discovery import load_file, study_files
    from harness.study.catalogue import studies_in

    rows = []
    for file in study_files():
        try:
            studies_in(file)
            summary = (load_file(file).__doc__ or "").strip().partition("\n")[0]
        except BrokenComponent as error:
            # The message begins with the place: "FILE:LINE does not import: REASON".
            summary = f"does not import: {one_line(error).replace(' does not import', '', 1)}"
        except UserError as error:
            summary = one_line(error)
        name = file.parent.name if file.name == "__init__.py" else file.stem
        rows.append((name, summary, _shown(file)))
    return rows


def _shown(file: Path) -> str:
    here = Path.cwd().resolve()
    return str(file.relative_to(here) if file.is_relative_to(here) else file)


def _aligned(rows: list[Row]) -> list[str]:
    names, summaries = (max(len(row[column]) for row in rows) for column in (0, 1))
    return [f"  {name:<{names}}  {summary:<{summaries}}  {file}" for name, summary, file in rows]
