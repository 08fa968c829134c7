"""`harness plan`: what `run` would do, and about how long it would take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from harness.cli._request import WithUpdates, request_options
from harness.stores.places import Places

if TYPE_CHECKING:
    from harness.execution.plan import Asked


@click.command("plan", cls=WithUpdates, example="harness plan --all --preset paper")
@request_options
def command(asked: Asked, store: Places) -> None:
    """Show what `run` would do: trials, passes, images, time, and what is missing.

    STUDY is a study file or the name of a known study.
    """
    from harness.cli._display import duration
    from harness.execution.executors.slots import Slots
    from harness.execution.plan import seconds_left
    from harness.execution.states import Kind, State

    preset, runs = asked.preset, store.open().runs()
    plan = asked.plan(runs)
    for study in asked.studies:
        part = plan.of(study)
        click.echo(f"{study.name}: {study.title}, {len(part.work)} trials, {part.states[State.DONE]} done")
    click.echo(f"total: {len(plan.work)} trials under preset {preset}, {plan.shared} requests shared with another row")
    for state in State:
        if plan.states[state]:
            click.echo(f"  {plan.states[state]:5} {state:12} {state.meaning}")
    kinds = [work.kind() for work in plan.work]
    if not any(kinds):
        click.echo("nothing to run")
        return
    if Kind.TRAIN not in kinds:
        count = kinds.count(Kind.RANK)
        click.echo(f"{count} ranking{'s' if count > 1 else ''} of stored weights; time not estimated")
        return
    seconds = seconds_left(plan, runs, preset)
    if seconds is None:
        click.echo(f"no estimate: no trial of preset {preset} is done yet")
    else:
        jobs = len(Slots.of())
        click.echo(
            f"about {duration(seconds)} one by one, {duration(seconds / jobs)} with --jobs {jobs}, "
            "estimated from the trials that are done"
        )
