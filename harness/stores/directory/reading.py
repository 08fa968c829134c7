"""Reads and verifies one run directory: small files by their checksum, large ones by their size."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from harness.components.code import UNNAMED_PART, recorded_code, text_digest
from harness.documents import canonical, parsed, problem, sealed, shortened_trace
from harness.errors import DataError, is_machines_fault
from harness.files import read_regular, sha256
from harness.schema import (
    ASKED,
    AbsentDocument,
    CompletionDocument,
    CurvesDocument,
    InvalidDocument,
    Naming,
    PredictionsDocument,
    RankingDocument,
    ResultDocument,
    RunDocument,
    TrialDocument,
)
from harness.stores.directory.run_directory import (
    ABSENT,
    COMPLETION,
    INFO,
    INVALID,
    LOG,
    METRICS,
    PREDICTIONS,
    RANKINGS,
    RESULT,
    RUN,
    SOURCES,
    TRIAL,
    WEIGHTS,
    is_ranking,
    ranking_version,
)
from harness.stores.stored import OPEN, Problem, Status, without_curves

SMALL = 1 << 20
"""Bytes up to which a file's checksum is verified on every read. Weights are verified when they are used."""


class Damaged(DataError):
    """A file of a run directory is not what it should be."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"

    @property
    def problem(self) -> Problem:
        return Problem(str(self.path), self.reason, unreadable=is_machines_fault(self))


ENDED = {"FAILED": Status.FAILED.value, "INTERRUPTED": Status.INTERRUPTED.value}
"""How a run ended, by Sacred's word for it."""


def summarise(path: Path, problems: list[Problem]) -> dict[str, Any]:
    """The summary of the run in that directory; rankings that cannot be used become `problems`.

    "recorded" is how the run ended (a `Status`), or `OPEN` if it has not: then its owner and
    last heartbeat show whether it is alive. Raises `Damaged`.
    """
    try:
        return _summarise(path, problems)
    except Damaged:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Damaged(path, f"not a valid run directory ({type(error).__name__}: {error})") from error
    except OSError as error:
        raise Damaged(path, f"cannot be read: {error.strerror or error}") from error


def _summarise(path: Path, problems: list[Problem]) -> dict[str, Any]:
    trial = read_small(path / TRIAL, TrialDocument)
    if (wrong := wrong_trial(trial, path.name)) is not None:
        raise Damaged(path / TRIAL, wrong)
    complete = _is_there(path / COMPLETION)  # checked first: a run that completes meanwhile is read as running
    run = read_small(path / RUN, RunDocument) if _is_there(path / RUN) else {}
    result: Mapping[str, Any] | None = None
    further: dict[str, dict[str, Any]] = {}
    if complete:
        verify(path, problems)
        result = read_small(path / RESULT, ResultDocument)
        further = read_rankings(path, problems)
    invalid = read_small(path / INVALID, InvalidDocument)["reason"] if _is_there(path / INVALID) else None
    info = read_small(path / INFO) if _is_there(path / INFO) else {}
    return summary_of(trial, run, result, further, invalid, info, partial(_sources, path))


def _sources(path: Path) -> Iterator[bytes]:
    """The run's copies of its source files, as far as they can be read: no result depends on them."""
    for file in sorted((path / SOURCES).glob("*")):
        with suppress(OSError):
            yield read_regular(file)


def _is_there(path: Path) -> bool:
    """Whether there is anything of that name. Raises `OSError` if that is unknown."""
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    return True


def wrong_trial(trial: Mapping[str, Any], run_id: str) -> str | None:
    """Why a `TrialDocument` cannot be the one of the run with that id; None if it can."""
    key, attempt = trial["key"], run_id.split("-")[1:2]
    if trial["run_id"] != run_id or key[:16] != run_id[:16] or [str(trial["attempt"])] != attempt:
        return f"is about run {trial['run_id']}, attempt {trial['attempt']}, not about {run_id}"
    if hashlib.sha256(canonical(trial["identity"]).encode()).hexdigest() != key:
        return "has another identity than its key says"
    return None


