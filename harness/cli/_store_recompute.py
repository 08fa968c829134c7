"""`harness store recompute`: compute metrics from stored predictions and weights."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from harness.cli._request import WithUpdates, chosen_studies, plan_of, request_options, with_preset
from harness.cli._signals import on_signals
from harness.cli._store_places import weights_option
from harness.errors import Unreachable
from harness.stores.places import Places

if TYPE_CHECKING:
    from harness.execution.executors.executor import Event
    from harness.execution.plan import Plan
    from harness.study.trial import Trial


@click.command("recompute", cls=WithUpdates)
@request_options
@click.option("--jobs", type=click.IntRange(1), help="Trials in parallel.  [default: all cores]")
@click.option("--threads", default=1, show_default=True, type=click.IntRange(1), help="Threads per trial.")
@click.option("--device", help="Device, for instance cpu or cuda:1.  [default: a GPU if there is one]")
@click.option("--again", is_flag=True, help="Also compute stored metrics again, for metrics whose code has changed.")
@weights_option
def recompute(
    names: tuple[str, ...],
    everything: bool,
    preset: str,
    seeds: int | None,
    only: tuple[str, ...],
    store: Places,
    updates: tuple[str, ...],
    jobs: int | None,
    threads: int,
    device: str | None,
    again: bool,
    mirror_weights_max: float,
) -> int:
    """Compute the metrics of done runs that the studies now ask for, without training.

    Studies may ask for other architectures to rank, other images to rank them on, or another table of ground
    truth. Stored predictions are used as they are; others are made with the stored weights. With --again every
    metric is computed again, and stored if it differs. Exits 1 unless everything was computed.
    """
    from harness.execution.executors.executor import Job, Stopping
    from harness.execution.executors.local import execute
    from harness.execution.plan import require_inputs
    from harness.execution.workplace import Workplace
    from harness.stores.claims.lease import LEASE
    from harness.study.overrides import parse_updates

    studies = with_preset(chosen_studies(names, everything), preset)
    shared = {
        "kind": "rank",
        "store": str(store.directory.absolute()),
        "preset": preset,
        "overrides": parse_updates(updates),
        "threads": threads,
        "device": device,
        "mongo": store.mongo,
        "weights_max": int(mirror_weights_max),
        "again": again,
    }
    place = Workplace(store.directory, store.mongo, LEASE, int(mirror_weights_max), click.echo)
    stopping = Stopping()
    if not place.reach(0.0, stopping):
        raise Unreachable(place.silence or "the database does not answer")

    def plan_now() -> Plan:
        return plan_of(studies, place.reader.runs(), preset=preset, seeds=seeds, only=only, updates=updates)

    plan = plan_now()
    attempted: set[tuple[str, str]] = set()
    ended = {"recomputed": 0}
    undone: list[str] = []
    with on_signals(stopping.ask) as received:
        while not stopping.asked:
            todo = [one for one in _rankings(plan, again) if (one[0].key, one[0].ranking_key) not in attempted]
            if not todo:
                break
            require_inputs(trial for trial, _ in todo)
            attempted |= {(trial.key, trial.ranking_key) for trial, _ in todo}
            numbered = [Job(n, {**shared, "trial": trial.json()}, threads) for n, (trial, _) in enumerate(todo)]
            for label, answer in _follow(execute(numbered, jobs or os.cpu_count() or 1, stopping=stopping), todo):
                status = answer["status"]
                if status == "done":
                    status = "unchanged" if answer["already"] else "recomputed"
                else:
                    undone.append(f"{status}: {label}" + _reason(answer))
                ended[status] = ended.get(status, 0) + 1
            plan = plan_now()
    states = plan.states
    training = len(plan.work) - states["done"] - states["rank"]
    click.echo(
        f"{ended.pop('recomputed')} recomputed" + "".join(f", {count} {name}" for name, count in ended.items() if count)
    )
    if states["rank"]:
        click.echo(f"{states['rank']} trials still lack a requested ranking")
    if training:
        click.echo(f"{training} of {len(plan.work)} trials need training: use `harness run`")
    for line in undone:
        click.echo(line, err=True)
    if received:
        return 128 + received[0]
    return 1 if undone else 0


def _rankings(plan: Plan, again: bool) -> list[tuple[Trial, str]]:
    """The trials whose rankings can be computed now, with their labels: the missing ones, or all."""
    found = []
    for work in plan.work:
        if work.run is None or work.state not in ("rank", "done") or work.trial.start is not None:
            continue  # a retrained trial has no ranking
        wanted = {request.trial.ranking_key: request.trial for request in work.requests}
        found += [(trial, work.label) for key, trial in wanted.items() if again or key not in work.run.rankings]
    return found


def _reason(answer: Mapping[str, Any]) -> str:
    """Why a ranking was not computed, if known."""
    known = {"elsewhere": "running in another process; use the same command later to see the outcome"}
    reason = answer.get("error") or known.get(answer["status"])
    return f": {reason}" if reason else ""


def _follow(events: Iterator[Event], todo: list[tuple[Trial, str]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Show the progress; yield the label and the answer of each job that finishes."""
    from harness.cli._display import Display

    with Display(len(todo)) as display:
        for event in events:
            number = event.job.number
            if event.kind == "started":
                display.started(number, todo[number][1])
            elif event.kind == "progress":
                display.progress(number, event.data)
            else:
                display.finished(number, event.data)
                yield todo[number][1], event.data
