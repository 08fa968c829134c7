"""`harness store recompute`: compute metrics from stored predictions and weights."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import click

from harness.cli._options import store_option, takes, weights_option
from harness.cli._request import Request, WithUpdates
from harness.cli._signals import on_signals
from harness.cli._working import Machine
from harness.errors import Unreachable
from harness.stores.places import Places


@click.command("recompute", cls=WithUpdates, example="harness store recompute mine with rank.images=100")
@takes(request=Request, machine=Machine)
@click.option("--again", is_flag=True, help="Also compute stored metrics again, for metrics whose code has changed.")
@weights_option
@store_option
def recompute(request: Request, machine: Machine, again: bool, mirror_weights_max: int, store: Places) -> int:
    """Compute metrics of done runs again, without training.

    These are the metrics that the studies need now: they may rank other architectures, on other images, or use another
    table of ground truth. Stored predictions are used as they are; others are made with the stored weights. With
    --again every metric is computed again, and stored if it differs. Exits 1 unless everything was computed.
    """
    from harness.cli._display import Display
    from harness.work.assignment import Computing
    from harness.work.database import reach
    from harness.work.jobs import Answered, Stopping
    from harness.work.plan import require_ranks
    from harness.work.processes import Processes
    from harness.work.repeating import Recomputing
    from harness.work.states import State
    from harness.work.worker import Settings

    asked, slots = request.asked(store), machine.slots()
    if store.mongo is None:
        store.require()
    settings = Settings(store, Computing(machine.threads), weights_max=mirror_weights_max, waits=False)
    stopping = Stopping()
    place = settings.open()
    if (silence := reach(place, 0.0, stopping, click.echo)) is not None:
        raise Unreachable(silence)
    with contextlib.closing(Processes(slots)) as executor:
        display = Display(asked.studies, asked_to_stop=lambda: stopping.asked)
        worker = Recomputing(place, settings, asked, executor, stopping, display.show, again=again)
        chosen = worker.choose(worker.plan)
        require_ranks(chosen, slots)
        with on_signals(stopping.ask, shown=lambda: display.is_live) as received, display:
            worker.run()
    ended = {"recomputed": 0}
    undone: list[str] = []
    for work, answer in [*worker.answers, *((work, {"status": Answered.ELSEWHERE}) for work in worker.left(chosen))]:
        status = str(answer["status"])
        if status == Answered.DONE:
            status = "unchanged" if answer["already"] else "recomputed"
        else:
            undone.append(f"{status}: {work.label}" + _reason(answer))
        ended[status] = ended.get(status, 0) + 1
    plan = worker.plan
    states = plan.states
    training = len(plan.work) - states[State.DONE] - states[State.RANK]
    click.echo(
        f"{ended.pop('recomputed')} recomputed" + "".join(f", {count} {name}" for name, count in ended.items() if count)
    )
    if states[State.RANK]:
        click.echo(f"{states[State.RANK]} trials still lack a requested ranking")
    if training:
        click.echo(f"{training} of {len(plan.work)} trials need training: use `harness run`")
    for line in undone:
        click.echo(line, err=True)
    if received:
        return 128 + received[0]
    return 1 if undone else 0


def _reason(answer: Mapping[str, Any]) -> str:
    """Why a ranking was not computed, if known."""
    from harness.work.jobs import Answered

    later = "running in another process; use the same command later to see the outcome"
    known: dict[str, str] = {Answered.ELSEWHERE: later}
    reason = answer.get("error") or known.get(answer["status"])
    return f": {reason}" if reason else ""
