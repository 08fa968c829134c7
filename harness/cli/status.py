"""`harness status`: the states of the studies' trials, and problems in the store."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from harness.cli._completion import presets, studies
from harness.cli._help import Command
from harness.cli._options import Duration, store_option
from harness.cli._request import LeftOut, PresetOption, chosen_studies, edits_since, tell_edits, with_preset
from harness.errors import HarnessError, UserError
from harness.stores.places import Places

if TYPE_CHECKING:
    from harness.stores.stored import StoredRun
    from harness.study.edits import Edit
    from harness.study.study import Study
    from harness.work.plan import Plan
    from harness.work.states import Work


@click.command("status", cls=Command, example="harness status --preset demo")
@click.argument("names", metavar="[STUDY]...", nargs=-1, shell_complete=studies)
@click.option(
    "--preset",
    cls=PresetOption,
    shell_complete=presets,
    help="Preset (the scale).  [default: all presets of stored runs]",
)
@click.option("--all", "everything", is_flag=True, help="Also the studies that were not run here.")
@click.option("--seeds", type=click.IntRange(1), help="Number of seeds, from 0 on.  [default: those that were run]")
@click.option(
    "--watch",
    type=Duration(),
    is_flag=False,
    flag_value=2.0,
    metavar="[SECONDS]",
    help="Then show the trials live, as `run` does, until none runs or waits; looks every SECONDS (2 if not given).",
)
@store_option
def command(
    names: tuple[str, ...],
    preset: str | None,
    everything: bool,
    seeds: int | None,
    watch: float | None,
    store: Places,
) -> None:
    """Count the done, running, failed and waiting trials of each study.

    STUDY is a study file or the name of a known study; by default the studies that were run here. A stored trial
    without all observations that its study needs counts as waiting.
    """
    from harness.components.discovery import component
    from harness.components.preset import default_preset, presets_of
    from harness.study.overrides import as_typed, parse_updates
    from harness.work.plan import make_plan
    from harness.work.states import State

    columns = [State.DONE, State.RUNNING, State.FAILED, State.LOST, State.INTERRUPTED, State.WAITING]
    studies = chosen_studies(names, everything=not names)
    reader = store.open()
    runs = reader.runs()
    used = {run.preset for run in runs}
    seeds_of: dict[tuple[str, str], dict[str, int]] = {}
    """By study and preset, the number of seeds that were run with each set of overrides, which is as one types it."""
    for run in runs:
        for name in run.rows:
            counts_of, typed = seeds_of.setdefault((name, run.preset), {}), shlex.join(as_typed(run.overrides))
            counts_of[typed] = max(counts_of.get(typed, 1), run.trial["config"]["seed"] + 1)
    sharing = 0
    if preset:
        studies = with_preset(studies, preset)
    shown: list[tuple[Study, str, str, Plan]] = []
    """Study, preset, overrides and plan of each line."""
    planned: list[Callable[[Sequence[StoredRun]], Plan]] = []
    """The plan of each line, as other runs make it."""
    changed: list[Edit] = []
    refused = LeftOut()
    for study in studies:
        known = presets_of(study.about)
        scales = [preset] if preset else [name for name in known if name in used] or [default_preset().name]
        for name in [name for name in scales if name in known]:
            run_here = seeds_of.get((study.name, name), {})
            for typed in sorted(run_here) or [""]:
                own, overrides = run_here.get(typed), parse_updates(shlex.split(typed))
                made = partial(make_plan, [study], known[name], seeds=seeds or own, overrides=overrides, check=False)
                try:
                    plan = made(runs)
                except UserError as error:
                    if names:
                        raise
                    refused.add(study, error)
                    break
                met = any(work.attempts for work in plan.work)
                edits = edits_since([plan], lambda: runs)
                old = met and not seeds_of  # old runs do not name the studies that asked
                if names or everything or own or old or edits:
                    shown.append((study, name, typed, plan))
                    planned.append(made)
                    changed += edits
                else:
                    sharing += met
    refused.tell()
    tell_edits(changed)
    order = component("reports.paper.order")
    shown.sort(key=lambda one: order.HEADINGS.index(order.heading(one[0])))
    several = len({order.heading(study) for study, *_ in shown}) > 1
    counts = [plan.states for *_, plan in shown]
    for one in counts:
        one[State.WAITING] += one[State.RANK] + one[State.AGAIN]
    columns = [one for one in columns if one is State.DONE or any(states[one] for states in counts)]
    width = max([len("study"), *(len(study.name) + 2 * several for study, *_ in shown)])
    if shown:
        click.echo(f"{'study':{width}}  {'preset':8}  {'trials':>6}" + "".join(f"  {name:>7}" for name in columns))
    last = ""
    for (study, scale, typed, plan), states in zip(shown, counts, strict=True):
        if several and (heading := order.heading(study)) != last:
            click.echo(last := heading)
        name = "  " * several + study.name
        figures = "".join(f"  {states[one]:>{max(7, len(one))}}" for one in columns)
        click.echo(f"{name:{width}}  {scale:8}  {len(plan.work):>6}{figures}" + (f"  with {typed}" if typed else ""))
    hidden = len(studies) - len({study.name for study, *_ in shown})
    if hidden and not shown and not sharing:
        click.echo(f"none of {hidden} studies has runs here; --all shows them")
    elif hidden:
        shared = f", {sharing} of which share{'s' * (sharing == 1)} trials with these" if sharing else ""
        others = f"{hidden} other studies were" if hidden > 1 else "1 other study was"
        click.echo(f"{others} not run here{shared}; --all shows them")
    _show_jobs(store, shown)
    if reader.problems:
        click.echo(f"\nnot usable in {reader.name}:")
        for problem in reader.problems:
            click.echo(f"  {problem.place}: {problem.reason}")
    if watch is not None:
        from harness.cli._watch import watch as follow

        def look() -> list[Work]:
            runs = reader.runs()
            return [work for made in planned for work in made(runs).work]

        follow(look, reader, [study for study, *_ in shown], watch)


def _show_jobs(store: Places, shown: Sequence[tuple[Study, str, str, Plan]]) -> None:
    """Print which jobs of SLURM run trials of the studies now, and which were submitted."""
    from harness.owner import job_name
    from harness.stores.board import JOBS
    from harness.stores.opened import Opened
    from harness.work.states import State

    running = {
        work.trial.key: work.run.owner["slurm"]
        for *_, plan in shown
        for work in plan.work
        if work.state is State.RUNNING and work.run is not None and "slurm" in work.run.owner
    }
    places = sorted({f"{job_name(job)} on {job.get('node', 'an unknown node')}" for job in running.values()})
    if running:
        click.echo(f"running in SLURM: {len(running)} trials, by {', '.join(places)}")
    names = {study.name for study, *_ in shown}
    jobs: Mapping[str, Any] = {}
    with contextlib.suppress(HarnessError):  # a database that is not read need not answer
        jobs = Opened(store).board.all(JOBS)
    for job, note in jobs.items():
        if studies := sorted(names & {*note["studies"]}):
            told = f"job {job}, {note['workers']} workers, preset {note['preset']}"
            click.echo(f"submitted to SLURM: {told}; `harness cancel {' '.join(studies)}` cancels it")
