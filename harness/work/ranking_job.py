"""The job that ranks: weights of a done run, ranked as a trial asks now. Imported in training processes only."""

from __future__ import annotations

import contextlib
import io
import os
import traceback
from pathlib import Path
from typing import Any

import torch

from harness.components.benchmark import benchmark_for
from harness.documents import without_nan
from harness.errors import DataError, HarnessError, UnknownName
from harness.files import make_folder
from harness.interruption import asked_first
from harness.stores.checkpoints import Checkpoint
from harness.stores.claims import ClaimLost, Lease
from harness.stores.directory.log import drop_drawings, output_to
from harness.stores.directory.run_directory import (
    RANKINGS,
    WEIGHTS,
    complete_ranking,
    next_ranking,
    write_ranking,
)
from harness.stores.opened import Opened
from harness.stores.stored import StoredRun
from harness.study.judging import Prediction, completed, lacks
from harness.training.trial import Outcome, Watch, rank_again
from harness.work.experiment import computed_with, predicted, searching, throttled
from harness.work.jobs import Answered
from harness.work.states import Kind, claim_key
from harness.work.task import Task, check_images, failed


def rank(task: Task) -> dict[str, Any]:
    """Add the ranking that the trial asks for to its done run, under the ranking's claim; return the answer."""
    trial, opened = task.trial, task.opened
    claim = opened.claims.acquire(claim_key(trial, Kind.RANK))
    if claim is None:
        return {"status": Answered.ELSEWHERE}
    with task.holding(claim) as lease:
        run = opened.reader.done(trial.key)
        if run is None:
            place = opened.reader.name
            raise DataError(f"no done run of trial {trial.key[:16]} in {place} whose weights could be ranked")
        task.progress({"event": "start", "run_id": run.id})
        if not lacks(trial.config, run.rankings.get(trial.ranking_key)) and not task.assignment.again:
            done = {"status": Answered.DONE, "already": True}
            return done | {"run_id": run.id, "result": run.rankings[trial.ranking_key], "cost": {}}
        folder = _at_hand(run, opened)
        reply = {"run_id": run.id} | (_add_panel(task, run, folder, lease) or _rank(task, run, folder, lease))
        if opened.has_database and reply["status"] == Answered.DONE:
            from harness.stores.mongo.projection import project

            with contextlib.suppress(HarnessError):  # it is in the directory, and the next sync copies it
                project(folder, opened.database, opened.weights_max)
        return reply


def _at_hand(run: StoredRun, opened: Opened) -> Path:
    """The run's directory, with missing files fetched from the database."""
    folder = opened.directory.path_of(run)
    if not opened.has_database:
        return folder
    from harness.stores.mongo.fetching import is_whole

    if not (folder.is_dir() and is_whole(folder)):
        with contextlib.suppress(UnknownName):  # only the directory has it: there is nothing to fetch
            opened.mirrored.fetch(run.id, opened.directory.path)
    return folder


def _add_panel(task: Task, run: StoredRun, folder: Path, lease: Lease) -> dict[str, Any] | None:
    """Add the panel to a ranking that an older version stored without; None if there is more to do."""
    trial, config = task.trial, task.trial.config
    stored = run.rankings.get(trial.ranking_key)
    if stored is None or config.benchmark is None or task.assignment.again:
        return None
    known = _known(task, run)
    result = completed(config, stored, known, benchmark_for(config.benchmark, config.space))
    if result is None:
        return None
    try:
        lease.confirm()
    except ClaimLost as error:
        return {"status": Answered.ELSEWHERE, "error": str(error)}
    complete_ranking(folder, trial.ranking_key, config.json(), result)
    return {"status": Answered.DONE, "result": result, "cost": {}, "already": False}


def _rank(task: Task, run: StoredRun, folder: Path, lease: Lease) -> dict[str, Any]:
    check_images(task.trial)
    trial = task.trial
    key, config = trial.ranking_key, trial.config.json()
    make_folder(folder / RANKINGS)
    log = folder / RANKINGS / f"{next_ranking(folder, key)}.txt"
    checkpoint = task.checkpoint(of=_of(run))
    reply: dict[str, Any] | None = None
    try:
        with output_to(log), asked_first(checkpoint.request_stop):
            if run.result is not None and run.result["diverged"]:
                result, cost, found = run.rankings[next(iter(run.rankings))], {}, None
            else:
                watch = Watch(ranking=throttled(task.progress), searching=searching(task.progress))
                outcome = _computed(task, run, watch, checkpoint)
                result, found = outcome.result, outcome
                cost = outcome.cost | computed_with(task)
            unchanged, doubt = run.rankings.get(key) == without_nan(result), None
            if not unchanged:
                lease.confirm()
                doubt = write_ranking(folder, key, config, result, cost, predicted(trial, found))
            reply = {"status": Answered.DONE, "result": result, "cost": cost, "already": unchanged}
            if doubt is not None:
                task.note(f"done, but a power cut may cost the ranking: {doubt}")
                return reply
            with contextlib.suppress(OSError):  # `store clean` finds it
                checkpoint.remove()
    except ClaimLost as error:
        return {"status": Answered.ELSEWHERE, "error": str(error)}
    except (Exception, SystemExit) as error:
        if reply is None:
            with contextlib.suppress(OSError), log.open("a") as file:
                traceback.print_exc(file=file)
            return failed(error)
    with contextlib.suppress(OSError):  # the ranking is stored
        drop_drawings(log)
        if not log.stat().st_size:
            log.unlink()
    return reply


def follow_ranking(task: Task) -> dict[str, Any]:
    """Take part in a ranking that the first process of the group makes, and write nothing."""
    run = task.opened.reader.done(task.trial.key)
    if run is None:
        raise DataError(f"no done run of trial {task.trial.key[:16]} whose weights could be ranked")
    with output_to(Path(os.devnull)):  # the first process prints the same
        _computed(task, run, None, task.checkpoint(of=_of(run)))
    return {"status": Answered.DONE}


def _computed(task: Task, run: StoredRun, watch: Watch | None, checkpoint: Checkpoint) -> Outcome:
    """Compute the ranking with the other processes of the group. When all have come, the run's files are at hand."""
    config, directory = task.trial.config, task.opened.directory
    with task.group.computing(config, task.device) as ranks:
        return rank_again(
            config,
            lambda: torch.load(io.BytesIO(directory.read(run, WEIGHTS)), weights_only=True),
            _known(task, run),
            task.device,
            watch,
            _methods_findings(run),
            checkpoint,
            ranks,
        )


def _known(task: Task, run: StoredRun) -> dict[int, Prediction]:
    """The stored predictions of the run's weights on the images that the trial ranks on, by architecture number."""
    store, rank = task.opened.directory, task.trial.config.json()["rank"]
    losses = store.losses(run, rank)
    return {number: Prediction(value, losses.get(number)) for number, value in store.predictions(run, rank).items()}


def _of(run: StoredRun) -> str:
    """What a checkpoint of a ranking and its search is of: the scores so far, with the weights of this run."""
    return f"ranking of {run.id}"


def _methods_findings(run: StoredRun) -> list[dict[str, Any]]:
    """What the method itself found when the run was trained: no ranking of its weights can find it again."""
    own = (run.result or {}).get("found") or []
    return [one for one in own if one["score"] is None]
