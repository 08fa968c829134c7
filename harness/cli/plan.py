"""`harness plan`: what `run` would do, and about how long it would take."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import click

from harness.cli._announcement import needs
from harness.cli._power import Wish, power_options, show_power
from harness.cli._request import WithUpdates, request_options
from harness.stores.places import Places

if TYPE_CHECKING:
    from harness.execution.plan import Asked, Plan
    from harness.execution.states import Work
    from harness.stores.stored import StoredRun


@click.command("plan", cls=WithUpdates, example="harness plan --all --preset paper")
@request_options
@click.option(
    "--calibration/--no-calibration",
    default=True,
    help="Where no trial is done yet, train for a few seconds to estimate the time.  [default: yes]",
)
@power_options
def command(asked: Asked, store: Places, calibration: bool, wish: Wish | None) -> None:
    """Show what `run` would do: trials, passes, images, time, and what is missing.

    STUDY is a study file or the name of a known study. The time is estimated from trials of the preset that are done,
    else from a few seconds of training. With --power it shows instead how many seeds the comparisons need, and how
    long these take, by the stored runs.
    """
    from harness.execution.states import Kind, State

    preset, runs = asked.preset, store.open().runs()
    if wish is not None:
        show_power(asked, runs, wish)
        return
    plan = asked.plan(runs)
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
    _show_time(plan, training, runs, preset, calibration)


def _show_missing(todo: Sequence[Work]) -> None:
    """Print all images and tables that are not here, each with how to get it."""
    from harness.execution.plan import missing_inputs

    for problem in missing_inputs(work.trial for work in todo):
        click.echo(f"missing: {problem}")


def _show_effort(training: Sequence[Work]) -> None:
    """Print the passes and images of all trainings, as far as they are known."""
    from harness.data.inspection import image_counts
    from harness.execution.effort import NOTHING, effort

    counts = cache(image_counts)  # ImageNet has thousands of folders to look at
    known = [effort(work.trial.config, counts) for work in training]
    total = sum((one for one in known if one is not None), NOTHING)
    unknown = known.count(None)
    without = f" without {unknown} trials whose data sets are of unknown size" if unknown else ""
    click.echo(f"{total.passes:,} passes over {total.images:,} images in training{without}")


def _show_time(plan: Plan, training: Sequence[Work], runs: Sequence[StoredRun], preset: str, calibration: bool) -> None:
    """Print the estimated time, or why there is none."""
    from harness.cli._display import duration
    from harness.execution.executors.slots import Slots
    from harness.execution.plan import seconds_left

    slots = Slots.of()
    seconds, source = seconds_left(plan, runs, preset), "estimated from the trials that are done"
    if seconds is None:
        if not calibration:
            click.echo(f"no estimate: no trial of preset {preset} is done yet")
            return
        from harness.execution.calibration import estimate

        if sys.stderr.isatty():
            click.echo("training for a few seconds to estimate the time (--no-calibration leaves that out)", err=True)
        found = estimate(training, slots)
        for problem in found.without:
            click.echo(f"not in the estimate: {problem}" if found.seconds is not None else f"not measured: {problem}")
        if found.seconds is None:
            click.echo(f"no estimate: no trial of preset {preset} is done yet, and none could be measured")
            return
        seconds, source = found.seconds, "a rough estimate from a few seconds of training on this machine"
    jobs = len(slots)
    click.echo(f"about {duration(seconds)} one by one, {duration(seconds / jobs)} with --jobs {jobs}, {source}")
