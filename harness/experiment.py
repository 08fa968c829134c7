"""The Sacred experiment: one cell in, one stored run out. Imported in training processes only.

The configuration is resolved and validated by us and given to Sacred as plain JSON types; Sacred keeps
the record (start, heartbeat, end, result, traceback) and our observer writes it. Randomness is ours:
every generator is derived from the cell's seed, whatever Sacred seeds.
"""

from __future__ import annotations

import contextlib
import logging
import random
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
import torch._dynamo
from sacred import SETTINGS, Experiment

from harness import environment
from harness.cell import Outcome, Watch, finite, rank_again, run_cell
from harness.errors import DataError, HarnessError
from harness.registries import SPACES
from harness.seeds import derive
from harness.stages.train import Progress
from harness.stores.directory import DirectoryStore
from harness.stores.files import sha256
from harness.stores.log import drop_drawings, output_to
from harness.stores.observer import DirectoryObserver
from harness.stores.reading import read_small
from harness.stores.run_directory import (
    COMPLETION,
    LOG,
    PREDICTIONS,
    RANKINGS,
    WEIGHTS,
    RunDirectory,
    predictions_document,
    write_ranking,
)
from harness.study import Cell

# Imported here, before the server forks: the first step of torch's optimisers would, and it takes two seconds.
_FORKED_WITH = torch._dynamo

Report = Callable[[dict[str, Any]], None]

REPORT_EVERY = 0.2
"""Seconds between two reports of a ranking's progress."""

# Output is ours to keep (`output_to`), and so is what the run was made on (`harness.environment`).
SETTINGS.CAPTURE_MODE = "no"
SETTINGS.DISCOVER_SOURCES = "none"
SETTINGS.DISCOVER_DEPENDENCIES = "none"
SETTINGS.HOST_INFO.INCLUDE_CPU_INFO = False
SETTINGS.HOST_INFO.INCLUDE_GPU_INFO = False


def warm_up() -> Iterator[None]:
    """What every job needs, but not before its first step, in parts that the fork server does when it is idle.

    Components are not loaded here: a user's file may run a tensor operation, and the server must not.
    """
    environment.describe()
    yield
    import scipy.stats  # noqa: F401  # for τ; most of a second

    yield


def run_job(job: dict[str, Any], progress: Report) -> dict[str, Any]:
    """Run one job, in a process of its own: {"kind", "cell", "store", "preset", "overrides", "threads"},
    with "device" if it should not be the best there is.

    Kind "train" makes a new run of the cell; "rank" adds the ranking that the cell asks for to its done
    run. Gives {"status": "done" | "failed" | "interrupted", "run_id", "key"}, with "result" and "cost"
    when done, and one line of "error" when failed. Raises nothing but what `progress` raises.
    """
    reply: dict[str, Any] = {"run_id": None, "key": None}
    try:
        torch.set_num_threads(job["threads"])
        cell = Cell.from_json(job["cell"])
        reply["key"] = cell.key
        store = DirectoryStore(Path(job["store"]))
        if job["kind"] == "rank":
            return reply | _rank(cell, store, job, progress)
        directory = store.create(cell, job["preset"], job["overrides"])
        reply["run_id"] = directory.id
        return reply | _train(cell, directory, job, progress)
    except KeyboardInterrupt:
        return reply | {"status": "interrupted"}
    except (Exception, SystemExit) as error:
        return reply | {"status": "failed", "error": one_line(error)}


def _train(cell: Cell, directory: RunDirectory, job: dict[str, Any], progress: Report) -> dict[str, Any]:
    progress({"event": "start", "run_id": directory.id})
    observer = DirectoryObserver(directory, cell.config.json(), {"key": cell.key, "preset": job["preset"]})
    reply: dict[str, Any] = {}
    with terminable():
        try:
            with output_to(directory.path / LOG) as log:
                try:
                    outcome = _sacred_run(cell, directory, observer, log, job, progress)
                    reply = {"status": "done", "result": outcome.result, "cost": outcome.cost}
                except KeyboardInterrupt:
                    if observer.status == "RUNNING":
                        observer.interrupted_event(_now(), "INTERRUPTED")
                    reply = {"status": "interrupted"}
                except (Exception, SystemExit) as error:
                    traceback.print_exc()
                    if observer.status == "RUNNING":  # it failed outside of Sacred's care
                        observer.failed_event(_now(), traceback.format_exception(error))
                    reply = {"status": "failed", "error": one_line(error)}
        finally:
            # A moment only: whatever ended the run, its record is put in order.
            with contextlib.suppress(ValueError):
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            drop_drawings(directory.path / LOG)
            directory.gather_metrics()
        if reply["status"] == "done":
            directory.complete()
    return reply


