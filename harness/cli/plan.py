"""`harness plan`: what `run` would do, and about how long it would take."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import click

from harness.cli._announcement import needs
from harness.cli._costs import Terms, show_costs
from harness.cli._options import store_option, takes
from harness.cli._power import Power, show_power
from harness.cli._request import Request, WithUpdates, edits_since, tell_edits
from harness.stores.places import Places

if TYPE_CHECKING:
    from harness.work.states import Work


@click.command("plan", cls=WithUpdates, example="harness plan --all --preset paper")
@takes(request=Request, terms=Terms, power=Power)
@store_option
def command(request: Request, terms: Terms, power: Power, store: Places) -> None:
    """Show what `run` would do, what is missing, and what it costs.

    STUDY is a study file or the name of a known study. The time of each trial is estimated from trials of the same kind
    that are done, else from hours in the preset, else, with --calibrate, from a few seconds of training; the output
    names the source. With --power it shows how many seeds the comparisons need, and how long these take, from the
    stored runs.
    """
    from harness.work.states import Kind, State

    asked, wish = request.asked(store), power.wish()
    preset, runs = asked.preset, store.open(planned=True).runs()
    if wish is not None:
        show_power(asked, runs, wish)
        return
    plan = asked.plan(runs)
    tell_edits(edits_since([plan], lambda: runs))
    for study in asked.studies:
        part = plan.of(study)
        click.echo(f"{study.name}: {study.title}, {len(part.work)} trials, {part.states[State.DONE]} done")
    click.echo(f"total: {len(plan.work)} trials under preset {preset}, {plan.shared} requests shared with another row")
    if plan.searches:
        click.echo(f"  {plan.searches:5} searches with trained supernets; searches of one supernet share its training")
    for state in State:
        if plan.states[state]:
            click.echo(f"  {plan.states[state]:5} {state:12} {state.meaning}")
    todo = [work for work in plan.work if work.kind() is not None]
    if not todo:
        click.echo("nothing to run")
        return
    for line in needs(todo):
        click.echo(line)
    _show_missing(todo)
    training = [work for work in todo if work.kind() is Kind.TRAIN]
    if not training:
        count = sum(len(work.unranked) for work in plan.work if work.state is State.RANK)
        click.echo(f"{count} ranking{'s' if count > 1 else ''} of stored weights; time not estimated")
        return
    _show_effort(training)
    show_costs(asked, todo, runs, terms)


def _show_missing(todo: Sequence[Work]) -> None:
    """Print all images and tables that are not here, each with how to get it."""
    from harness.work.plan import missing_inputs

    for problem in missing_inputs(work.trial for work in todo):
        click.echo(f"missing: {problem}")


def _show_effort(training: Sequence[Work]) -> None:
    """Print the passes and images of all trainings, as far as they are known."""
    from harness.data.inspection import image_counts
    from harness.work.effort import NOTHING, effort

    counts = cache(image_counts)  # ImageNet has thousands of folders to look at
    known = [effort(work.trial.config, counts) for work in training]
    total = sum((one for one in known if one is not None), NOTHING)
    unknown = known.count(None)
    without = f" without {unknown} trials whose data sets are of unknown size" if unknown else ""
    click.echo(f"{total.passes:,} passes over {total.images:,} images in training{without}")
