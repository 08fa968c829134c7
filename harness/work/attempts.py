"""One attempt at a trial, from its claim to its commit: what a worker does before and after the child.

An attempt has a folder of its own, which the child fills. Commit is the completion record: the folder is verified and
synced first, while the claim is renewed; then the claim is confirmed and the record is written at once. Every attempt
at a training leaves a run, whatever its end. Imports no torch.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.documents import shortened_trace, utc_text
from harness.errors import DataError, HarnessError, UnknownName, Unreachable, UserError
from harness.files import make_folder, sha256, write_json
from harness.owner import describe, is_suspended, lives_here, start_ticks, this_process
from harness.stores.checkpoints import checkpoint_path, remove_checkpoint
from harness.stores.claims import Claim, ClaimLost, Renewal
from harness.stores.directory.reading import Damaged, read_small, read_verified
from harness.stores.directory.run_directory import (
    COMPLETION,
    INPUTS,
    LOG,
    PREDICTIONS,
    RANKINGS,
    RESULT,
    RUN,
    TRIAL,
    WEIGHTS,
    complete_ranking,
    next_ranking,
    write_ranking,
)
from harness.stores.directory.store import PROFILES
from harness.stores.opened import Opened
from harness.stores.stored import Status, StoredRun
from harness.work.assignment import KNOWN, Assignment, Computing
from harness.work.jobs import Answered, Job, Stopping, failed
from harness.work.states import Kind, Work

if TYPE_CHECKING:
    from harness.stores.mongo.mirror import Mirror

FRESH = ".new-"
"""How the name of a folder begins that is no run; `harness store clean` removes those of dead workers."""

KILLED_WITHIN = 5.0
"""Seconds in which a killed process is gone."""

SLOWLY = 600.0
"""Maximum seconds to copy a done run to a slow database before its claim is released."""

ANSWERS = 3.0
"""Seconds within which a reachable database answers; an error that arrives sooner is a refusal, not a timeout."""

PAUSE, LONGEST_PAUSE = 5.0, 60.0
"""Seconds before the next try to copy a done run: at first, and at most. Each pause is twice as long as the last."""

REFUSALS = 2
"""After so many refusals a done run is left to `harness store sync`."""


@dataclass
class Attempts:
    """Begins the attempts of a worker."""

    place: Opened
    computing: Computing
    preset: str
    overrides: Mapping[str, Any]
    work: Path | None = None
    """The folder of checkpoints; None for `work` in the store."""
    again: bool = False
    """Whether stored rankings are computed again."""
    profile: bool = False
    """Whether the next training is profiled."""
    starts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What trials start from that is not stored in this place, by the key of the search."""
    renewal: Renewal = field(default_factory=Renewal)

    def __post_init__(self) -> None:
        self._copies: list[threading.Thread] = []
        self.hurried = threading.Event()
        """Set when copies to the database must not take long any more."""

    @property
    def checkpoints(self) -> Path:
        return (self.work or self.place.directory.work).absolute()

    def begin(self, work: Work, kind: Kind, claim: Claim, runs: Sequence[StoredRun]) -> Attempt:
        """Make the folder of an attempt, under its claim; `runs` are those of the trial.

        Raises `Unreachable`, and other errors that concern this trial only.
        """
        attempt = (Training if kind is Kind.TRAIN else Ranking)(self, work, claim)
        self.renewal.keep(claim, lambda: attempt.works)
        try:
            attempt.prepare(runs)
        except BaseException:
            attempt.discard()
            raise
        return attempt

    def copying(self, copy: threading.Thread) -> None:
        """Start a copy to the database, in the background."""
        self._copies = [one for one in self._copies if one.is_alive()] + [copy]
        copy.start()

    def close(self, stopping: Stopping) -> None:
        """Wait for the copies to the database, and stop renewing claims."""
        for copy in self._copies:
            while copy.is_alive():
                if stopping.asked:
                    self.hurried.set()
                copy.join(0.1)
        self.renewal.close()

    def assignment(self, work: Work, kind: Kind, **more: Any) -> Assignment:
        return Assignment(
            kind,
            work.trial,
            self.computing,
            self.preset,
            checkpoints=self.checkpoints,
            naming=work.naming,
            again=self.again,
            **more,
        )