def summary_of(
    trial: Mapping[str, Any],
    run: Mapping[str, Any],
    document: Mapping[str, Any] | None,
    further: Mapping[str, Mapping[str, Any]],
    invalid: str | None,
    info: Mapping[str, Any],
    sources: Callable[[], Iterable[bytes]],
) -> dict[str, Any]:
    """The summary of a run: of its `TrialDocument`, its `RunDocument`, its `ResultDocument` if it is complete, its
    further rankings by key, the reason why it must not be counted, and what Sacred keeps in `info.json`,
    and the copies of its source files.
    """
    code = _own_code(trial, sources)
    rankings: dict[str, Any] = {}
    if document is not None and "ranking" in trial:  # otherwise the ground truth that it was judged by is unknown
        rankings[trial["ranking"]] = without_curves(document["result"])
    rankings |= {key: ranking["result"] for key, ranking in further.items()}
    # Open also with Sacred's COMPLETED: only the completion record makes a run done.
    unfinished = ENDED.get(run.get("status", ""), OPEN)
    return {
        "id": trial["run_id"],
        "key": trial["key"],
        "attempt": trial["attempt"],
        "cell": trial["cell"],
        "preset": trial["preset"],
        "overrides": trial["overrides"],
        "recorded": unfinished if document is None else Status.DONE.value,
        "owner": trial["owner"],
        "heartbeat": run.get("heartbeat"),
        "result": document and document["result"],
        "cost": document and document["cost"],
        "ranking": trial.get("ranking"),
        "rankings": rankings,
        "asked": {key: ranking["ranking"] for key, ranking in further.items() if "ranking" in ranking},
        "recomputed": [key for key, ranking in further.items() if ranking.get("recomputed")],
        "start_time": run.get("start_time"),
        "stop_time": run.get("stop_time"),
        "commit": _commit(run),
        "rows": _rows(info),
        # Older versions recorded any length.
        "fail_trace": run.get("fail_trace") and shortened_trace(run["fail_trace"]),
        "invalid": invalid,
        **({"code": code} if code else {}),
    }


def _rows(info: Mapping[str, Any]) -> dict[str, str]:
    """The rows that asked for a run, by study; none where that is not recorded."""
    asked: Any = info.get(ASKED)
    return dict(asked["rows"]) if problem(Naming, asked) is None else {}


def _commit(run: Mapping[str, Any]) -> str | None:
    """The commit of the harness that made a run, as `git describe --always --dirty` marks it."""
    for repository in (run.get("experiment") or {}).get("repositories") or ():
        if isinstance(commit := repository.get("commit"), str):
            return f"{commit}-dirty" if repository.get("dirty") else commit
    return None


def _own_code(trial: Mapping[str, Any], sources: Callable[[], Iterable[bytes]]) -> dict[str, list[str]]:
    """By part of the trial, the version and the code of the user's own components, as `recorded_code` gives them.

    Earlier versions of the harness did not record the code of rankings and searches: it is that of one of the copies.
    """
    if "code" in trial:
        return recorded_code(trial["code"], ())
    versions = trial["identity"].get("versions", {})
    own = {part: one for part, one in versions.items() if isinstance(one, str) and part != "images"}
    config = trial["cell"]["config"]
    if not own and not config["rank"].get("metrics") and not config.get("search"):
        return {}
    texts = list(sources())
    known = recorded_code(own, texts)
    if config["rank"].get("metrics") or config.get("search"):
        others = {text_digest(text) for text in texts} - set(own.values())
        known |= recorded_code({f"{UNNAMED_PART} {one}": one for one in sorted(others)}, texts)
    return known


def read_verified(path: Path, name: str) -> bytes:
    """A file of a run directory, verified by the checksum in the completion record. Raises `Damaged`."""
    file = path / name
    try:
        content = read_regular(file)
    except FileNotFoundError as error:
        left_out = (path / ABSENT).exists() and name == WEIGHTS
        raise Damaged(file, "was left out when the run was copied here" if left_out else "is missing") from error
    except OSError as error:
        raise Damaged(file, str(error)) from error
    if (path / COMPLETION).exists():
        expected = read_small(path / COMPLETION, CompletionDocument)["files"].get(name)
        if expected not in (None, hashlib.sha256(content).hexdigest()):
            raise Damaged(file, "has another checksum than the completion record says")
    return content


