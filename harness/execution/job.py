"""One job: claim a trial, run or rank it, store and mirror it. Imported in training processes only.

The training process itself holds the claim and renews it. Under the claim it reads the stored runs again:
between the plan and the claim another process may have done the work.
"""

from __future__ import annotations

import contextlib
import errno
import io
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from harness import environment
from harness.components.dataset import fingerprint
from harness.components.space import Architecture
from harness.documents import one_line, utc_now, without_nan
from harness.errors import DataError, HarnessError, UnknownName, Unreachable
from harness.execution.assignment import Assignment
from harness.execution.experiment import Report, predicted, sacred_run, seed_globals, throttled
from harness.execution.states import state_of
from harness.interruption import LOST, TIMEOUT, asked_first, interrupt_main, raise_interruption, reason_of
from harness.stores.checkpoints import Checkpoint
from harness.stores.claims.lease import ClaimLost, Lease
from harness.stores.directory.log import drop_drawings, output_to
from harness.stores.directory.observer import DirectoryObserver
from harness.stores.directory.run_directory import (
    LOG,
    RANKINGS,
    WEIGHTS,
    RunDirectory,
    write_ranking,
)
from harness.stores.directory.store import StoredRun
from harness.stores.store import supersede
from harness.study.trial import Trial, claim_key
from harness.training.allocator import keep_freed_memory
from harness.training.compilation import operations_compiled
from harness.training.stages.retrain import best_found
from harness.training.trial import Watch, rank_again

if TYPE_CHECKING:
    from harness.stores.mongo.mirror import Mirror


SLOWLY = 600.0
"""Maximum seconds to mirror a done run to a slow database before its claim is released."""


ANSWERS = 3.0
"""Seconds within which a reachable database answers."""


def warm_up() -> Iterator[None]:
    """Imports that every job needs, but not at its start; the fork server runs one part at a time when idle.

    Components are not loaded here: a user's file may run a tensor operation, and the server must not.
    """
    environment.describe()
    yield
    import scipy.stats  # noqa: F401  # for τ; most of a second

    yield
    import torch._dynamo  # noqa: F401  # for the first step of torch's own optimisers, in retraining; two seconds

    yield
    import pymongo  # noqa: F401

    yield


def run_job(document: dict[str, Any], progress: Report) -> dict[str, Any]:
    """Run one job, in a process of its own; the document's keys are the fields of `Assignment`.

    Returns {"status", "run_id", "key"}. The status is "done", with "result" and "cost" ("already": done by
    another process before); "failed", with one line of "error"; "interrupted"; "elsewhere": another process
    has claimed the trial, or has changed its state; "unreachable": the database does not answer, and nothing
    was started. Raises only what `progress` raises.
    """
    reply: dict[str, Any] = {"run_id": None, "key": None}
    job = Assignment(**document)
    try:
        with terminable():
            torch.set_num_threads(job.threads)
            keep_freed_memory()
            trial = Trial.from_json(job.trial)
            reply["key"] = trial.key
            if trial.images != (now_there := fingerprint(trial.config.dataset)):
                raise DataError(
                    f"{trial.config.dataset} has the fingerprint {now_there} here, but the trial was planned with "
                    f"{trial.images}"
                )
            try:
                with operations_compiled(job.compile):
                    return reply | (_claimed_rank if job.kind == "rank" else _claimed_train)(trial, job, progress)
            except Unreachable as error:
                return reply | {"status": "unreachable", "error": one_line(error)}
    except KeyboardInterrupt as interruption:
        return reply | {"status": "elsewhere" if reason_of(interruption) == LOST else "interrupted"}
    except (Exception, SystemExit) as error:
        return reply | _failed(error, job)


def _claimed_train(trial: Trial, job: Assignment, progress: Report) -> dict[str, Any]:
    attempts = max((run.attempt for run in _runs(trial, job)), default=0)
    claim = job.claims().acquire(trial.key, at_least=attempts)
    if claim is None:
        return {"status": "elsewhere"}
    with Lease(claim, lost=lambda: interrupt_main(LOST)) as lease:
        runs = _runs(trial, job)
        state = state_of(trial, runs)
        if state == "done":
            done = next(run for run in runs if run.counts)
            return {"status": "done", "already": True, "run_id": done.id, "result": done.result, "cost": done.cost}
        if state == "rank":
            return {"status": "elsewhere"}
        ranking = _parents_ranking(trial, job)
        directory = job.directory.create(trial, job.preset, job.overrides, claim.attempt)
        mirror = job.mirror(directory)
        reply: dict[str, Any] = {}
        try:
            with _profiled(trial, directory, job):
                reply = {"run_id": directory.id} | _train(trial, directory, job, progress, lease, mirror, ranking)
            return reply
        finally:
            # Before the claim is released: its next owner must find the run in the database.
            if mirror is not None and not mirror.close() and reply.get("status") == "done":
                _mirror_slowly(directory, job)


