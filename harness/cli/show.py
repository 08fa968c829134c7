"""`harness show`: the details of one run, its log, or the runs of a study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from harness.cli._completion import runs
from harness.cli._help import Command
from harness.cli._options import store_option
from harness.errors import UnknownName
from harness.owner import describe
from harness.schema import PANEL
from harness.stores.places import Places
from harness.stores.stored import Status, without_curves

if TYPE_CHECKING:
    from pathlib import Path

    from harness.stores.store import Store
    from harness.stores.stored import StoredRun
    from harness.study.study import Study


@click.command("show", cls=Command, example="harness show 3f2a")
@click.argument("run", metavar="RUN|STUDY", shell_complete=runs)
@click.option("--log", is_flag=True, help="Print what the run has printed.")
@store_option
def command(run: str, log: bool, store: Places) -> None:
    """Show one run in full, or what it printed, or the runs of a study.

    RUN is the run's id or a unique prefix of it. Of a run it shows configuration, result, cost, metrics and files.
    """
    opened = store.open()
    try:
        found = opened.find(run)
    except UnknownName:
        from harness.study.catalogue import studies_named

        if log or not (studies := studies_named(run)):
            raise
        for study, file in studies:
            _show_study(study, file, opened)
        return
    if log:
        from harness.stores.directory.run_directory import LOG

        click.echo(opened.read(found, LOG).decode(errors="replace"), nl=False)
        return
    for heading, lines in {
        f"run {found.id}": _heading(found, opened.name),
        "configuration": _flat(found.trial["config"]),
        "result": _flat(_plain(found.result or {})),
        "panel": sections((found.result or {}).get(PANEL, {})),
        "further rankings": _rankings(found),
        "cost": _flat(found.cost or {}),
        "metrics": _metrics(opened.metrics(found)),
        "files": {name: f"{size:,} bytes" for name, size in opened.files(found).items()},
    }.items():
        if lines:
            width = max(map(len, lines))
            click.echo("\n".join([heading, *(f"  {name:<{width}}  {text}".rstrip() for name, text in lines.items())]))
    if found.fail_trace:
        click.echo("how its process died" if found.status is Status.LOST else "traceback")
        click.echo("".join(found.fail_trace).rstrip())


def _show_study(study: Study, file: Path, store: Store) -> None:
    """Print a study's rows, and its runs with the first of its columns that they have."""
    from harness.components.preset import presets_of
    from harness.documents import flatten, screen_width, table
    from harness.study.explanation import relative
    from harness.study.members import members
    from harness.study.naming import row_name

    click.echo(f"{study.name!r} is a study: {study.title} ({relative(str(file))}), {len(study.rows)} rows")
    stored, presets, rows = store.runs(), presets_of(study.about), []
    asked = members(study, stored, searches=True)
    for run in (run for run in stored if run.id in asked):
        request = asked[run.id][0]
        row = row_name(study.rows[request.row], request, presets[run.preset])
        values = flatten({**(run.result or {}), **(run.cost or {})})
        measured = [values.get(column.metric, "") for column in study.columns[:1]]
        rows.append([run.id, run.preset, row, request.seed, str(run.status), *measured])
    if rows:
        headings = ["run", "preset", "row", "seed", "status", *(column.metric for column in study.columns[:1])]
        click.echo(table(rows, headings, screen_width(), tablefmt="simple", floatfmt=".4g"))
    else:
        click.echo(f"no run of it is stored in {store.name}: `harness run {study.name}` makes them")
    click.echo(f"`harness status {study.name}` counts its trials, `harness report {study.name}` prints its table")


def _heading(run: StoredRun, store: str) -> dict[str, str]:
    lines = {
        "status": run.status + (", superseded by a newer run of the trial" if run.superseded else ""),
        "invalid": run.invalid or "",
        "made for": "; ".join(f"{study}: {row}" for study, row in run.rows.items()),
        "trial": run.key,
        "place": f"{store}/{run.id}",
        "attempt": str(run.attempt),
        "preset": run.preset,
        "overrides": " ".join(f"{key}={value}" for key, value in run.overrides.items()),
        "parent": run.trial["parent"] or "",
        "started": _local(run.start_time),
        "stopped": _local(run.stop_time),
        "owner": describe(run.owner),
        "commit": run.commit or "",
    }
    return {name: text for name, text in lines.items() if text}


def _local(time: str | None) -> str:
    """A stored time, which is in UTC, as local time with its zone."""
    from datetime import UTC, datetime

    if time is None:
        return ""
    return datetime.fromisoformat(time).replace(tzinfo=UTC).astimezone().isoformat(" ", "seconds")


def _flat(document: Mapping[str, Any]) -> dict[str, str]:
    """Nested keys joined by dots, in the syntax of `with`."""
    from harness.documents import flatten

    return {key: "null" if value is None else str(value) for key, value in flatten(document).items()}


def _plain(result: Mapping[str, Any]) -> dict[str, Any]:
    """The result without curves and panel."""
    return {key: value for key, value in without_curves(result).items() if key != PANEL}


def sections(panel: Mapping[str, Any]) -> dict[str, str]:
    """One line per section of the panel."""
    sections = {name: inner for name, inner in panel.items() if isinstance(inner, Mapping)}
    numbers = _flat({name: value for name, value in panel.items() if name not in sections})
    lines = {name: ", ".join(map(" ".join, _flat(own).items())) for name, own in sections.items()}
    return lines | numbers


def _rankings(run: StoredRun) -> dict[str, str]:
    """The rankings of the run's weights, except its own."""
    return {
        key: ", ".join(f"{name} {text}" for name, text in _flat(_plain(result)).items())
        for key, result in run.rankings.items()
        if key != run.own_ranking
    }


def _metrics(metrics: Mapping[str, list[dict[str, Any]]]) -> dict[str, str]:
    lines = {}
    for name, points in metrics.items():
        values = [point["value"] for point in points if point["value"] is not None]
        text = f"{len(points)} points"
        if values:
            text += f", last {values[-1]:.4g} at step {points[-1]['step']}, from {min(values):.4g} to {max(values):.4g}"
        lines[name] = text
    return lines
