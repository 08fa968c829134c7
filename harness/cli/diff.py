"""`harness diff`: two stored runs side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from harness.cli._completion import runs
from harness.cli._help import Command
from harness.cli._store_option import store_option
from harness.stores.places import Places

if TYPE_CHECKING:
    from harness.stores.upkeep.comparison import Comparison


@click.command("diff", cls=Command, example="harness diff 3f2a 91bc")
@click.argument("one", metavar="RUN", shell_complete=runs)
@click.argument("other", metavar="RUN", shell_complete=runs)
@store_option
def command(one: str, other: str, store: Places) -> int:
    """Show the differences between two runs.

    They are in configuration, result, metrics, predictions, weights, cost or environment. RUN is a run's id or a
    unique prefix of it. Exits 0 when the results are equal, 1 when they differ. Cost,
    environment, and observations of only one of the runs are ignored for the exit status.
    """
    from harness.stores.upkeep.comparison import Side, compare

    opened = store.open()
    sides = [Side(opened, opened.find(name)) for name in (one, other)]
    found = compare(*sides)
    click.echo(f"{sides[0].run.id} and {sides[1].run.id}")
    show(found)
    return 1 if found.contradicting else 0


def show(found: Comparison) -> None:
    """Print the differences, and in a last line whether the results are equal."""
    for section, differences in found.sections.items():
        width = max(len(one.name) for one in differences)
        click.echo(section)
        for one in differences:
            click.echo(f"  {one.name:<{width}}  {one.one} | {one.other}")
    click.echo(f"results differ: {', '.join(found.contradicting)}" if found.contradicting else "results are equal")