def _profiled(trial: Trial, directory: RunDirectory, job: Assignment) -> contextlib.AbstractContextManager[None]:
    """Profile the run, if requested."""
    if not job.profile:
        return contextlib.nullcontext()
    from harness.training.profiling import PROFILES, profiled

    title = f"run {directory.id} ({trial.config.method.name}, seed {trial.config.seed}), on {job.computes_on}"
    return profiled(job.directory.path / PROFILES / directory.id, title, torch.device(job.computes_on))


def _mirror_slowly(directory: RunDirectory, job: Assignment) -> None:
    """Copy a done run to a slow but reachable database; an unreachable one gets it with the next sync."""
    import pymongo

    from harness.stores.mongo.projection import project

    until = time.monotonic() + SLOWLY
    while time.monotonic() < until:
        try:
            with pymongo.timeout(ANSWERS):
                job.database.command("ping")
        except Exception:  # unreachable, whatever the reason
            return
        with contextlib.suppress(Unreachable):
            project(directory.path, job.database, job.weights_max)
            return


def _runs(trial: Trial, job: Assignment) -> list[StoredRun]:
    return [run for run in supersede(job.reader.load({trial.key[:16]}, []), []) if run.key == trial.key]


def _parents_ranking(trial: Trial, job: Assignment) -> dict[str, Any] | None:
    """The ranking of the search that the trial starts from; None for a trial without a parent."""
    start = trial.start
    if start is None:
        return None
    if job.found is not None:
        return {"top1": job.found}
    run = job.reader.done(start.key)
    ranking = None if run is None else run.rankings.get(start.ranking_key)
    if run is None or ranking is None:
        raise DataError(f"no done search of trial {start.key[:16]} in {job.reader.name} whose best could be retrained")
    return ranking


def _to_retrain(trial: Trial, ranking: dict[str, Any]) -> Architecture:
    """The architecture that the trial retrains, of those that the stage before has found."""
    which = trial.config.retrain.which if trial.config.retrain else 0
    if (found := best_found(ranking, which)) is not None:
        return found
    if ranking.get("found"):
        raise DataError(f"the search has found {len(ranking['found'])} architectures; retrain.which is {which}")
    raise DataError("the search has found nothing to retrain: it diverged")


def _train(
    trial: Trial,
    directory: RunDirectory,
    job: Assignment,
    progress: Report,
    lease: Lease,
    mirror: Mirror | None,
    ranking: dict[str, Any] | None = None,
) -> dict[str, Any]:
    progress({"event": "start", "run_id": directory.id})
    directory.write_sources(trial)
    observer = DirectoryObserver(directory, trial.config.json(), {"key": trial.key, "preset": job.preset})
    work = Path(job.work) if job.work else job.directory.work
    device = job.computes_on
    checkpoint = Checkpoint(work, trial, every=job.checkpoint_every, threads=job.threads, device=device)
    reply: dict[str, Any] = {"status": "interrupted"}
    try:
        try:
            with output_to(directory.path / LOG) as log:
                try:
                    observers = [observer] if mirror is None else [observer, mirror]
                    found = None if ranking is None else _to_retrain(trial, ranking)
                    with asked_first(checkpoint.request_stop):
                        outcome = sacred_run(
                            trial, directory, observers, log, device, job.threads, progress, checkpoint, found
                        )
                    reply = {"status": "done", "result": outcome.result, "cost": outcome.cost}
                except KeyboardInterrupt as interruption:
                    reply = _interrupted(observer, interruption, job)
                except (Exception, SystemExit) as error:
                    reply = _failed(error, job)
                    if _is_full(error):  # not the trial's fault: the next `run` must not see it as failed
                        observer.interrupted_event(utc_now(), "INTERRUPTED")
                    traceback.print_exc()
                    if observer.status == "RUNNING":  # it failed outside of the Sacred run
                        observer.failed_event(utc_now(), traceback.format_exception(error))
        finally:
            # Ignored for a moment only: the record is completed, however the run ended.
            with contextlib.suppress(ValueError):
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            drop_drawings(directory.path / LOG)
            directory.gather_metrics()
        if reply["status"] == "done":
            lease.confirm()  # if the database is unreachable, the run counts unless another process took over
            directory.complete()
            with contextlib.suppress(OSError):  # `store clean` finds it
                checkpoint.remove()
    except ClaimLost as error:
        observer.interrupted_event(utc_now(), "INTERRUPTED")
        return {"status": "elsewhere", "error": str(error)}
    except OSError as error:  # a full disk also prevents recording it: report the first error
        return reply if reply["status"] == "failed" else _failed(error, job)
    return reply