class Attempt:
    """One attempt: its folder, its claim, and how it ends. `end` is called once, or `discard`."""

    kind: Kind
    folder: Path

    def __init__(self, attempts: Attempts, claim: Claim | None = None, needs: float | None = None) -> None:
        """`needs`: the GPUs that it needs, if that is known."""
        self.attempts, self.claim, self.needs = attempts, claim, needs
        self.place, self.renewal = attempts.place, attempts.renewal
        self.begun = False
        self.child: Mapping[str, Any] | None = None
        """The child as an owner (`harness.owner`), once it has started."""

    @property
    def works(self) -> bool:
        """Whether its claim deserves to be renewed: a suspended child does nothing until it is continued."""
        return self.child is None or not is_suspended(self.child)

    def job(self, number: int) -> Job:
        """The job that a child process does."""
        how = self.attempts.computing
        return Job(number, {"folder": str(self.folder)}, how.threads, how.timeout, how.device, how.ranks, self.needs)

    def prepare(self, runs: Sequence[StoredRun]) -> None:
        """Make the folder and the inputs."""
        raise NotImplementedError

    def started(self, process: int | None) -> None:
        """The child runs, as that process."""
        self.begun = True
        if process is not None:
            self.child = this_process() | {"pid": process, "started": start_ticks(process)}

    def progressed(self) -> None:
        """The child has reported progress."""

    def end(self, answer: Mapping[str, Any], say: Callable[[str], object]) -> dict[str, Any]:
        """Commit what the child has done, or record how it ended; returns the final answer.

        `say` prints a line where the user reads it.
        """
        raise NotImplementedError

    def discard(self) -> None:
        """Remove the folder of an attempt whose child never began, and release the claim."""
        if self.begun:
            self.end({"status": Answered.INTERRUPTED}, lambda line: None)
            return
        if hasattr(self, "folder"):
            remove_folder(self.folder)
        self._release()

    def _release(self, copy: Callable[[], object] | None = None) -> None:
        """Release the claim, after a copy to the database: its next owner must find the run there."""
        if (claim := self.claim) is None:
            return

        def copied() -> None:
            try:
                if copy is not None:
                    copy()
            except Exception:  # the run counts; the command reports what is not in the database
                pass
            finally:
                self.renewal.release(claim)

        if copy is None:
            copied()
        else:
            self.attempts.copying(threading.Thread(target=copied, name=f"copy of {self.folder.name}"))

    def _confirm(self) -> None:
        """Raise `ClaimLost` if another worker has the trial. Where that is unknown, the result counts here."""
        if self.claim is not None:
            with contextlib.suppress(Unreachable):
                self.claim.confirm()