def verify(path: Path, problems: list[Problem]) -> None:
    """Compare a directory with its completion record. Raises `Damaged`.

    A damaged log, or copy of a source file, is one of the `problems`: no result depends on it.
    """
    record = read_small(path / COMPLETION, CompletionDocument)
    if (wrong := not_listed(record["files"])) is not None:
        raise Damaged(path / COMPLETION, wrong)
    for name in record["sizes"]:
        if (wrong := _wrong_file(path, name, record)) is None:
            continue
        if not is_beside(name):
            raise Damaged(path / name, wrong)
        problems.append(Problem(str(path / name), f"{wrong}; no result depends on it", harmless=True))
    metrics = {name: len(columns["values"]) for name, columns in read_small(path / METRICS, CurvesDocument).items()}
    if metrics != record["metrics"]:
        raise Damaged(path / METRICS, f"has {metrics} points instead of {record['metrics']}")


def _wrong_file(path: Path, name: str, record: Mapping[str, Any]) -> str | None:
    """What is wrong with a file of the completion record; None if nothing is."""
    file, size = path / name, record["sizes"][name]
    try:
        actual = file.stat().st_size
    except FileNotFoundError:
        return None if name in absent_files(path, record) else "is missing"
    if actual != size:
        return f"has {actual} bytes instead of {size}"
    if name != WEIGHTS and size <= SMALL and sha256(file) != record["files"][name]:
        return "has another checksum than the completion record says"
    return None


def is_beside(name: str) -> bool:
    """Whether no result depends on the file of that name: the log, and copies of source files."""
    return name == LOG or name.startswith(f"{SOURCES}/")


def is_damaged_beside(path: Path, name: str, files: Mapping[str, str]) -> bool:
    """Whether that file `is_beside` the results, and not the one among the `files` of the run's completion record."""
    if not is_beside(name) or name not in files:
        return False
    try:
        return sha256(path / name) != files[name]
    except FileNotFoundError:
        return True


def not_listed(files: Mapping[str, str]) -> str | None:
    """What the files of a completion record lack, for the reader; None if nothing."""
    missing = (name for name in (TRIAL, RUN, METRICS, RESULT, PREDICTIONS) if name not in files)
    return next((f"does not list {name}" for name in missing), None)


def absent_files(path: Path, record: Mapping[str, Any]) -> set[str]:
    """The files of the completion record that were left out on purpose: only weights can be."""
    if not (path / ABSENT).exists():
        return set()
    declared = read_small(path / ABSENT, AbsentDocument)["files"]
    return {WEIGHTS} if declared.get(WEIGHTS, "") == record["files"].get(WEIGHTS) else set()


def read_rankings(path: Path, problems: list[Problem]) -> dict[str, dict[str, Any]]:
    """The documents of a run's further rankings by key; includes the run's own ranking if it was made again."""
    found = {}
    there = (file for file in (path / RANKINGS).glob("*.json") if is_ranking(f"{RANKINGS}/{file.name}"))
    for file in sorted(there, key=lambda file: ranking_version(file.name)):  # the highest number of a key comes last
        if file.name.startswith("."):
            continue
        try:
            document = read_small(file, RankingDocument)
            if "checksum" in document and document != sealed(document):
                raise Damaged(file, "is not what was written: its checksum differs")
            for name, checksum in document["files"].items():
                if _checksum(file.with_name(name)) != checksum:
                    raise Damaged(file.with_name(name), "has another checksum than its ranking says")
            found[ranking_version(file.name)[0]] = document
        except Damaged as error:
            problems.append(error.problem)
        except (KeyError, TypeError, AttributeError) as error:
            problems.append(Problem(str(file), f"not a ranking as it should be ({type(error).__name__}: {error})"))
    return found


def read_small(path: Path, kind: Any = None) -> dict[str, Any]:
    """Read a JSON object, of that type of `harness.schema` if one is given.

    Raises `Damaged` if it is missing, incomplete, of a newer schema, or not of the type. Unknown keys are kept.
    """
    try:
        return parsed(read_regular(path), kind)
    except FileNotFoundError:
        raise Damaged(path, "is missing") from None
    except OSError as error:
        raise Damaged(path, f"cannot be read: {error.strerror or error}") from error
    except DataError as error:
        raise Damaged(path, str(error)) from error


def check_predictions(path: Path) -> None:
    """Raise `Damaged` unless the file holds predictions. Readers of runs do not need them, and so do not read them."""
    read_small(path, PredictionsDocument)


def _checksum(path: Path) -> str:
    try:
        return hashlib.sha256(read_regular(path)).hexdigest()
    except OSError as error:
        raise Damaged(path, f"cannot be read: {error.strerror or error}") from error