def _interrupted(observer: DirectoryObserver, interruption: KeyboardInterrupt, job: Assignment) -> dict[str, Any]:
    """Record an interrupted run, and return its answer, depending on the reason."""
    reason = reason_of(interruption)
    if reason == TIMEOUT:
        text = f"it took longer than {job.timeout:g} s" if job.timeout else "it took too long"
        observer.failed_event(utc_now(), [f"TimeoutError: {text}\n"])
        return {"status": "failed", "error": text}
    if observer.status == "RUNNING":
        observer.interrupted_event(utc_now(), "INTERRUPTED")
    return {"status": "elsewhere" if reason == LOST else "interrupted"}


def _failed(error: BaseException, job: Assignment) -> dict[str, Any]:
    """The answer of a failed job, with the error in one line."""
    if _is_full(error):
        reason = f"no space left for the store {job.store}: free some, and use the same command to continue"
        return {"status": "failed", "error": reason}
    return {"status": "failed", "error": one_line(error)}


def _is_full(error: BaseException | None) -> bool:
    """Whether a full disk caused the error."""
    while error is not None:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            return True
        error = error.__cause__ or error.__context__
    return False


def _claimed_rank(trial: Trial, job: Assignment, progress: Report) -> dict[str, Any]:
    claim = job.claims().acquire(claim_key(trial, "rank"))
    if claim is None:
        return {"status": "elsewhere"}
    with Lease(claim, lost=lambda: interrupt_main(LOST)) as lease:
        run = job.reader.done(trial.key)
        if run is None:
            raise DataError(f"no done run of trial {trial.key[:16]} in {job.reader.name} whose weights could be ranked")
        progress({"event": "start", "run_id": run.id})
        if trial.ranking_key in run.rankings and not job.again:
            done = {"status": "done", "already": True}
            return done | {"run_id": run.id, "result": run.rankings[trial.ranking_key], "cost": {}}
        folder = _at_hand(run, job)
        reply = {"run_id": run.id} | _rank(trial, run, folder, job, progress, lease)
        if job.mongo is not None and reply["status"] == "done":
            from harness.stores.mongo.projection import project

            with contextlib.suppress(HarnessError):  # it is in the directory, and the next sync copies it
                project(folder, job.database, job.weights_max)
        return reply


def _at_hand(run: StoredRun, job: Assignment) -> Path:
    """The run's directory, with missing files fetched from the database."""
    folder = job.directory.path_of(run)
    if job.mongo is None:
        return folder
    from harness.stores.mongo.fetching import is_whole
    from harness.stores.mongo.store import MongoStore

    if not (folder.is_dir() and is_whole(folder)):
        with contextlib.suppress(UnknownName):  # only the directory has it: there is nothing to fetch
            MongoStore(job.database).fetch(run.id, job.directory.path)
    return folder


def _rank(
    trial: Trial, run: StoredRun, folder: Path, job: Assignment, progress: Report, lease: Lease
) -> dict[str, Any]:
    key, config = trial.ranking_key, trial.config.json()
    (folder / RANKINGS).mkdir(exist_ok=True)
    log = folder / RANKINGS / f"{key}.txt"
    try:
        with output_to(log):
            seed_globals(trial.config.seed)
            if run.result is not None and run.result["diverged"]:
                result, cost, found = run.rankings[next(iter(run.rankings))], {}, None
            else:
                known = job.directory.predictions(run, config["rank"])
                outcome = rank_again(
                    trial.config,
                    lambda: torch.load(io.BytesIO(job.directory.read(run, WEIGHTS)), weights_only=True),
                    known,
                    job.computes_on,
                    Watch(ranking=throttled(progress)),
                    _methods_findings(run),
                )
                result, found = outcome.result, outcome
                cost = outcome.cost | {"threads": job.threads}
            unchanged = run.rankings.get(key) == without_nan(result)
            if not unchanged:
                lease.confirm()
                write_ranking(folder, key, config, result, cost, predicted(trial, found))
    except ClaimLost as error:
        return {"status": "elsewhere", "error": str(error)}
    except (Exception, SystemExit) as error:
        with log.open("a") as file:
            traceback.print_exc(file=file)
        return _failed(error, job)
    drop_drawings(log)
    if not log.stat().st_size:
        log.unlink()
    return {"status": "done", "result": result, "cost": cost, "already": unchanged}


def _methods_findings(run: StoredRun) -> list[dict[str, Any]]:
    """What the method itself found when the run was trained: no ranking of its weights can find it again."""
    own = (run.result or {}).get("found") or []
    return [one for one in own if one["score"] is None]


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Make SIGTERM interrupt like Ctrl-C, so that the run is stored as interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, raise_interruption)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