class Training(Attempt):
    """An attempt that makes a run of the trial, in the folder of that run."""

    kind = Kind.TRAIN
    mirror: Mirror | None = None

    def __init__(self, attempts: Attempts, work: Work, claim: Claim) -> None:
        super().__init__(attempts, claim, work.devices)
        self.work = work

    def prepare(self, runs: Sequence[StoredRun]) -> None:
        assert self.claim is not None
        attempts, trial = self.attempts, self.work.trial
        for run in runs:
            if run.status is Status.RUNNING:  # without a claim: its worker was suspended, or cannot see this one
                end_process(run)
        start = self._start()
        self.run = self.place.directory.create(trial, attempts.preset, attempts.overrides, self.claim.attempt)
        self.folder = self.run.path
        profile = None
        if attempts.profile:
            attempts.profile = False
            profile = self.place.directory.path.absolute() / PROFILES / self.run.id
        attempts.assignment(self.work, self.kind, start=start, profile=profile).write(self.folder)

    def _start(self) -> Mapping[str, Any] | None:
        """The ranking of the search that the trial starts from; None for a trial without a parent."""
        start, reader = self.work.trial.start, self.place.reader
        if start is None:
            return None
        if start.key in self.attempts.starts:
            return self.attempts.starts[start.key]
        run = reader.done(start.key)
        ranking = None if run is None else run.rankings.get(start.ranking_key)
        if ranking is None:
            raise DataError(f"no done search of trial {start.key[:16]} in {reader.name} whose best could be retrained")
        return ranking

    def _mirroring(self) -> Mirror | None:
        """What copies the run while it is made; None without a database. Not before the child has written its name."""
        if self.mirror is None:
            self.mirror = self.place.mirror(self.run)
        return self.mirror

    def progressed(self) -> None:
        if (mirror := self._mirroring()) is not None:
            mirror.wake()

    def end(self, answer: Mapping[str, Any], say: Callable[[str], object]) -> dict[str, Any]:
        reply = dict(answer)
        try:
            if answer["status"] == Answered.DONE:
                reply = self._commit(say)
            else:
                self._record_end(answer)
        except ClaimLost as error:
            reply = {"status": Answered.ELSEWHERE, "error": str(error)}
            with contextlib.suppress(OSError):
                self._record_interruption()
        except (OSError, HarnessError) as error:
            reply = failed(error)
            with contextlib.suppress(OSError):  # else the run is lost, and continued as well
                self._record_interruption()
        mirror, done = self._mirroring(), reply["status"] == Answered.DONE

        def copy() -> None:
            if mirror is not None and not mirror.close() and done:
                copy_slowly(self.folder, self.place, self.attempts.hurried)

        self._release(copy if mirror is not None else None)
        return reply | {"run_id": self.run.id}

    def _commit(self, say: Callable[[str], object]) -> dict[str, Any]:
        """Make the run count. Raises `ClaimLost`, `DataError`, `OSError`."""
        shutil.rmtree(self.folder / INPUTS, ignore_errors=True)
        record = self.run.verified()
        document = read_small(self.folder / RESULT)
        self._confirm()
        doubt = self.run.complete(record)
        if doubt is not None:
            say(f"done, but a power cut may cost the run: {doubt}; its checkpoint stays")
        else:
            with contextlib.suppress(OSError):  # `store clean` finds it
                remove_checkpoint(checkpoint_path(self.attempts.checkpoints, self.work.trial))
        return {"status": Answered.DONE, "result": document["result"], "cost": document["cost"]}

    def _record_end(self, answer: Mapping[str, Any]) -> None:
        """Record how the child ended, unless it has done so."""
        error = str(answer.get("error") or answer["status"])
        # What fails before the run begins (no GPU, other images) is not the trial's fault: it is tried again.
        begun = (self.folder / RUN).exists() or "rank" in answer or "traceback" not in answer
        if answer["status"] == Answered.LOST:  # the run stays open: it counts as lost, since its owner is dead
            trial = read_small(self.folder / TRIAL)
            if trial["owner"] == this_process():  # the child died before it could write its own name
                self.run.write(TRIAL, trial | {"owner": trial["owner"] | {"started": None}})
            self._record({"fail_trace": shortened_trace([error])})
        elif answer["status"] == Answered.FAILED and begun:
            trace = shortened_trace((answer.get("traceback") or error).splitlines(keepends=True))
            self._record({"status": "FAILED", "stop_time": utc_text(), "fail_trace": trace})
        else:
            self._record_interruption()

    def _record_interruption(self) -> None:
        """Mark the run as interrupted, which may have ended well, but must not count."""
        self._record({"status": "INTERRUPTED", "stop_time": utc_text()}, ("RUNNING", "COMPLETED"))

    def _record(self, end: Mapping[str, Any], over: tuple[str, ...] = ("RUNNING",)) -> None:
        """Add this to the run's record. A run that is complete, or recorded its own end, stays as it is."""
        try:
            entry = read_small(self.folder / RUN)
        except Damaged:
            entry = {"status": "RUNNING"}  # killed before it wrote anything
        if entry.get("status") in over and not (self.folder / COMPLETION).exists():
            self.run.write(RUN, {**entry, **end})


class Ranking(Attempt):
    """An attempt that ranks the weights of the trial's done run again, in a folder that lasts as long as that."""

    kind = Kind.RANK

    def __init__(self, attempts: Attempts, work: Work, claim: Claim) -> None:
        super().__init__(attempts, claim, work.devices)
        self.work = work

    def prepare(self, runs: Sequence[StoredRun]) -> None:
        trial, reader = self.work.trial, self.place.reader
        run = reader.done(trial.key)
        if run is None:
            raise DataError(f"no done run of trial {trial.key[:16]} in {reader.name} whose weights could be ranked")
        self.run = run
        target = _local(run, self.place)
        self.folder = fresh_folder(self.place.directory.path)
        self.attempts.assignment(self.work, self.kind, run=run.id).write(self.folder)
        store, config = self.place.directory, trial.config.json()
        known = {
            "stored": run.rankings.get(trial.ranking_key),
            "diverged": run.rankings[next(iter(run.rankings))] if (run.result or {}).get("diverged") else None,
            # What the method itself found when the run was trained: no ranking of its weights can find it again.
            "found": [one for one in (run.result or {}).get("found") or [] if one["score"] is None],
            "accuracies": {str(number): one for number, one in store.predictions(run, config["rank"]).items()},
            "losses": {str(number): one for number, one in store.losses(run, config["rank"]).items()},
            "weights": _link_weights(target, self.folder / INPUTS / WEIGHTS),
        }
        write_json(self.folder / INPUTS / KNOWN, known)

    def end(self, answer: Mapping[str, Any], say: Callable[[str], object]) -> dict[str, Any]:
        assert self.claim is not None
        reply = dict(answer)
        target = self.place.directory.path_of(self.run)
        try:
            log = f"{next_ranking(target, self.work.trial.ranking_key)}.txt"
            if answer["status"] == Answered.DONE:
                reply = self._commit(target, say)
            with contextlib.suppress(OSError):  # an empty log says nothing
                if (self.folder / LOG).stat().st_size:
                    make_folder(target / RANKINGS)
                    shutil.copyfile(self.folder / LOG, target / RANKINGS / log)
        except ClaimLost as error:
            reply = {"status": Answered.ELSEWHERE, "error": str(error)}
        except (OSError, HarnessError) as error:
            reply = failed(error)
        remove_folder(self.folder)
        if reply["status"] == Answered.DONE and self.place.has_database:
            self._release(lambda: copy_slowly(target, self.place, self.attempts.hurried))
        else:
            self._release()
        return reply | {"run_id": self.run.id}

    def _commit(self, target: Path, say: Callable[[str], object]) -> dict[str, Any]:
        """Add the ranking to its run, unless that has the same. Raises `ClaimLost`, `DataError`, `OSError`."""
        trial = self.work.trial
        key, config = trial.ranking_key, trial.config.json()
        document = read_small(self.folder / RESULT)
        result, cost = document["result"], document["cost"]
        unchanged = self.run.rankings.get(key) == result
        if not unchanged:
            self._confirm()
            doubt = None
            if (self.folder / PREDICTIONS).exists():
                doubt = write_ranking(target, key, config, result, cost, read_small(self.folder / PREDICTIONS))
            else:
                complete_ranking(target, key, config, result)
            if doubt is not None:
                say(f"done, but a power cut may cost the ranking: {doubt}")
                return {"status": Answered.DONE, "result": result, "cost": cost, "already": False}
        with contextlib.suppress(OSError):  # `store clean` finds it
            remove_checkpoint(checkpoint_path(self.attempts.checkpoints, trial, self.run.id))
        return {"status": Answered.DONE, "result": result, "cost": cost, "already": unchanged}


