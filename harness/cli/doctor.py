"""`harness doctor`: whether everything that a run needs is in order, and what to do where it is not."""

from __future__ import annotations

import click

from harness.cli._help import Command
from harness.cli._store_option import store_option
from harness.stores.places import Places


@click.command("doctor", cls=Command, example="harness doctor --store runs")
@click.option(
    "--wait",
    default=60.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Seconds to wait for torch and its GPUs, which are asked in another process.",
)
@store_option
def command(wait: float, store: Places) -> int:
    """Check installation, GPUs, store, database, data, tables and disk, and say what to do about each problem.

    One line per check: ok, note or problem. Nothing is changed. Takes a few seconds. Exits 1 if there is a problem.
    """
    from collections import Counter

    from harness.work.diagnosis.examination import examine
    from harness.work.diagnosis.finding import State

    colours = {State.OK: "green", State.NOTE: "yellow", State.PROBLEM: "red"}
    counts: Counter[State] = Counter()
    for finding in examine(store, wait):
        counts[finding.state] += 1
        state = click.style(f"{finding.state:8}", fg=colours[finding.state])
        click.echo(f"{state} {finding.subject:11} {finding.text}")
        if finding.advice:
            click.echo(f"{'':21}what to do: {finding.advice}")
    problems, notes = counts[State.PROBLEM], counts[State.NOTE]
    summary = f"{problems} problem{'s' * (problems != 1)}" if problems else "no problems"
    click.echo(summary + (f", {notes} note{'s' * (notes != 1)}" if notes else ""))
    return 1 if problems else 0