def _sacred_run(
    cell: Cell,
    directory: RunDirectory,
    observer: DirectoryObserver,
    log: IO[str],
    job: dict[str, Any],
    progress: Report,
) -> Outcome:
    config = cell.config
    experiment = Experiment("cell", save_git_info=False)
    experiment.logger = _logger(log)  # type: ignore[assignment]
    # numpy's global generator, which Sacred seeds, takes seeds below 2³² only.
    experiment.add_config(config.json() | {"seed": config.seed % 2**32})  # type: ignore[no-untyped-call]
    experiment.observers.append(observer)
    outcomes: list[Outcome] = []

    @experiment.main  # type: ignore[untyped-decorator]
    def train_rank_judge(_run: Any) -> dict[str, Any]:
        seed_globals(config.seed)
        tau: list[float | None] = []

        def metric(name: str, step: int, value: float) -> None:
            directory.log_metric(name, step, value)
            _run.log_scalar(name, value, step)
            if name == "kendall_tau":
                tau.append(finite(value))

        def epoch(at: Progress) -> None:
            step, steps = at.part * at.epochs + at.epoch, at.parts * at.epochs
            latest = tau[-1] if tau else None
            print(f"epoch {step}/{steps}: loss {at.loss:.4f}" + (f", τ {latest:.4f}" if latest is not None else ""))
            progress({"event": "epoch", "step": step, "steps": steps, "loss": at.loss, "tau": latest})

        outcome = run_cell(config, device_of(job), watch=Watch(epoch, metric, throttled(progress)))
        outcome.cost["threads"] = job["threads"]
        _store_outcome(cell, directory, outcome)
        for name in (PREDICTIONS, WEIGHTS):
            if (directory.path / name).exists():
                _run.add_artifact(str(directory.path / name), name)
        outcomes.append(outcome)
        return outcome.result

    experiment.run()
    return outcomes[0]


def _store_outcome(cell: Cell, directory: RunDirectory, outcome: Outcome) -> None:
    directory.write_result(outcome.result, outcome.cost)
    directory.write(PREDICTIONS, predictions_document(cell.config.json(), _numbered(cell, outcome)))
    if outcome.supernets is not None:
        states = [
            {name: tensor.cpu() for name, tensor in network.state_dict().items()}
            for network in outcome.supernets.networks
        ]
        directory.write_weights(lambda file: torch.save(states, file))


def _rank(cell: Cell, store: DirectoryStore, job: dict[str, Any], progress: Report) -> dict[str, Any]:
    run = store.done(cell.key)
    if run is None:
        raise DataError(f"no done run of cell {cell.key[:16]} in {store.path} whose weights could be ranked")
    progress({"event": "start", "run_id": run.id})
    reply: dict[str, Any] = {"status": "done", "run_id": run.id}
    key, config = cell.ranking_key, cell.config.json()
    if key in run.rankings:
        return reply | {"result": run.rankings[key], "cost": {}}
    folder = store.path_of(run)
    (folder / RANKINGS).mkdir(exist_ok=True)
    log = folder / RANKINGS / f"{key}.txt"
    try:
        with terminable(), output_to(log):
            seed_globals(cell.config.seed)
            if run.result is not None and run.result["diverged"]:
                result, cost, numbered = run.rankings[next(iter(run.rankings))], {}, {}
            else:
                weights = _weights(folder)
                known = store.predictions(run, config["rank"])
                watch = Watch(ranking=throttled(progress))
                outcome = rank_again(cell.config, weights, known, device_of(job), watch)
                result, cost, numbered = (
                    outcome.result,
                    outcome.cost | {"threads": job["threads"]},
                    _numbered(cell, outcome),
                )
            write_ranking(folder, key, config, result, cost, predictions_document(config, numbered))
    except (Exception, SystemExit) as error:
        with log.open("a") as file:
            traceback.print_exc(file=file)
        return reply | {"status": "failed", "error": one_line(error)}
    drop_drawings(log)
    if not log.stat().st_size:
        log.unlink()
    return reply | {"result": result, "cost": cost}


def _weights(run: Path) -> list[dict[str, Any]]:
    if sha256(run / WEIGHTS) != read_small(run / COMPLETION)["files"][WEIGHTS]:
        raise DataError(f"{run / WEIGHTS}: has another checksum than the completion record says")
    weights: list[dict[str, Any]] = torch.load(run / WEIGHTS, weights_only=True)
    return weights


def _numbered(cell: Cell, outcome: Outcome) -> dict[int, float]:
    space = SPACES.get(cell.config.space)()
    return {space.index(architecture): accuracy for architecture, accuracy in outcome.predictions.items()}


def device_of(job: dict[str, Any]) -> str:
    """Where a job computes. Asked in the job's own process: the server must not touch a GPU before it forks."""
    return job.get("device") or ("cuda" if torch.cuda.is_available() else "cpu")


def seed_globals(seed: int) -> None:
    """The engine draws from generators of its own; a component that uses the global ones repeats, too."""
    random.seed(derive(seed, "random"))
    np.random.seed(derive(seed, "numpy") % 2**32)
    torch.manual_seed(derive(seed, "torch"))


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM interrupts as Ctrl-C does, so that the run is stored as interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def throttled(progress: Report) -> Callable[[int, int], None]:
    """Reports of a ranking's progress, a few a second."""
    last = 0.0

    def report(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if done == total or now - last >= REPORT_EVERY:
            last = now
            progress({"event": "rank", "step": done, "steps": total})

    return report


def one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, HarnessError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _logger(log: IO[str]) -> logging.Logger:
    """Sacred's messages into the log; by itself it would replace the handlers of all loggers."""
    logger = logging.getLogger("harness.sacred")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    handler = logging.StreamHandler(log)
    handler.setFormatter(logging.Formatter("%(levelname)s - %(message)s"))
    logger.handlers = [handler]
    return logger


def _now() -> datetime:
    return datetime.now(timezone.utc).replace(tzinfo=None)