def fresh_folder(store: Path) -> Path:
    """A new folder in the store that is no run. Raises `UserError`."""
    try:
        make_folder(store)
        return Path(tempfile.mkdtemp(prefix=FRESH, dir=store)).absolute()
    except OSError as error:
        raise UserError(f"cannot write to the store {store}: {error.strerror or error}") from error


def end_process(run: StoredRun) -> None:
    """Kill the process that makes a run, and what it has started, if it is on this machine; wait for its end."""
    if not lives_here(run.owner) or run.owner.get("pid") == os.getpid():
        return
    pid = int(run.owner["pid"])
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + KILLED_WITHIN
    while lives_here(run.owner):
        if time.monotonic() > until:
            raise UserError(f"run {run.id} is not claimed, but its {describe(run.owner)} cannot be ended; end it first")
        time.sleep(0.01)


def copy_slowly(run: Path, place: Opened, hurried: threading.Event) -> None:
    """Copy a done run, or what was added to it, to a slow database. One that is unreachable, or refuses twice, gets it
    with the next sync.

    Raises `UserError` and `DataError` when the database does not accept the run.
    """
    import pymongo

    from harness.stores.mongo.projection import project

    until, pause, refusals = time.monotonic() + SLOWLY, PAUSE, 0
    while not hurried.is_set():
        try:
            with pymongo.timeout(ANSWERS):
                place.database.command("ping")
        except Exception:  # unreachable, whatever the reason
            return
        began = time.monotonic()
        try:
            project(run, place.database, place.weights_max)
            return
        except Unreachable:
            refusals += time.monotonic() - began < ANSWERS
        if refusals >= REFUSALS or time.monotonic() + pause > until:
            return
        hurried.wait(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def _local(run: StoredRun, place: Opened) -> Path:
    """The run's directory, with missing files fetched from the database."""
    folder = place.directory.path_of(run)
    if not place.has_database:
        return folder
    from harness.stores.mongo.fetching import is_whole

    if not (folder.is_dir() and is_whole(folder)):
        with contextlib.suppress(UnknownName):  # only the directory has it: there is nothing to fetch
            place.mirrored.fetch(run.id, place.directory.path)
    return folder


def _link_weights(run: Path, link: Path) -> str | None:
    """Give the run's weights another name, or copy them. Returns why there are none that could be used."""
    try:
        expected = read_small(run / COMPLETION)["files"].get(WEIGHTS)
        if not (run / WEIGHTS).exists() or sha256(run / WEIGHTS) != expected:
            read_verified(run, WEIGHTS)  # says what is wrong
    except DataError as error:
        return str(error)
    try:
        os.link(run / WEIGHTS, link)
    except OSError:  # not on this file system
        shutil.copyfile(run / WEIGHTS, link)
    return None


def remove_folder(folder: Path) -> None:
    """Remove a folder: as a whole, so that nobody sees a part of it."""
    with contextlib.suppress(OSError):
        if not folder.name.startswith(FRESH):
            folder = folder.rename(folder.with_name(f"{FRESH}{folder.name}"))
    shutil.rmtree(folder, ignore_errors=True)
