"""`harness rerun`: run a stored configuration again, and compare with the stored run."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli._completion import runs
from harness.cli._help import Command
from harness.cli._options import store_option
from harness.cli._working import slots_of
from harness.errors import HarnessError, UserError
from harness.stores.places import Places

if TYPE_CHECKING:
    from harness.stores.store import Store
    from harness.stores.stored import StoredRun
    from harness.study.trial import Trial
    from harness.work.slots import Slots
    from harness.work.worker import Settings


@click.command("rerun", cls=Command, example="harness rerun 3f2a --into again")
@click.argument("run", shell_complete=runs)
@click.option("--into", type=click.Path(file_okay=False, path_type=Path), help="Keep the new run in this directory.")
@click.option("--threads", type=click.IntRange(1), help="Number of threads.  [default: as in the stored run]")
@click.option("--device", help="Device, for instance cpu or cuda:1.  [default: the stored run's device type]")
@click.option("--ranks", type=click.IntRange(1), help="Processes that train it.  [default: as in the stored run]")
@store_option
def command(
    run: str, into: Path | None, threads: int | None, device: str | None, ranks: int | None, store: Places
) -> int:
    """Run a stored configuration again, and show what differs.

    RUN is the id of a done run or a unique prefix of it. The new run is kept only with --into. Exits 1 when
    result, metrics, predictions or weights differ: on the same kind of machine, with equal threads and ranks, they
    should not. Refuses when components have changed so that the configuration is now another trial.
    """
    from harness.cli.diff import show
    from harness.stores.directory.store import DirectoryStore
    from harness.stores.stored import Status
    from harness.stores.upkeep.comparison import Side, compare
    from harness.study.parallel import check_ranks
    from harness.work.assignment import Computing
    from harness.work.worker import Settings

    opened = store.open()
    found = opened.find(run)
    if found.status is not Status.DONE:
        raise UserError(f"run {found.id} is {found.status}: only a done run can be repeated and compared")
    trial = _same_trial(opened, found)
    cost = found.cost or {}
    device = device or str(cost.get("device", "")).partition(":")[0] or None
    slots = slots_of(device, 1, ranks=ranks or cost.get("ranks", 1))
    check_ranks(trial.config, slots.ranks)
    computing = Computing(threads or cost.get("threads", 1))
    with _folder(into, trial) as folder:
        interrupted = _execute(found, trial, Settings(Places(folder), computing, retry="all"), slots)
        if interrupted:
            return interrupted
        again = DirectoryStore(folder)
        new = again.done(trial.key)
        if new is None:
            raise HarnessError(f"the new run of trial {trial.key[:16]} is missing; {folder} was changed meanwhile")
        result = compare(Side(opened, found), Side(again, new))
    click.echo(f"{found.id}, as stored, and {new.id}, now" + (f" in {into}" if into else ""))
    if trial.ranking_key != found.own_ranking:
        click.echo("the ground truth has changed since: metrics that depend on it may differ")
    show(result)
    return 1 if result.contradicting else 0


def _same_trial(store: Store, run: StoredRun) -> Trial:
    """The run's trial. Raises `UserError` when its configuration is now another trial."""
    from harness.documents import flatten
    from harness.stores.directory.run_directory import TRIAL
    from harness.study.trial import Trial

    trial = Trial.from_json(run.trial)
    if trial.key == run.key:
        return trial
    same = {part: one.version for part, one in run.code.items() if one.is_like(trial.own_code.get(part, ""))}
    recorded = Trial.from_json({**run.trial, "recorded": same})
    if recorded.key == run.key:  # an earlier version of the harness hashed the text of the files
        return recorded
    then: dict[str, Any] = flatten(json.loads(store.read(run, TRIAL))["identity"])
    now = flatten(trial.identity())
    changes = [
        f"{key} was {json.dumps(then.get(key))} and is {json.dumps(now.get(key))}"
        for key in sorted(then.keys() | now.keys())
        if then.get(key) != now.get(key)
    ]
    raise UserError(f"run {run.id} cannot be repeated: its configuration is now another trial: {'; '.join(changes)}")


@contextlib.contextmanager
def _folder(into: Path | None, trial: Trial) -> Iterator[Path]:
    """Folder for the new run. Raises `UserError` if it has a done run of the trial."""
    from harness.stores.directory.store import DirectoryStore

    if into is None:
        with tempfile.TemporaryDirectory(prefix="rerun-") as folder:
            yield Path(folder)
        return
    if DirectoryStore(into).done(trial.key) is not None:
        raise UserError(f"{into} has a done run of this trial already: give another directory")
    yield into


def _execute(run: StoredRun, trial: Trial, settings: Settings, slots: Slots) -> int:
    """Repeat the run; return 0, or the exit status of an interruption. Raises `HarnessError` when it fails."""
    from harness.cli._display import Display
    from harness.cli._signals import on_signals
    from harness.work.jobs import Answered, Stopping
    from harness.work.processes import Processes
    from harness.work.repeating import repeating

    label, stopping = f"run {run.id} again", Stopping()
    display = Display(asked_to_stop=lambda: stopping.asked)
    signals = on_signals(stopping.ask, shown=lambda: display.is_live)
    with contextlib.closing(Processes(slots)) as executor, signals as received, display:
        place = settings.open()
        worker = repeating(place, run, trial, label, settings, executor, stopping, display.show)
        worker.run()
    answer: Mapping[str, Any] = worker.answers[-1][1] if worker.answers else {"status": Answered.INTERRUPTED}
    if answer["status"] == Answered.INTERRUPTED and "error" not in answer:
        return 128 + (received[0] if received else 2)
    if answer["status"] != Answered.DONE:
        raise HarnessError(f"{label}: {answer.get('error') or answer['status']}")
    return 0
