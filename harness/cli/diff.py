"""`harness diff`: two stored runs side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from harness.cli._completion import runs
from harness.cli._help import Command
from harness.cli._options import store_option
from harness.errors import UserError
from harness.stores.places import Places

if TYPE_CHECKING:
    from harness.stores.upkeep.comparison import Comparison


@click.command("diff", cls=Command, example="harness diff --code 3f2a")
@click.argument("one", metavar="RUN", shell_complete=runs)
@click.argument("other", metavar="[RUN]", required=False, shell_complete=runs)
@click.option("--code", is_flag=True, help="Compare your own code; without a second RUN, with the current code.")
@store_option
def command(one: str, other: str | None, code: bool, store: Places) -> int:
    """Show the differences between two runs.

    They are in configuration, result, metrics, predictions, weights, cost or environment. RUN is a run's id or a
    unique prefix of it. Exits 0 when the results are equal, 1 when they differ. Cost,
    environment, and observations of only one of the runs are ignored for the exit status. With --code it shows the
    differences between their copies of your own methods, spaces and other components, and of what these import; it
    exits 1 when the code differs in more than comments, docstrings and formatting.
    """
    if code:
        return _show_code(store, one, other)
    if other is None:
        raise UserError("diff compares two runs: name a second one, or give --code to compare with the files of today")
    from harness.stores.upkeep.comparison import Side, compare

    opened = store.open()
    sides = [Side(opened, opened.find(name)) for name in (one, other)]
    found = compare(*sides)
    click.echo(f"{sides[0].run.id} and {sides[1].run.id}")
    show(found)
    return 1 if found.contradicting else 0


def _show_code(store: Places, one: str, other: str | None) -> int:
    """Print the differences between the user's code of a run and that of another run or of today."""
    from harness.stores.upkeep.code_comparison import compare, copies, files_of_today

    opened = store.open()
    run = opened.find(one)
    another = None if other is None else opened.find(other)
    then = copies(opened, run)
    now = files_of_today(run) if another is None else copies(opened, another)
    name = "today" if another is None else another.id
    found = compare(then, now)
    click.echo(f"{run.id} and {name}")
    for difference in found:
        for line in difference.lines:
            click.echo(line)
    for difference in found:
        click.echo(f"{difference.file}: {difference.verdict}")
    if not found:
        click.echo("the files are equal" if then or now else "neither has code of your own: only shipped components")
    return 1 if any(difference.matters for difference in found) else 0


def show(found: Comparison) -> None:
    """Print the differences, and in a last line whether the results are equal."""
    for section, differences in found.sections.items():
        width = max(len(one.name) for one in differences)
        click.echo(section)
        for one in differences:
            click.echo(f"  {one.name:<{width}}  {one.one} | {one.other}")
    click.echo(f"results differ: {', '.join(found.contradicting)}" if found.contradicting else "results are equal")
